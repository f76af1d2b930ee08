import json

import pytest

from albert_tf.squad.data import Question, locate_answer, read_squad

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


def error(tmp_path, value, **settings):
    with pytest.raises(ValueError, match=r"questions\.json") as caught:
        read(tmp_path, value, **settings)
    return str(caught.value)


def test_contexts_stand_once_and_questions_in_order(tmp_path):
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
    ids=["question beside context", "old CMRC"],
)
def test_other_layouts(tmp_path, value):
    data = read(tmp_path, value)
    assert data.contexts == [CONTEXT]
    assert data.questions == [Question("a", "What is the Tejo?", 0, (("a river", 12),), False)]


def test_whole_numbers_may_be_written_as_floats(tmp_path):
    """As in an edition of CMRC 2018."""
    whole = squad(entry(7, answers=[("a river", 12)]), entry(11))
    written_as_floats = squad(entry(7.0, answers=[("a river", 12.0)]), entry(11))
    data = read(tmp_path, "\ufeff" + json.dumps(written_as_floats))
    assert data == read(tmp_path, whole)
    assert [question.qas_id for question in data.questions] == ["7", "11"]
    assert isinstance(data.questions[0].answers[0][1], int)


def test_files_to_predict_from_keep_every_answer_as_it_is(tmp_path, caplog):
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


def test_a_file_of_the_other_version_is_noticed(tmp_path, caplog):
    newer = squad(entry("a"), entry("b", answers=[], is_impossible=True))
    read(tmp_path, newer, version=1)
    read(tmp_path, newer, version=1, is_training=False)
    read(tmp_path, squad(entry("a")), version=2)
    assert len(caplog.messages) == 3
    assert "SQuAD 2.0, trained towards position 0; --squad_version=1" in caplog.messages[0]
    assert "(id b)" in caplog.messages[1]
    assert "trained" not in caplog.messages[1]
    assert "looks like SQuAD 1.1" in caplog.messages[2]
    read(tmp_path, squad(entry("a")), version=2, is_training=False)
    read(tmp_path, newer, version=2)
    assert len(caplog.messages) == 3


@pytest.mark.parametrize(
    ("answer", "taken", "warning"),
    [
        (("Tejo", 4), ("Tejo", 4), None),
        (("Tejo", 40), ("Tejo", 40), None),
        (("Tejo", 21), ("Tejo", 4), "corrected"),
        (("Tejo", 23), ("Tejo", 40), "corrected"),
        (("Tejo", 1000), ("Tejo", 40), "corrected"),
        (("Tejo", -1), ("Tejo", 4), "first occurrence"),
        (("tejo", 3), ("tejo", 3), "using its answer_start"),
    ],
)
def test_where_an_answer_is(tmp_path, caplog, answer, taken, warning):
    data = read(tmp_path, squad(entry(answers=[answer])))
    assert data.questions[0].answers == (taken,)
    assert len(caplog.messages) == (warning is not None)
    if warning:
        assert warning in caplog.messages[0]
        assert "(id a)" in caplog.messages[0]


def test_nearest_place():
    assert locate_answer("abcabc", "abc", 1) == 0
    assert locate_answer("abcabc", "abc", 2) == 3
    assert locate_answer("aXXXa", "a", 2) == 0  # as near: the first
    assert locate_answer("aaaa", "aa", 1) == 1
    assert locate_answer("abc", "c", -5) == 2
    assert locate_answer("abc", "x", 1) == -1
    assert locate_answer("", "x", 0) == -1


def test_one_answer_is_trained_on(tmp_path, caplog):
    value = squad(*(entry(name, answers=[("Tejo", 4), ("a river", 12)]) for name in "abcdefg"))
    data = read(tmp_path, value)
    assert all(question.answers == (("Tejo", 4),) for question in data.questions)
    assert len(caplog.messages) == 1
    assert "rows=7 with several answers" in caplog.messages[0]
    assert "(ids a, b, c, d, e, ...)" in caplog.messages[0]


def test_half_a_character_moves_no_answer(tmp_path):
    value = squad(
        entry("\ud800", "\ud800", [("b\ud800", 4)]), context="a\ud83d\ude00\udc00 b\ud800"
    )
    data = read(tmp_path, value)
    assert (data.questions[0].qas_id, data.questions[0].question) == ("\ufffd", "\ufffd")
    assert data.contexts == ["a😀\ufffd b\ufffd"]
    assert data.questions[0].answers == (("b\ufffd", 4),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"data": [\n  {"paragraphs": [}]}', ["JSON", "line 2, column 19"]),
        ("", ["empty"]),
        ('{"articles": []}', ["context is missing", "articles"]),
        ('{"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}', ["holds no question"]),
        ('{"data": [3]}', ["data[0] must be an object"]),
        ('[{"context": 3, "qas": [{}]}]', ["[0].context must be text", "3"]),
    ],
)
def test_what_is_no_file_of_questions(tmp_path, text, words):
    message = error(tmp_path, text)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": None}, ["qas[1]", "`id`"]),
        ({"id": "a"}, ["'a'", "data[0].paragraphs[0].qas[0]", "qas[1]"]),
        ({"question": ["x"]}, ["qas[1].question", "['x']"]),
        ({"answers": []}, ["'b'", "has no answer", "`squad_version`=1"]),
        ({"answers": [{"answer_start": 3}]}, ["qas[1].answers[0].text"]),
        ({"answers": [{"text": "x", "answer_start": "3"}]}, ["answers[0].answer_start", "'3'"]),
        ({"answers": [{"text": "the sea", "answer_start": 41}]}, ["'b'", "41", "45 char"]),
        ({"answers": [{"text": "the sea", "answer_start": -3}]}, ["'the sea'", "-3"]),
    ],
)
def test_broken_questions(tmp_path, changes, words):
    message = error(tmp_path, squad(entry("a"), {**entry("b"), **changes}))
    assert len(message) < 1000
    assert all(word in message for word in words), message
