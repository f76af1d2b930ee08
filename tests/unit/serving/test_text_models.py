"""Tests for exports that take texts, served without this package and compared with Python.

The texts are difficult for tokenizers.
"""

import itertools
import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.export import export_text_classifier
from albert_tf.classification.text_classifier import TextClassifier
from albert_tf.data.text_examples import Labels
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.multiple_choice.choose import MultipleChoice
from albert_tf.multiple_choice.export import export_text_choice
from albert_tf.squad.answers import AnswerSettings
from albert_tf.squad.ask import PlainQuestion, QuestionAnswerer
from albert_tf.squad.export import export_text_spans
from tests.hostile_texts import HOSTILE_TEXTS, choice_texts, hostile_choices
from tests.serving import serve_texts
from tests.small_model import small_config

# The tests of the commands serve one model each; these serve all kinds, with difficult texts.
pytestmark = pytest.mark.slow

LENGTH, QA_LENGTH = 30, 13
LABELS = Labels(("bad", "schön", "so, so"))
CHOSEN_LABELS = {"texts": LABELS, "pairs": LABELS, "numbers": Labels()}
PAIRS = list(itertools.product(HOSTILE_TEXTS, HOSTILE_TEXTS[::2]))
# Windows of one repeated word differ only by rounding.
CONTEXTS = (*HOSTILE_TEXTS[:-2], " ".join(HOSTILE_TEXTS[:9]), "\n".join(HOSTILE_TEXTS[8::-1]))
QUESTIONS = [
    PlainQuestion(number, context, HOSTILE_TEXTS[5 * number % len(HOSTILE_TEXTS)])
    for number, context in enumerate(CONTEXTS)
]
SETTINGS = {"doc_stride": 7, "max_query_length": 9, "n_best_size": 8, "max_answer_length": 6}


def settings(version: int) -> AnswerSettings:
    threshold = 0.66 if version == 2 else None
    return AnswerSettings(version, LENGTH, threshold=threshold, **SETTINGS)


@pytest.fixture(scope="module")
def models() -> dict:
    """Creates models whose outputs differ clearly between texts."""
    keras.utils.set_random_seed(7)
    config = small_config(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=LENGTH)
    models = {
        "texts": AlbertForClassification(config, 3),
        "pairs": AlbertForClassification(config, 3),
        "numbers": AlbertForClassification(config, 1),
        "spans 1": AlbertForQuestionAnswering(config),
        "spans 2": AlbertForQuestionAnsweringWithBeamSearch(config, 4, 3),
        "choices": AlbertForMultipleChoice(config),
    }
    random = np.random.default_rng(4)
    for model in models.values():
        for variable in model.trainable_variables:
            if "bert/" not in variable.path and len(variable.shape) > 1:
                variable.assign(random.normal(size=variable.shape, scale=0.3))
    models["texts"].classifier.output_bias.assign([0.0, 0.0, 0.35])  # two classes are likely
    return models


