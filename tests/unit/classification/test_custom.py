"""Custom files: columns, labels, rejected files, and logged labels."""

import json

import pytest

from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.classification.data import CustomData, GlueData, log_labels, read_prediction_file
from albert_tf.classification.run import ClassifierJob
from albert_tf.classification.settings import ClassificationSettings
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.finetuning.metrics import F1_OF_CLASSES
from albert_tf.finetuning.texts import TextExample
from albert_tf.labels import Labels
from albert_tf.settings import resolve

TRAIN_TSV = 'id\tlabel\ttext_a\n8\tgood\tI like it\n9\tbad\t"No\n7\tgood\tYes\n'
GOOD_BAD = Labels(("bad", "good"))


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_bytes(text.encode())
        return str(tmp_path / name)

    return write


def test_labels_are_read_from_the_training_file(file):
    data = CustomData(file("a.tsv", TRAIN_TSV))
    assert (data.name, data.labels, data.submission_file) == ("custom", GOOD_BAD, None)
    expected = [
        TextExample("0", "I like it", None, "good"),
        TextExample("1", '"No', None, "bad"),
        TextExample("2", "Yes", None, "good"),
    ]
    assert data.read(TRAIN) == expected
    assert data.read(TRAIN) == expected
    assert (data.best_metric, data.metrics) == ("eval_accuracy", ("f1", F1_OF_CLASSES, "matthews"))
    three = CustomData(file("b.tsv", TRAIN_TSV + "6\tneutral\tWell\n"))
    assert three.metrics == ("f1_macro", F1_OF_CLASSES, "matthews")


XY = {"labels": Labels(("x", "y"))}
ZERO = {"text_a_column": "0", "label_column": "1"}
LONG = {"text_a_column": "2", "label_column": "0"}
PAIR = "text_a\ttext_b\tlabel\nI\ta\tx\nyou\tb\ty\n"
NUMBER = {"regression": True}


@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        # Numbered columns
        ("a.tsv", "x\tx\tI\ny\ty\tyou\n", LONG, "I:x you:y"),
        ("a.jsonl", '{"0": 1, "2": "I"}\n{"0": 0, "2": "you"}\n', LONG, "I:1 you:0"),
        ("a.csv", "1,0\nI,x\nyou,y\n", ZERO, "1:0 I:x you:y"),
        ("a.csv", "0,1\nI,x\n", ZERO, "!the first row of .*a.csv is a header.*'0', '1'"),
        ("a.csv", ",0,1\n7,I,x\n", ZERO, "!the first row of .*a.csv is a header"),  # of pandas
        ("a.csv", "text,label\nI,x\n", ZERO, "!the first row of .*a.csv is a header"),
        ("a.csv", "body,kind\nI,x\n", ZERO | XY, "!the first row of .*a.csv is a header"),
        ("a.tsv", "1\t2\tI\n", {**LONG, "text_a_column": "3"}, "!no .* '3'.*: '0', '1', '2'"),
        ("a.tsv", PAIR, {"text_a_column": "1", "label_column": "x"}, "!`text_a_column`='1'"),
        # Columns of other tools
        ("a.json", '{"text": "I", "label": ["x"]}\n{"text": "s", "label": ["y"]}', {}, "I:x s:y"),
        ("a.json", '[{"sentence": "I", "labels": "x"}]', XY, "I:x"),
        ("a.json", '{"premise": "I", "hypothesis": "h", "Label": "x", "n": 1}', XY, "I+h:x"),
        ("a.csv", "Sentence1,Sentence2,label\nI,h,x\n", XY, "I+h:x"),
        ("a.csv", "Text_A,Text_B,label\nI,h,x\n", XY, "I+h:x"),
        ("a.csv", "text,Text_B,text_b,label\nI,you,they,x\n", XY, "I+they:x"),
        ("a.csv", "text,content,label\nI,you,x\n", {}, "!2 columns named 'text_a' or 'text'"),
        ("a.csv", "text,Sentence2,hypothesis,label\n", {}, "!2 .*'text_b'.*`text_b_column` sel"),
        ("a.csv", "id,x,text\n", {}, "!no column named 'label'.*'id', 'x', 'text'.*`label_column`"),
        # The second text is optional.
        ("a.tsv", PAIR, {}, "I+a:x you+b:y"),
        ("a.tsv", PAIR, {"text_b_column": ""}, "I:x you:y"),
        ("a.tsv", PAIR, {"text_a_column": "text_b"}, "a:x b:y"),
        # Missing labels
        ("a.csv", "text,label\nI,entailed\nwe,-\nyou,neutral\nit,\n", {}, "I:entailed you:neutral"),
        ("a.csv", "text,label\nI,+\nwe,-\nyou, 0\nit, \n", {}, "I:+ we:- you:0"),
        (
            "a.json",
            '{"text": 1, "label": 0.50}\n{"text": 3}\n{"text": 2, "label": 9}',
            {},
            "1:0.5 2:9",
        ),
        ("a.tsv", "text_a\tlabel\nI\tx\nyou\tx\n", {}, "!at least two .*a.tsv.*'x'"),
        ("a.tsv", "label\ttext_a\n-\tI\n\tyou\n", {}, "!No row has a label in .*a.tsv"),
        ("a.tsv", "label\ttext_a", {}, "!No row .*a.tsv"),
        # Labels of the model
        ("a.csv", "text,label\nI,y\n", XY, "I:y"),
        ("a.csv", "text,label\nI,z\n", XY, "!line 2 .*unknown label 'z'.*'x', 'y'"),
        ("a.csv", "text,label\nI,x\n", XY | NUMBER, "!`regression`"),
        ("a.csv", "text,label\nI,x\n", {"labels": Labels()}, "!`regression`"),
        ("a.json", '{"text": "I", "label": ["x", "y"]}', {}, "!label .*several .* `multi_label`"),
        # Regressions
        ("a.json", '{"text": 3, "label": 2}\n{"text": 4, "label": "-1e-1"}', NUMBER, "3:2 4:-1e-1"),
        ("a.csv", "text,label\nI,none\n" + "s,1\n" * 99, NUMBER, " ".join(["s:1"] * 99)),
        *(
            ("a.json", f'{{"text": 0, "label": {label}}}', NUMBER, "!line 1.*a.json|a.json.*line 1")
            for label in ("true", '"warm"', '"NaN"', "NaN", "Infinity")
        ),
    ],
)
def test_training_files(name, content, settings, expected, file):
    path = file(name, content)
    if expected[0] == "!":
        with pytest.raises(ValueError, match=expected[1:]):
            CustomData(path, **settings).read(TRAIN)
        return
    data = CustomData(path, **settings)
    found = [
        (e.text_a if e.text_b is None else f"{e.text_a}+{e.text_b}") + f":{e.label}"
        for e in data.read(TRAIN)
    ]
    assert " ".join(found) == expected
    assert data.labels == settings.get("labels", data.labels)


