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


@pytest.mark.parametrize("is_training", [True, False])
def test_questions_without_ids_are_numbered(tmp_path, caplog, is_training):
    caplog.set_level("INFO", logger="absl")
    rows = [{key: row[key] for key in row if key != "id"} for row in ROWS]
    data = read(tmp_path, rows, is_training=is_training)
    assert [question.qas_id for question in data.questions] == ["1", "2"]
    (message,) = caplog.messages
    keys = "'title', 'context', 'question', 'answers'"
    assert f"as SQuAD (one question per row: {keys}; the ids are numbers from 1)" in message


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
    ("answer", "taken", "warnings"),
    [
        (("Tejo", 40), ("Tejo", 40), []),
        (("Tejo", 39), ("Tejo", 40), ["an incorrect answer_start, corrected"]),
        (("a river", -1), ("a river", 12), ["using the only occurrence"]),
        (("tejo", 4), ("Tejo", 4), ["differs in case or form"]),
        (("RIVER", 0), ("river", 14), ["corrected", "differs in case or form"]),
    ],
)
def test_position_of_the_answer(tmp_path, caplog, answer, taken, warnings):
    data = read(tmp_path, squad(entry(answers=[answer])))
    assert data.questions[0].answers == (taken,)
    assert len(caplog.messages) == len(warnings)
    for message, warning in zip(caplog.messages, warnings, strict=True):
        assert warning in message
        assert "(id a)" in message


NOWHERE = {"answers": [{"text": "nowhere", "answer_start": 3}]}
UNUSABLE = [
    (
        NOWHERE,
        "'nowhere' does not occur in the context of 45 characters, neither at `answer_start`=3",
    ),
    ({"question": None}, "question must be text. Received: None"),
    ({"answers": []}, "has no answer, but `squad_version`=1 needs one"),
    ({"answers": [{"text": 3}]}, "answers[0].text must be text"),
]


@pytest.mark.parametrize(("change", "reason"), UNUSABLE)
def test_few_unusable_questions_are_skipped(tmp_path, caplog, change, reason):
    good = [entry(str(number)) for number in range(99)]
    data = read(tmp_path, squad(*good[:7], {**entry("bad"), **change}, *good[7:]))
    assert [question.qas_id for question in data.questions] == [str(n) for n in range(99)]
    (message,) = caplog.messages
    assert "rows=1 with an error, skipped; the first: data[0]" in message
    assert reason in message
    assert message.endswith("(id bad)")
    with pytest.raises(ValueError, match=r"1 of 99\. At most 1%") as caught:
        read(tmp_path, squad(*good[:98], {**entry("bad"), **change}))
    assert reason in str(caught.value)
    assert "=-1" not in str(caught.value)


def test_questions_to_predict_are_not_lost_silently(tmp_path, caplog):
    good = [entry(str(number)) for number in range(98)]
    value = squad(*good, {**entry("b"), **NOWHERE}, {**entry("c"), "question": None})
    data = read(tmp_path, value, is_training=False)
    assert len(data.questions) == 99
    assert "rows=1 with an error, neither answered nor scored; the first: data[0]" in caplog.text
    with pytest.raises(ValueError, match=r"qas\[0\] and .*qas\[1\] have the same id, 'a'"):
        read(tmp_path, squad(entry("a"), entry("a")), is_training=False)
    assert len(read(tmp_path, squad(entry("a"), entry("a"))).questions) == 2
    assert "rows=1 with the id of another question, kept (id a)" in caplog.text


@pytest.mark.parametrize("version", [1, 2])
def test_training_needs_questions_with_answers(tmp_path, version):
    value = squad(*(entry(name, answers=[], is_impossible=True) for name in "abc"))
    with pytest.raises(ValueError, match=r"no question has an answer.*SQuAD 1\.1.*2\.0.*'answers'"):
        read(tmp_path, value, version=version)
    assert len(read(tmp_path, value, version=version, is_training=False).questions) == 3


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


BROKEN_FILES = {
    "invalid.json": ('{"data": [\n  {"paragraphs": [}]}', ["JSON", "line 2, column 19"]),
    "empty.json": ("", ["empty"]),
    "unasked.json": (squad(), ["contains no question"]),
    "number.json": ({"data": [3]}, ["data[0] must be an object"]),
    "words.conll": ("The O\nTejo B-LOC\n", ["not valid JSON", "`question`"]),
    "labels.csv": ("text_a,label\nx,1\n", ["line 2", "'text_a', 'label'", "`context`"]),
    "ragged.csv": ("context,question\nLisbon, on the Tejo,What?\n", ["line 2", "at most 2 cells"]),
    "labels.jsonl": ('{"text_a": "x"}\n{"text_a": "y"}', ["line 1", "'text_a'", "`context`"]),
    "lengths.json": (
        {**ROW, "answers": {"text": ["a", "b"], "answer_start": [1]}},
        ["answers must be an object with lists of the same length"],
    ),
    "start.json": (
        squad({**entry("b"), "answers": [{"text": "x", "answer_start": "3"}]}),
        ["answers[0].answer_start", "'3'"],
    ),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_errors_name_the_file_and_the_keys(tmp_path, name):
    value, words = BROKEN_FILES[name]
    with pytest.raises(ValueError, match=name) as caught:
        read(tmp_path, value, name=name)
    message = str(caught.value)
    assert len(message) < 1000
    assert all(word in message for word in words), message
