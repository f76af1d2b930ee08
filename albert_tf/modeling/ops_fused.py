"""Fused element-wise operations of large training steps on a CPU.

On CPUs, these operations are limited by memory bandwidth. XLA compiles each of them into one pass
over memory, and its gradient into another. Matrix products are not compiled, because TensorFlow's
are faster than XLA's on a CPU.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.layouts import PADDED
from albert_tf.modeling.ops import (
    LAYER_NORM_EPSILON,
    Gradient,
    Ops,
    Parameter,
    as_float32,
    gelu_forward,
    gelu_slope,
    lowered_scores,
    softmax_gradient,
)

# Operations are fused if the feed-forward activations of all layers have at least this number of
# elements in a micro-batch. Fusion saves 3 to 20 ns of CPU time per element, and compilation takes
# one to two seconds per shape. Batches of several lengths have about ten shapes.
_MIN_ELEMENTS = 1 << 22
_MIN_ELEMENTS_OF_SEVERAL_LENGTHS = 1 << 24


def repays_compilation(
    config: AlbertConfig, num_tokens: float, *, has_several_lengths: bool = False
) -> bool:
    """Returns whether fusion saves time for micro-batches of `num_tokens`."""
    runs = config.num_hidden_layers * config.inner_group_num
    least = _MIN_ELEMENTS_OF_SEVERAL_LENGTHS if has_several_lengths else _MIN_ELEMENTS
    return num_tokens * config.intermediate_size * runs >= least


class FusedOps(Ops):
    """See `Ops`. Each operation and each gradient is one compiled function."""

    rounds_up = True

    def recomputed(self, function: Callable[..., tf.Tensor], *arguments: Parameter) -> tf.Tensor:
        """See `Ops`. Stores only the arguments, which saves a tenth of the memory of a step."""

        @tf.custom_gradient
        def apply(*arguments: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
            stored = [tf.identity(tensor) for tensor in arguments]

            def gradient(upstream: tf.Tensor) -> list[tf.Tensor | None]:
                with tf.control_dependencies([upstream]), tf.GradientTape() as tape:
                    again = [tf.identity(tensor) for tensor in stored]
                    tape.watch(again)
                    result = function(*again)
                return list(tape.gradient(result, again, upstream))

            return function(*arguments), gradient

        return apply(*map(tf.convert_to_tensor, arguments))

    def biased_gelu(self, x: tf.Tensor, bias: Parameter, exact: bool = False) -> tf.Tensor:
        """See `Ops`."""
        fused = _fused(_biased_gelu, _biased_gelu_gradient, exact, num_stored=2)
        return fused(x, tf.convert_to_tensor(bias))

    def biased_heads(self, x: tf.Tensor, bias: Parameter, scale: float, heads: int) -> tf.Tensor:
        """See `Ops`."""
        if x.shape.rank == 2:
            return super().biased_heads(x, bias, scale, heads)
        fused = _fused(_biased_heads, _biased_heads_gradient, scale, heads, num_stored=0)
        return fused(x, tf.convert_to_tensor(bias))

    def masked_softmax(self, scores: tf.Tensor, attention_mask: tf.Tensor) -> tf.Tensor:
        """See `Ops`."""
        return _fused_masked_softmax(scores, lowered_scores(scores, attention_mask))

    def residual_norm(self, x: tf.Tensor, rows: tf.Tensor, *parameters: Parameter) -> tf.Tensor:
        """See `Ops`."""
        flat = tf.reshape(x, tf.shape(rows))
        fused = _fused(_residual_norm, _residual_norm_gradient, num_stored=4)
        return tf.reshape(fused(flat, rows, *map(tf.convert_to_tensor, parameters)), tf.shape(x))

    def cross_entropy(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """See `Ops`."""
        return _fused_cross_entropy(logits, labels)


@functools.cache
def one_pass(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors or variables, then constants, with XLA. Also a decorator."""

    @functools.cache
    def compiled(shapes: tuple, constants: tuple) -> Callable[..., Any]:
        # One function for all shapes would warn about retracing.
        return tf.function(
            lambda *tensors: function(*tensors, *constants), jit_compile=True, autograph=False
        )

    def call(*arguments: Any) -> Any:
        kinds = tf.Tensor | tf.Variable | keras.Variable
        tensors = [tf.convert_to_tensor(value) for value in arguments if isinstance(value, kinds)]
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        return compiled(shapes, arguments[len(tensors) :])(*tensors)

    return call


