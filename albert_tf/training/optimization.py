"""The optimizers of ALBERT, AdamW and LAMB, and their learning-rate schedule.

Both are Keras optimizers with the arithmetic of the original release: no bias correction, epsilon
added to the root of the second moment, and weight decay added to the update and therefore part of
LAMB's trust ratio. `keras.optimizers.AdamW` and `Lamb` differ in all three.

`fit` calls `apply`, which clips gradients before it sums them over replicas. The trainer sums them
first and calls `clip_by_global_norm` and `apply_reduced`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.training.settings import OptimizerConfig

# Words in the names of variables without weight decay and without LAMB's trust ratio.
BIASES_AND_LAYER_NORMS = ("bias", "beta", "gamma", "layer_norm")

register = keras.saving.register_keras_serializable(package="albert_tf")


def create_optimizer(config: OptimizerConfig) -> AdamWeightDecay:
    """Creates the optimizer of a configuration, with a `WarmupPolynomialDecay` schedule."""
    optimizers = {"adamw": AdamWeightDecay, "lamb": Lamb}
    learning_rate = WarmupPolynomialDecay(
        config.learning_rate,
        num_train_steps=config.num_train_steps,
        num_warmup_steps=config.num_warmup_steps,
        start_warmup_step=config.start_warmup_step,
        power=config.poly_power,
        num_decay_steps=config.num_decay_steps,
    )
    return optimizers[config.optimizer](
        learning_rate=learning_rate,
        weight_decay_rate=config.weight_decay_rate,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        global_clipnorm=config.clip_norm,
    )


@register
class WarmupPolynomialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then polynomial decay to 0.

    After s updates, the rate of the next update is
    `initial * (s - start_warmup_step) / num_warmup_steps` for `num_warmup_steps` steps from
    `start_warmup_step` on, then `initial * (1 - min(s, T) / T) ** power`. The decay starts at step
    0, so the rate drops slightly at the end of the warm-up.

    With `num_decay_steps` N, the rate is constant from the warm-up to step T - N. Then it is
    `initial * (1 - (min(s, T) - (T - N)) / N) ** power`.

    Args:
        initial_learning_rate: rate at the end of the warm-up; at least 0.
        num_train_steps: T, step at which the rate reaches 0; at least 1.
        num_warmup_steps: steps of the warm-up; 0 disables it.
        start_warmup_step: step at which the warm-up starts.
        power: exponent of the decay; 1 is linear, 0 keeps the rate constant.
        num_decay_steps: N, in 1..T. If `None`, T is used, as in the original.

    Raises:
        ValueError: a value is out of range.

    Source: optimization.py of the original release, create_optimizer.
    Differs: the rate before `start_warmup_step` is 0; it is negative in the original.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        start_warmup_step: int = 0,
        power: float = 1.0,
        num_decay_steps: int | None = None,
    ) -> None:
        if num_train_steps < 1:
            raise UserError(f"num_train_steps must be at least 1. Received: {num_train_steps}")
        if num_decay_steps is not None and not 1 <= num_decay_steps <= num_train_steps:
            raise UserError(
                f"num_decay_steps must be in 1..{num_train_steps} (num_train_steps). "
                f"Received: {num_decay_steps}"
            )
        for name, value in (
            ("initial_learning_rate", initial_learning_rate),
            ("num_warmup_steps", num_warmup_steps),
            ("start_warmup_step", start_warmup_step),
            ("power", power),
        ):
            if not value >= 0:
                raise UserError(f"{name} must be at least 0. Received: {value}")
        self.initial_learning_rate = initial_learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.start_warmup_step = start_warmup_step
        self.power = power
        self.num_decay_steps = num_decay_steps

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the learning rate, float32 [], of the next update after `step` updates."""
        step = tf.cast(step, tf.float32)
        num_decay_steps = self.num_decay_steps or self.num_train_steps
        decayed_steps = tf.maximum(step - (self.num_train_steps - num_decay_steps), 0.0)
        progress = tf.minimum(decayed_steps / num_decay_steps, 1.0)
        decayed = self.initial_learning_rate * (1.0 - progress) ** self.power
        if self.num_warmup_steps == 0:
            return decayed
        warm = tf.maximum(step - self.start_warmup_step, 0.0) / self.num_warmup_steps
        return tf.where(warm < 1.0, self.initial_learning_rate * warm, decayed)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return dict(vars(self))


