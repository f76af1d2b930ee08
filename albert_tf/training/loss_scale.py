"""Loss scaling: what keeps the small gradients of float16 from becoming zero.

float16 knows nothing below 6e-8 and nothing above 65504. The loss is multiplied by a power of two
before gradients are taken, and they are divided by it in float32: exact, unless one left the range.
Then the step makes no update, and the next ones use half the scale. After many good steps it is
doubled again.

A skipped step counts as a step all the same: of `--num_train_steps`, of the learning rate's
schedule and of dropout. So what a step number means depends on nothing that happened before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

INITIAL_SCALE = 2.0**15
MAX_SCALE = 2.0**24  # 1 / the smallest number of float16: nothing is gained beyond
GROWTH_STEPS = 2000


class LossScale:
    """The present scale, which adapts itself. To be made in the scope of a strategy.

    Attributes:
        scale: float32 [] variable, at least 1.
        good_steps: int64 [] variable, updates since the scale last changed.
    """

    def __init__(self) -> None:
        self.scale = _variable(INITIAL_SCALE, tf.float32, "loss_scale")
        self.good_steps = _variable(0, tf.int64, "good_steps")

    def unscaled(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the gradients, float32, of the loss itself."""
        factor = 1.0 / self.scale
        return [tf.cast(gradient, tf.float32) * factor for gradient in gradients]

    def update(self, gradient_norm: tf.Tensor) -> tf.Tensor:
        """Adapts the scale after a step. To be called in replica context, once a step.

        Args:
            gradient_norm: float32 [] of all unscaled gradients of all replicas.

        Returns:
            Whether the step is to be skipped, bool []. At a scale of 1 none is: there the numbers
            themselves are no longer finite.
        """
        scale = tf.convert_to_tensor(self.scale)
        is_good = tf.math.is_finite(gradient_norm)
        none = tf.zeros([], tf.int64)
        good_steps = tf.where(is_good, self.good_steps + 1, none)
        is_due = good_steps >= GROWTH_STEPS
        larger = tf.where(is_due, tf.minimum(2.0 * scale, MAX_SCALE), scale)
        self.scale.assign(tf.where(is_good, larger, tf.maximum(0.5 * scale, 1.0)))
        self.good_steps.assign(tf.where(is_due, none, good_steps))
        return tf.logical_and(tf.logical_not(is_good), scale > 1.0)

    def state(self) -> dict[str, Any]:
        """Returns what a resumed run must know, as JSON; exact, the scale being a power of two."""
        return {"scale": float(self.scale.numpy()), "good_steps": int(self.good_steps.numpy())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes what `state` returned in an earlier start; a run without has the initial scale."""
        self.scale.assign(state.get("scale", INITIAL_SCALE))
        self.good_steps.assign(state.get("good_steps", 0))


def _variable(value: float, dtype: tf.DType, name: str) -> tf.Variable:
    """A variable that is the same on every replica."""
    return tf.Variable(
        value,
        trainable=False,
        dtype=dtype,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
