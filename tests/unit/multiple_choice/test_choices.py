"""Custom questions: all forms of labels, and rejected files."""

import json
import logging

import pytest
import tensorflow as tf

from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.multiple_choice.data import BLANK, BLANKS_OF_RE2, ChoiceExample, read_choices

ROW = {"context": "A cat sat.", "question": "Who sat?", "options": ["a cat", "a dog"], "label": 0}


@pytest.fixture
def read(tmp_path):
    def read(*rows, split=TRAIN, name="data.jsonl"):
        """Reads rows that are written as JSON; strings are written unchanged."""
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        return read_choices(str(tmp_path / name), split=split)

    return read


def row(**changes):
    return {**ROW, **changes}


def test_an_option_replaces_every_blank_or_follows_the_question():
    example = ChoiceExample("x", "c", "_ and _ .", ("one", "t_o", ""))
    assert example.endings() == ("one and one .", "t_o and t_o .", " and  .")
    assert ChoiceExample("x", "c", "Why? ", ("a", " b ")).endings() == ("Why?  a", "Why?   b ")
    # Texts are cleaned before they are joined.
    example = ChoiceExample("x", "c", "It＿.", (" A ", "B"))
    assert example.endings(lambda text: text.strip().replace("＿", "_")) == ("ItA.", "ItB.")


BLANKS = {
    "The ____ is red.": "The X is red.",
    "What does max_len do?": "What does max_len do? X",
    "a__b, größe_max and x_1 are _.": "a__b, größe_max and x_1 are X.",
    "_, __ and it_": "X, X and itX",
    "他在_里": "他在X里",
    "___": "X",
}


@pytest.mark.parametrize("question", BLANKS)
def test_underscores_are_a_blank_unless_they_join_letters(question):
    assert ChoiceExample("x", "c", question, ("X",)).endings() == (BLANKS[question],)
    text = tf.constant(question)
    for pattern, replacement in BLANKS_OF_RE2.items():  # of exported models
        text = tf.strings.regex_replace(text, pattern, replacement)
    filled = text.numpy().decode().replace(BLANK, "X")
    assert filled + " X" * (filled == question) == BLANKS[question]


def test_rows_are_read_unchanged(read):
    assert read(
        row(id="first", level="high", context="\ud83d half"),
        "",
        row(options=["1", 2, 3.5, "日本", " "], label="d"),
        row(id=7, label="a dog"),
    ) == [
        ChoiceExample("first", "\ufffd half", "Who sat?", ("a cat", "a dog"), 0),
        ChoiceExample("1", "A cat sat.", "Who sat?", ("1", "2", "3.5", "日本", " "), 3),
        ChoiceExample("7", "A cat sat.", "Who sat?", ("a cat", "a dog"), 1),
    ]


@pytest.mark.parametrize(
    ("label", "options", "expected"),
    [
        (1, "xyz", 1),
        (1.0, "xyz", 1),
        ("c", "xyz", 2),
        ("1", "413", 1),  # number and text agree
        (1, "341", 1),
        ("-", "+-", 1),
        ("A", "AB", 0),  # letter and text agree
        (2, "xy", "label .* 0 to 1, A to B, .*: 2"),
        ("9" * 5000, "xy", "label .*: '999"),
        (True, "xy", "label .*: True"),
        ("x", "xyx", "label .*: 'x'"),
        ("3", "1234", "label .*option C or D.*: '3'"),
        (0, "x", "options .* 2 to 26"),
        (0, ["a", None], r"options\[1\] .*text.* None"),
        (0, None, "has no 'options'"),
    ],
)
def test_a_label_is_a_number_a_letter_or_the_text(label, options, expected, read):
    rows = row(), "", row(label=label, options=options and [*options])
    if isinstance(expected, int):
        assert read(*rows)[1].label == expected
        return
    with pytest.raises(ValueError, match=rf"line 3 of .*data.jsonl.*{expected}"):
        read(*rows)


