"""Losses as sums, compared with NumPy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.losses import HeadLoss, LossSum, cross_entropy, means, pretraining_loss

LOGITS = np.random.default_rng(4).normal(size=(3, 2, 5)).astype(np.float32)
LABELS = tf.constant([[4, 0], [2, 2], [1, 3]])


def numpy_cross_entropy(logits, labels):
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_probabilities, np.asarray(labels)[..., None], -1)[..., 0]


def test_half_precision_logits_are_summed_in_float32():
    logits = tf.cast(LOGITS, tf.bfloat16)
    losses = cross_entropy(logits, LABELS)
    assert losses.dtype == tf.float32
    expected = numpy_cross_entropy(tf.cast(logits, tf.float32).numpy(), LABELS)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("weight", "expected"), [(3.0, 2.0 / 3.00001 + 0.25), (0.0, 0.25)])
def test_pretraining_loss(weight, expected):
    masked_lm = LossSum(tf.constant(2.0 if weight else 0.0), tf.constant(weight))
    loss = pretraining_loss(masked_lm, LossSum(tf.constant(1.0), tf.constant(4.0)))
    np.testing.assert_allclose(loss, expected, rtol=2e-7, atol=0)
    alone = pretraining_loss(masked_lm)
    np.testing.assert_allclose(alone, expected - 0.25, rtol=2e-7, atol=0)


def test_means():
    batches = [
        {"a": LossSum(6.0, 2.0), "b": LossSum(0.0, 0.0)},
        {"a": LossSum(1.0, 8.0), "b": LossSum(0.0, 0.0)},
    ]
    assert means(batches)["a"] == 0.7
    assert math.isnan(means(batches)["b"])


@pytest.mark.parametrize("label", [1.5, -1.0, 3.0, math.nan])
def test_invalid_class_ids_are_errors(label):
    with pytest.raises(tf.errors.InvalidArgumentError, match="label value"):
        HeadLoss()(np.array([0.0, label]), np.zeros([2, 3], np.float32))


@pytest.mark.parametrize("label", [-0.5, 2.0, math.nan])
def test_invalid_binary_labels_give_nan(label):
    loss = HeadLoss("binary")
    assert math.isnan(loss(np.array([1.0, label]), np.zeros(2, np.float32)))
    np.testing.assert_allclose(loss(np.array([1.0, 0.25]), np.zeros(2, np.float32)), math.log(2))
