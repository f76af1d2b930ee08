"""Losses as sums: every function returns (weighted sum, weight), and nothing is averaged here.

Sums can be added over replicas, over accumulated micro-steps and over a whole evaluation before
one division; averages of averages could not.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

MASKED_LM_EPSILON = 1e-5


class LossSum(NamedTuple):
    """A loss before its division.

    Attributes:
        sum: float scalar, sum of weight * loss.
        weight: float scalar, sum of the weights.
        epsilon: added once to the total weight, so that a total of 0 gives a loss of 0.
    """

    sum: tf.Tensor
    weight: tf.Tensor
    epsilon: float = 0.0

    def mean(self, total_weight: tf.Tensor | None = None) -> tf.Tensor:
        """Returns sum / (weight + epsilon), with the weight of all replicas where it is given."""
        return self.sum / ((self.weight if total_weight is None else total_weight) + self.epsilon)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Maps logits [..., K] and int labels [...] to -log softmax(logits)[label], float [...]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def masked_lm_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Cross entropy of the masked tokens.

    Args:
        logits: float [B, P, V].
        labels: int32 [B, P], the tokens that stood there.
        weights: float [B, P]; 0 = padding.

    Source: run_pretraining.py of the original release, with its epsilon of 1e-5.
    """
    losses = cross_entropy(logits, labels)
    return LossSum(tf.reduce_sum(weights * losses), tf.reduce_sum(weights), MASKED_LM_EPSILON)


def sentence_order_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Cross entropy of the order of two segments.

    Args:
        logits: float [B, 2].
        labels: int32 [B]; 1 = swapped or random second segment.
        weights: float [B]; 1 = an example, 0 = padding of a batch.
    """
    return LossSum(tf.reduce_sum(weights * cross_entropy(logits, labels)), tf.reduce_sum(weights))
