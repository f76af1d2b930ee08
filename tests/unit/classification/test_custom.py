"""Custom files: columns, labels, rejected files, and logged labels."""

import json

import pytest

from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.classification.data import (
    CustomData,
    GlueData,
    log_labels,
    metrics_for,
    read_prediction_file,
)
from albert_tf.classification.run import ClassifierJob
from albert_tf.classification.settings import ClassificationSettings
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.finetuning.metrics import F1_OF_CLASSES
from albert_tf.finetuning.texts import TextExample
from albert_tf.labels import Labels
from albert_tf.settings import resolve


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_bytes(text.encode())
        return str(tmp_path / name)

    return write


def test_labels_are_read_from_the_training_file(file):
    data = CustomData(file("a.tsv", 'id\tlabel\ttext_a\n8\tgood\tI like it\n9\tbad\t"No\n'))
    assert (data.name, data.labels) == ("custom", Labels(("bad", "good")))
    expected = [TextExample("0", "I like it", None, "good"), TextExample("1", '"No', None, "bad")]
    assert data.read(TRAIN) == expected
    assert data.read(TRAIN) == expected


def test_rows_that_an_annotator_rejected_are_skipped(file, caplog):
    rows = [("a", "x", "accept"), ("b", "y", "reject"), ("c", "y", "accept"), ("d", "x", "ignore")]
    lines = [json.dumps({"text": t, "label": y, "answer": a}) for t, y, a in rows]
    data = CustomData(file("a.jsonl", "\n".join(lines)), text_a_column="text")
    assert [example.text_a for example in data.read(TRAIN)] == ["a", "c"]
    assert "rows=2 with an answer of the annotator other than accept" in caplog.text
    # A column with another meaning is not a status.
    answers = "answer,text_a\n" + "reject,a\naccept,b\n" * 5
    data = CustomData(file("a.csv", answers), label_column="answer")
    assert len(data.read(TRAIN)) == 10


@pytest.mark.parametrize(
    ("labels", "best", "metrics"),
    [
        ("ab", "eval_accuracy", ("f1", F1_OF_CLASSES, "matthews")),
        ("abc", "eval_accuracy", ("f1_macro", F1_OF_CLASSES, "matthews")),
        ("", "pearson", ("pearson", "spearman", "R2", "RMSE", "RMSE_of_mean")),
    ],
)
def test_metrics(labels, best, metrics):
    assert metrics_for(Labels(tuple(labels))) == (best, metrics)


XY = {"labels": Labels(("x", "y"))}
ZERO = {"text_a_column": "0", "label_column": "1"}
LONG = {"text_a_column": "2", "label_column": "0"}
PAIR = "text_a\ttext_b\tlabel\nI\ta\tx\nyou\tb\ty\n"
NUMBER, MULTI = {"regression": True}, {"multi_label": True}
NULL = '{"text": "I", "text_b": "a", "label": "x"}\n{"text": "you", "text_b": null, "label": "y"}'


@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        # Numbered columns
        ("a.tsv", "x\tx\tI\ny\ty\tyou\n", LONG, "I:x you:y"),
        ("a.jsonl", '{"0": 1, "2": "I"}\n{"0": 0, "2": "you"}\n', LONG, "I:1 you:0"),
        ("a.csv", "1,0\nI,x\nyou,y\n", ZERO, "1:0 I:x you:y"),
        # ... with a header
        ("a.csv", "0,1\nI,x\nyou,y\n", ZERO, "I:x you:y"),
        ("a.csv", ",0,1\n7,I,x\n", ZERO, "!the first row of .*a.csv .* not positions.*'0', '1'"),
        ("a.csv", "Text,Label\nI,x\nyou,y\n", ZERO, "I:x you:y"),
        ("a.csv", "body,kind\nI,x\n", ZERO | XY, "I:x"),
        ("a.csv", "body,kind\nI,x\nyou,y\nI,x\nyou,y\n", ZERO, "I:x you:y I:x you:y"),
        ("a.csv", "body,score\nI,1\nyou,0.5\n", ZERO | NUMBER, "I:1 you:0.5"),
        ("a.csv", "we,z|x\nI,x\nI,x\n", ZERO | MULTI, "we:z|x I:x I:x"),
        ("a.csv", "we,\"['z', 'x']\"\nI,['x']\nI,['x']\n", ZERO | MULTI, "we:z|x I:x I:x"),
        # A label that occurs once can be a label if it is a number, or if others occur once.
        ("a.csv", "we,z\nI,x\nyou,y\nI,x\n", ZERO, "we:z I:x you:y I:x"),
        ("a.csv", "we,3\nI,1\nyou,2\nI,1\nyou,2\n", ZERO, "we:3 I:1 you:2 I:1 you:2"),
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
        ("a.csv", "text_a,text_b,label\nI,a,x\nyou,,y\n", {}, "I+a:x you+:y"),
        ("a.jsonl", NULL, {}, "I+a:x you+:y"),
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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "ID,index,text\na7,0,I\n,1,you\n"),
        ("t.jsonl", '{"id": "a7", "idx": 0, "text": "I"}\n{"id": null, "idx": 1, "text": "you"}\n'),
        (
            "t.jsonl",
            '{"idx": "a7", "text": "I"}\n{"idx": 1, "text": ["you"]}\n' + '{"text": "-"}\n' * 98,
        ),
    ],
)
def test_ids_of_a_test_file_are_kept(name, text, file):
    path = file(name, text)
    examples = CustomData(test_file=path, **XY).read(TEST)
    assert [example.guid for example in examples[:3]] == ["a7", "1", "2"][: len(examples)]
    assert [
        e.guid for e in CustomData(dev_file=file("d.csv", "id,text,label\n7,I,x"), **XY).read(DEV)
    ] == ["0"]