@pytest.fixture(scope="module")
def paths(models, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_models")
    paths = {
        name: export_text_classifier(
            models[name], labels, tokenizer, str(folder / name), LENGTH, name == "pairs", 0.7
        )
        for name, labels in CHOSEN_LABELS.items()
    }
    for version in (1, 2):
        name = f"spans {version}"
        paths[name] = export_text_spans(
            models[name], tokenizer, settings(version), str(folder / name)
        )
    paths["choices"] = export_text_choice(
        models["choices"], tokenizer, str(folder / "choices"), LENGTH, QA_LENGTH
    )
    return paths


@pytest.fixture(scope="module")
def served(paths, tmp_path_factory):
    """Returns the answers of another process by model, and the error of an invalid request."""
    first, second = zip(*PAIRS, strict=True)
    asked = {
        "questions": [question.question for question in QUESTIONS],
        "contexts": [question.context for question in QUESTIONS],
    }
    requests = {
        "texts": {"texts": HOSTILE_TEXTS},
        "pairs": {"texts_a": first, "texts_b": second},
        "numbers": {"texts": HOSTILE_TEXTS},
        "spans 1": asked,
        "spans 2": asked,
        "choices": choice_texts(hostile_choices()),
    }
    refused = [("pairs", {"texts_a": first, "texts_b": second[:1]})]
    answers = serve_texts(
        tmp_path_factory.mktemp("served"),
        [(paths[name], inputs) for name, inputs in (*requests.items(), *refused)],
    )
    return {**dict(zip(requests, answers, strict=False)), "refused": answers[len(requests) :]}


@pytest.mark.parametrize("name", CHOSEN_LABELS)
def test_classification_equals_python(served, models, tokenizer, name):
    labels, answer = CHOSEN_LABELS[name], served[name]
    pairs = PAIRS if name == "pairs" else [(text, None) for text in HOSTILE_TEXTS]
    classifier = TextClassifier(
        models[name],
        tokenizer,
        labels=labels.names,
        pairs=name == "pairs",
        max_seq_length=LENGTH,
    )
    first, second = zip(*pairs, strict=True)
    expected = classifier(first, second if name == "pairs" else None)
    values = np.array([[*found.probabilities.values()] or [found.value] for found in expected])
    np.testing.assert_allclose(answer["probabilities"], values, rtol=0, atol=1e-5)
    np.testing.assert_allclose(answer["threshold"], np.full(len(pairs), 0.7), rtol=1e-6)
    assert np.ptp(values, axis=0).max() > 0.05  # texts differ, so their order shows
    if labels.is_regression:
        assert set(answer) == {"probabilities", "predictions", "threshold"}
        np.testing.assert_array_equal(answer["predictions"], answer["probabilities"][:, 0])
    else:
        found = [label.decode() for label in answer["predicted_labels"]]
        assert found == [prediction.label for prediction in expected]
        assert found == [labels.names[number] for number in answer["predictions"]]
        assert np.ptp(answer["predictions"]) > 0


@pytest.mark.parametrize("version", [1, 2])
def test_answers_equal_python(served, models, tokenizer, version):
    name = f"spans {version}"
    answer = served[name]
    options = {**SETTINGS, "null_score_diff_threshold": settings(version).threshold}
    answerer = QuestionAnswerer(models[name], tokenizer, **options)
    expected = answerer([q.question for q in QUESTIONS], contexts=[q.context for q in QUESTIONS])
    is_answered = [found.start is not None for found in expected]
    assert [text.decode() for text in answer["answers"]] == [found.answer for found in expected]
    for key, place in (("start", -1), ("end", -1), ("probabilities", 0)):
        attribute = "probability" if key == "probabilities" else key
        values = [place if (v := getattr(f, attribute)) is None else v for f in expected]
        np.testing.assert_allclose(answer[key], values, rtol=0, atol=1e-5, err_msg=key)
    assert sum(bool(found.answer) for found in expected) > len(expected) / 4
    for row, found in enumerate(expected):
        texts = [candidate.text for candidate in found.n_best]
        listed = [text.decode() for text in answer["n_best_answers"][row]]
        assert sorted(listed[: len(texts)]) == sorted(texts)
        np.testing.assert_allclose(
            answer["n_best_probabilities"][row],
            [c.probability for c in found.n_best] + [0] * (len(listed) - len(texts)),
            rtol=0,
            atol=1e-5,
        )
    if version == 2:
        odds = [found.null_odds for found in expected]
        np.testing.assert_allclose(answer["null_odds"], odds, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(answer["is_answered"], is_answered)
        assert 0 < np.sum(is_answered) < len(expected)


def test_options_equal_python(served, models, tokenizer):
    answer, examples = served["choices"], hostile_choices()
    choose = MultipleChoice(models["choices"], tokenizer, max_qa_length=QA_LENGTH)
    expected = choose(
        [e.question for e in examples],
        contexts=[e.context for e in examples],
        options=[e.options for e in examples],
    )
    for row, found in zip(answer["probabilities"], expected, strict=True):
        wanted = found.probabilities + [0] * (4 - len(found.probabilities))
        np.testing.assert_allclose(row, wanted, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(answer["predictions"], [found.index for found in expected])
    assert len(set(answer["predictions"])) > 2
    chosen = [text.decode() for text in answer["predicted_options"]]
    assert chosen == [found.option for found in expected]


def test_unequal_numbers_of_texts_are_rejected(served):
    assert "There must be as many texts_b as texts_a" in served["refused"][0]


def test_directories_fit_a_server(paths):
    for path in map(Path, paths.values()):
        assert path.parent.name == "text"
        assert path.name.isdigit()
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    names = json.loads((Path(paths["pairs"]) / "assets.extra" / "labels.json").read_text())
    assert names == list(LABELS.names)


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("texts", {"texts": [0]}, {"predictions": (0,), "probabilities": (0, 3)}),
        (
            "choices",
            {"contexts": [0], "questions": [0], "options": [0, 4]},
            {"predictions": (0,), "probabilities": (0, 4)},
        ),
        (
            "spans 2",
            {"questions": [0], "contexts": [0]},
            {"answers": (0,), "null_odds": (0,), "n_best_answers": (0, SETTINGS["n_best_size"])},
        ),
    ],
)
def test_empty_batches(paths, name, shapes, expected):
    model = tf.saved_model.load(paths[name]).signatures["serving_default"]
    outputs = model(**{key: tf.constant([], tf.string, shape) for key, shape in shapes.items()})
    assert {key: tuple(outputs[key].shape) for key in expected} == expected
