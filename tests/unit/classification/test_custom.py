"""Custom files: columns, labels, rejected files, and logged labels."""

import json
from typing import Any

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


def test_numbered_columns_are_for_files_without_a_header(file):
    settings: dict[str, Any] = {"text_a_column": "2", "label_column": "0"}
    data = CustomData(
        file("a.tsv", "no\tx\tI\nyes\ty\tyou\n"), test_file=file("t.csv", 'a,b,"c\n"\n'), **settings
    )
    assert data.read(TRAIN)[0] == TextExample("0", "I", None, "no")
    assert data.read(TEST) == [TextExample("0", "c\n")]
    data = CustomData(file("a.jsonl", '{"0": 1, "2": "I"}\n{"0": 0, "2": "you"}\n'), **settings)
    assert data.read(TRAIN)[1] == TextExample("1", "you", None, "0")
    data = CustomData(test_file=file("t.tsv", "I\nyou\n"), text_a_column="0", labels=GOOD_BAD)
    assert data.read(TEST) == [TextExample("0", "I"), TextExample("1", "you")]


@pytest.mark.parametrize("text", ["0,1\nhello,pos\nbad,neg\n", ",0,1\n7,hello,pos\n8,bad,neg\n"])
def test_a_header_of_column_numbers_is_rejected(text, file):
    """Pandas writes such a header if columns have no names."""
    with pytest.raises(ValueError, match=r"the first row of .*a\.csv"):
        CustomData(file("a.csv", text), text_a_column="0", label_column="1")
    data = CustomData(
        file("a.csv", text.replace("0,1", "1,0")), text_a_column="0", label_column="1"
    )
    assert len(data.read(TRAIN)) == 3


def test_empty_texts_of_a_test_file_are_kept(file, caplog):
    data = CustomData(test_file=file("x.csv", "text_a\nx\n\nz\n"), labels=GOOD_BAD)
    assert data.read(TEST) == [TextExample("0", "x"), TextExample("1", ""), TextExample("2", "z")]
    assert "x.csv: rows=1 with an empty text, kept (line 3)" in caplog.text


def test_labels_of_a_test_file_are_ignored(file, caplog):
    data = CustomData(test_file=file("t.tsv", "label\ttext_a\ngood\tI\n?\tyou\n"), labels=GOOD_BAD)
    assert data.read(TEST) == [TextExample("0", "I"), TextExample("1", "you")]
    assert not caplog.messages


MISFITS = {
    "too few columns": ("a.csv", "text_a,label\nI,x\nyou\nhe,y\n"),
    "too many columns": ("a.tsv", "text_a\tlabel\nI\tx\nyou\tare\ty\n"),
    "the header again": ("a.csv", "text_a,label\nI,x\ntext_a,label\nhe,y\n"),
    "no text": ("a.jsonl", '{"text_a": "I", "label": 0}\n\n{"text_a": ["you"], "label": 1}\n'),
    "no such key": ("a.jsonl", '{"text_a": "I", "label": 0}\n\n{"label": 1}\n'),
}


@pytest.mark.parametrize("split", [TRAIN, TEST])
@pytest.mark.parametrize("name", ["too few columns", "too many columns", "the header again"])
def test_one_percent_of_malformed_rows_is_accepted(split, name, file, caplog):
    name, text = MISFITS[name]
    header, first, bad, *_ = text.splitlines()
    path = file(name, "\n".join([header, bad, *[first] * 99]))
    rows = CustomData(path, test_file=path, labels=Labels(("x", "y"))).read(split)
    assert len(rows) == (100 if split == TEST else 99)
    assert f"{'kept' if split == TEST else 'skipped'} (line 2)" in caplog.text


@pytest.mark.parametrize("split", [TRAIN, TEST])
@pytest.mark.parametrize("name", MISFITS)
def test_malformed_rows_are_rejected(split, name, file):
    path = file(*MISFITS[name])
    with pytest.raises(ValueError, match=rf"line 3 of {path}.*{name}"):
        CustomData(path, test_file=path, labels=Labels(("x", "y", "0", "1"))).read(split)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"text": "I", "label": ["x"]}\n{"text": "you", "label": ["y"]}', None),  # doccano
        ('[{"sentence": "I", "labels": "x"}, {"sentence": "you", "labels": "y"}]', None),
        ('{"premise": "I", "hypothesis": "h", "Label": "x", "n": 1}', "h"),
        ('{"Sentence1": "I", "Sentence2": "h", "label": "x"}', "h"),
        ('{"Text_A": "I", "Text_B": "h", "label": "x"}', "h"),
    ],
)
def test_columns_of_other_tools_are_read(text, expected, file):
    data = CustomData(file("a.json", text), labels=Labels(("x", "y")))
    assert data.read(TRAIN)[0] == TextExample("0", "I", expected, "x")


def test_several_labels_need_multi_label(file):
    path = file("a.jsonl", '{"text": "I", "label": ["x", "y"]}')
    with pytest.raises(ValueError, match="'label'; several labels need `multi_label`"):
        CustomData(path, labels=Labels(("x", "y"))).read(TRAIN)


