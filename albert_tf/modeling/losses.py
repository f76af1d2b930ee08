"""Losses and scores as weighted sums, which are divided once by the total weight of a batch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.modeling.layers import register
from albert_tf.modeling.ops import PLAIN, Ops

MASKED_LM_EPSILON = 1e-5


class LossSum(NamedTuple):
    """A weighted sum of values, and the sum of their weights; both are scalars."""

    sum: tf.Tensor
    weight: tf.Tensor

    @classmethod
    def of(cls, values: tf.Tensor, weights: tf.Tensor) -> LossSum:
        """Sums values and weights of the same shape."""
        return cls(tf.reduce_sum(weights * values), tf.reduce_sum(weights))

    def mean(self) -> tf.Tensor:
        """Returns the weighted mean."""
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
    """Returns the loss of pretraining from sums over a whole batch.

    As in the original, 1e-5 is added to the masked-LM weight, so the loss without predictions is 0.
    """
    loss = masked_lm.sum / (masked_lm.weight + MASKED_LM_EPSILON)
    return loss if sentence is None else loss + sentence.mean()


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, ops: Ops = PLAIN) -> tf.Tensor:
    """Returns -log softmax(logits)[label], float [...], of logits [..., K] and int labels."""
    return ops.cross_entropy(tf.cast(logits, tf.float32), labels)


def classification_loss(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, ops: Ops = PLAIN
) -> LossSum:
    """Returns the cross entropy of logits [..., K] and labels, int32 [...].

    In all losses, weights are 0 for padding and for tokens without a label.
    """
    return LossSum.of(cross_entropy(logits, labels, ops), weights)


def position_loss(log_probs: tf.Tensor, positions: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the negative of `log_probs`, float32 [B, S], at one position per example."""
    return LossSum.of(-tf.gather(log_probs, positions, batch_dims=1), weights)


def binary_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the binary cross entropy of logits and labels (1 = yes, 0 = no), [B] or [B, K]."""
    labels, logits = tf.cast(labels, tf.float32), tf.cast(logits, tf.float32)
    return LossSum.of(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits), weights)


def regression_loss(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the squared error of logits [B, 1] and one number per example, float32 [B]."""
    return LossSum.of(tf.square(tf.cast(logits[:, 0], tf.float32) - labels), weights)


def accuracy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> LossSum:
    """Returns the fraction of labels, int32 [...], that have the highest of K logits, [..., K]."""
    is_right = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
    return LossSum.of(tf.cast(is_right, weights.dtype), weights)


_LABELS = {
    "cross_entropy": "class ids, int32",
    "binary": "0 or 1, float32",
    "multi_label": "0 or 1 for each class, float32",
    "squared_error": "numbers, float32",
}

_OF_PROBABILITIES = (
    "kl_divergence",
    "poisson",
    "dice",
    "tversky",
)  # without an argument `from_logits`


@register
class HeadLoss(keras.losses.Loss):
    """The loss of one output in `compile`: a weighted mean over examples or tokens.

    Args:
        kind: "cross_entropy" of logits [..., K] and class ids [...]; "binary" cross entropy of
            logits [B] and labels 0 or 1 [B]; "multi_label", the mean over K binary cross entropies
            of logits and labels [B, K]; or "squared_error" of predictions [B, 1] and numbers [B].
        factor: factor of this loss in the total loss.
        name: see `keras.losses.Loss`.
        **kwargs: see `keras.losses.Loss`.
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
        """Returns a loss for each example or token, float32 [...].

        Invalid class ids raise an error on CPUs. On GPUs and with XLA, their loss is NaN. The loss
        of binary labels below 0 or above 1 is NaN.
        """
        labels = self._check_shape(y_true, y_pred)
        if self.kind == "cross_entropy":
            ids = tf.cast(labels, tf.int32)
            # The cast truncates fractional labels. They become -1, an invalid class id.
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


def expects_probabilities(loss: Any) -> bool:
    """Returns whether a loss of Keras, or its name, is defined for probabilities, not logits."""
    loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        config = loss.get_config()
        return config.get("from_logits") is False or config.get("name") in _OF_PROBABILITIES
    known = inspect.signature(loss).parameters if loss else {}
    is_named = getattr(loss, "__name__", "") in _OF_PROBABILITIES
    return is_named or ("from_logits" in known and not known["from_logits"].default)


def _axes(shape: tf.TensorShape) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _binary_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each label; NaN for labels below 0 or above 1."""
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return tf.where((labels >= 0) & (labels <= 1), losses, math.nan)
