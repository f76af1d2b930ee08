"""Questions in, answers with their places out: a JSON object a line, in order."""

import io
import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.finetuning.predictor import Predictor
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.squad import ask as squad_prediction
from albert_tf.squad.answers import OUTPUTS, AnswerSelector, AnswerSettings
from albert_tf.squad.ask import (
    PlainQuestion,
    QuestionAnswerer,
    answer_file,
    answer_questions,
    check_questions,
)
from albert_tf.squad.data import read_squad
from albert_tf.squad.features import squad_features
from albert_tf.training.distribution import create_strategy
from tests.table_predictor import ENDS, LENGTH, STARTS, TablePredictor

STRIDE, QUERY = 11, 12


@pytest.fixture
def new_answerer(tokenizer):
    def new(version: int = 1, **options) -> QuestionAnswerer:
        options = {"doc_stride": STRIDE, "max_query_length": QUERY, **options}
        settings = AnswerSettings(version, LENGTH, **options)
        return QuestionAnswerer._of(TablePredictor(version), tokenizer, settings)

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
    """The objects that a file of these bytes gives."""
    source, target = tmp_path / "questions.json", tmp_path / "answers.jsonl"
    source.write_bytes(data)
    answer_file(str(source), answerer, str(target))
    text = target.read_bytes().decode()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def json_of(answerer, questions) -> list[dict]:
    """The objects that the answers are written as."""
    answers = answerer._answer(questions)
    return [a.to_json(q.question_id) for q, a in zip(questions, answers, strict=True)]


@pytest.mark.parametrize("version", [1, 2])
def test_answers_are_those_parts_of_the_context_that_they_say(new_answerer, tmp_path, version):
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
def test_a_question_is_answered_alone_as_among_others(new_answerer, tmp_path, monkeypatch, version):
    """However many are answered at once, and wherever the lines stand."""
    alone = [json_of(new_answerer(version), [question])[0] for question in QUESTIONS]
    assert answered(new_answerer(version), as_lines(QUESTIONS), tmp_path) == alone
    backwards = answered(new_answerer(version), as_lines(QUESTIONS[::-1]), tmp_path)
    assert backwards == alone[::-1]
    monkeypatch.setattr(squad_prediction, "_QUESTIONS_AT_ONCE", 2)
    assert answered(new_answerer(version), as_lines(QUESTIONS), tmp_path) == alone


@pytest.mark.parametrize("version", [1, 2])
def test_a_model_answers_as_in_an_evaluation(golden, tokenizer, tmp_path, version):
    """A real model, from the same file: texts, probabilities and null odds."""
    keras.utils.set_random_seed(3)
    config = AlbertConfig(
        vocab_size=1000,
        embedding_size=8,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=LENGTH,
        initializer_range=0.3,
    )
    model = (
        AlbertForQuestionAnswering(config)
        if version == 1
        else AlbertForQuestionAnsweringWithBeamSearch(config, STARTS, ENDS)
    )
    predictor = Predictor(
        model,
        create_strategy("one_device"),
        outputs=OUTPUTS[version],
        max_seq_length=LENGTH,
        tokens_per_batch=20 * LENGTH,
    )
    path = golden / "squad" / f"dev-v{version}.json"
    data = read_squad(str(path), version=version, is_training=False)
    features = squad_features(
        data,
        tokenizer,
        max_seq_length=LENGTH,
        doc_stride=STRIDE,
        max_query_length=QUERY,
        is_training=False,
    )
    selector = AnswerSelector(data, features, version=version, n_best_size=7, max_answer_length=9)
    for rows, outputs in predictor.batches(features.sequences):
        selector.add(rows, outputs)
    expected = selector.answers()
    threshold = None if version == 1 else float(np.median(expected.null_odds))
    settings = AnswerSettings(version, LENGTH, STRIDE, QUERY, 7, 9, threshold)
    answerer = QuestionAnswerer._of(predictor, tokenizer, settings)
    objects = answered(answerer, path.read_bytes(), tmp_path)
    assert [entry["id"] for entry in objects] == expected.ids
    no_spans = ["empty"] if version == 1 else [""]
    texts = expected.predictions(threshold)
    for number, (entry, question) in enumerate(zip(objects, data.questions, strict=True)):
        found, candidates = entry["n_best"], expected.candidates[number]
        if found:
            assert [best["answer"] for best in found] == [best.text for best in candidates]
            np.testing.assert_allclose(
                [best["probability"] for best in found],
                [best.probability for best in candidates],
                rtol=0,
                atol=1e-6,
            )
        else:
            assert [best.text for best in candidates] == no_spans
        if version == 2:
            assert entry["null_odds"] == pytest.approx(expected.null_odds[number], abs=1e-6)
        if found or version == 2:
            assert entry["answer"] == texts[question.qas_id]
    if version == 2:
        assert 0.3 < np.mean([entry["is_answered"] for entry in objects]) < 0.6