def test_two_possible_columns_are_rejected(file):
    path = file("a.csv", "text,content,label\nI,you,x\n")
    with pytest.raises(ValueError, match=r"no column named 'text_a'.*'text', 'content', 'label'"):
        CustomData(path, labels=GOOD_BAD).read(TRAIN)
    path = file("b.csv", "text,Sentence2,hypothesis,label\nI,you,they,x\n")
    with pytest.raises(ValueError, match=r"no column named 'text_b'.*'Sentence2', 'hypothesis'"):
        CustomData(path, labels=GOOD_BAD).read(TRAIN)
    path = file("c.csv", "text,Text_B,text_b,label\nI,you,they,x\n")
    assert CustomData(path, labels=Labels(("x", "y"))).read(TRAIN)[0].text_b == "they"


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
    with pytest.raises(ValueError, match=r"first row of .* is a header"):
        read_prediction_file(data, file("x.csv", "label,text\ngood,I\n"), is_pair=False)
    with pytest.raises(ValueError, match=r"first row of .* seems to be a header"):
        read_prediction_file(data, file("x.csv", "rating,review\ngood,I\n"), is_pair=False)
    for task, name, text in (
        ("cola", "test.tsv", "index\tsentence\n0\tI\n"),
        ("cola", "dev.tsv", "gj04\t1\t\tI\n"),
        ("sst-2", "x.csv", "sentence,label\nI,1\n"),
    ):
        examples = read_prediction_file(GlueData(task, ""), file(name, text), is_pair=False)
        assert [example.text_a for example in examples] == ["I"]


def test_the_second_text_is_optional(file):
    path = file("a.tsv", "text_a\ttext_b\tlabel\nI\tx\t1\nyou\ty\t0\n")
    assert CustomData(path).read(TRAIN)[0].text_b == "x"
    assert CustomData(path, text_b_column="").read(TRAIN)[0].text_b is None
    swapped = CustomData(path, text_a_column="text_b")
    assert swapped.read(TRAIN)[0] == TextExample("0", "x", None, "1")


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


def test_labels_of_the_model_are_used(file):
    train, dev = file("a.tsv", TRAIN_TSV), file("b.tsv", "text_a\tlabel\nI\tneutral\n")
    labels = Labels(("good", "neutral", "bad"))
    data = CustomData(train, dev, labels=labels)
    assert data.labels is labels
    assert [example.label for example in data.read(DEV)] == ["neutral"]
    with pytest.raises(ValueError, match=r"line 2 of .*a.tsv.*'good'"):
        CustomData(train, labels=Labels(("x", "y"))).read(TRAIN)
    with pytest.raises(ValueError, match="`regression`"):
        CustomData(train, labels=Labels(("x", "y")), regression=True)
    with pytest.raises(ValueError, match="`regression`"):
        CustomData(train, labels=Labels())


def test_labels_of_a_regression_are_finite_numbers(file):
    rows = '{"text_a": "I", "label": 2.5}\n{"text_a": "you", "label": '
    data = CustomData(file("a.jsonl", rows + '"-1e-1"}'), regression=True)
    labels = [example.label or "" for example in data.read(TRAIN)]
    assert data.labels.encode(labels).tolist() == pytest.approx([2.5, -0.1])
    metrics = ("pearson", "spearman", "R2", "RMSE", "RMSE_of_mean")
    assert (data.best_metric, data.metrics) == ("pearson", metrics)
    for label in ("true", '"warm"', '"NaN"', "NaN", "Infinity"):
        path = file("a.jsonl", f"{rows}{label}}}")
        with pytest.raises(ValueError, match=r"line 2.*a\.jsonl|a\.jsonl.*line 2"):
            CustomData(path, regression=True).read(TRAIN)


def test_one_percent_of_invalid_numbers_is_skipped(file, caplog):
    path = file("a.csv", "text_a,label\nI,none\n" + "you,1.5\n" * 99)
    assert len(CustomData(path, regression=True).read(TRAIN)) == 99
    assert "rows=1 with an invalid label, skipped (line 2)" in caplog.text


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["entailment", "-", "neutral", " "], ("entailment", "neutral")),
        (["+", "-", "0"], ("+", "-", "0")),
        ([1, None, 0, "-"], ("0", "1")),
    ],
)
def test_rows_without_a_label_are_skipped(labels, expected, file, caplog):
    rows = [json.dumps({"text_a": "I", "label": label}) for label in labels]
    data = CustomData(file("a.jsonl", "\n".join([*rows, '{"text_a": "no label"}'])))
    assert data.labels.names == expected
    names = {e.guid: e.label for e in data.read(TRAIN)}
    assert names == {str(n): str(x) for n, x in enumerate(labels) if str(x) in expected}
    skipped = len(labels) - len(expected) + 1
    assert f"a.jsonl: rows={skipped} with no label, skipped" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"'label'.*'id', 'x', 'text_a'.*`label_column`"),
        ({"text_a_column": "1", "label_column": "x"}, r"`text_a_column`"),
        ({"text_a_column": "3", "label_column": "0"}, r"0 to 2.*'3'"),
        ({"label_column": "x"}, r".*'same'"),
    ],
)
def test_invalid_columns_are_rejected(settings, message, file):
    with pytest.raises(ValueError, match=message):
        CustomData(file("a.tsv", "id\tx\ttext_a\n1\tsame\tI\n2\tsame\tyou\n"), **settings)


@pytest.mark.parametrize("text", ["label\ttext_a\n-\tI\n\tyou\n", "label\ttext_a"])
def test_files_without_labels_or_rows_are_rejected(text, file):
    with pytest.raises(ValueError, match=r"a\.tsv"):
        CustomData(file("a.tsv", text))


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


@pytest.mark.parametrize(("found", "labels"), [("bbb", ABC), (["2", "2"], Labels())])
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
