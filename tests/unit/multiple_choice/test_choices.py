"""Custom questions: all forms of labels, and rejected files."""

import json
import logging
import re

import pytest

from albert_tf.data.text_examples import DEV, TEST, TRAIN
from albert_tf.multiple_choice.data import ChoiceExample, read_choices

ROW = {"context": "A cat sat.", "question": "Who sat?", "options": ["a cat", "a dog"], "label": 0}


@pytest.fixture
def file(tmp_path):
    def write(*rows):
        """Writes rows as JSON; strings are written unchanged."""
        path = tmp_path / "data.jsonl"
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        return str(path)

    return write


def row(**changes):
    return {**ROW, **changes}


def read(path, split=TRAIN):
    return read_choices(path, split=split)


class TestEndings:
    def test_every_blank_is_filled_and_otherwise_the_option_follows(self):
        example = ChoiceExample("x", "c", "_ and _ .", ("one", "t_o", ""))
        assert example.endings() == ("one and one .", "t_o and t_o .", " and  .")
        assert ChoiceExample("x", "c", "Why? ", ("a", " b ")).endings() == ("Why?  a", "Why?   b ")

    def test_parts_are_cleaned_before_they_are_joined(self):
        example = ChoiceExample("x", "c", "It＿.", (" A ", "B"))
        assert example.endings(lambda text: text.strip().replace("＿", "_")) == ("ItA.", "ItB.")


def test_rows_are_read_unchanged(file):
    path = file(
        row(id="first", level="high", context="\ud83d half"),
        "",
        row(options=["1", 2, 3.5, "日本", " "], label="d"),
        row(id=7, label="a dog"),
    )
    assert read(path) == [
        ChoiceExample("first", "\ufffd half", "Who sat?", ("a cat", "a dog"), 0),
        ChoiceExample("1", "A cat sat.", "Who sat?", ("1", "2", "3.5", "日本", " "), 3),
        ChoiceExample("7", "A cat sat.", "Who sat?", ("a cat", "a dog"), 1),
    ]


@pytest.mark.parametrize(
    ("label", "options", "expected"),
    [
        (1, ["x", "y", "z"], 1),
        (1.0, ["x", "y", "z"], 1),
        ("B", ["x", "y", "z"], 1),
        ("c", ["x", "y", "z"], 2),
        (" z ", ["x", "y", "z"], 2),
        ("2", ["x", "y", "z"], 2),  # no option has this text
        ("1", ["3", "4", "1"], 2),  # the text, not the number
        (1, ["3", "4", "1"], 1),
        ("-", ["+", "-"], 1),
        ("A", ["A", "B"], 0),  # letter and text agree
        ("yes", ["no", "yes"], 1),
    ],
)
def test_a_label_is_a_number_a_letter_or_the_text(file, label, options, expected):
    (example,) = read(file(row(label=label, options=options)))
    assert example.label == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": 2}, "label .* 0 to 1, A to B, .*: 2"),
        ({"label": "C"}, "label .*: 'C'"),
        ({"label": "9" * 5000}, "label .*: '999"),
        ({"label": "\u0661"}, "label .*: '\u0661'"),
        ({"label": True}, "label .*: True"),
        ({"label": "A", "options": ["B", "A"]}, "label .*: 'A'"),
        ({"label": "x", "options": ["x", "y", "x"]}, "label .*: 'x'"),
        ({"options": ["one"]}, "options .* 2 to 26"),
        ({"options": ["a", None]}, r"options\[1\] .*text.* None"),
        ({"context": None}, "context .*text"),
    ],
)
def test_invalid_rows_are_rejected(file, changes, message):
    with pytest.raises(ValueError, match=rf"line 3 of .*data.jsonl.*{message}"):
        read(file(row(), "", row(**changes)))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"context": "x",'], "line 1"),
        (['{"label": 0, "label": 1}'], "line 1.*'label'"),
        ([""], "data.jsonl"),
        ([row(label=None), row(label="-"), row(label="")], "label"),
    ],
)
def test_malformed_files_are_rejected(file, lines, message):
    with pytest.raises(ValueError, match=r"data\.jsonl") as raised:
        read(file(*lines))
    assert re.search(message, str(raised.value))


def test_rows_without_a_label_are_skipped_in_train_and_dev(file, caplog):
    rows = [row(), row(label=None), row(label="-"), row(label=""), row(label=1)]
    with caplog.at_level(logging.WARNING):
        assert [example.example_id for example in read(file(*rows), DEV)] == ["0", "4"]
    assert "rows=3 with no label, skipped (lines 2, 3, 4)" in caplog.text


@pytest.mark.parametrize(
    ("labels", "expected", "warning"),
    [
        ([1, 0], [1, 0], None),
        ([None, None], [None, None], None),
        (["", "-"], [None, None], None),
        ([1, None], [None, None], "rows=1 with no label, while other questions have labels"),
        ([1, -1], [None, None], "rows=1 with no label, while other questions have labels"),
    ],
)
def test_a_test_file_has_all_labels_or_none(file, caplog, labels, expected, warning):
    with caplog.at_level(logging.WARNING):
        examples = read(file(*(row(label=label) for label in labels)), TEST)
    assert [example.label for example in examples] == expected
    assert (warning is None) == (not caplog.records)
    assert (warning or "") in caplog.text
