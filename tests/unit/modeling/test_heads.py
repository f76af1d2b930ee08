"""The head of classifiers; that of masked language models is compared in tests/golden."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.heads import ClassificationHead
from albert_tf.modeling.models import AlbertForPretraining
from tests.small_model import small_config

SEED = tf.constant([3, 5])
LEFT = 0.8796  # of a normal distribution's deviation, cut at twice of it


def pooled_output(rows=4):
    return tf.constant(np.random.default_rng(1).normal(size=(rows, 12)).astype(np.float32))


def test_weights_start_from_the_constant_of_the_original():
    head = ClassificationHead(small_config(hidden_size=999, initializer_range=0.5), num_labels=7)
    weights = head.output_weights.numpy()
    assert np.abs(weights).max() <= 0.04
    np.testing.assert_allclose(weights.std(), LEFT * 0.02, rtol=0.05, atol=0)
    np.testing.assert_array_equal(head.output_bias, np.zeros(7))


def test_the_order_of_segments_starts_from_the_configuration():
    config = small_config(hidden_size=999, initializer_range=0.5)
    weights = AlbertForPretraining(config).sentence_order_head.output_weights.numpy()
    np.testing.assert_allclose(weights.std(), LEFT * 0.5, rtol=0.08, atol=0)


def test_the_seed_decides_what_is_dropped():
    head = ClassificationHead(small_config(), num_labels=3, dropout_prob=0.4)
    logits = head(pooled_output(), SEED).numpy()
    np.testing.assert_array_equal(head(pooled_output(), SEED), logits)
    assert not np.allclose(head(pooled_output(), SEED + 1), logits)
    assert not np.allclose(head(pooled_output()), logits)
    undropped = ClassificationHead(small_config(), num_labels=3)
    np.testing.assert_array_equal(undropped(pooled_output(), SEED), undropped(pooled_output()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_labels": 0}, "at least 1 label. Received: num_labels=0"),
        ({"num_labels": 2, "dropout_prob": 1.0}, r"in \[0, 1\). Received: 1.0"),
    ],
)
def test_refuses_what_scores_nothing(arguments, message):
    with pytest.raises(ValueError, match=message):
        ClassificationHead(small_config(), **arguments)