@pytest.mark.parametrize("split", [TRAIN, TEST])
@pytest.mark.parametrize(
    ("name", "bad", "problem"),
    [
        ("a.csv", "you", "too few columns"),
        ("a.tsv", "you\tare\tx", "too many columns"),
        ("a.tsv", "text_a\tlabel", "the header again"),
        ("b.tsv", "text_a\tlabel\t", "the header again"),
        ("a.jsonl", '{"text_a": ["you"], "label": "x"}', "text_a must be text"),
        ("a.jsonl", '{"label": "x"}', "no 'text_a'"),
        ("a.jsonl", '{"label": ', "not valid JSON"),
    ],
)
def test_one_percent_of_malformed_rows_is_accepted(split, name, bad, problem, file, caplog):
    rows = {"a.csv": "I,y", "a.tsv": "I\ty", "b.tsv": "I\ty\t"}
    good = rows.get(name, '{"text_a": "I", "label": "y"}')
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


@pytest.mark.parametrize(
    ("cells", "multi_label", "warned"),
    [
        (["a", "a, b", "b"], True, True),
        (["a", "a; b", "b"], False, True),
        (["a", "a; b"], False, True),
        (["['a']", "['a', 'b']"], False, True),
        (["['a']", "['a', 'b']", "['b']"], True, False),
        (["['a']", "['a' 'b']", "['b']"], True, True),  # as NumPy prints
        (["so, so", "fine"], False, False),
        (["good, cheap", "good, late"], False, False),
        (["a|so, so", "a"], True, False),
    ],
)
def test_labels_that_seem_to_be_lists_are_logged(cells, multi_label, warned, file, caplog):
    rows = [json.dumps({"text_a": "I", "label": cell}) for cell in cells]
    CustomData(file("a.jsonl", "\n".join(rows)), multi_label=multi_label)
    assert ("is a single label" in caplog.text) == warned
    assert ("pass `multi_label`" in caplog.text) == (warned and not multi_label)


NUMBERED = {"text_a_column": "1", "label_column": "0"}


@pytest.mark.parametrize(
    ("settings", "name", "content", "expected"),
    [
        # Columns of the training run or of other tools
        ({}, "x.csv", "id,text_a,label\n7,I,x\n", "I"),
        ({}, "x.csv", ",text_a\n0,I\n", "I"),  # an index of pandas
        ({}, "x.jsonl", '{"text": "I"}\n', "I"),
        ({}, "x.txt", "label\ttext_a\nx\tI\n", "I"),
        ({}, "x.tsv", "sentence1\tsentence2\nI\tyou\n", "I+you"),
        (NUMBERED, "x.csv", "x,I\n", "I"),
        (NUMBERED, "x.txt", "x\tI\n", "I"),
        ("cola", "test.tsv", "index\tsentence\n0\tI\n", "I"),
        ("cola", "dev.tsv", "gj04\t1\t\tI\n", "I"),
        ("sst-2", "x.csv", "sentence,label\nI,1\n", "I"),
        # Raw texts
        ({}, "x.txt", "text_a, and more\n", None),
        ({}, "x", "a\tb\n", None),
        ({}, "x.txt", '{"I", [said]: no}\n', None),
        ("pair", "x.txt", "I\tyou\n", None),
        ("pair", "x.tsv", "I\tyou\n", None),
        # In doubt
        ({}, "x.conll", "I O\n", "!run_token_classifier"),
        ({}, "x.csv", "fine,good\n", "!no column named 'text_a'.*'fine', 'good'"),
        ({}, "x.txt", "text_a,label\nI,x\n", "!Rename it"),
        ({}, "x.txt", '{"label": 1, "text": "I"}\n', "!Rename it"),
        ({}, "x.txt", '{"data": [{"title": "I"}]}\n', "!Rename it"),
        ({}, "x", '[{"question": "I"}]\n', "!Rename it"),
        ({}, "x.csv", "text_a,text_b\nI,you\n", "!must contain single texts"),
        (NUMBERED, "x.csv", "label,text\nx,I\n", "I"),
        (NUMBERED, "x.csv", "rating,review\nx,I\n", "I"),
        (NUMBERED, "x.csv", "kind,film\n,I\n,you\n", "I you"),
        (NUMBERED, "x.csv", "7,I\n8,you\n", "I you"),  # ids, not labels
    ],
)
def test_files_to_predict(settings, name, content, expected, file):
    is_pair = settings == "pair" or expected == "I+you"
    named = isinstance(settings, dict) or is_pair
    data = CustomData(**XY, **({} if is_pair else settings)) if named else GlueData(settings, "")
    if expected and expected[0] == "!":
        with pytest.raises(ValueError, match=expected[1:]):
            read_prediction_file(data, file(name, content), is_pair)
        return
    examples = read_prediction_file(data, file(name, content), is_pair)
    texts = enumerate((expected or "").split())
    found = [TextExample(str(i), *text.split("+")) for i, text in texts]
    assert examples == (expected and found)