def _fused(
    function: Callable[..., tf.Tensor],
    gradient: Callable[..., Any],
    *constants: Any,
    num_stored: int,
) -> Callable[..., tf.Tensor]:
    """Returns `function` with the gradient `gradient(*tensors[:num_stored], upstream)`."""

    @tf.custom_gradient
    def apply(*tensors: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        stored = [tf.identity(tensor) for tensor in tensors[:num_stored]]
        return function(*tensors, *constants), lambda up: gradient(*stored, up, *constants)

    return apply


def _row_mean(x: tf.Tensor) -> tf.Tensor:
    """Returns the means of rows, [R, H] -> [R, 1], by a matrix product, which is vectorized."""
    return tf.matmul(x, tf.fill([x.shape[1], 1], 1.0 / x.shape[1]))


def _column_sum(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums of columns, [R, K] -> [K]."""
    rows = x.shape[0]
    if rows is None or rows % 16:
        return tf.reduce_sum(x, axis=0)
    # XLA computes x inside the first of two sums, but stores x if there is only one sum. The
    # factors of 16, which are exact, prevent XLA from merging the two sums.
    partial = tf.reduce_sum(tf.reshape(x, [16, rows // 16, x.shape[1]]), axis=0) / 16.0
    return tf.reduce_sum(partial, axis=0) * 16.0


@one_pass
def _biased_gelu(x: tf.Tensor, bias: tf.Tensor, exact: bool) -> tf.Tensor:
    return tf.cast(gelu_forward(as_float32(x) + bias, exact), x.dtype)


@one_pass
def _biased_gelu_gradient(
    x: tf.Tensor, bias: tf.Tensor, upstream: tf.Tensor, exact: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    biased = as_float32(x) + bias
    to_biased = as_float32(upstream) * gelu_slope(biased, exact)
    return tf.cast(to_biased, x.dtype), tf.reduce_sum(to_biased, axis=0)


@one_pass
def _residual_norm(
    x: tf.Tensor, residual: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
) -> tf.Tensor:
    normalized, _ = _normalized(as_float32(x) + bias + as_float32(residual))
    return tf.cast(normalized * gamma + beta, x.dtype)


@one_pass
def _residual_norm_gradient(
    x: tf.Tensor, residual: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    # The sum is recomputed, because storing it takes additional memory.
    normalized, inverse_deviation = _normalized(as_float32(x) + bias + as_float32(residual))
    upstream = as_float32(upstream)
    scaled = upstream * gamma
    mean = _row_mean(scaled)
    along = _row_mean(scaled * normalized)
    to_sum = inverse_deviation * (scaled - mean - normalized * along)
    return (
        tf.cast(to_sum, x.dtype),
        tf.cast(to_sum, residual.dtype),
        tf.reduce_sum(to_sum, axis=0),
        tf.reduce_sum(upstream * normalized, axis=0),
        _column_sum(upstream),
    )


def _normalized(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `x` with mean 0 and variance 1 over the last axis, and the inverse deviation."""
    centered = x - _row_mean(x)
    variance = _row_mean(tf.square(centered))
    inverse_deviation = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
    return centered * inverse_deviation, inverse_deviation


@one_pass
def _biased_heads(x: tf.Tensor, bias: tf.Tensor, scale: float, heads: int) -> tf.Tensor:
    return PADDED.split_heads(tf.cast((as_float32(x) + bias) * scale, x.dtype), heads)


@one_pass
def _biased_heads_gradient(
    upstream: tf.Tensor, scale: float, heads: int
) -> tuple[tf.Tensor, tf.Tensor]:
    hidden = heads * upstream.shape[-1]
    merged = tf.transpose(upstream, [0, 2, 1, 3])
    batch, length = tf.unstack(tf.shape(merged)[:2])
    rows = as_float32(tf.reshape(merged, [batch * length, hidden])) * scale
    to_x = tf.reshape(tf.cast(rows, upstream.dtype), [batch, length, hidden])
    return to_x, _column_sum(rows)


@tf.custom_gradient
def _fused_masked_softmax(scores: tf.Tensor, lowered: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    probabilities = _masked_softmax(scores, lowered)
    return probabilities, lambda upstream: (_softmax_gradient(probabilities, upstream), None)


@one_pass
def _masked_softmax(scores: tf.Tensor, lowered: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.nn.softmax(as_float32(scores) + lowered[:, None, None, :]), scores.dtype)


_softmax_gradient = one_pass(softmax_gradient)


@tf.custom_gradient
def _fused_cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    inner_labels = tf.identity(labels)
    losses, log_sum = _cross_entropy(logits, labels)
    inner_logits = tf.identity(logits)
    return losses, lambda upstream: (
        _cross_entropy_gradient(inner_logits, inner_labels, log_sum, upstream),
        None,
    )


@one_pass
def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    log_sum = tf.reduce_logsumexp(logits, axis=-1)
    chosen = tf.gather(logits, labels, batch_dims=labels.shape.rank)
    return log_sum - chosen, log_sum


@one_pass
def _cross_entropy_gradient(
    logits: tf.Tensor, labels: tf.Tensor, log_sum: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    # In SQuAD, the classes are positions, whose number can be unknown.
    is_label = tf.one_hot(labels, tf.shape(logits)[-1], dtype=logits.dtype)
    return (tf.exp(logits - log_sum[..., None]) - is_label) * upstream[..., None]