@register
class _OfUpdates(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule of updates for an optimizer that counts micro-steps."""

    def __init__(self, schedule: Any, gradient_accumulation_steps: int) -> None:
        self.schedule = keras.optimizers.schedules.deserialize(schedule)
        self.gradient_accumulation_steps = gradient_accumulation_steps

    def __call__(self, step: Any) -> Any:
        return self.schedule(step // self.gradient_accumulation_steps)

    def get_config(self) -> dict[str, Any]:
        serialized = keras.optimizers.schedules.serialize(self.schedule)
        return {**vars(self), "schedule": serialized}


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None], clip_norm: float
) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """Scales all gradients by `min(1, clip_norm / norm)`, where `norm` is their global norm.

    Returns the scaled, dense gradients, and the norm before scaling, float32 []. If the norm is not
    finite, all gradients are 0; the caller must check the norm. `None` entries are kept. Raises
    ValueError if all gradients are `None`.

    Source: optimization.py of the original release (tf.clip_by_global_norm).
    Differs: the gradients of an embedding row that occurs several times are summed before the norm
        is computed; in the original, only on TPUs.
    """
    dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
    if all(g is None for g in dense):
        raise UserError("No variable has a gradient: the loss does not depend on any of them.")
    norm = tf.linalg.global_norm(dense)
    scale = tf.where(tf.math.is_finite(norm), tf.minimum(clip_norm / norm, 1.0), 0.0)
    # multiply_no_nan: 0 * inf and 0 * NaN are 0.
    return [None if g is None else tf.math.multiply_no_nan(g, scale) for g in dense], norm


@register
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam without bias correction, with weight decay as part of the update.

    For every variable w with gradient g: `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`,
    `u = m / (sqrt(v) + epsilon)`, then `u += weight_decay_rate * w` unless w is excluded, and
    `w -= learning_rate * u`. Variables without a gradient are not changed.

    Attributes:
        units: a unit for each variable, in the order of `build`. If `None`, all units are 1. A
            variable is updated as if it were divided by its unit. Its gradient, as passed to
            `apply_reduced`, must have been multiplied by the unit.

    Args:
        learning_rate: a number, a schedule, or a callable without arguments.
        weight_decay_rate: weight decay, multiplied by the learning rate in each step.
        beta_1: b1, decay of the first moment.
        beta_2: b2, decay of the second moment.
        epsilon: added to the root of the second moment.
        exclude: words between underscores in the last part of the path of a variable. Variables
            with such a word get no weight decay and no trust ratio. Default: all biases and
            layer-norm parameters.
        global_clipnorm: maximum global norm of the gradients in `apply`; `None` disables clipping.
        name: name of the optimizer.
        **kwargs: other arguments of `keras.optimizers.Optimizer`, which only `apply` uses.

    Raises:
        ValueError: Keras's argument `weight_decay` is given.

    Source: optimization.py of the original release, AdamWeightDecayOptimizer.
    Differs: the original searches the whole path for the words of `exclude`. For the variables of
        ALBERT, the result is the same.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude: Sequence[str] = BIASES_AND_LAYER_NORMS,
        global_clipnorm: float | None = 1.0,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("weight_decay") is not None:
            raise UserError(
                "weight_decay is not supported, because Keras applies it outside the update. Use "
                f"weight_decay_rate. Received: weight_decay={kwargs['weight_decay']}"
            )
        schedules = keras.optimizers.schedules.LearningRateSchedule
        is_new = isinstance(learning_rate, schedules) and not isinstance(learning_rate, _OfUpdates)
        if is_new and (steps := kwargs.get("gradient_accumulation_steps")):
            learning_rate = _OfUpdates(learning_rate, steps)  # Keras passes the micro-step
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude = tuple(exclude)
        self.units: Sequence[float] | None = None

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the moments `adam_m` and `adam_v` of all variables; for errors see `split`."""
        if self.built:
            return
        decayed, _ = self.split(variables)
        super().build(variables)
        keys = {id(variable) for variable in decayed}
        self._is_decayed = [id(variable) in keys for variable in variables]
        self._slots = {
            name: [self.add_variable_from_reference(v, name=name) for v in variables]
            for name in ("adam_m", "adam_v")
        }

    def split(self, variables: Sequence[keras.Variable]) -> tuple[list, list]:
        """Returns the variables with weight decay, and the excluded variables.

        Raises ValueError if a variable has no name, or if some variables are vectors but no
        variable is excluded.
        """
        # The last part of a path, such as "bias" for "encoder/dense/bias".
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        names = [path.rsplit("/", 1)[-1].split(":")[0] for path in paths]
        unnamed = [name for name in names if name.rstrip("_0123456789").lower() == "variable"]
        if unnamed:
            raise UserError(
                "Weight decay depends on variable names, but these variables have no name: "
                f"{unnamed}. Pass name= when creating them."
            )
        decayed: list[keras.Variable] = []
        excluded: list[keras.Variable] = []
        for variable, name in zip(variables, names, strict=True):
            is_excluded = any(f"_{word}_" in f"_{name}_" for word in self.exclude)
            (excluded if is_excluded else decayed).append(variable)
        if self.exclude and not excluded and any(len(v.shape) == 1 for v in variables):
            raise UserError(
                f"No variable is excluded from weight decay, although some are vectors, like "
                f"biases: the names {names} do not contain {self.exclude}. Rename the variables, "
                "or pass exclude=() to decay all of them."
            )
        return decayed, excluded

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Raises NotImplementedError for any `var_list` and `var_names`.

        Pass `exclude` to the constructor instead.
        """
        raise NotImplementedError("Pass exclude= to the constructor instead.")

    def slots(self, variable: keras.Variable) -> dict[str, keras.Variable]:
        """Returns the moments of `variable` by name: `adam_m` and `adam_v`."""
        try:
            index = self._get_variable_index(variable)
        except KeyError as error:
            raise UserError(
                f"The optimizer was not built with the variable {variable.name!r}. Build it with "
                "all trainable variables of the model."
            ) from error
        return {name: slots[index] for name, slots in self._slots.items()}

    def unit_of(self, variable: keras.Variable) -> float:
        """Returns the unit of a variable; see `units`."""
        return 1.0 if self.units is None else self.units[self._get_variable_index(variable)]

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        """Updates `trainable_variables` with `grads`, as `keras.optimizers.Optimizer.apply`.

        Under a strategy, the gradients of each replica are clipped before they are summed.
        """
        # Keras would not sum the gradients of repeated embedding rows before it computes the norm.
        dense = [None if g is None else tf.convert_to_tensor(g) for g in grads]
        super().apply(dense, trainable_variables)

    def apply_reduced(
        self,
        gradients: Sequence[tf.Tensor | None],
        variables: Sequence[keras.Variable],
        learning_rate: tf.Tensor | float | None = None,
        is_skipped: tf.Tensor | None = None,
    ) -> None:
        """Updates the variables in replica context, and increments `iterations`.

        Args:
            gradients: the clipped and summed gradients, the same on every replica. `None` leaves
                the variable and its moments unchanged.
            variables: the variables in the same order.
            learning_rate: rate of this update. If `None`, the rate of the optimizer is used.
            is_skipped: bool [], the same on every replica; whether to leave all variables and
                moments unchanged. If `None`, the update is made.

        Raises:
            ValueError: the optimizer is not built.
        """
        if not self.built:
            raise UserError("Call optimizer.build(variables) in the strategy's scope first.")
        rate = self.learning_rate if learning_rate is None else learning_rate
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        tf.distribute.get_replica_context().merge_call(
            self._update_on_every_replica,
            args=(
                [g for g, _ in pairs],
                [v.value if isinstance(v, keras.Variable) else v for _, v in pairs],
                tf.convert_to_tensor(rate),
                *(() if is_skipped is None else (is_skipped,)),
            ),
        )
        self.iterations.assign_add(1)

    def _update_on_every_replica(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[Any],
        variables: Sequence[tf.Variable],
        *more: Any,
    ) -> None:
        def update(variable: tf.Variable, gradient: tf.Tensor, *more: tf.Tensor) -> None:
            self.update_step(gradient, variable, *more)

        for gradient, variable in zip(gradients, variables, strict=True):
            strategy.extended.update(variable, update, args=(gradient, *more), group=False)

    def update_step(
        self,
        gradient: tf.Tensor,
        variable: tf.Variable,
        learning_rate: tf.Tensor,
        is_skipped: tf.Tensor | None = None,
    ) -> None:
        """Updates `variable` with `gradient` and `learning_rate`, unless `is_skipped` is True."""
        slots = self.slots(variable)
        weight = tf.convert_to_tensor(variable)
        if (unit := self.unit_of(variable)) != 1.0:
            weight /= unit
        gradient = tf.cast(gradient, weight.dtype)
        m = self.beta_1 * slots["adam_m"] + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * slots["adam_v"] + (1.0 - self.beta_2) * tf.square(gradient)
        update = m / (tf.sqrt(v) + self.epsilon)
        rate = tf.cast(learning_rate, weight.dtype)
        if self._is_decayed[self._get_variable_index(variable)]:
            update += self.weight_decay_rate * weight
            rate *= self.trust_ratio(weight, update)
        change = rate * update if unit == 1.0 else unit * rate * update
        if is_skipped is not None:  # with tf.cond, a GPU would wait for the host
            m = tf.where(is_skipped, slots["adam_m"], m)
            v = tf.where(is_skipped, slots["adam_v"], v)
            change = tf.where(is_skipped, tf.zeros_like(change), change)
        self.assign(slots["adam_m"], m)
        self.assign(slots["adam_v"], v)
        self.assign_sub(variable, change)

    def trust_ratio(self, weight: tf.Tensor, update: tf.Tensor) -> tf.Tensor | float:
        """Returns the factor of the learning rate for a `weight` and its `update`: 1."""
        del weight, update
        return 1.0

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        del config["weight_decay"]
        return {
            **config,
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude": list(self.exclude),
        }


@register
class Lamb(AdamWeightDecay):
    """`AdamWeightDecay` with a trust ratio, which scales the update to the norm of the variable.

    The learning rate of a variable w with update u (including weight decay) is multiplied by
    `|w| / |u|` (2-norms), unless w is excluded. For the arguments see `AdamWeightDecay`.

    Source: lamb_optimizer.py of the original release; "Large Batch Optimization for Deep Learning"
        (https://arxiv.org/abs/1904.00962), algorithm 2, without bias correction.
    """

    def trust_ratio(self, weight: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
        """Returns the ratio of the norms of `weight` and `update`, float []; 1 if one is 0."""
        weight_norm, update_norm = tf.norm(weight), tf.norm(update)
        both = tf.logical_and(weight_norm > 0.0, update_norm > 0.0)
        return tf.where(both, weight_norm / update_norm, 1.0)