def test_files_must_agree_on_pairs(file):
    files = file("a.tsv", PAIR), file("b.tsv", "label\ttext_a\nx\tI\n")
    for settings, message in (
        ({}, "a.tsv.*b.tsv.*`text_b_column`"),
        ({"text_b_column": "text_b"}, "b.tsv.*'text_b'"),
    ):
        with pytest.raises(ValueError, match=message):
            CustomData(*files, **settings).read(DEV)
    assert CustomData(*files, text_b_column="").read(DEV)


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
    for data, message in (
        (lambda: CustomData(dev_file=file("a.tsv", PAIR)), "`train_file`"),
        (lambda: CustomData(**XY).read(DEV), "`dev_file`"),
        (lambda: CustomData(dev_file="/no/where.tsv", **XY).read(DEV), "'/no/where.tsv'"),
    ):
        with pytest.raises(ValueError, match=message):
            data()


DEFAULTS = {"text_a_column": "text_a", "text_b_column": None, "label_column": "label"}
OTHERS = {"text_a_column": "0", "text_b_column": None, "label_column": "1"}
NAMED = {"text_a_column": "question", "text_b_column": "answer", "label_column": "fits"}


@pytest.mark.parametrize(
    ("trained", "given", "expected"),
    [
        (DEFAULTS, {}, DEFAULTS),
        (NAMED, {"label_column": "y"}, {**NAMED, "label_column": "y"}),
        # Names replace all numbers of the model, and vice versa.
        (OTHERS, {"text_a_column": "text"}, {**DEFAULTS, "text_a_column": "text"}),
        (NAMED, {"text_a_column": "0"}, {**DEFAULTS, "text_a_column": "0"}),
        (NAMED, {"text_b_column": ""}, {**NAMED, "text_b_column": ""}),
    ],
)
def test_given_columns_replace_columns_of_the_model(trained, given, expected):
    settings = ClassificationSettings(output_dir="out", **given)
    task = StoredTask("custom", Labels(("a", "b")), False, trained)
    settings = resolve(settings, ClassifierJob.trained_settings(settings, task))
    assert {name: getattr(settings, name) for name in expected} == expected


ABC = Labels(("a", "b", "c"))
MANY = [str(number / 4) for number in range(21)]


@pytest.mark.parametrize(
    ("found", "labels", "expected", "warning"),
    [
        ("abacc", ABC, "5 rows (train), labels a: 2 (40.0%), b: 1 (20.0%), c: 2 (40.0%)", ""),
        (["1.5", "-2", "2"], Labels(), "3 rows (train), labels from -2 to 2, mean 0.5", ""),
        ([None, None], ABC, "without labels", ""),
        ("b" * 9, ABC, "labels a: 0 (0.0%), b: 9 (100.0%), c: 0 (0.0%)", ""),
        ("b" * 10, ABC, "b: 10 (100.0%), c: 0 (0.0%)", "all 10 rows have the label 'b'"),
        (["2"] * 11, Labels(), "labels from 2 to 2, mean 2", "all 11 rows have the label '2'"),
        (MANY, Labels(tuple(MANY)), "4.75: 1 (4.8%), and 1 more", "`regression` to predict"),
        (MANY * 2, Labels(tuple(MANY)), "4.75: 2 (4.8%), and 1 more", ""),
    ],
)
def test_labels_are_counted(found, labels, expected, warning, caplog):
    with caplog.at_level("INFO", logger="absl"):
        log_labels("f", TRAIN, [TextExample("", "text", label=name) for name in found], labels)
    assert caplog.messages[0].endswith(expected)
    assert len(caplog.messages) == 1 + bool(warning)
    assert warning in caplog.messages[-1]
