"""Tests for exported classifiers that take texts.

The tests of the commands serve models of all jobs in a process without this package. Other tests
compare truncation and answers with Python for difficult texts.
"""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.export import export_text_classifier
from albert_tf.classification.text_classifier import TextClassifier
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForClassification
from tests.small_model import small_config
from tests.unusual_texts import UNUSUAL_TEXTS

pytestmark = pytest.mark.slow

LENGTH = 30
CONFIG = small_config(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=LENGTH)
FIRST, SECOND = zip(*itertools.product(UNUSUAL_TEXTS, UNUSUAL_TEXTS[::2]), strict=True)


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (Labels(("bad", "schön", "so, so")), {"texts_a": FIRST, "texts_b": SECOND}),
        (Labels(), {"texts": UNUSUAL_TEXTS}),
    ],
    ids=["pairs", "numbers"],
)
def test_classification_equals_python(labels, texts, tokenizer, tmp_path):
    random.seed(7)
    model = AlbertForClassification(CONFIG, labels.num_outputs)
    weights = model.classifier.output_weights
    weights.assign(np.random.default_rng(4).normal(size=weights.shape, scale=0.3))
    pairs = len(texts) == 2
    path = export_text_classifier(model, labels, tokenizer, str(tmp_path), LENGTH, pairs, 0.7)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    answer = serve(**{name: tf.constant(values) for name, values in texts.items()})
    settings = {"labels": labels.names, "pairs": pairs, "max_seq_length": LENGTH}
    expected = TextClassifier(model, tokenizer, **settings)(*texts.values())
    values = np.array([[*found.probabilities.values()] or [found.value] for found in expected])
    np.testing.assert_allclose(answer["probabilities"], values, rtol=0, atol=1e-5)
    np.testing.assert_allclose(answer["threshold"], np.full(len(expected), 0.7), rtol=1e-6)
    assert np.ptp(values, axis=0).max() > 0.05  # texts differ, so their order shows
    if labels.is_regression:
        assert set(answer) == {"probabilities", "predictions", "threshold"}
        np.testing.assert_array_equal(answer["predictions"], answer["probabilities"][:, 0])
        return
    found = [label.decode() for label in answer["predicted_labels"].numpy()]
    assert found == [prediction.label for prediction in expected]
    assert found == [labels.names[number] for number in answer["predictions"]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many texts_b as texts_a"):
        serve(texts_a=tf.constant(FIRST), texts_b=tf.constant(SECOND[:1]))
