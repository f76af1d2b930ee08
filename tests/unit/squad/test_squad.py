"""Reading files of SQuAD and CMRC 2018."""

import json

import pytest

from albert_tf.squad.data import Question, read_squad

CONTEXT = "The Tejo is a river. Lisbon lies on the Tejo."


def entry(qas_id="a", question="What is the Tejo?", answers=(("a river", 12),), **more):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": qas_id, "question": question, "answers": answers, **more}


def squad(*entries, context=CONTEXT):
    return {"version": "x", "data": [{"paragraphs": [{"context": context, "qas": [*entries]}]}]}


def written(tmp_path, value, name="questions.json"):
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return str(path)


def read(tmp_path, value, version=1, is_training=True, name="questions.json"):
    path = written(tmp_path, value, name)
    return read_squad(path, version=version, is_training=is_training)


def test_contexts_are_stored_once_and_questions_in_order(tmp_path):
    first = {"context": CONTEXT, "qas": [entry("a"), entry("b", answers=[("Tejo", 4)])]}
    other = {"context": "Porto.", "qas": [entry("c", "Where?", [("Porto", 0)])]}
    nothing = {"context": "Never asked about.", "qas": []}
    again = {"context": CONTEXT, "qas": [entry("d")]}
    data = read(tmp_path, {"data": [{"paragraphs": [first, nothing, other]}, again]})
    assert data.contexts == [CONTEXT, "Porto."]
    assert [question.qas_id for question in data.questions] == ["a", "b", "c", "d"]
    assert [question.paragraph for question in data.questions] == [0, 0, 1, 0]
    assert data.questions[2] == Question("c", "Where?", 1, (("Porto", 0),), False)
    assert data.path.endswith("questions.json")