TWO = {"text": ["iron", "gas"], "label": ["1", "2"]}
WHY = {"question": "Why?"}
SAID = {"context": "So.", **WHY}
OPTIONS = ["iron", "gas"]
NAMED = [{"text": "iron", "label": "A"}, {"text": "gas", "label": "B"}]
LETTERED = {"A": "iron", "B": "gas", "C": None}
DATA_SETS = {
    "SWAG": {"sent1": "So.", "sent2": "Why?", "ending0": "iron", "ending1": "gas", "label": 1},
    "HellaSwag": {"ctx_a": "So.", "ctx_b": "Why?", "endings": OPTIONS, "label": "1"},
    "CosmosQA": {**SAID, "answer1": "gas", "answer0": "iron", "label": "1"},
    "Social IQa": {**SAID, "answerA": "iron", "answerB": "gas", "label": "2"},
    "ReClor": {**SAID, "answers": OPTIONS, "label": 1, "id_string": "t"},
    "RACE": {"article": "So.", **WHY, "options": OPTIONS, "answer": "B"},
    "C3": {"context": ["So."], **WHY, "choice": OPTIONS, "answer": "gas"},
    "DREAM": {"dialogue": ["So."], **WHY, "choice": OPTIONS, "answer": "gas"},
    "COPA": {"premise": "So.", **WHY, "choice1": "iron", "choice2": "gas", "label": 1},
    "ARC": {**WHY, "choices": TWO, "answerKey": "2"},
    "MMLU": {**WHY, "choices": OPTIONS, "answer": 1, "subject": "chemistry"},
    "LogiQA": {"context": "So.", "query": "Why?", "options": OPTIONS, "correct_option": 1},
    "LogiQA 2": {"text": "So.", **WHY, "options": OPTIONS, "answer": 1, "type": {"x": True}},
    "MMLU-Pro": {**WHY, "options": OPTIONS, "answer": "B", "answer_index": 1},
    "MedQA": {**WHY, "answer": "gas", "options": LETTERED, "answer_idx": "B"},
    "MedMCQA": {**WHY, "opa": "iron", "opb": "gas", "cop": 1, "exp": "x"},
    "C-Eval": {**WHY, "A": "iron", "B": "gas", "answer": "B"},
    "MMMLU": {"Question": "Why?", "A": "iron", "B": "gas", "Answer": "B", "Subject": "x"},
    "AQuA": {**WHY, "options": OPTIONS, "rationale": "x", "correct": "B"},
    "AGIEval": {"passage": "So.", **WHY, "options": OPTIONS, "label": "B", "answer": None},
    "QuaRTz": {**WHY, "choices": TWO, "answerKey": "2", "para": "So."},
    "QuAIL": {**SAID, "answers": OPTIONS, "correct_answer_id": 1},
    "Belebele": {
        "flores_passage": "So.",
        **WHY,
        "mc_answer1": "iron",
        "mc_answer2": "gas",
        "correct_answer_num": "2",
    },
    "ARC as published": {"question": {"stem": "Why?", "choices": NAMED}, "answerKey": "B"},
    "OpenBookQA": {"question_stem": "Why?", "choices": TWO, "answerKey": "2"},
    "PIQA": {"goal": "Why?", "sol1": "iron", "sol2": "gas", "label": 1},
    "WinoGrande": {"sentence": "Why?", "option1": "iron", "option2": "gas", "answer": "2"},
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_other_data_sets_are_read_as_published(name, read, caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        (example,) = read(DATA_SETS[name])
        assert read(json.dumps([DATA_SETS[name]], indent=1), name="data.json") == [example]
        if all(isinstance(value, str | int) for value in DATA_SETS[name].values()):
            lines = (",".join(map(str, row)) for row in (DATA_SETS[name], DATA_SETS[name].values()))
            assert read(*lines, name="data.csv") == [example]
    context = "So." if "So." in str(DATA_SETS[name]) else ""
    name = DATA_SETS[name].get("id_string", "0")
    assert example == ChoiceExample(name, context, "Why?", ("iron", "gas"), 1)


@pytest.mark.parametrize(
    "one",
    [
        {**WHY, "correct_answer": "iron", "distractor1": "gas", "support": "So."},  # SciQ
        {"Question": "Why?", "Correct Answer": "iron", "Incorrect Answer 1": "gas"},  # GPQA
    ],
)
def test_the_place_of_an_option_does_not_show_whether_it_is_correct(one, read):
    context = one.get("support", "")
    assert read(one) == [ChoiceExample("0", context, "Why?", ("gas", "iron"), 1)]


@pytest.mark.parametrize(
    "cell",
    [
        '["iron", "gas"]',
        "['iron', 'gas']",
        "{'label': array(['A', 'B']), 'text': array(['iron', 'gas'], dtype=object)}",
    ],
)
def test_options_are_lists_in_cells(cell, read):
    lines = "question\tchoices\tanswer", f"Why?\t{cell}\tB"
    assert read(*lines, name="data.tsv") == [ChoiceExample("0", "", "Why?", ("iron", "gas"), 1)]


def test_only_the_last_options_may_be_missing(read):
    four = {"sent1": "So.", "sent2": "Why?", **{f"ending{n}": f"{n}." for n in range(4)}}
    last, second = ({k: v for k, v in four.items() if k != f"ending{n}"} for n in (3, 1))
    assert read({**four, "label": 0}, {**last, "label": 2})[1].options == ("0.", "1.", "2.")
    with pytest.raises(ValueError, match=r"line 2 of .*options\[1\] must be text"):
        read({**four, "label": 0}, {**second, "label": 2})


def test_errors_name_the_keys_that_were_found_and_expected(read):
    with pytest.raises(ValueError, match=r"'context', 'q'.*context, question, options, label"):
        read({"context": "c", "q": "?"})


def test_numbers_that_may_count_from_one_are_logged(read, caplog):
    for labels, is_warned in ((["1", 1], True), (["1", "B"], False), ([0, 1], False)):
        caplog.clear()
        read(*(row(label=label) for label in labels))
        assert ("1 selects the second option" in caplog.text) == is_warned


@pytest.mark.parametrize("bad", ["{", row(label=7), row(options="ab"), row(question=None)])
def test_one_percent_of_malformed_rows_is_skipped(bad, read, caplog):
    rows = [row()] * 100
    assert len(read(*rows[:99], bad)) == 99
    assert ", skipped (line 100). The first: " in caplog.text
    with pytest.raises(ValueError, match=r"line 99.*2 of 100"):
        read(*rows[:98], bad, "{")


NO_LABEL = [None, "-", ""]


@pytest.mark.parametrize(
    ("split", "labels", "expected", "warning"),
    [
        (TRAIN, NO_LABEL, None, r"No question has a label in .*data\.jsonl.*'label'"),
        (DEV, [0, *NO_LABEL, 1], [0, 1], "rows=3 with no label, skipped (lines 2, 3, 4)"),
        (TEST, [1, 0], [1, 0], ""),
        (TEST, NO_LABEL, NO_LABEL[:1] * 3, ""),
        (TEST, [1, None], [None, None], "rows=1 with no label, while other questions have labels"),
        (TEST, [1, -1], [None, None], "rows=1 with no label, while other questions have labels"),
        (DEV, [0] * 9, [0] * 9, ""),
        (DEV, [0] * 9 + [1], [0] * 9 + [1], ""),
        (DEV, [0] * 10, [0] * 10, "all 10 questions have the label 'A'"),
    ],
)
def test_questions_without_a_label(split, labels, expected, warning, read, caplog):
    """Labels of a test file are used if all are valid."""
    rows = [row(label=label) for label in labels]
    if expected is None:
        with pytest.raises(ValueError, match=warning):
            read(*rows, split=split)
        return
    with caplog.at_level(logging.WARNING):
        assert [example.label for example in read(*rows, split=split)] == expected
    assert warning in caplog.text
    assert bool(caplog.records) == bool(warning)
