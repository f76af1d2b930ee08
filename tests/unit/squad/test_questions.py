"""Answering questions of files and streams: one JSON object per line, in order."""

import io
import json
from types import SimpleNamespace

import pytest

from albert_tf.data import streams
from albert_tf.squad import answerer as answering
from albert_tf.squad import answers
from albert_tf.squad.answerer import Answerer, PlainQuestion, answer_file, check_questions
from albert_tf.squad.answers import AnswerSettings
from tests.unit.squad.table_predictor import LENGTH, TablePredictor

STRIDE, QUERY = 11, 12


@pytest.fixture
def new_answerer(tokenizer):
    def new(version: int = 1, **options) -> Answerer:
        options = {"doc_stride": STRIDE, "max_query_length": QUERY, **options}
        settings = AnswerSettings(version, LENGTH, **options)
        return Answerer(TablePredictor(version), tokenizer, settings)

    return new


CONTEXT = "The Éloïse lighthouse, built in 1874,\n was painted \U0001f600 in red and white stripes."
QUESTIONS = [
    PlainQuestion("a", CONTEXT, "Who painted the lighthouse?"),
    PlainQuestion(17, "  one\u3000two  three\n", "two?"),
    PlainQuestion("3", CONTEXT, "When was it built?"),
    PlainQuestion("a", "the number of all things in the world is large. " * 30, "What is large?"),
    PlainQuestion("\u5317", "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\u3002", "\uff1f"),
]


def as_lines(questions) -> bytes:
    entries = (
        {"id": q.question_id, "context": q.context, "question": q.question} for q in questions
    )
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()


def answered(answerer, data: bytes, tmp_path) -> list[dict]:
    """Returns the objects that are written for a file with this content."""
    source, target = tmp_path / "questions.json", tmp_path / "answers.jsonl"
    source.write_bytes(data)
    answer_file(str(source), answerer, str(target))
    text = target.read_bytes().decode()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def json_of(answerer, questions) -> list[dict]:
    """Returns the objects that are written for these questions."""
    found = answerer.answer_group(questions)
    return [a.to_json(q.question_id) for q, a in zip(questions, found, strict=True)]


