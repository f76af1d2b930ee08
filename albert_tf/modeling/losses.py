"""Losses as sums: every function returns (weighted sum, weight), and nothing is averaged here.

Sums can be added over replicas, over accumulated micro-steps and over a whole evaluation before
one division; averages of averages could not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.modeling import fused_kernels

MASKED_LM_EPSILON = 1e-5


class LossSum(NamedTuple):
    """A mean before its division: scalars, the sum of weight * value and that of the weights."""

    sum: tf.Tensor
    weight: tf.Tensor

    def mean(self) -> tf.Tensor:
        """Returns sum / weight."""
        return self.sum / self.weight


def means(batches: Sequence[Mapping[str, LossSum]]) -> dict[str, float]:
    """The weighted means over several batches: sums over all of them, then one division.

    Every batch has the same names; a name without weight gives NaN.
    """
    totals = {
        name: LossSum(
            sum(float(batch[name].sum) for batch in batches),
            sum(float(batch[name].weight) for batch in batches),
        )
        for name in batches[0]
    }
    return {name: t.sum / t.weight if t.weight else math.nan for name, t in totals.items()}


def pretraining_loss(masked_lm: LossSum, sentence: LossSum | None = None) -> tf.Tensor:
    """The loss of pretraining, from sums over a whole batch; `sentence` may have no part.

    The masked-LM weight gets 1e-5 added, so that a batch without predictions has a loss of 0.

    Source: run_pretraining.py of the original release.
    """
    loss = masked_lm.sum / (masked_lm.weight + MASKED_LM_EPSILON)
    return loss if sentence is None else loss + sentence.mean()


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Maps logits [..., K] and int labels [...] to -log softmax(logits)[label], float [...]."""
    logits = tf.cast(logits, tf.float32)
    if fused_kernels.fuses():
        return fused_kernels.cross_entropy(logits, labels)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def masked_lm_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Cross entropy of logits [B, P, V] and masked tokens, int32 [B, P]; a weight of 0 is padding.

    Source: run_pretraining.py of the original release, get_masked_lm_output.
    """
    losses = cross_entropy(logits, labels)
    return LossSum(tf.reduce_sum(weights * losses), tf.reduce_sum(weights))


def classification_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Cross entropy of one label an example: a class, or the order of two segments.

    Args:
        logits: float [B, K].
        labels: int32 [B], in 0..K-1.
        weights: float [B]; 1 = an example, 0 = padding of a batch. As in all losses below.
    """
    return LossSum(tf.reduce_sum(weights * cross_entropy(logits, labels)), tf.reduce_sum(weights))


def position_loss(log_probs: tf.Tensor, positions: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Negative log-probability, of float32 [B, S], at one position an example, int32 [B]."""
    losses = -tf.gather(log_probs, positions, batch_dims=1)
    return LossSum(tf.reduce_sum(weights * losses), tf.reduce_sum(weights))


def binary_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Cross entropy of logits [B], higher for yes, and labels, float32 [B]; 1 = yes, 0 = no."""
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
    return LossSum(tf.reduce_sum(weights * losses), tf.reduce_sum(weights))


def regression_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Squared error of logits [B, 1] and one number an example, float32 [B].

    Source: classifier_utils.py of the original release, create_model.
    """
    errors = tf.square(tf.cast(logits[:, 0], tf.float32) - labels)
    return LossSum(tf.reduce_sum(weights * errors), tf.reduce_sum(weights))


def accuracy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Share of the labels, int32 [...], that have the best score of logits [..., K]."""
    is_right = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
    hits = weights * tf.cast(is_right, weights.dtype)
    return LossSum(tf.reduce_sum(hits), tf.reduce_sum(weights))
