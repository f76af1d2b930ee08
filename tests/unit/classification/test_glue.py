"""GLUE's files: tasks, directories, columns and malformed rows."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from albert_tf.classification.data import GlueData
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.glue import GLUE_TASKS


def write(folder: Path, name: str, lines: Sequence[str]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


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


@pytest.mark.parametrize(
    ("task", "split", "written", "data_dir", "expected"),
    [
        # The directory is the root, or the directory of the task in any spelling or of any name.
        ("SST-2", DEV, "SST-2/dev.tsv", "{}", "{}/SST-2/dev.tsv"),
        ("SST-2", DEV, "sst-2/dev.tsv", "{}/", "{}/sst-2/dev.tsv"),
        ("SST-2", DEV, "SST2/dev.tsv", "{}/SST2", "{}/SST2/dev.tsv"),
        ("sst-2", TRAIN, "mine/train.tsv", "{}/mine", "{}/mine/train.tsv"),
        ("sst-2", DEV, "sst-2/dev.tsv", "file://{}", "file://{}/sst-2/dev.tsv"),
        ("sst-2", DEV, "sst-2/dev.tsv", "file://{}/sst-2", "file://{}/sst-2/dev.tsv"),
        # The diagnostic set has several possible paths.
        ("ax", TEST, "diagnostic/diagnostic.tsv", "{}", "{}/diagnostic/diagnostic.tsv"),
        ("ax", TEST, "AX/diagnostic.tsv", "{}", "{}/AX/diagnostic.tsv"),
        ("ax", TEST, "AX/test.tsv", "{}", "{}/AX/test.tsv"),
        ("ax", TEST, "AX/AX.tsv", "{}", "{}/AX/AX.tsv"),
        # Missing files. RTE and WNLI have the same columns, so the files alone do not differ.
        ("sst-2", TEST, "mine/train.tsv", "{}/mine", "!{}/mine/test.tsv"),
        ("rte", TRAIN, "WNLI/train.tsv", "{}/WNLI", "!{}/WNLI/RTE/train.tsv"),
        ("mismnli", DEV, "MNLI/dev.tsv", "{}", "!{}/MNLI/dev_mismatched.tsv"),
    ],
)
def test_files_are_found(task, split, written, data_dir, expected, tmp_path):
    write(tmp_path, written, ["index\tsentence\tsentence1\tsentence2\tlabel", "7\ta\tb\tc\t1"])
    data = GlueData(task, data_dir.format(tmp_path))
    assert data.file(split) == expected.lstrip("!").format(tmp_path)
    if expected[0] == "!":
        with pytest.raises(ValueError, match=f"no file .*`task_name`={task}"):
            data.read(split)
        return
    (example,) = data.read(split)
    assert example.text_a == ("b" if task == "ax" else "a")


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
