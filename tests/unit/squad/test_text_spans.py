"""Answers selected in a graph, compared with the answers of `Answerer`."""

import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.squad.answerer import Answerer, PlainQuestion
from albert_tf.squad.answers import AnswerSettings
from albert_tf.squad.export import GraphAnswerer
from tests.unit.squad.table_predictor import LENGTH, TablePredictor
from tests.unusual_texts import UNUSUAL_TEXTS

QUERY = 12


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphTokenizer(tokenizer)


def questions() -> list[PlainQuestion]:
    """Returns all texts as contexts; contexts of several texts have overlapping windows."""
    source = random.Random(5)
    contexts = [*UNUSUAL_TEXTS, *("\n ".join(source.choices(UNUSUAL_TEXTS, k=9)) for _ in range(3))]
    return [
        PlainQuestion(number, context, source.choice(UNUSUAL_TEXTS))
        for number, context in enumerate(contexts)
    ]


def expected(tokenizer, version, asked, **options):
    settings = AnswerSettings(version, LENGTH, **options)
    return Answerer(TablePredictor(version), tokenizer, settings).answer_group(asked)


def found(graph, version, asked, **options):
    settings = AnswerSettings(version, LENGTH, **options)

    def model(inputs):
        features = {name: values.numpy() for name, values in inputs.items()}
        outputs = TablePredictor(version).outputs(features)
        return {
            name: tf.constant(values, tf.int32 if "index" in name else tf.float32)
            for name, values in outputs.items()
        }

    answerer = GraphAnswerer(graph, model, settings)
    texts = {
        "questions": tf.constant([question.question for question in asked], tf.string),
        "contexts": tf.constant([question.context for question in asked], tf.string),
    }
    return {name: values.numpy() for name, values in answerer(texts).items()}


def test_no_questions_have_no_answers(graph):
    options = {"doc_stride": 7, "max_query_length": QUERY, "n_best_size": 8}
    outputs = found(graph, 1, [], **options)
    assert (outputs["answers"].shape, outputs["n_best_answers"].shape) == ((0,), (0, 8))


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
def test_answers_equal_those_of_python(tokenizer, graph, version, options):
    asked = questions()
    options = {"max_query_length": QUERY, **options}
    answers = expected(tokenizer, version, asked, **options)
    outputs = found(graph, version, asked, **options)
    assert ("null_odds" in outputs) == (version == 2)
    size = options.get("n_best_size", 20)

    def n_best(name, missing):
        rows = [[getattr(found, name) for found in answer.n_best] for answer in answers]
        return [row + [missing] * (size - len(row)) for row in rows]

    def best(name, missing):
        values = [getattr(answer, name) for answer in answers]
        return [missing if value is None else value for value in values]

    assert [[t.decode() for t in row] for row in outputs["n_best_answers"]] == n_best("text", "")
    assert [text.decode() for text in outputs["answers"]] == best("answer", "")
    for name in ("start", "end"):
        assert outputs[f"n_best_{name}"].tolist() == n_best(name, -1)
        assert outputs[name].tolist() == best(name, -1)
    for key, expected_values in (
        ("n_best_probabilities", n_best("probability", 0)),
        ("probabilities", best("probability", 0)),
    ):
        np.testing.assert_allclose(outputs[key], expected_values, rtol=0, atol=1e-6)
    for question, answer, start, end in zip(
        asked, answers, outputs["start_byte"], outputs["end_byte"], strict=True
    ):
        if answer.start is not None:
            assert question.context.encode()[start:end].decode() == answer.answer
    if version == 2:
        is_answered = [answer.start is not None for answer in answers]
        assert outputs["is_answered"].tolist() == is_answered
        np.testing.assert_allclose(outputs["null_odds"], best("null_odds", 0), rtol=1e-6)
    if options.get("threshold"):
        assert 0 < np.sum(outputs["is_answered"]) < len(asked)
