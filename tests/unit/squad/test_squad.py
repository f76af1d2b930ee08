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


def written(tmp_path, value):
    path = tmp_path / "questions.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return str(path)


def read(tmp_path, value, version=1, is_training=True):
    path = written(tmp_path, value)
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


@pytest.mark.parametrize(
    "value",
    [
        {"data": [{"context": CONTEXT, **entry()}]},
        [
            {
                "context_id": "x",
                "context_text": CONTEXT,
                "qas": [
                    {"query_id": "a", "query_text": "What is the Tejo?", "answers": ["a river"]}
                ],
            }
        ],
    ],
    ids=["question next to context", "older CMRC"],
)
def test_other_layouts_are_read(tmp_path, value):
    data = read(tmp_path, value)
    assert data.contexts == [CONTEXT]
    assert data.questions == [Question("a", "What is the Tejo?", 0, (("a river", 12),), False)]


def test_whole_numbers_may_be_floats(tmp_path):  # as in an edition of CMRC 2018
    whole = squad(entry(7, answers=[("a river", 12)]), entry(11))
    written_as_floats = squad(entry(7.0, answers=[("a river", 12.0)]), entry(11))
    data = read(tmp_path, "\ufeff" + json.dumps(written_as_floats))
    assert data == read(tmp_path, whole)
    assert [question.qas_id for question in data.questions] == ["7", "11"]
    assert isinstance(data.questions[0].answers[0][1], int)


def test_answers_to_predict_are_unchanged(tmp_path, caplog):
    answers = [("a river", 12), ("river", 13), ("nowhere", 900), ("", 0)]
    without = entry("b")
    del without["answers"]
    none = {**entry("c"), "answers": None}
    data = read(tmp_path, squad(entry("a", answers=answers), without, none), is_training=False)
    assert [question.answers for question in data.questions] == [tuple(answers), (), ()]
    assert not any(question.is_impossible for question in data.questions)
    assert not caplog.messages


def test_unanswerable_questions(tmp_path, caplog):
    value = squad(
        entry("a"),
        entry("b", answers=[], is_impossible=True),
        entry("c", answers=[("a river", 12)], is_impossible=True),
        entry("d", answers=[]),
        entry("e", answers=[("", 3)]),
    )
    data = read(tmp_path, value, version=2)
    assert [question.is_impossible for question in data.questions] == [False] + [True] * 4
    assert all(not question.answers for question in data.questions[1:])
    assert len(caplog.messages) == 1
    assert "rows=2 with no answer; treated as unanswerable (ids d, e)" in caplog.messages[0]
    dev = read(tmp_path, value, version=2, is_training=False)
    assert [question.is_impossible for question in dev.questions] == [0, 1, 1, 0, 0]
    assert dev.questions[2].answers == (("a river", 12),)


@pytest.mark.parametrize("is_training", [True, False])
def test_unanswerable_questions_in_version_1_are_reported(tmp_path, caplog, is_training):
    newer = squad(entry("a"), entry("b", answers=[], is_impossible=True))
    read(tmp_path, newer, is_training=is_training)
    assert len(caplog.messages) == 1
    assert "`squad_version`=1" in caplog.messages[0]
    assert "(id b)" in caplog.messages[0]
    assert ("target" in caplog.messages[0]) == is_training
    read(tmp_path, newer, version=2)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("answer", "taken", "warning"),
    [
        (("Tejo", 40), ("Tejo", 40), None),
        (("Tejo", 22), ("Tejo", 4), "corrected"),  # the first of two at the same distance
        (("Tejo", 23), ("Tejo", 40), "corrected"),
        (("Tejo", -1), ("Tejo", 4), "first occurrence"),
        (("tejo", 3), ("tejo", 3), "using its answer_start"),
    ],
)
def test_position_of_the_answer(tmp_path, caplog, answer, taken, warning):
    data = read(tmp_path, squad(entry(answers=[answer])))
    assert data.questions[0].answers == (taken,)
    assert len(caplog.messages) == (warning is not None)
    if warning:
        assert warning in caplog.messages[0]
        assert "(id a)" in caplog.messages[0]


def test_one_answer_is_trained_on(tmp_path, caplog):
    value = squad(*(entry(name, answers=[("Tejo", 4), ("a river", 12)]) for name in "abcdefg"))
    data = read(tmp_path, value)
    assert all(question.answers == (("Tejo", 4),) for question in data.questions)
    assert len(caplog.messages) == 1
    assert "rows=7 with several answers" in caplog.messages[0]
    assert "(ids a, b, c, d, e, ...)" in caplog.messages[0]


def test_lone_surrogates_do_not_move_answers(tmp_path):
    value = squad(
        entry("\ud800", "\ud800", [("b\ud800", 4)]), context="a\ud83d\ude00\udc00 b\ud800"
    )
    data = read(tmp_path, value)
    assert (data.questions[0].qas_id, data.questions[0].question) == ("\ufffd", "\ufffd")
    assert data.contexts == ["a😀\ufffd b\ufffd"]
    assert data.questions[0].answers == (("b\ufffd", 4),)


BROKEN_FILES = [
    ('{"data": [\n  {"paragraphs": [}]}', ["JSON", "line 2, column 19"]),
    ("", ["empty"]),
    ('{"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}', ["contains no question"]),
    ('{"data": [3]}', ["data[0] must be an object"]),
]
BROKEN_QUESTIONS = [
    ({"id": None}, ["qas[1]", "`id`"]),
    ({"id": "a"}, ["'a'", "data[0].paragraphs[0].qas[0]", "qas[1]"]),
    ({"answers": []}, ["'b'", "has no answer", "`squad_version`=1"]),
    ({"answers": [{"text": "x", "answer_start": "3"}]}, ["answers[0].answer_start", "'3'"]),
    ({"answers": [{"text": "the sea", "answer_start": 41}]}, ["'b'", "41", "45 char"]),
]


@pytest.mark.parametrize(
    ("value", "words"),
    BROKEN_FILES
    + [(squad(entry("a"), {**entry("b"), **more}), words) for more, words in BROKEN_QUESTIONS],
)
def test_errors_name_the_file_and_the_keys(tmp_path, value, words):
    with pytest.raises(ValueError, match=r"questions\.json") as caught:
        read(tmp_path, value)
    message = str(caught.value)
    assert len(message) < 1000
    assert all(word in message for word in words), message
