"""Custom questions: all forms of labels, and rejected files."""

import json
import logging

import pytest

from albert_tf.data.splits import DEV, TEST, TRAIN
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


def test_an_option_replaces_every_blank_or_follows_the_question():
    example = ChoiceExample("x", "c", "_ and _ .", ("one", "t_o", ""))
    assert example.endings() == ("one and one .", "t_o and t_o .", " and  .")
    assert ChoiceExample("x", "c", "Why? ", ("a", " b ")).endings() == ("Why?  a", "Why?   b ")
    # Texts are cleaned before they are joined.
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
        ("c", ["x", "y", "z"], 2),
        ("1", ["4", "1", "3"], 1),  # number and text agree
        (1, ["3", "4", "1"], 1),
        ("-", ["+", "-"], 1),
        ("A", ["A", "B"], 0),  # letter and text agree
    ],
)
def test_a_label_is_a_number_a_letter_or_the_text(file, label, options, expected):
    (example,) = read(file(row(label=label, options=options)))
    assert example.label == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": 2}, "label .* 0 to 1, A to B, .*: 2"),
        ({"label": "9" * 5000}, "label .*: '999"),
        ({"label": True}, "label .*: True"),
        ({"label": "x", "options": ["x", "y", "x"]}, "label .*: 'x'"),
        ({"label": "3", "options": ["1", "2", "3", "4"]}, "label .*option C or D.*: '3'"),
        ({"options": ["one"]}, "options .* 2 to 26"),
        ({"options": ["a", None]}, r"options\[1\] .*text.* None"),
    ],
)
def test_invalid_rows_are_rejected(file, changes, message):
    with pytest.raises(ValueError, match=rf"line 3 of .*data.jsonl.*{message}"):
        read(file(row(), "", row(**changes)))


TWO = {"text": ["iron", "gas"], "label": ["1", "2"]}
SAID = {"context": "So.", "question": "Why?"}
DATA_SETS = {
    "SWAG": {"sent1": "So.", "sent2": "Why?", "ending0": "iron", "ending1": "gas", "label": 1},
    "HellaSwag": {"ctx_a": "So.", "ctx_b": "Why?", "endings": ["iron", "gas"], "label": "1"},
    "CosmosQA": {**SAID, "answer0": "iron", "answer1": "gas", "label": "1"},
    "Social IQa": {**SAID, "answerA": "iron", "answerB": "gas", "label": "2"},
    "ReClor": {**SAID, "answers": ["iron", "gas"], "label": 1, "id_string": "t"},
    "RACE": {"article": "So.", "question": "Why?", "options": ["iron", "gas"], "answer": "B"},
    "C3": {"context": ["So."], "question": "Why?", "choice": ["iron", "gas"], "answer": "gas"},
    "DREAM": {"dialogue": ["So."], "question": "Why?", "choice": ["iron", "gas"], "answer": "gas"},
    "COPA": {"premise": "So.", "question": "Why?", "choice1": "iron", "choice2": "gas", "label": 1},
    "ARC": {"question": "Why?", "choices": TWO, "answerKey": "2"},
    "ARC as published": {
        "question": {
            "stem": "Why?",
            "choices": [{"text": "iron", "label": "A"}, {"text": "gas", "label": "B"}],
        },
        "answerKey": "B",
    },
    "OpenBookQA": {"question_stem": "Why?", "choices": TWO, "answerKey": "2"},
    "PIQA": {"goal": "Why?", "sol1": "iron", "sol2": "gas", "label": 1},
    "WinoGrande": {"sentence": "Why?", "option1": "iron", "option2": "gas", "answer": "2"},
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_other_data_sets_are_read_as_published(name, file, caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        (example,) = read(file(DATA_SETS[name]))
    context = (
        "So."
        if {"choices", "goal", "question_stem", "sentence"}.isdisjoint(DATA_SETS[name])
        and name != "ARC as published"
        else ""
    )
    assert example == ChoiceExample("0", context, "Why?", ("iron", "gas"), 1)


def test_csv_and_lists_of_objects_are_read(tmp_path, caplog):
    path = tmp_path / "swag.csv"
    path.write_text("sent1,sent2,ending0,ending1,label\nSo.,Why?,iron,gas,0\n")
    expected = [ChoiceExample("0", "So.", "Why?", ("iron", "gas"), 0)]
    assert read(str(path)) == expected
    path = tmp_path / "swag.json"
    path.write_text(json.dumps([{**DATA_SETS["SWAG"], "label": 0}]))
    with caplog.at_level(logging.INFO, logger="absl"):
        assert read(str(path)) == expected
    assert f"{path} as JSON (context: 'sent1', question: 'sent2'," in caplog.text


def test_errors_name_the_keys_that_were_found_and_expected(file):
    with pytest.raises(ValueError, match=r"keys 'context', 'q'.*context, question, options, label"):
        read(file({"context": "c", "q": "?"}))


def test_numbers_that_may_count_from_one_are_logged(file, caplog):
    read(file(row(label="1"), row(label=1)))
    assert "1 selects the second option" in caplog.text
    caplog.clear()
    read(file(row(label="1"), row(label="B")))
    assert not caplog.messages


def test_one_percent_of_malformed_rows_is_skipped(file, caplog):
    rows = [row()] * 100
    assert len(read(file(*rows[:99], row(label=7)))) == 99
    assert "rows=1 with an invalid label, skipped (line 100). The first: line 100" in caplog.text
    with pytest.raises(ValueError, match=r"line 99 .*2 of 100"):
        read(file(*rows[:98], row(label=7), "{"))


def test_files_without_labels_are_rejected(file):
    with pytest.raises(
        ValueError, match=r"No question has a label in .*data\.jsonl.*columns: .*'label'"
    ):
        read(file(row(label=None), row(label="-"), row(label="")))


def test_rows_without_a_label_are_skipped_in_train_and_dev(file, caplog):
    rows = [row(), row(label=None), row(label="-"), row(label=""), row(label=1)]
    with caplog.at_level(logging.WARNING):
        assert [example.example_id for example in read(file(*rows), DEV)] == ["0", "4"]
    assert "rows=3 with no label, skipped (lines 2, 3, 4)" in caplog.text


@pytest.mark.parametrize(
    ("labels", "expected", "is_warned"),
    [
        ([1, 0], [1, 0], False),
        (["", None, "-"], [None, None, None], False),
        ([1, None], [None, None], True),
        ([1, -1], [None, None], True),
    ],
)
def test_labels_of_a_test_file_are_used_if_all_are_valid(file, caplog, labels, expected, is_warned):
    with caplog.at_level(logging.WARNING):
        examples = read(file(*(row(label=label) for label in labels)), TEST)
    assert [example.label for example in examples] == expected
    warning = "rows=1 with no label, while other questions have labels"
    assert (warning in caplog.text) == bool(caplog.records) == is_warned


def test_equal_labels_are_reported(file, caplog):
    for rows in ([row()] * 9, [*[row()] * 9, row(label=1)]):
        read(file(*rows))
        assert not caplog.messages
    read(file(*[row()] * 10))
    assert "all 10 questions have the label A" in caplog.text