RIVER, LISBON = "What is the Tejo?", "Where is Lisbon?"
ROW = {"id": "a", "title": "t", "context": CONTEXT, "question": RIVER}
ANSWER = {"text": "a river", "answer_start": 12}
OTHER = {**ROW, "id": "b", "question": LISBON}
LISTS = {"text": ["a river"], "answer_start": [12]}
ROWS = [{**ROW, "answers": LISTS}, {**OTHER, "answers": {"text": ["Lisbon"], "answer_start": [21]}}]
CSV = f"id,context,question,{{}}\na,{CONTEXT},{RIVER},{{}}\nb,{CONTEXT},{LISBON},{{}}\n"
LAYOUTS = {
    "datasets.jsonl": "\n".join(map(json.dumps, ROWS)),
    "list.json": ROWS,
    "run_qa.json": {"version": "0.1.0", "data": ROWS},
    "columns.json": {key: [row[key] for row in ROWS] for key in ROWS[0]},
    "list_of_answers.json": [{**ROW, "answers": [ANSWER]}, {**OTHER, "answers": ["Lisbon"]}],
    "korquad.json": {
        "data": [
            {"context": CONTEXT, "qas": [{**ROW, "answer": ANSWER}, {**OTHER, "answer": "Lisbon"}]}
        ]
    },
    "flat.json": [
        {**ROW, "answer_text": "a river", "answer_start": 12},
        {**OTHER, "answers.text": ["Lisbon"], "answers.answer_start": [21]},
    ],
    "marks.json": [
        {**row, "is_impossible": mark} for row, mark in zip(ROWS, ("false", 0), strict=True)
    ],
    "older_cmrc.json": [
        {
            "context_text": CONTEXT,
            "qas": [
                {"query_id": "a", "query_text": RIVER, "answers": ["a river"]},
                {"query_id": "b", "query_text": LISBON, "answers": ["Lisbon"]},
            ],
        }
    ],
    "passages.json": [
        {"qid": row["id"], "passage": CONTEXT, "query": row["question"], "answers": row["answers"]}
        for row in ROWS
    ],
    "pandas.csv": CSV.format(
        "answers",
        "\"{'text': array(['a river'], dtype=object), 'answer_start': array([12], dtype=int32)}\"",
        "\"{'text': ['Lisbon'], 'answer_start': [21]}\"",
    ),
    "texts.csv": CSV.format('answer,"answer_start"', "a river,12.0", "Lisbon,"),
    "texts.tsv": CSV.format("answer", "a river", "Lisbon").replace(",", "\t"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_other_layouts_are_read(tmp_path, name):
    data = read(tmp_path, LAYOUTS[name], name=name)
    assert data.contexts == [CONTEXT]
    assert data.questions == [
        Question("a", RIVER, 0, (("a river", 12),), False),
        Question("b", LISBON, 0, (("Lisbon", 21),), False),
    ]


TEJO, AGAIN, ANSWERED = ("Tejo", 4), ("Tejo", 40), ("a river", 12)
NOWHERE, EMPTY = ("nowhere", 3), ("", 0)
SOME = [
    entry("a"),
    entry("b", answers=[], is_impossible=True),
    entry("c", is_impossible=True),
    entry("d", answers=[]),
    entry("e", answers=[("", 3)]),
]
NAMELESS = [{"question": RIVER, "answers": [{"text": "a river"}]}, entry("b", answers=[])]
SEVEN = [entry(name, answers=[TEJO, ANSWERED]) for name in "abcdefg"]
TWICE = [entry("a"), entry("b"), entry("a")]
GOOD = [entry(str(number)) for number in range(99)]
LOST = [*GOOD[:7], entry("x", answers=[NOWHERE]), *GOOD[7:]]
TRAIN, TRAIN_2, DEV, DEV_2 = (1, True), (2, True), (1, False), (2, False)
CASES = [
    ([entry("a", answers=[ANSWERED, NOWHERE, EMPTY])], DEV, {"a": (ANSWERED, NOWHERE, EMPTY)}, []),
    ([{**entry("a"), "answers": None}], DEV, {"a": ()}, []),
    ([entry(7.0), entry(11)], TRAIN, {"7": (ANSWERED,), "11": (ANSWERED,)}, []),
    ([entry("a", answers=[("Tejo", 4.0)])], DEV, {"a": (TEJO,)}, []),
    (NAMELESS, TRAIN_2, {"1": (ANSWERED,), "b": (None,)},
     ["only occurrence (id 1)", "no answer; treated as unanswerable (id b)"]),
    (SOME, TRAIN_2, {"a": (ANSWERED,), **dict.fromkeys("bcde", (None,))},
     ["rows=2 with no answer; treated as unanswerable (ids d, e)"]),
    (SOME, DEV_2, {"b": (None,), "c": (ANSWERED, None), "d": (), "e": (("", 3),)}, []),
    (SOME[:2], TRAIN, {"b": (None,)}, ["=1 needs answers; the target is position 0 (id b)"]),
    (SOME[:2], DEV, {"b": (None,)}, ["although `squad_version`=1 needs answers (id b)"]),
    (SEVEN, TRAIN, dict.fromkeys("abcdefg", (TEJO,)),
     ["rows=7 with several answers; using the first (ids a, b, c, d, e, ...)"]),
    ([entry("a", answers=[AGAIN])], TRAIN, {"a": (AGAIN,)}, []),
    ([entry("a", answers=[("Tejo", 39)])], TRAIN, {"a": (AGAIN,)}, ["answer_start, corrected"]),
    ([entry("a", answers=[("tejo", 4)])], TRAIN, {"a": (TEJO,)}, ["differs in case or form"]),
    ([entry("a", answers=[("RIVER", 0)])], TRAIN, {"a": (("river", 14),)},
     ["an incorrect answer_start, corrected", "differs in case or form"]),
    (TWICE, TRAIN, {"a": (ANSWERED,)}, ["rows=1 with the id of another question, kept (id a)"]),
    (LOST, TRAIN, {"x": ...}, ["malformed values, skipped (id x). The first: "]),
    (LOST, DEV, {"x": (NOWHERE,)}, []),
    ([*GOOD, {**entry("x"), "question": None}], DEV, {"x": ...}, ["qas[99] has no 'question'"]),
    ([*GOOD, entry("x", answers=[])], TRAIN, {"x": ...}, ["'x' has no answer, but"]),
    ([entry("a", " ")], DEV, {"a": (ANSWERED,)}, ["rows=1 with an empty question, kept (id a)"]),
    (["x", *GOOD, entry("y")], DEV, {"x": ..., "y": (ANSWERED,)}, ["qas[0] must be an object"]),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "how", "expected", "warnings"), CASES)
def test_answers_and_warnings(tmp_path, caplog, entries, how, expected, warnings):
    """Unanswerable questions end with `None`; `...` stands for skipped questions."""
    questions = read(tmp_path, squad(*entries), *how).questions
    found = {q.qas_id: q.answers + (None,) * q.is_impossible for q in questions}
    assert {name: found.get(name, ...) for name in expected} == expected
    assert len(questions) == len(entries) - [*expected.values()].count(...)
    assert len(caplog.messages) == len(warnings)
    assert all(map(str.__contains__, caplog.messages, warnings)), caplog.messages


def test_the_log_names_the_columns(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    read(tmp_path, ROWS)
    assert "as JSON (context: 'context', question: 'question', id: 'id', answers: " in caplog.text
    assert "not used: 'title')" in caplog.text


def test_lone_surrogates_do_not_move_answers(tmp_path):
    value = squad(
        entry("\ud800", "\ud800", [("b\ud800", 4)]), context="a\ud83d\ude00\udc00 b\ud800"
    )
    data = read(tmp_path, value)
    assert data.questions[0] == Question("\ufffd", "\ufffd", 0, (("b\ufffd", 4),), False)
    assert data.contexts == ["a😀\ufffd b\ufffd"]


NONE = squad(*(entry(name, answers=[], is_impossible=True) for name in "abc"))
UNEQUAL = {**ROW, "answers": {"text": ["a", "b"], "answer_start": [1]}}
TEXT_START = squad({**entry("b"), "answers": [{"text": "x", "answer_start": "3"}]})
ERRORS = [
    ("invalid.json", '{"data": [\n  {"paragraphs": [}]}', TRAIN, ["JSON", "line 2, column 19"]),
    ("empty.json", "", TRAIN, ["empty"]),
    ("unasked.json", squad(), TRAIN, ["contains no question"]),
    ("header.csv", "context,question\n", DEV, ["contains no question"]),
    ("number.json", {"data": [3]}, DEV, ["'context'", "Its columns: 'data'"]),
    ("words.conll", "The O\nTejo B-LOC\n", TRAIN, ["not valid JSON", "`question`"]),
    ("labels.csv", "text_a,label\nx,1\n", TRAIN, ["'text_a', 'label'", "'context'"]),
    ("long.csv", "context,question\nLisbon, on the Tejo,What?\n", DEV, ["line 2", "3 instead"]),
    ("labels.jsonl", '{"text_a": "x"}\n{"text_a": "y"}', TRAIN, ["'text_a'", "'context'"]),
    ("unequal.json", UNEQUAL, TRAIN, ["line 1", "answers.text must be text. Received: ['a', 'b']"]),
    ("start.json", TEXT_START, TRAIN, ["answers[0].answer_start", "'3'"]),
    ("text.json", squad({**entry(), "answers": [{"text": 3}]}), DEV, ["[0].text must be text"]),
    ("few.json", squad(*GOOD[:98], *LOST[7:8]), TRAIN,
     ["'nowhere'", "45 characters, neither at `answer_start`=3", "1 of 99. At most 1%"]),
    ("found.json", squad(entry(answers=[("nowhere", -1)])), TRAIN, ["characters. Correct"]),
    ("twice.json", squad(*TWICE), DEV, ["the same id, 'a'"]),
    ("none.json", NONE, TRAIN, ["no question has an answer", "SQuAD 1.1", "2.0", "'answers'"]),
    ("none.json", NONE, TRAIN_2, ["no question has an answer", "'answers'"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "how", "words"), ERRORS)
def test_errors_name_the_file_and_the_problem(tmp_path, name, value, how, words):
    with pytest.raises(ValueError, match=name) as caught:
        read(tmp_path, value, *how, name)
    message = str(caught.value)
    assert len(message) < 1000
    assert all(word in message for word in words), message
