"""Answers selected in a graph, compared with those of `Answerer`."""

import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.squad.answers import AnswerSettings
from albert_tf.squad.ask import Answerer, PlainQuestion
from albert_tf.squad.export import GraphAnswerer
from tests.hostile_texts import HOSTILE_TEXTS
from tests.python_tokens import PythonTokens
from tests.table_predictor import LENGTH, TablePredictor

QUERY = 12


def questions() -> list[PlainQuestion]:
    """Every text as a context and as a question; repeated ones make windows that overlap."""
    source = random.Random(5)
    contexts = [*HOSTILE_TEXTS, *("\n ".join(source.choices(HOSTILE_TEXTS, k=9)) for _ in range(3))]
    return [
        PlainQuestion(number, context, source.choice(HOSTILE_TEXTS))
        for number, context in enumerate(contexts)
    ]


def expected(tokenizer, version, asked, **options):
    settings = AnswerSettings(version, LENGTH, **options)
    return Answerer(TablePredictor(version), tokenizer, settings).answer(asked)


def found(tokenizer, version, asked, **options):
    settings = AnswerSettings(version, LENGTH, **options)

    def model(inputs):
        features = {name: values.numpy() for name, values in inputs.items()}
        outputs = TablePredictor(version).outputs(features)
        return {
            name: tf.constant(values, tf.int32 if "index" in name else tf.float32)
            for name, values in outputs.items()
        }

    answerer = GraphAnswerer(PythonTokens(tokenizer), model, settings)
    texts = {
        "questions": tf.constant([question.question for question in asked], tf.string),
        "contexts": tf.constant([question.context for question in asked], tf.string),
    }
    return {name: values.numpy() for name, values in answerer(texts).items()}


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (1, {"doc_stride": 11, "n_best_size": 7, "max_answer_length": 5}),
        (1, {"doc_stride": 200, "n_best_size": 50}),
        (1, {"doc_stride": 1, "n_best_size": 3}),
        (2, {"doc_stride": 11, "n_best_size": 7, "max_answer_length": 5, "threshold": 1.0}),
        (2, {"doc_stride": 4}),
    ],
)
def test_answers_equal_those_of_python(tokenizer, version, options):
    asked = questions()
    options = {"max_query_length": QUERY, **options}
    answers = expected(tokenizer, version, asked, **options)
    outputs = found(tokenizer, version, asked, **options)
    assert ("null_odds" in outputs) == (version == 2)
    size = options.get("n_best_size", 20)
    assert outputs["n_best_answers"].shape == (len(asked), size)
    for row, (question, answer) in enumerate(zip(asked, answers, strict=True)):
        is_answered = answer.start is not None
        texts = [candidate.text for candidate in answer.n_best]
        assert [text.decode() for text in outputs["n_best_answers"][row]] == texts + [""] * (
            size - len(texts)
        )
        for name in ("start", "end"):
            places = [getattr(candidate, name) for candidate in answer.n_best]
            np.testing.assert_array_equal(
                outputs[f"n_best_{name}"][row], places + [-1] * (size - len(places))
            )
            assert outputs[name][row] == (getattr(answer, name) if is_answered else -1)
        np.testing.assert_allclose(
            outputs["n_best_probabilities"][row][: len(texts)],
            [candidate.probability for candidate in answer.n_best],
            rtol=0,
            atol=1e-6,
        )
        assert outputs["answers"][row].decode() == answer.answer
        assert outputs["probabilities"][row] == pytest.approx(answer.probability or 0)
        if is_answered:
            cut = question.context.encode()[outputs["start_byte"][row] : outputs["end_byte"][row]]
            assert cut.decode() == answer.answer
        if version == 2:
            assert outputs["is_answered"][row] == is_answered
            np.testing.assert_allclose(outputs["null_odds"][row], answer.null_odds, rtol=1e-6)
    if options.get("threshold"):
        assert 0 < np.sum(outputs["is_answered"]) < len(asked)
