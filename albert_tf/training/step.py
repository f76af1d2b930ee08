"""One training step of any task, from a batch to the update of the weights.

Losses are sums divided by the weights of the whole batch. Gradients are summed over micro-batches
and replicas before they are clipped. Therefore the updated weights do not depend on the number of
replicas or micro-batches.

float16 represents numbers from 6e-8 to 65504. Therefore the loss is multiplied by a power of two,
the loss scale, and the gradients are divided by it in float32. After an overflow, the update is
skipped and the scale is halved. After many steps without overflow, the scale is doubled. A skipped
step counts as a step, so that a step number has the same meaning in every run.

Half precision is a Keras policy, `mixed_bfloat16` or `mixed_float16`: variables are float32, and
activations and the factors of matrix products are rounded. Moments, losses, softmax and layer
normalization are float32 in every precision.
"""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.config import BFLOAT16, FLOAT16, FLOAT32
from albert_tf.data.errors import UserError
from albert_tf.modeling import fused_attention
from albert_tf.modeling.losses import LossSum
from albert_tf.modeling.ops import Attention, Ops
from albert_tf.modeling.ops_fused import FusedOps, repays_compilation
from albert_tf.modeling.original_names import original_names
from albert_tf.modeling.parameter_sharing import ENCODER_PREFIX
from albert_tf.modeling.rounded import warn_of_slow_bfloat16
from albert_tf.training.objective import Features, Objective
from albert_tf.training.optimization import clip_by_global_norm, create_optimizer
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.strategies import is_tpu

INITIAL_SCALE = 2.0**15
MAX_SCALE = 2.0**24  # 1 / the smallest number of float16
GROWTH_STEPS = 2000
_POLICIES = {BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}

# Sums of any structure, and the gradient of each variable, or `None`.
SumsAndGradients = tuple[Any, list[tf.Tensor | None]]
Model = TypeVar("Model", bound=keras.Model)


def build_model(
    build: Callable[[], Model], precision: str, strategy: tf.distribute.Strategy
) -> Model:
    """Builds a model in one of `config.PRECISIONS`; "float32" keeps the current Keras policy.

    Raises ValueError if the devices of the strategy do not support the precision.
    """
    device = device_type(strategy)
    if precision == FLOAT16 and device == "TPU":
        raise UserError("TPUs do not support float16. Use `precision`=bfloat16.")
    if precision == BFLOAT16:
        warn_of_slow_bfloat16()
    if precision == FLOAT16 and device == "CPU":
        logging.warning("`precision`=float16 is intended for GPUs, and very slow on CPUs")
    before = keras.config.dtype_policy()
    if precision in _POLICIES:
        keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        with strategy.scope():
            return build()
    finally:
        keras.config.set_dtype_policy(before)


def device_type(strategy: tf.distribute.Strategy) -> str:
    """Returns the type of the devices that compute: CPU, GPU or TPU."""
    return str(tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type)