@pytest.mark.parametrize(
    ("name", "content", "settings", "texts", "warning"),
    [
        ("t.csv", 'a,b,"c\n"\n', LONG, ["c\n"], ""),
        ("t.tsv", "I\nyou\n", {"text_a_column": "0"}, ["I", "you"], ""),
        (
            "t.csv",
            "text_a\nx\n\nz\n",
            {},
            ["x", "", "z"],
            "rows=1 with an empty text, kept (line 3)",
        ),
        ("t.tsv", "label\ttext_a\nx\tI\n?\tyou\n", {}, ["I", "you"], ""),
    ],
)
def test_texts_of_a_test_file(name, content, settings, texts, warning, file, caplog):
    """All rows are kept, and their labels are ignored."""
    data = CustomData(test_file=file(name, content), **XY, **settings)
    assert data.read(TEST) == [TextExample(str(n), text) for n, text in enumerate(texts)]
    assert warning in caplog.text
    assert len(caplog.messages) == bool(warning)


@pytest.mark.parametrize("split", [TRAIN, TEST])
@pytest.mark.parametrize(
    ("name", "bad", "problem"),
    [
        ("a.csv", "you", "too few columns"),
        ("a.tsv", "you\tare\tx", "too many columns"),
        ("a.tsv", "text_a\tlabel", "the header again"),
        ("a.jsonl", '{"text_a": ["you"], "label": "x"}', "text_a must be text"),
        ("a.jsonl", '{"label": "x"}', "no 'text_a'"),
        ("a.jsonl", '{"label": ', "not valid JSON"),
    ],
)
def test_one_percent_of_malformed_rows_is_accepted(split, name, bad, problem, file, caplog):
    good = {"a.csv": "I,y", "a.tsv": "I\ty", "a.jsonl": '{"text_a": "I", "label": "y"}'}[name]
    header = [good.replace("I", "text_a").replace("y", "label")] * (name != "a.jsonl")

    def read(rows):
        path = file(name, "\n".join([*header, good, rows, *[good] * 98]))
        return CustomData(path, test_file=path, **XY).read(split)

    assert len(read(bad)) == 99 + (split == TEST)
    done, line = "kept" if split == TEST else "skipped", 2 + len(header)
    assert f"rows=1 with malformed values, {done} (line {line}). The first: " in caplog.text
    assert problem in caplog.text
    with pytest.raises(ValueError, match=rf"line {line}\W.*Malformed rows: 2 of 101"):
        read(f"{bad}\n{bad}")


def test_metrics_of_a_regression():
    data = CustomData(regression=True)
    metrics = ("pearson", "spearman", "R2", "RMSE", "RMSE_of_mean")
    assert (data.best_metric, data.metrics) == ("pearson", metrics)


