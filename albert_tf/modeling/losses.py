"""Losses as sums: every function returns (weighted sum, weight) without averaging.

Sums can be added over replicas, micro-batches and evaluations before one division; averages cannot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.modeling import kernels
from albert_tf.modeling.layers import register

MASKED_LM_EPSILON = 1e-5


class LossSum(NamedTuple):
    """A mean before the division: the sum of weight * value and the sum of weights, scalars."""

    sum: tf.Tensor
    weight: tf.Tensor

    def mean(self) -> tf.Tensor:
        """Returns sum / weight."""
        return self.sum / self.weight


def means(batches: Sequence[Mapping[str, LossSum]]) -> dict[str, float]:
    """Returns the weighted means over batches with the same names; NaN if the total weight is 0."""
    totals = {
        name: LossSum(
            sum(float(batch[name].sum) for batch in batches),
            sum(float(batch[name].weight) for batch in batches),
        )
        for name in batches[0]
    }
    return {name: t.sum / t.weight if t.weight else math.nan for name, t in totals.items()}


def pretraining_loss(masked_lm: LossSum, sentence: LossSum | None = None) -> tf.Tensor:
    """Returns the loss of pretraining from sums over a whole batch; `sentence` is optional.

    As in the original, 1e-5 is added to the masked-LM weight: without predictions the loss is 0.
    """
    loss = masked_lm.sum / (masked_lm.weight + MASKED_LM_EPSILON)
    return loss if sentence is None else loss + sentence.mean()


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns -log softmax(logits)[label], float [...], of logits [..., K] and int labels."""
    logits = tf.cast(logits, tf.float32)
    if kernels.fuses():
        return kernels.fused_cross_entropy(logits, labels)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def masked_lm_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the cross entropy of logits [B, P, V] and int32 tokens [B, P]; weight 0 = padding."""
    losses = cross_entropy(logits, labels)
    return LossSum(tf.reduce_sum(weights * losses), tf.reduce_sum(weights))


def classification_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the cross entropy of one label per example or token.

    `logits` are float [B, K], or [B, S, K]; `labels` int32 [B], or [B, S]. As in all losses below,
    `weights` are 0 for padding of a batch and for tokens without a label, otherwise 1.
    """
    return LossSum(tf.reduce_sum(weights * cross_entropy(logits, labels)), tf.reduce_sum(weights))


def position_loss(log_probs: tf.Tensor, positions: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the negative log-probability, from float32 [B, S], at one position per example."""
    losses = -tf.gather(log_probs, positions, batch_dims=1)
    return LossSum(tf.reduce_sum(weights * losses), tf.reduce_sum(weights))


def binary_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the binary cross entropy of logits and labels (1 = yes, 0 = no), [B] or [B, K]."""
    labels, logits = tf.cast(labels, tf.float32), tf.cast(logits, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return LossSum(tf.reduce_sum(weights * losses), tf.reduce_sum(weights))


def regression_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the squared error of logits [B, 1] and one number per example, float32 [B]."""
    errors = tf.square(tf.cast(logits[:, 0], tf.float32) - labels)
    return LossSum(tf.reduce_sum(weights * errors), tf.reduce_sum(weights))


def accuracy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the share of labels, int32 [...], with the best score of logits [..., K]."""
    is_right = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
    hits = weights * tf.cast(is_right, weights.dtype)
    return LossSum(tf.reduce_sum(hits), tf.reduce_sum(weights))


_LABELS = {
    "cross_entropy": "class ids, int32",
    "binary": "0 or 1, float32",
    "multi_label": "0 or 1 for each class, float32",
    "squared_error": "numbers, float32",
}


@register
class HeadLoss(keras.losses.Loss):
    """The loss of one output in `compile`: a weighted mean over examples or tokens.

    Args:
        kind: "cross_entropy" of scores [..., K] and int labels [...]; "binary", of scores [B] and 0
            or 1 [B]; "multi_label", the mean over K of binary losses, of scores and 0 or 1 [B, K];
            "squared_error", of predictions [B, 1] and numbers [B].
        factor: factor of the mean in the total loss.
        name: see `keras.losses.Loss`, as for `**kwargs`.
    """

    def __init__(
        self,
        kind: str = "cross_entropy",
        factor: float = 1.0,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("reduction", "mean_with_sample_weight")
        super().__init__(name=name or kind, **kwargs)
        self.kind = kind
        self.factor = factor

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns a loss for each label, float32 [...].

        Invalid class ids raise an error, or have the loss NaN if TensorFlow cannot raise one, as
        with XLA. Binary labels outside of 0 to 1 have the loss NaN.
        """
        labels = self._check_shape(y_true, y_pred)
        if self.kind == "cross_entropy":
            ids = tf.cast(labels, tf.int32)
            # Truncating a fraction would silently give another class; -1 is out of range.
            ids = tf.where(tf.cast(ids, labels.dtype) == labels, ids, -1)
            return self.factor * cross_entropy(y_pred, ids)
        if self.kind == "multi_label":
            return self.factor * tf.reduce_mean(_binary_losses(y_pred, labels), axis=-1)
        values = tf.reshape(y_pred, [-1])
        if self.kind == "squared_error":
            return self.factor * tf.square(values - labels)
        return self.factor * _binary_losses(values, labels)

    def _check_shape(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns labels without a last axis of size 1; rejects labels of another shape."""
        expected, size = y_pred.shape, tf.shape(y_pred)
        if self.kind in ("cross_entropy", "squared_error"):
            expected, size = expected[:-1], size[:-1]
        given = y_true.shape
        if given.rank == expected.rank + 1 and given[-1] == 1:
            return tf.reshape(y_true, size)
        if not given.is_compatible_with(expected):
            advice = ""
            if self.kind == "cross_entropy" and given.is_compatible_with(y_pred.shape):
                advice = " For one-hot labels, use keras.losses.CategoricalCrossentropy."
            raise UserError(
                f"Expected labels of shape {_axes(expected)}: {_LABELS[self.kind]}. Received: "
                f"labels of shape {_axes(given)} for an output of shape {_axes(y_pred.shape)}."
                f"{advice}"
            )
        return y_true

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "kind": self.kind, "factor": self.factor}


def _axes(shape: tf.TensorShape) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _binary_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each label; NaN for labels outside of 0 to 1."""
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return tf.where((labels >= 0) & (labels <= 1), losses, math.nan)