@pytest.mark.parametrize(("above", "is_answered"), [(0.0, False), (0.25, True), (-0.25, False)])
def test_null_odds_from_the_threshold_on_are_no_answer(new_answerer, above, is_answered):
    (free,) = json_of(new_answerer(2), QUESTIONS[:1])
    assert free["is_answered"]
    (bound,) = json_of(new_answerer(2, threshold=free["null_odds"] + above), QUESTIONS[:1])
    assert (bound["is_answered"], bound["null_odds"]) == (is_answered, free["null_odds"])
    nothing = {"answer": "", "probability": None, "start": None, "end": None, "is_answered": False}
    assert bound == (free if is_answered else {**free, **nothing})


@pytest.mark.parametrize("version", [1, 2])
def test_without_any_candidate_nothing_is_answered(new_answerer, version):
    """And no text is, such as "empty", that the context does not have."""
    questions = [PlainQuestion("a", "", "who?"), *QUESTIONS[:1], PlainQuestion("b", " \n", "")]
    answerer = new_answerer(version)
    first, second, third = json_of(answerer, questions)
    assert second["answer"]
    for entry in (first, third):
        assert (entry["answer"], entry["n_best"]) == ("", [])
        assert entry["probability"] is entry["start"] is entry["end"] is None
        assert entry.get("is_answered", False) is False


def test_halves_of_characters_are_replaced_and_keep_their_places(new_answerer, tmp_path):
    """They are no text for a tokenizer, but the offsets are those of the context as given."""
    contexts = ["the \ud83d world \U0001f600 e\u0301", "\ude00the\ud83d world \ud83d"] * 3
    questions = [PlainQuestion(i, context, "the \ud83d") for i, context in enumerate(contexts)]
    objects = answered(new_answerer(), as_lines(questions), tmp_path)
    for entry, question in zip(objects, questions, strict=True):
        whole = question.context.translate({0xD83D: "\ufffd", 0xDE00: "\ufffd"})
        for found in entry["n_best"]:
            assert whole[found["start"] : found["end"]] == found["answer"]
    assert any("\ufffd" in found["answer"] for entry in objects for found in entry["n_best"])


def test_questions_that_are_cut_off_are_counted_and_those_that_just_fit_are_not(
    new_answerer, tokenizer
):
    texts = {number: " ".join(["the"] * number) for number in (QUERY - 1, QUERY, QUERY + 1, 40)}
    assert [len(tokenizer.encode(text)) for text in texts.values()] == list(texts)
    answerer = new_answerer()
    answerer._answer([PlainQuestion(n, "the world " * 50, text) for n, text in texts.items()])
    cut = f"a question longer than --max_query_length={QUERY}, cut off"
    assert answerer.issues.locations == {cut: [str(QUERY + 1), "40"]}


BAD = [
    (b'{"context": "a"}', r"line 3: question is missing"),
    (b"{]", r"JSON: .* line 3"),
    (b'"\xe9"', r"line 3 .*0xe9"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_an_entry_that_cannot_be_used_is_named(
    new_answerer, tmp_path, monkeypatch, capsysbinary, bad, message
):
    data = as_lines(QUESTIONS[:2]) + bad + b"\n" + as_lines(QUESTIONS[2:])
    # From a stream, what came before it is answered.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(ValueError, match=f"the standard input.*{message}"):
        answer_file("-", new_answerer())
    lines = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a", 17]
    # A file is looked through first.
    path, output = tmp_path / "questions.jsonl", tmp_path / "out" / "answers.jsonl"
    path.write_bytes(data)
    answerer = new_answerer()
    with pytest.raises(ValueError, match=message):
        check_questions(str(path))
    with pytest.raises(ValueError, match=rf"questions\.jsonl.*{message}"):
        answer_file(str(path), answerer, str(output))
    assert answerer.num_questions == 0
    # A stream into a file leaves no half of one.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(ValueError, match=message):
        answer_file("-", answerer, str(output))
    assert answerer.num_questions == 2
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["questions.jsonl"]


@pytest.mark.parametrize("data", [b"", b"[]", b"\n\n"])
def test_no_question_is_no_answer(new_answerer, tmp_path, data):
    assert answered(new_answerer(), data, tmp_path) == []


def test_each_group_reaches_the_reader_before_the_next_one_is_asked_for(new_answerer):
    flushed = []

    class Output(io.BytesIO):
        def flush(self):
            flushed.append(self.getvalue().count(b"\n"))

    def groups():
        yield QUESTIONS[:1]
        assert flushed == [1]
        yield QUESTIONS[1:4]
        assert flushed == [1, 4]

    answer_questions(groups(), new_answerer(), Output())
    assert flushed == [1, 4]


def test_what_was_odd_is_said_once_at_the_end(new_answerer, tmp_path, monkeypatch):
    messages = []
    for level in ("info", "warning"):
        monkeypatch.setattr(
            logging,
            level,
            lambda text, *values, level=level: messages.append((level, text % values)),
        )
    monkeypatch.setattr(squad_prediction, "_QUESTIONS_AT_ONCE", 2)
    questions = [*QUESTIONS, *(PlainQuestion(f"e{i}", "", "the " * 40) for i in range(3))]
    answered(new_answerer(), as_lines(questions), tmp_path)
    assert messages == [
        ("info", "Answered 8 questions"),
        (
            "warning",
            "`predict_json`: rows=3 with a question longer than --max_query_length=12, cut off "
            "(ids e0, e1, e2)",
        ),
    ]