class LossScale:
    """The adaptive loss scale of float16. Must be created in the scope of a strategy.

    `scale`, float32 [], is at least 1. `good_steps`, int64 [], counts consecutive steps with
    finite gradients. At `GROWTH_STEPS`, the scale is doubled and the count starts again.
    """

    def __init__(self) -> None:
        self.scale = _variable(INITIAL_SCALE, tf.float32, "loss_scale")
        self.good_steps = _variable(0, tf.int64, "good_steps")

    def unscaled(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the gradients of the unscaled loss, float32."""
        factor = 1.0 / self.scale
        return [tf.cast(gradient, tf.float32) * factor for gradient in gradients]

    def update(self, gradient_norm: tf.Tensor) -> tf.Tensor:
        """Updates the scale after a step, given the global norm of all unscaled gradients.

        Must be called once per step, in replica context. Returns whether to skip the update, bool
        []. With a scale of 1, the update is not skipped, so that training ends with an error.
        """
        scale = tf.convert_to_tensor(self.scale)
        is_good = tf.math.is_finite(gradient_norm)
        zero = tf.zeros([], tf.int64)
        good_steps = tf.where(is_good, self.good_steps + 1, zero)
        is_due = good_steps >= GROWTH_STEPS
        larger = tf.where(is_due, tf.minimum(2.0 * scale, MAX_SCALE), scale)
        self.scale.assign(tf.where(is_good, larger, tf.maximum(0.5 * scale, 1.0)))
        self.good_steps.assign(tf.where(is_due, zero, good_steps))
        return tf.logical_and(tf.logical_not(is_good), scale > 1.0)

    def state(self) -> dict[str, Any]:
        """Returns the state as JSON for `restore`."""
        return {"scale": float(self.scale.numpy()), "good_steps": int(self.good_steps.numpy())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`. Missing values get their initial values."""
        self.scale.assign(state.get("scale", INITIAL_SCALE))
        self.good_steps.assign(state.get("good_steps", 0))


def _variable(value: float, dtype: tf.DType, name: str) -> tf.Variable:
    return tf.Variable(
        value,
        trainable=False,
        dtype=dtype,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


class TrainingStep:
    """The training step, with the model, the optimizer and the loss scale that it changes.

    Attributes:
        model: the task's model with new weights, under the strategy.
        optimizer: the optimizer.
        variables: the trained variables, in the order of the original, without frozen variables.
        loss_scale: the loss scale of float16; `None` in other precisions.
        ops: the operations of the steps, see `Ops` and `FusedOps`.
        update: a `tf.function` that makes one update. It takes a batch from `split_batch` and
            returns `sums` of losses and metrics, `gradient_norm`, `learning_rate` and, in float16,
            `loss_scale` and `is_skipped`. With a second argument, float32 [], it also returns
            `stop_requests`, the sum of this argument over all replicas, on the host.
        updates: the same for N stacked batches, [N, ...], and with results [N].
        compiles: whether XLA compiles the step, once per shape.
    """

    def __init__(
        self,
        task: Objective,
        config: TrainerConfig,
        optimizer_config: OptimizerConfig,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self._task = task
        self._config = config
        self._clip_norm = optimizer_config.clip_norm
        self._strategy = strategy
        # Like keras.utils.set_random_seed, without Keras's own seed, which cannot be restored.
        random.seed(config.seed)
        np.random.seed(config.seed)
        tf.random.set_seed(config.seed)
        self.model = build_model(task.build_model, config.precision, strategy)
        with strategy.scope():
            self.loss_scale = LossScale() if config.precision == FLOAT16 else None
            self.model.encoder.remat = config.remat
            self.optimizer = create_optimizer(optimizer_config)
            named = {name: v for name, v in original_names(self.model).items() if v.trainable}
            # Frozen variables also get moments, so that all checkpoints have the same variables.
            self.optimizer.build([*named.values()])
            self.optimizer.units = [task.units.get(name, 1.0) for name in named]
        self.variables = [v for name, v in named.items() if not is_frozen(name, config.freeze)]
        if config.freeze:
            trained, total = (
                sum(v.value.shape.num_elements() for v in variables)
                for variables in (self.variables, named.values())
            )
            logging.info("`freeze`=%s: training %d of %d parameters", config.freeze, trained, total)
        self.compiles = config.jit_compile or is_tpu(strategy)
        self.ops = self._choose_ops()
        jit_compile = (config.jit_compile and not is_tpu(strategy)) or None
        self._gradients = tf.function(
            self._loss_sums_and_gradients, jit_compile=jit_compile, autograph=False
        )
        self._jit_compile = jit_compile
        self.update = tf.function(
            self._update,
            autograph=False,
            # On a TPU, every length is traced, because TPUStrategy pads dynamic shapes.
            reduce_retracing=not is_tpu(strategy),
            # With several replicas, the reduction is outside the compiled functions.
            jit_compile=jit_compile if strategy.num_replicas_in_sync == 1 else None,
        )
        self.updates = tf.function(self._update_each, autograph=False, reduce_retracing=True)

    def _update_each(self, batches: Any, *stop_request: tf.Tensor) -> Any:
        def update(number: tf.Tensor | int) -> tuple[Any, ...]:
            batch = tf.nest.map_structure(
                lambda values: values[number], batches, expand_composites=True
            )
            return batch, *stop_request

        # The loop is outside of the replicas, because their loops cannot contain a reduction.
        outputs = self.update.get_concrete_function(*update(0)).structured_outputs
        return tf.map_fn(
            lambda number: self.update(*update(number)),
            tf.range(tf.shape(tf.nest.flatten(batches, expand_composites=True)[0])[0]),
            parallel_iterations=1,
            fn_output_signature=tf.nest.map_structure(
                lambda output: tf.TensorSpec(output.shape, output.dtype), outputs
            ),
        )

    def describe(self) -> str:
        """Returns one line about the program, precision and attention of the step."""
        is_fused = isinstance(self.ops, FusedOps)
        plain = "fused TensorFlow operations" if is_fused else "TensorFlow operations"
        program = "compiled by XLA" if self.compiles else plain
        is_cudnn = isinstance(self.ops.attention, fused_attention.FusedAttention)
        return f"{program}, {self._config.precision}, attention={'cudnn' if is_cudnn else 'plain'}"

    def _choose_ops(self) -> Ops:
        """Returns the fastest operations for the device and the size of a step."""
        model_config = self.model.encoder.config
        attention: Attention | None = fused_attention.choose(
            self._config.attention,
            model_config,
            self.model.compute_dtype,
            self._task.max_seq_length,
            jit_compile=self._config.jit_compile,
        )
        if self._fuses():
            return FusedOps(attention, unpads=True)
        is_half = self.model.compute_dtype != FLOAT32
        is_efficient = is_tpu(self._strategy) or model_config.attention_probs_dropout_prob == 0.0
        if attention is None and self.compiles and is_half and is_efficient:
            attention = fused_attention.CompiledAttention()
        return Ops(attention, unpads=not self.compiles)

    def _fuses(self) -> bool:
        """Returns whether this is a large step on a CPU, for which fused operations are faster."""
        rows = self._config.train_batch_size // self._strategy.num_replicas_in_sync
        micro_rows = rows // self._config.gradient_accumulation_steps
        mean = self._task.mean_tokens
        tokens = micro_rows * (mean or self._task.max_seq_length)
        return (
            sys.platform == "linux"
            and device_type(self._strategy) == "CPU"
            and self.model.compute_dtype in (FLOAT32, BFLOAT16)
            and not self._config.jit_compile
            and repays_compilation(self._task.config, tokens, has_several_lengths=mean is not None)
        )

    def _update(self, batch: Features, *stop_request: tf.Tensor) -> dict[str, Any]:
        requests = dict(zip(("stop_requests",), stop_request, strict=False))
        results = self._strategy.run(self._replica_update, args=(batch, requests))
        # The results are sums over all replicas, the same on each.
        results = tf.nest.map_structure(
            lambda value: self._strategy.experimental_local_results(value)[0], results
        )
        requests = results.pop("on_host")
        with tf.device("CPU:0"):  # so that reading them does not wait for an accelerator
            return {**results, **tf.nest.map_structure(tf.identity, requests)}

    def _replica_update(self, features: Features, requests: dict[str, tf.Tensor]) -> dict[str, Any]:
        replica = tf.distribute.get_replica_context()

        def sum_over_replicas(values: Any) -> Any:
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, values)

        weights = sum_over_replicas(self._task.loss_weights(features))
        step = tf.cast(self.optimizer.iterations, tf.int32)
        sums, gradients = self._gradients(features, weights, self._dropout_seed(step))
        # As in the original, variables without a gradient are not updated.
        trained = [v for v, g in zip(self.variables, gradients, strict=True) if g is not None]
        on_replica = tf.nest.map_structure(tf.identity, requests)  # moves them to the device
        sums, gradients, requests = sum_over_replicas(
            (sums, [g for g in gradients if g is not None], on_replica)
        )
        rate = self.optimizer.learning_rate
        if self._jit_compile and self._strategy.num_replicas_in_sync > 1:
            update = partial(self._compiled_update, variables=trained)
            results = replica.merge_call(update, args=(gradients, rate))
            self.optimizer.iterations.assign_add(1)
        else:
            gradients, results = self._clip(gradients)
            self.optimizer.apply_reduced(gradients, trained, rate, results.get("is_skipped"))
        return {"sums": sums, "learning_rate": rate, **results, "on_host": requests}

    def _clip(self, gradients: Sequence[tf.Tensor]) -> tuple[list[Any], dict[str, tf.Tensor]]:
        """Unscales and clips the summed gradients, and updates the loss scale."""
        scaling = {}
        if self.loss_scale is not None:
            scaling["loss_scale"] = tf.convert_to_tensor(self.loss_scale.scale)
            gradients = self.loss_scale.unscaled(gradients)
        clipped, norm = clip_by_global_norm(gradients, self._clip_norm)
        if self.loss_scale is not None:
            scaling["is_skipped"] = self.loss_scale.update(norm)
        return clipped, {"gradient_norm": norm, **scaling}

    def _compiled_update(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[Any],
        learning_rate: Any,
        variables: Sequence[keras.Variable],
    ) -> dict[str, tf.Tensor]:
        """Clips and updates in one compiled function per replica."""

        def update(gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> dict[str, tf.Tensor]:
            clipped, results = self._clip(gradients)
            for gradient, variable in zip(clipped, variables, strict=True):
                skipped = results.get("is_skipped")
                self.optimizer.update_step(gradient, variable.value, rate, skipped)
            return results

        results = strategy.extended.update(
            self.variables[0].value,  # defines the replicas
            lambda _, *args: tf.function(update, jit_compile=True, autograph=False)(*args),
            args=(gradients, learning_rate),
            group=False,
        )
        return {name: values[0] for name, values in results.items()}

    def _dropout_seed(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the dropout seed of a step and replica, int32 [2]."""
        replica_id = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = tf.stack([tf.constant(self._config.seed, tf.int32), step])
        return tf.random.experimental.stateless_fold_in(seed, replica_id)

    def _loss_sums_and_gradients(
        self, features: Features, weights: Mapping[str, tf.Tensor], dropout_seed: tf.Tensor
    ) -> SumsAndGradients:
        """Returns the sums and the gradient of this replica. `weights` are sums of all replicas."""
        num_steps = self._config.gradient_accumulation_steps

        def micro_step(part: Features, number: tf.Tensor) -> SumsAndGradients:
            seed = tf.random.experimental.stateless_fold_in(dropout_seed, number)
            return self._sums_and_gradients(part, weights, seed)

        if num_steps == 1:
            return self._sums_and_gradients(features, weights, dropout_seed)
        return accumulate(micro_step, features, self.variables, num_steps)

    def _sums_and_gradients(
        self, features: Features, weights: Mapping[str, tf.Tensor], dropout_seed: tf.Tensor
    ) -> SumsAndGradients:
        """Returns the sums and the part of the gradient of one micro-batch."""
        variables = [variable.value for variable in self.variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            outputs = self.model(features, training=True, dropout_seed=dropout_seed, ops=self.ops)
            losses = self._task.losses(outputs, features, self.ops)
            # The sum over all micro-batches and replicas is the loss.
            share = self._task.total_loss(
                {name: LossSum(term.sum, weights[name]) for name, term in losses.items()}
            )
            if self.loss_scale is not None:
                share *= self.loss_scale.scale
        metrics = self._task.metrics(outputs, features)
        gradients = tape.gradient(share, variables)
        for n, variable in enumerate(variables):
            if (unit := self.optimizer.unit_of(variable)) != 1.0:
                gradients[n] *= unit
        return {**losses, **metrics}, gradients


def is_frozen(name: str, freeze: str | None) -> bool:
    """Returns whether the variable with this original name is frozen; see `TrainerConfig`."""
    scopes = {"encoder": ENCODER_PREFIX, "embeddings": f"{ENCODER_PREFIX}embeddings/"}
    return freeze is not None and name.startswith(scopes[freeze])


def accumulate(
    function: Callable[[Mapping[str, tf.Tensor], tf.Tensor], SumsAndGradients],
    features: Mapping[str, tf.Tensor],
    variables: Sequence[keras.Variable],
    num_steps: int,
) -> SumsAndGradients:
    """Sums the results of a function over the micro-batches of a batch, in a loop of the graph.

    `function` maps features [B / num_steps, ...] and the number of the micro-batch, int32 [], to
    sums and the gradients of `variables`. The summed gradients are dense.
    """
    parts = {name: _in_parts(values, num_steps) for name, values in features.items()}

    def part(number: tf.Tensor) -> dict[str, tf.Tensor]:
        return {name: tf.gather(values, number) for name, values in parts.items()}

    step = tf.function(function, autograph=False)  # traced once, here
    first = tf.constant(0)
    sums, gradients = step.get_concrete_function(part(first), first).structured_outputs
    trained = [variable for variable, g in zip(variables, gradients, strict=True) if g is not None]
    zeros = (
        tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), sums),
        [tf.zeros(variable.shape, variable.dtype) for variable in trained],
    )

    def add(number: tf.Tensor, totals: Any) -> tuple[tf.Tensor, Any]:
        sums, gradients = step(part(number), number)
        dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        return number + 1, tf.nest.map_structure(tf.add, totals, (sums, dense))

    _, (sums, totals) = tf.while_loop(
        lambda number, _: number < num_steps,
        add,
        (first, zeros),
        parallel_iterations=1,  # otherwise, several micro-batches are in memory
        maximum_iterations=num_steps,
    )
    remaining = iter(totals)
    return sums, [None if g is None else next(remaining) for g in gradients]


def _in_parts(values: tf.Tensor, num_parts: int) -> tf.Tensor:
    """Reshapes [B, ...] to [num_parts, B / num_parts, ...]. Static dimensions remain static."""
    batch_size, *inner = values.shape
    rows = -1 if batch_size is None else batch_size // num_parts
    dynamic = tf.shape(values)
    sizes = [dynamic[axis] if n is None else n for axis, n in enumerate(inner, start=1)]
    return tf.reshape(values, [num_parts, rows, *sizes])
