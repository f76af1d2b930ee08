"""GLUE's files: tasks, directories, columns and malformed rows."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from albert_tf.classification.data import GlueData
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.finetuning.texts import TextExample
from albert_tf.glue import GLUE_TASKS

RTE_HEADER = "index\tsentence1\tsentence2\tlabel"


def write(folder: Path, name: str, lines: Sequence[str]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def read(folder: Path, task: str, split: str, name: str, lines: Sequence[str]) -> list[TextExample]:
    write(folder, name, lines)
    return GlueData(task, str(folder)).read(split)


def warnings(caplog) -> list[str]:
    """Warnings without path, each up to its lines."""
    texts = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    return [text.split(".tsv: ")[1].split(")")[0] for text in texts]


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
    write(tmp_path, "WNLI/train.tsv", [RTE_HEADER, "0\ta\tb\t1"])
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


def test_malformed_rows_are_skipped_and_counted(tmp_path, caplog):
    lines = [
        f"\ufeff{RTE_HEADER}\r",
        'a0\t"a\u2028b\x85\tc"\tentailment\r',
        "a1\ttoo\tfew",
        "",
        "a2\tone\ttab\ttoo many\tentailment",
        "a3\td\te\tnot_entailment \t\t",
        RTE_HEADER + "\r",
        "a4\t\tg\tnot_entailment",
        "a5\th\t \tnot_entailment",
        "a6\ti\tj\t-",
        "a7\tk\tl\t",
        "a8\tm\tn\tentailment",
    ]
    assert read(tmp_path, "rte", TRAIN, "RTE/train.tsv", lines) == [
        TextExample("a0", '"a\u2028b\x85', 'c"', "entailment"),
        TextExample("a3", "d", "e", "not_entailment"),
        TextExample("a4", "", "g", "not_entailment"),
        TextExample("a5", "h", " ", "not_entailment"),
        TextExample("a8", "m", "n", "entailment"),
    ]
    assert sorted(warnings(caplog)) == [
        "rows=1 with nothing in them, skipped (line 4",
        "rows=2 with an empty text, kept (lines 8, 9",
        "rows=2 with no label, skipped (lines 10, 11",
        "rows=3 with malformed values, skipped (lines 3, 5, 7",
    ]


def test_skipped_rows_are_numbered(tmp_path):
    lines = ["x\t1\t\tone", "", "x\t0", "x\t0\t*\tfour"]
    examples = read(tmp_path, "cola", DEV, "CoLA/dev.tsv", lines)
    assert [(e.guid, e.text_a) for e in examples] == [("dev-0", "one"), ("dev-3", "four")]


def test_no_test_row_is_skipped(tmp_path, caplog):
    header = "index\tsentence1\tsentence2"
    lines = [header, "0\ta\tb", "1\tc", "2\td\te\tf", "3\t\t", header]
    assert read(tmp_path, "wnli", TEST, "WNLI/test.tsv", lines) == [
        TextExample("0", "a", "b"),
        TextExample("1", "c", ""),
        TextExample("2", "d", "e"),
        TextExample("3", "", ""),
        TextExample("index", "sentence1", "sentence2"),
    ]
    assert "rows=3 with malformed values, kept (lines 3, 4, 6" in warnings(caplog)


def test_long_rows_of_qqp_are_read_as_in_the_original(tmp_path, caplog):
    lines = [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "0\t1\t2\ta\tb\t1",
        "1\t3\t4\tc\td\t0\tmore",
        "2\t5\t6\te\ttab\tf\t1",
        "3\t7\t8\tg",
        "4\t9\t10\th\ti\t1\tmore\tmore",
    ]
    assert read(tmp_path, "qqp", DEV, "QQP/dev.tsv", lines) == [
        TextExample("0", "a", "b", "1"),
        TextExample("1", "c", "d", "0"),
        TextExample("4", "h", "i", "1"),
    ]
    assert sorted(warnings(caplog)) == [
        "rows=2 with malformed values, skipped (lines 4, 5",
        "rows=2 with too many columns, extra ones ignored (lines 3, 6",
    ]


def test_columns_are_found_by_name(tmp_path):
    lines = ["label\tsentence\tIDX\tQuestion", "entailment\tb\t17\ta"]
    examples = read(tmp_path, "qnli", DEV, "QNLI/dev.tsv", lines)
    assert examples == [TextExample("17", "a", "b", "entailment")]
    lines = ["sentence\tlabel", "good\t1"]  # CoLA's own files have no header
    assert read(tmp_path, "cola", DEV, "CoLA/dev.tsv", lines) == [
        TextExample("dev-1", "good", None, "1")
    ]
    lines = ["sentence1\tsentence2\tlabel", "c\td\t-1", "e\tf\t-1"]
    examples = read(tmp_path, "rte", TEST, "RTE/test.tsv", lines)
    assert examples == [TextExample("0", "c", "d"), TextExample("1", "e", "f")]
    names = [f"c{number}" for number in range(8)]
    header = "\t".join([*names, "sentence1", "sentence2", "gold_label", "label1"])
    row = "\t".join([*names, "a", "b", "neutral", "entailment"])
    (example,) = read(tmp_path, "mnli", DEV, "MNLI/dev_matched.tsv", [header, row])
    assert example.label == "neutral"


def test_files_without_known_names_are_read_in_the_order_of_glue(tmp_path, caplog):
    expected = [TextExample("7", "a", "b", "0")]
    lines = ["nr\tfirst\tsecond\ty", "7\ta\tb\t0"]
    assert read(tmp_path, "wnli", DEV, "WNLI/dev.tsv", lines) == expected
    assert "the first row contains no column name of GLUE" in caplog.text
    caplog.clear()
    assert read(tmp_path, "wnli", DEV, "WNLI/dev.tsv", lines[1:]) == expected
    assert "the first row is not a header" in caplog.text


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("sentence1\tlabel", "no column named 'sentence2' or .*. Its columns: 's"),
        ("index\tsentence1\tsentence2", "no column named 'gold_label' or 'label' or"),
        ("sentence1\tsentence1\tsentence2\tlabel", "2 columns named 'sentence1'"),
        ("a\tb\tc\td\te", "no column named 'sentence1' or .*'a', 'b', 'c', 'd', 'e'"),
        ("sentence1\tsentence2\tlabel", "too many columns: 4 instead of 3.*: 1 of 1"),
        (f"{RTE_HEADER}\n1\tc\td\te\t0\n2\tf\tg\th\t0", "line 2 .*: 2 of 3. At most 50%"),
    ],
)
def test_invalid_headers_and_mostly_malformed_rows_are_rejected(header, message, tmp_path):
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, "wnli", TRAIN, "WNLI/train.tsv", [header, "0\ta\tb\t1"])
    assert "WNLI/train.tsv" in str(error.value)


@pytest.mark.parametrize("score", ["nan", "-inf", "1e999", "good", "3,5"])
def test_scores_must_be_finite_numbers(score, tmp_path):
    lines = ["index\tsentence1\tsentence2\tscore", "0\ta\tb\t2.50", f"1\tc\td\t{score}"]
    with pytest.raises(ValueError, match=f"line 3 .* unknown label '{score}'. Allowed: a finite"):
        read(tmp_path, "sts-b", DEV, "STS-B/dev.tsv", lines)
    (example,) = read(tmp_path, "sts-b", DEV, "STS-B/dev.tsv", lines[:2])
    assert example.label == "2.50"