@pytest.mark.parametrize(
    ("cells", "multi_label", "warned"),
    [
        (["a", "a, b", "b"], True, True),
        (["a", "a; b", "b"], False, True),
        (["a", "a; b"], False, True),
        (["['a']", "['a', 'b']"], False, True),
        (["['a']", "['a', 'b']", "['b']"], True, True),
        (["so, so", "fine"], False, False),
        (["good, cheap", "good, late"], False, False),
        (["a|so, so", "a"], True, False),
    ],
)
def test_labels_that_seem_to_be_lists_are_logged(cells, multi_label, warned, file, caplog):
    rows = [json.dumps({"text_a": "I", "label": cell}) for cell in cells]
    CustomData(file("a.jsonl", "\n".join(rows)), multi_label=multi_label)
    assert ("pass `multi_label`" in caplog.text) == warned


PREDICTED = {
    "a table": ("x.csv", "id,text_a,label\n7,I,good\n", "CSV .*text_a: 'text_a'; .*'id'"),
    "an index of pandas": ("x.csv", ",text_a\n0,I\n", "CSV"),
    "an alias": ("x.jsonl", '{"text": "I"}\n', "JSON Lines .text_a: 'text'"),
    "tabs": ("x.txt", "label\ttext_a\ngood\tI\n", "TSV"),
    "raw texts": ("x.txt", "text_a, and more\n", "raw texts"),
    "raw text with a tab": ("x", "a\tb\n", "raw texts"),
    "raw text in braces": ("x.txt", '{"I", [said]: no}\n', "raw texts"),
}


def test_words_in_columns_are_not_texts(file):
    with pytest.raises(ValueError, match="run_token_classifier"):
        read_prediction_file(CustomData(labels=GOOD_BAD), file("x.conll", "I O\n"), is_pair=False)


@pytest.mark.parametrize("name", PREDICTED)
def test_the_kind_of_a_file_to_predict_is_recognized(name, file, caplog):
    path, text, kind = PREDICTED[name]
    data = CustomData(labels=GOOD_BAD)
    with caplog.at_level("INFO", logger="absl"):
        examples = read_prediction_file(data, file(path, text), is_pair=False)
    assert examples == (None if kind == "raw texts" else [TextExample("0", "I")])
    [message] = caplog.messages
    assert message.startswith("Reading ")
    assert kind.split(" .")[0] in message


@pytest.mark.parametrize("name", ["x.txt", "x.tsv"])
def test_raw_pairs_are_separated_by_a_tab(name, file):
    data = CustomData(labels=GOOD_BAD)
    assert read_prediction_file(data, file(name, "I\tyou\n"), is_pair=True) is None
    pairs = file("x.tsv", "sentence1\tsentence2\nI\tyou\n")
    assert read_prediction_file(data, pairs, is_pair=True) == [TextExample("0", "I", "you")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "fine,good\n", "no column named 'text_a'.*'fine', 'good'"),
        ("x.txt", "text_a,label\nI,good\n", "Rename it"),
        ("x.txt", '{"label": 1, "text": "I"}\n', "Rename it"),
        ("x.txt", '{"data": [{"title": "I"}]}\n', "Rename it"),
        ("x", '[{"question": "I"}]\n', "Rename it"),
        ("x.csv", "text_a,text_b\nI,you\n", "must contain single texts"),
    ],
)
def test_files_to_predict_in_doubt_are_rejected(name, text, message, file):
    with pytest.raises(ValueError, match=message):
        read_prediction_file(CustomData(labels=GOOD_BAD), file(name, text), is_pair=False)


def test_columns_of_the_training_run_are_predicted(file):
    data = CustomData(labels=GOOD_BAD, text_a_column="1", label_column="0")
    for name, text in (("x.csv", "good,I\n"), ("x.txt", "good\tI\n")):
        assert read_prediction_file(data, file(name, text), False) == [TextExample("0", "I")]
    for names in ("label,text", "rating,review"):
        with pytest.raises(ValueError, match=r"first row of .* is a header"):
            read_prediction_file(data, file("x.csv", f"{names}\ngood,I\n"), is_pair=False)
    for task, name, text in (
        ("cola", "test.tsv", "index\tsentence\n0\tI\n"),
        ("cola", "dev.tsv", "gj04\t1\t\tI\n"),
        ("sst-2", "x.csv", "sentence,label\nI,1\n"),
    ):
        examples = read_prediction_file(GlueData(task, ""), file(name, text), is_pair=False)
        assert [example.text_a for example in examples] == ["I"]