@pytest.mark.parametrize("version", [1, 2])
def test_objects_contain_answers_and_their_ranges(new_answerer, tmp_path, version):
    objects = answered(new_answerer(version), as_lines(QUESTIONS), tmp_path)
    assert [entry["id"] for entry in objects] == ["a", 17, "3", "a", "\u5317"]
    keys = ["id", "answer", "probability", "start", "end"]
    keys += ["is_answered", "null_odds"] * (version == 2) + ["n_best"]
    for entry, question in zip(objects, QUESTIONS, strict=True):
        assert list(dict.fromkeys(entry)) == list(dict.fromkeys(keys))
        best = entry["n_best"][0]
        assert best == {name: entry[name] for name in best}
        shares = [found["probability"] for found in entry["n_best"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1, abs=1e-9)
        for found in entry["n_best"]:
            assert list(found) == ["answer", "probability", "start", "end"]
            assert question.context[found["start"] : found["end"]] == found["answer"]
            assert found["answer"] == found["answer"].strip()
    assert all(entry["answer"] for entry in objects)


@pytest.mark.parametrize("version", [1, 2])
def test_answers_do_not_depend_on_groups_and_order(new_answerer, tmp_path, monkeypatch, version):
    alone = [json_of(new_answerer(version), [question])[0] for question in QUESTIONS]
    assert answered(new_answerer(version), as_lines(QUESTIONS), tmp_path) == alone
    backwards = answered(new_answerer(version), as_lines(QUESTIONS[::-1]), tmp_path)
    assert backwards == alone[::-1]
    monkeypatch.setattr(answers, "_QUESTIONS_AT_ONCE", 1)
    assert answered(new_answerer(version), as_lines(QUESTIONS), tmp_path) == alone
    monkeypatch.setattr(answering, "QUESTIONS_AT_ONCE", 2)
    assert answered(new_answerer(version), as_lines(QUESTIONS), tmp_path) == alone


@pytest.mark.parametrize(("above", "is_answered"), [(0.0, False), (0.25, True), (-0.25, False)])
def test_null_odds_from_the_threshold_are_unanswered(new_answerer, above, is_answered):
    (free,) = json_of(new_answerer(2), QUESTIONS[:1])
    assert free["is_answered"]
    (bound,) = json_of(new_answerer(2, threshold=free["null_odds"] + above), QUESTIONS[:1])
    assert (bound["is_answered"], bound["null_odds"]) == (is_answered, free["null_odds"])
    nothing = {"answer": "", "probability": None, "start": None, "end": None, "is_answered": False}
    assert bound == (free if is_answered else {**free, **nothing})


@pytest.mark.parametrize("version", [1, 2])
def test_questions_without_candidates_are_unanswered(new_answerer, version):
    questions = [PlainQuestion("a", "", "who?"), *QUESTIONS[:1], PlainQuestion("b", " \n", "")]
    answerer = new_answerer(version)
    first, second, third = json_of(answerer, questions)
    assert second["answer"]
    for entry in (first, third):
        assert (entry["answer"], entry["n_best"]) == ("", [])
        assert entry["probability"] is entry["start"] is entry["end"] is None
        assert entry.get("is_answered", False) is False


def test_lone_surrogates_do_not_move_offsets(new_answerer, tmp_path):
    contexts = ["the \ud83d world \U0001f600 e\u0301", "\ude00the\ud83d world \ud83d"] * 3
    questions = [PlainQuestion(i, context, "the \ud83d") for i, context in enumerate(contexts)]
    objects = answered(new_answerer(), as_lines(questions), tmp_path)
    for entry, question in zip(objects, questions, strict=True):
        whole = question.context.translate({0xD83D: "\ufffd", 0xDE00: "\ufffd"})
        for found in entry["n_best"]:
            assert whole[found["start"] : found["end"]] == found["answer"]
    assert any("\ufffd" in found["answer"] for entry in objects for found in entry["n_best"])


def test_errors_name_the_line(new_answerer, tokenizer, tmp_path, monkeypatch, capsysbinary):
    monkeypatch.setattr(streams, "_LINES_AT_ONCE", 1)
    data, message = as_lines(QUESTIONS[:2]) + b'"\xe9"\n' + as_lines(QUESTIONS[2:]), "line 3 .*0xe9"
    source, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    source.write_bytes(data)
    with pytest.raises(ValueError, match=rf"questions\.jsonl.*{message}"):
        check_questions(str(source), tokenizer)
    for path in (None, str(output)):  # earlier lines are answered; no incomplete file remains
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        with pytest.raises(ValueError, match=f"the standard input.*{message}"):
            answer_file("-", new_answerer(), path)
    lines = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a", 17]
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


def test_answers_are_flushed_before_the_next_lines_are_read(
    new_answerer, monkeypatch, capsysbinary
):
    lines = as_lines(QUESTIONS).splitlines(keepends=True)
    written = []

    class Stream:
        def read(self, size):
            written.append(capsysbinary.readouterr().out.count(b"\n"))
            return lines.pop(0) if lines else b""

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Stream()))
    answer_file("-", new_answerer())
    assert written == [0, 1, 1, 1, 1, 1]


def test_truncated_questions_are_logged_once_at_the_end(
    new_answerer, tokenizer, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO", logger="absl")
    monkeypatch.setattr(answering, "QUESTIONS_AT_ONCE", 2)
    texts = {number: " ".join(["the"] * number) for number in (QUERY - 1, QUERY, QUERY + 1, 40)}
    assert [len(tokenizer.encode(text)) for text in texts.values()] == list(texts)
    questions = [*QUESTIONS, *(PlainQuestion(f"e{n}", "", text) for n, text in texts.items())]
    answered(new_answerer(), as_lines(questions), tmp_path)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "Answered 9 questions" in caplog.messages[0]
    assert "rows=2" in caplog.messages[1]
    assert f"(ids e{QUERY + 1}, e40)" in caplog.messages[1]
