"""Tests for exports that take texts.

The tests of the commands serve models of the other jobs. Other tests compare truncation and answers
with Python for difficult texts.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.export import export_text_classifier
from albert_tf.classification.text_classifier import TextClassifier
from albert_tf.labels import Labels
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
)
from albert_tf.multiple_choice.export import export_text_choice
from albert_tf.squad.answers import AnswerSettings
from albert_tf.squad.export import export_text_spans
from tests.serving import serve_texts
from tests.small_model import small_config
from tests.unusual_texts import UNUSUAL_TEXTS

pytestmark = pytest.mark.slow

LENGTH = 30
CONFIG = small_config(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=LENGTH)
LABELS = {"pairs": Labels(("bad", "schön", "so, so")), "numbers": Labels()}
FIRST, SECOND = zip(*itertools.product(UNUSUAL_TEXTS, UNUSUAL_TEXTS[::2]), strict=True)
TEXTS = {"pairs": {"texts_a": FIRST, "texts_b": SECOND}, "numbers": {"texts": UNUSUAL_TEXTS}}


@pytest.fixture(scope="module")
def models() -> dict:
    """Creates classifiers whose outputs differ clearly between texts."""
    keras.utils.set_random_seed(7)
    models = {
        name: AlbertForClassification(CONFIG, labels.num_outputs) for name, labels in LABELS.items()
    }
    random = np.random.default_rng(4)
    for model in models.values():
        weights = model.classifier.output_weights
        weights.assign(random.normal(size=weights.shape, scale=0.3))
    return models


@pytest.fixture(scope="module")
def paths(models, tokenizer, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("text_models")
    return {
        name: export_text_classifier(
            models[name], labels, tokenizer, str(folder / name), LENGTH, name == "pairs", 0.7
        )
        for name, labels in LABELS.items()
    }


@pytest.fixture(scope="module")
def served(paths, tmp_path_factory) -> dict:
    """Returns the answers of another process by model, and the error of an invalid request."""
    requests = [(paths[name], texts) for name, texts in TEXTS.items()]
    requests.append((paths["pairs"], {"texts_a": FIRST, "texts_b": SECOND[:1]}))
    answers = serve_texts(tmp_path_factory.mktemp("served"), requests)
    return dict(zip((*TEXTS, "refused"), answers, strict=True))


@pytest.mark.parametrize("name", LABELS)
def test_classification_equals_python(served, models, tokenizer, name):
    labels, answer = LABELS[name], served[name]
    settings = {"labels": labels.names, "pairs": name == "pairs", "max_seq_length": LENGTH}
    expected = TextClassifier(models[name], tokenizer, **settings)(*TEXTS[name].values())
    values = np.array([[*found.probabilities.values()] or [found.value] for found in expected])
    np.testing.assert_allclose(answer["probabilities"], values, rtol=0, atol=1e-5)
    np.testing.assert_allclose(answer["threshold"], np.full(len(expected), 0.7), rtol=1e-6)
    assert np.ptp(values, axis=0).max() > 0.05  # texts differ, so their order shows
    if labels.is_regression:
        assert set(answer) == {"probabilities", "predictions", "threshold"}
        np.testing.assert_array_equal(answer["predictions"], answer["probabilities"][:, 0])
    else:
        found = [label.decode() for label in answer["predicted_labels"]]
        assert found == [prediction.label for prediction in expected]
        assert found == [labels.names[number] for number in answer["predictions"]]


def test_unequal_numbers_of_texts_are_rejected(served):
    assert "There must be as many texts_b as texts_a" in served["refused"]


def test_empty_batches(paths, tokenizer, tmp_path):
    spans = AnswerSettings(1, LENGTH, doc_stride=7, max_query_length=9, n_best_size=8)
    answers = export_text_spans(
        AlbertForQuestionAnswering(CONFIG), tokenizer, spans, str(tmp_path / "spans")
    )
    choices = export_text_choice(
        AlbertForMultipleChoice(CONFIG), tokenizer, str(tmp_path / "choices"), LENGTH, 13
    )
    for path, texts, expected in (
        (paths["numbers"], {"texts": [0]}, {"predictions": [0], "probabilities": [0, 1]}),
        (
            choices,
            {"contexts": [0], "questions": [0], "options": [0, 4]},
            {"predictions": [0], "probabilities": [0, 4]},
        ),
        (
            answers,
            {"questions": [0], "contexts": [0]},
            {"answers": [0], "n_best_answers": [0, 8]},
        ),
    ):
        loaded = tf.saved_model.load(path)
        outputs = loaded.signatures["serving_default"](
            **{name: tf.constant([], tf.string, shape) for name, shape in texts.items()}
        )
        assert {name: outputs[name].shape.as_list() for name in expected} == expected
