"""GLUE's files: tasks, directories, columns and malformed rows."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from albert_tf.classification.data import GlueData
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.finetuning.texts import TextExample
from albert_tf.glue import GLUE_TASKS


def write(folder: Path, name: str, lines: Sequence[str]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def read(folder: Path, task: str, split: str, name: str, lines: Sequence[str]) -> list[TextExample]:
    write(folder, name, lines)
    return GlueData(task, str(folder)).read(split)


def test_task_names_are_accepted_in_any_form():
    names = {
        "CoLA": "cola",
        "SST2": "sst-2",
        "sts_b": "sts-b",
        "stsb": "sts-b",
        "MisMNLI": "mismnli",
        "mnli-mm": "mismnli",
        "MNLI_mismatched": "mismnli",
        "mnli-m": "mnli",
        "mnli_matched": "mnli",
        "diagnostic": "ax",
    }
    assert {name: GlueData(name, "").name for name in names} == names
    with pytest.raises(ValueError, match=r"`task_name` must be one of cola, mnli, .*'snli'"):
        GlueData("snli", "")


def test_metrics_and_submission_files_of_all_tasks():
    tasks = {name: GlueData(name, "") for name in GLUE_TASKS}
    best = {name: data.best_metric for name, data in tasks.items()}
    assert best == dict.fromkeys(tasks, "eval_accuracy") | {
        "cola": "matthew_corr",
        "sts-b": "pearson",
    }
    assert {name: data.metrics for name, data in tasks.items() if data.metrics} == {
        "cola": ("matthews",),
        "mrpc": ("f1",),
        "qqp": ("f1",),
        "sts-b": ("pearson", "spearman"),
    }
    files = " ".join(str(data.submission_file).removesuffix(".tsv") for data in tasks.values())
    assert files == "CoLA MNLI-m MNLI-mm MRPC RTE SST-2 STS-B QQP QNLI WNLI AX"


@pytest.mark.parametrize("folder", ["SST-2", "sst-2", "SST2"])
def test_data_dir_is_the_root_or_the_folder_of_the_task(folder, tmp_path):
    write(tmp_path, f"{folder}/dev.tsv", ["sentence\tlabel", "good\t1", "bad\t0"])
    for data_dir in (tmp_path, f"{tmp_path}/", tmp_path / folder):
        data = GlueData("SST-2", str(data_dir))
        assert data.file(DEV) == str(tmp_path / folder / "dev.tsv")
        assert data.file(TRAIN) == str(tmp_path / folder / "train.tsv")
        assert [example.guid for example in data.read(DEV)] == ["dev-1", "dev-2"]


def test_data_dir_may_have_a_scheme_or_any_name(tmp_path):
    write(tmp_path, "sst-2/dev.tsv", ["sentence\tlabel", "good\t1"])
    write(tmp_path, "mine/train.tsv", ["sentence\tlabel", "good\t1"])
    assert GlueData("sst-2", str(tmp_path / "mine")).file(TEST) == str(tmp_path / "mine/test.tsv")
    for data_dir in (f"file://{tmp_path}", f"file://{tmp_path}/sst-2"):
        data = GlueData("sst-2", data_dir)
        assert data.file(DEV) == f"file://{tmp_path}/sst-2/dev.tsv"
        assert len(data.read(DEV)) == 1


def test_the_directory_of_another_task_is_not_used(tmp_path):
    """RTE and WNLI have the same columns, so the files alone do not differ."""
    write(tmp_path, "WNLI/train.tsv", ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\t1"])
    with pytest.raises(ValueError, match=r"no file .*WNLI/RTE/train.tsv"):
        GlueData("rte", str(tmp_path / "WNLI")).read(TRAIN)


def test_missing_files_are_rejected(tmp_path):
    (tmp_path / "MNLI").mkdir()
    with pytest.raises(ValueError, match=r"MNLI/dev_mismatched.tsv'.*`task_name`=mismnli"):
        GlueData("mismnli", str(tmp_path)).read(DEV)


@pytest.mark.parametrize(
    "name", ["diagnostic/diagnostic.tsv", "AX/diagnostic.tsv", "AX/test.tsv", "AX/AX.tsv"]
)
def test_the_diagnostic_set_has_several_possible_paths(name, tmp_path):
    lines = ["index\tsentence1\tsentence2", "0\ta b\tc"]
    assert read(tmp_path, "ax", TEST, name, lines) == [TextExample("0", "a b", "c")]


PAIRS = "index|sentence1|sentence2"
QQP = "id|qid1|qid2|question1|question2|is_duplicate"
WIDE = "|".join(map(str, "abcdefgh"))
STS = f"{PAIRS}|score\n0|a|b|2.50"


@pytest.mark.parametrize(
    ("task", "split", "content", "expected", "warnings"),
    [
        # Malformed rows are skipped and counted.
        (
            "rte",
            TRAIN,
            f"\ufeff{PAIRS}|label\r\n"
            'a0|"a\u2028b\x85|c"|entailment\r\n'
            "a1|too|few\n"
            "\n"
            "a2|one|tab|too many|entailment\n"
            "a3|d|e|not_entailment ||\n"
            f"{PAIRS}|label\r\n"
            "a4||g|not_entailment\n"
            "a5|h| |not_entailment\n"
            "a6|i|j|-\n"
            "a7|k|l|",
            'a0|"a\u2028b\x85|c"|entailment; a3|d|e|not_entailment; a4||g|not_entailment; '
            "a5|h| |not_entailment",
            [
                "rows=1 with nothing in them, skipped (line 4)",
                "rows=2 with an empty text, kept (lines 8, 9)",
                "rows=2 with no label, skipped (lines 10, 11)",
                "rows=3 with malformed values, skipped (lines 3, 5, 7). The first: line 3 ",
            ],
        ),
        # Skipped rows are numbered.
        ("cola", DEV, "x|1||one\n\nx|0\nx|0|*|four", "dev-0|one|1; dev-3|four|0", ["", ""]),
        # No row of test files is skipped.
        (
            "wnli",
            TEST,
            f"{PAIRS}\n0|a|b\n1|c\n2|d|e|f\n3||\n{PAIRS}",
            f"0|a|b; 1|c|; 2|d|e; 3||; {PAIRS}",
            [
                "rows=2 with an empty text, kept (lines 3, 5)",
                "rows=3 with malformed values, kept (lines 3, 4, 6)",
            ],
        ),
        # Long rows of QQP are read as in the original.
        (
            "qqp",
            DEV,
            f"{QQP}\n0|1|2|a|b|1\n1|3|4|c|d|0|more\n2|5|6|e|tab|f|1\n3|7|8|g\n4|9|9|h|i|1|x|y",
            "0|a|b|1; 1|c|d|0; 4|h|i|1",
            [
                "rows=2 with malformed values, skipped (lines 4, 5)",
                "rows=2 with too many columns, extra ones ignored (lines 3, 6)",
            ],
        ),
        # Columns are found by name. CoLA's own files have no header.
        ("qnli", DEV, "label|sentence|IDX|Question\nentailment|b|7|a", "7|a|b|entailment", []),
        ("cola", DEV, "sentence|label\ngood|1", "dev-1|good|1", []),
        ("rte", TEST, "sentence1|sentence2|label\nc|d|-1\ne|f|-1", "0|c|d; 1|e|f", []),
        (
            "mnli",
            DEV,
            f"{WIDE}|sentence1|sentence2|gold_label|label1\n{WIDE}|i|j|neutral|entailment",
            "dev-1|i|j|neutral",
            [],
        ),
        # Files without known names are read in the order of GLUE.
        ("wnli", DEV, "nr|one|two|y\n7|a|b|0", "7|a|b|0", ["the first row contains no column nam"]),
        ("wnli", DEV, "7|a|b|0", "7|a|b|0", ["the first row is not a header"]),
        ("wnli", TRAIN, "sentence1|label", "!no column named 'sentence2' or .*columns: 'sen", []),
        ("wnli", TRAIN, PAIRS, "!no column named 'gold_label' or 'label' or", []),
        ("wnli", TRAIN, "sentence1|sentence1|sentence2|label", "!2 columns named 'sentence1'", []),
        ("wnli", TRAIN, "a|b|c|d|e", "!no column named 'sentence1' or .*'a', 'b', 'c', 'd'", []),
        ("wnli", TRAIN, "sentence1|sentence2|label\n0|a|b|1", "!4 instead of 3.*: 1 of 1", []),
        ("wnli", TRAIN, f"{PAIRS}|label\n0|a|b|1\n|\n|", "!line 3 .*: 2 of 3. At most 50%", []),
        ("sts-b", DEV, STS, "0|a|b|2.50", []),
        *(
            ("sts-b", DEV, f"{STS}\n1|c|d|{score}", f"!line 3 .* unknown label '{score}'. Allo", [])
            for score in ("nan", "-inf", "1e999", "good", "3,5")
        ),
    ],
)
def test_files_of_glue(task, split, content, expected, warnings, tmp_path, caplog):
    data = GlueData(task, str(tmp_path))
    path = Path(data.file(split))
    write(path.parent, path.name, content.replace("|", "\t").split("\n"))
    if expected[0] == "!":
        with pytest.raises(ValueError, match=expected[1:]) as error:
            data.read(split)
        assert str(path) in str(error.value)
        return
    found = [
        "|".join(text for text in (e.guid, e.text_a, e.text_b, e.label) if text is not None)
        for e in data.read(split)
    ]
    assert "; ".join(found) == expected
    messages = sorted(message.removeprefix(f"{path}: ") for message in caplog.messages)
    assert len(messages) == len(warnings)
    assert all(found.startswith(wanted) for found, wanted in zip(messages, warnings, strict=True))