def test_files_must_agree_on_pairs(file):
    pairs, single = "text_a\ttext_b\tlabel\nI\tx\t1\nyou\ty\t0\n", "label\ttext_a\n1\tI\n"
    data = CustomData(file("a.tsv", pairs), file("b.tsv", single))
    with pytest.raises(ValueError, match=r"a.tsv.*b.tsv.*`text_b_column`"):
        data.read(DEV)
    data = CustomData(file("a.tsv", pairs), file("b.tsv", single), text_b_column="text_b")
    with pytest.raises(ValueError, match=r"b.tsv.*'text_b'"):
        data.read(DEV)
    assert CustomData(file("a.tsv", pairs), file("b.tsv", single), text_b_column="").read(DEV)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a", "B", "b"], ("B", "a", "b")),
        (["10", "9", "x"], ("10", "9", "x")),
        ([True, False], ("false", "true")),
        (["1.0", "01", "0", "1"], ("0", "01", "1", "1.0")),
    ],
)
def test_labels_are_sorted(labels, expected, file):
    rows = [json.dumps({"text_a": "I", "label": label}) for label in labels]
    data = CustomData(file("a.jsonl", "\n".join(rows)))
    assert data.labels.names == expected
    assert {example.label for example in data.read(TRAIN)} == set(expected)


def test_similar_classes_are_logged_in_one_warning(file, caplog):
    data = CustomData(file("a.csv", 'text_a,label\nI,good\nyou,Good\nwe,"bad"\n'))
    assert data.labels.names == ("Good", "bad", "good")
    [warning] = (message for message in caplog.messages if "'Good' / 'good'" in message)
    assert data.file(TRAIN) in warning


def test_missing_files_are_rejected(file):
    with pytest.raises(ValueError, match="`train_file`"):
        CustomData(dev_file=file("a.tsv", TRAIN_TSV))
    with pytest.raises(ValueError, match="`dev_file`"):
        CustomData(labels=GOOD_BAD).read(DEV)
    with pytest.raises(ValueError, match=r"'/no/where.tsv'"):
        CustomData(dev_file="/no/where.tsv", labels=GOOD_BAD).read(DEV)


DEFAULTS = {"text_a_column": "text_a", "text_b_column": None, "label_column": "label"}
NUMBERED = {"text_a_column": "0", "text_b_column": None, "label_column": "1"}
NAMED = {"text_a_column": "question", "text_b_column": "answer", "label_column": "fits"}


@pytest.mark.parametrize(
    ("trained", "given", "expected"),
    [
        (DEFAULTS, {}, DEFAULTS),
        (NAMED, {"label_column": "y"}, {**NAMED, "label_column": "y"}),
        # Names replace all numbers of the model, and vice versa.
        (NUMBERED, {"text_a_column": "text"}, {**DEFAULTS, "text_a_column": "text"}),
        (NAMED, {"text_a_column": "0"}, {**DEFAULTS, "text_a_column": "0"}),
        (NAMED, {"text_b_column": ""}, {**NAMED, "text_b_column": ""}),
    ],
)
def test_given_columns_replace_columns_of_the_model(trained, given, expected):
    settings = ClassificationSettings(output_dir="out", **given)
    task = StoredTask("custom", Labels(("a", "b")), False, trained)
    settings = resolve(settings, ClassifierJob.trained_settings(settings, task))
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.fixture
def report(caplog):
    """Returns the logged information and warnings about labels of rows."""

    def logged(found, labels: Labels, split: str = TRAIN) -> tuple[str, list[str]]:
        caplog.clear()
        with caplog.at_level("INFO", logger="absl"):
            log_labels("f", split, [TextExample("", "text", label=name) for name in found], labels)
        info, *warnings = caplog.messages
        return info, warnings

    return logged


ABC = Labels(("a", "b", "c"))


@pytest.mark.parametrize(
    ("found", "labels", "expected"),
    [
        ("abacc", ABC, "5 rows (dev), labels a: 2 (40.0%), b: 1 (20.0%), c: 2 (40.0%)"),
        (["1.5", "-2", "2"], Labels(), "3 rows (dev), labels from -2 to 2, mean 0.5"),
        ([None, None], ABC, "without labels"),
    ],
)
def test_labels_are_counted(report, found, labels, expected):
    info, warnings = report(found, labels, DEV)
    assert info.endswith(expected)
    assert not warnings


@pytest.mark.parametrize(("found", "labels"), [("b" * 10, ABC), (["2"] * 11, Labels())])
def test_a_single_label_is_logged_as_a_warning(report, found, labels):
    info, (warning,) = report(found, labels)
    assert repr(found[0]) in warning
    assert labels.is_regression or "a: 0 (0.0%)" in info


def test_many_classes_are_logged_as_a_warning(report):
    names = [str(number / 4) for number in range(21)]
    info, (warning,) = report(names, Labels(tuple(names)))
    assert "`regression`" in warning
    assert info.endswith("4.75: 1 (4.8%), and 1 more")
    assert not report(names * 2, Labels(tuple(names)))[1]
