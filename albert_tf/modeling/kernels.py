"""Element-wise operations, normalization and losses, with custom gradients and fused CPU versions.

TensorFlow's gradients of GELU and layer normalization store about six tensors of the size of the
input for the backward pass; the custom gradients store one or two. The custom gradient of an
embedding lookup is dense. TensorFlow's gradient is sparse, and its global norm is wrong if ids are
repeated.

Activations, softmax, normalization, losses and sums over rows are computed in float32, because a
sum in bfloat16 stops growing at 256 times the added number.

Arguments that a gradient uses are copied by `tf.identity`, because inside `tf.cond` they may belong
to the outer graph.

On CPUs, these operations are limited by memory bandwidth. Inside `fusing`, XLA compiles each of
them into one pass over memory, and its gradient into another. Matrix products are not compiled,
because TensorFlow's are faster than XLA's on a CPU.
"""

import contextvars
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import control_flow_util

from albert_tf.config import AlbertConfig

# gelu(x) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
TWO_ROOT_TWO_OVER_PI = 1.5957691216057308
CUBIC = 0.044715

# Operations are fused if the feed-forward activations of all layers have at least this number of
# elements in a micro-batch. Fusion saves 20 ns of CPU time per element, so twenty micro-batches of
# this size repay the compilation, which takes one to two seconds.
_MIN_ELEMENTS = 1 << 22

_is_fusing: contextvars.ContextVar[bool] = contextvars.ContextVar("fused", default=False)

Gradient = Callable[..., tf.Tensor | tuple[tf.Tensor | None, ...]]


def as_float32(x: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Casts half precision to float32; returns tensors of other types unchanged."""
    x = tf.convert_to_tensor(x)
    return tf.cast(x, tf.float32) if x.dtype in (tf.bfloat16, tf.float16) else x


def gelu(x: tf.Tensor, exact: bool = False) -> tf.Tensor:
    """Gaussian error linear unit, element-wise: in its tanh approximation, or `exact`."""

    @tf.custom_gradient
    def activate(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        inner_x = tf.identity(x)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return upstream * tf.cast(gelu_slope(as_float32(inner_x), exact), x.dtype)

        return tf.cast(_gelu(as_float32(x), exact), x.dtype), gradient

    return activate(x)


def _gelu(x: tf.Tensor, exact: bool) -> tf.Tensor:
    if exact:  # twice as fast as `tf.nn.gelu` on a CPU
        return 0.5 * x * (1.0 + tf.math.erf(x * math.sqrt(0.5)))
    # In float32 without a gradient, TensorFlow fuses `tf.nn.gelu` into the preceding matrix
    # product. Its graph rewriter sorts factors by name and detects GELU only if x comes first. The
    # name of x, "intermediate/...", sorts before "tanh_gelu", but after the default name "Gelu".
    return tf.nn.gelu(x, approximate=True, name="tanh_gelu")


def exact_gelu(x: tf.Tensor) -> tf.Tensor:
    """Returns x * Phi(x), element-wise, where Phi is the normal distribution function."""
    return gelu(x, exact=True)


def add_bias(x: tf.Tensor, bias: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Adds a bias [K] to x [..., K] in float32, and converts the sum to the dtype of x."""
    return tf.cast(as_float32(x) + as_float32(bias), x.dtype)


def biased_gelu(x: tf.Tensor, bias: tf.Tensor | keras.Variable, exact: bool = False) -> tf.Tensor:
    """Returns `gelu(x + bias, exact)`; see `gelu` and `add_bias`."""
    if fuses():
        fused = _fused(_biased_gelu, _biased_gelu_gradient, exact, num_stored=2)
        return fused(x, tf.convert_to_tensor(bias))
    return gelu(add_bias(x, bias), exact)


def biased_heads(
    x: tf.Tensor, bias: tf.Tensor | keras.Variable, scale: float, heads: int
) -> tf.Tensor:
    """Returns (x + bias) * scale, float [B, S, N * D], split into heads [B, N, S, D]."""
    if fuses():
        fused = _fused(_biased_heads, _biased_heads_gradient, scale, heads, num_stored=0)
        return fused(x, tf.convert_to_tensor(bias))
    biased = add_bias(x, bias)
    return _split_heads(biased * scale if scale != 1.0 else biased, heads)


def _split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    batch, length = tf.unstack(tf.shape(x)[:2])
    split = tf.reshape(x, [batch, length, heads, x.shape[-1] // heads])
    return tf.transpose(split, [0, 2, 1, 3])


def masked_softmax(scores: tf.Tensor, attention_mask: tf.Tensor, masked_score: float) -> tf.Tensor:
    """Returns the softmax of scores, float [B, N, S, T], over the keys, in their dtype.

    `masked_score` is added to the scores of padding, which has 0 in `attention_mask` [B, T]. In
    half precision, only the rounded probabilities are stored for the backward pass.
    """
    wide = as_float32(scores)
    lowered = (1.0 - tf.cast(attention_mask, wide.dtype)) * masked_score
    if fuses():
        return _fused_masked_softmax(scores, lowered)
    # LiteRT does not support lowered[:, None, None, :].
    lowered = tf.expand_dims(tf.expand_dims(lowered, 1), 1)
    if scores.dtype == wide.dtype:
        return tf.nn.softmax(wide + lowered)
    return _rounded_softmax(scores, lowered)


@tf.custom_gradient
def _rounded_softmax(scores: tf.Tensor, lowered: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    probabilities = tf.cast(tf.nn.softmax(as_float32(scores) + lowered), scores.dtype)
    if in_xla():
        # Otherwise XLA would store float32 values for the gradient.
        (probabilities,) = xla.optimization_barrier(probabilities)
    return probabilities, lambda upstream: (softmax_gradient(probabilities, upstream), None)


def in_xla() -> bool:
    """Returns whether XLA compiles the current graph."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Zeroes entries of x with a probability of `rate`, in [0, 1), and scales the others.

    `rate` is rounded to a multiple of 1 / 65536 below 1. The mask depends only on the rate,
    the seed, int32 [2], and the number of entries. For TPUs, see `byte_threshold` and
    `random_bytes`.
    """
    threshold = min(round(rate * 65536), 65535)
    scale = 65536 / (65536 - threshold)
    draws_bytes = on_tpu() and in_xla()
    if draws_bytes:
        threshold, scale = byte_threshold(rate)

    @tf.custom_gradient
    def drop(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        if draws_bytes:
            is_kept = random_bytes(tf.shape(x), seed) >= threshold
        else:
            mask = _dropout_mask(x, threshold, seed)

        def apply(values: tf.Tensor) -> tf.Tensor:
            kept = is_kept if draws_bytes else mask()
            return tf.cast(tf.where(kept, as_float32(values) * scale, 0.0), values.dtype)

        return apply(x), apply

    return drop(x)


def _dropout_mask(x: tf.Tensor, threshold: int, seed: tf.Tensor) -> Callable[[], tf.Tensor]:
    """Returns a function that computes the bool mask of x. In XLA, it stores one bit per entry."""
    if not tf.compat.v1.executing_eagerly_outside_functions():
        # Graphs of TensorFlow 1 (TF-Hub modules) cannot draw integers.
        is_kept = tf.random.stateless_uniform(tf.shape(x), seed) >= threshold / 65536
        return lambda: is_kept
    size = x.shape.num_elements() if x.shape.is_fully_defined() else tf.size(x, tf.int64)
    words = tf.random.stateless_uniform([(size + 7) // 8, 4], seed, None, None, tf.uint32)
    if not in_xla():
        halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])  # the lower one first
        is_kept = tf.reshape(halves[:size] >= threshold, tf.shape(x))
        return lambda: is_kept
    lowest = tf.constant(threshold << 16, tf.uint32)
    # XLA draws random words and packs eight entries of the mask into a byte in the same loop.
    columns = tf.unstack(words, axis=1)  # Philox computes them in parallel
    uppers = [half for word in columns for half in (tf.bitwise.left_shift(word, 16), word)]
    bits = [tf.cast(upper >= lowest, tf.uint8) * 2**place for place, upper in enumerate(uppers)]
    packed = functools.reduce(tf.bitwise.bitwise_or, bits)

    def unpack() -> tf.Tensor:
        places = tf.constant([1 << place for place in range(8)], tf.uint8)
        bits = tf.bitwise.bitwise_and(tf.expand_dims(packed, 1), places)
        return tf.reshape(tf.reshape(bits > 0, [-1])[:size], tf.shape(x))

    return unpack


def on_tpu() -> bool:
    """Returns whether the current strategy runs on a TPU."""
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def byte_threshold(rate: float) -> tuple[int, float]:
    """Returns the number of byte values that drop an entry, and the scale of the other entries.

    The probability of dropping is exactly threshold / 256, within 1/256 of a rate in (0, 1).
    """
    threshold = min(max(round(rate * 256), 1), 255)
    return threshold, 256 / (256 - threshold)


def random_bytes(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns uint8 random numbers that depend on a seed, int32 [2], and the device. Needs XLA."""
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    state = tf.concat([key, counter[:1]], axis=0)
    return xla.rng_bit_generator(tf.random.Algorithm.AUTO_SELECT, state, shape, tf.uint8)[1]


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Returns gamma * (x - mean) / sqrt(biased variance + epsilon) + beta over the last axis."""

    @tf.custom_gradient
    def normalize(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        gamma = tf.identity(gamma)
        centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        inverse_deviation = tf.math.rsqrt(variance + epsilon)
        normalized = centered * inverse_deviation

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scaled = upstream * gamma
            mean = tf.reduce_mean(scaled, axis=-1, keepdims=True)
            along = tf.reduce_mean(scaled * normalized, axis=-1, keepdims=True)
            to_x = inverse_deviation * (scaled - mean - normalized * along)
            rows = list(range(x.shape.rank - 1))
            return (
                to_x,
                tf.reduce_sum(upstream * normalized, axis=rows),
                tf.reduce_sum(upstream, axis=rows),
            )

        return normalized * gamma + beta, gradient

    return tf.cast(normalize(as_float32(x), as_float32(gamma), as_float32(beta)), x.dtype)


def residual_norm(
    x: tf.Tensor,
    rows: tf.Tensor,
    bias: tf.Tensor | keras.Variable,
    gamma: tf.Tensor | keras.Variable,
    beta: tf.Tensor | keras.Variable,
    epsilon: float,
) -> tf.Tensor:
    """Returns `layer_norm(x + rows + bias)`; for the shapes see `LayerNorm.of_sum`."""
    bias, gamma, beta = map(tf.convert_to_tensor, (bias, gamma, beta))
    if fuses():
        flat = tf.reshape(x, tf.shape(rows))
        fused = _fused(_residual_norm, _residual_norm_gradient, epsilon, num_stored=4)
        return tf.reshape(fused(flat, rows, bias, gamma, beta), tf.shape(x))
    return layer_norm(x + tf.reshape(add_bias(rows, bias), tf.shape(x)), gamma, beta, epsilon)


@tf.custom_gradient
def embedding_lookup(table: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Returns the rows, float [..., E], of a table [V, E] with the given ids, int32 [...]."""
    inner_ids, num_rows = tf.identity(ids), tf.shape(table)[0]

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        summed = tf.math.unsorted_segment_sum(as_float32(upstream), inner_ids, num_rows)
        return tf.cast(summed, table.dtype), None

    return tf.gather(table, ids), gradient


def repays_compilation(config: AlbertConfig, num_tokens: int) -> bool:
    """Returns whether fusion saves time for micro-batches of `num_tokens`, including padding."""
    runs = config.num_hidden_layers * config.inner_group_num
    return num_tokens * config.intermediate_size * runs >= _MIN_ELEMENTS


@contextmanager
def fusing(is_fusing: bool) -> Iterator[None]:
    """Context manager that sets whether this thread builds graphs with fused operations."""
    token = _is_fusing.set(is_fusing)
    try:
        yield
    finally:
        _is_fusing.reset(token)


def fuses() -> bool:
    """Returns whether `fusing` is active."""
    return _is_fusing.get()


def _pass(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that compiles a function with XLA. Its arguments are tensors, then constants."""

    @functools.cache
    def compiled(shapes: tuple, constants: tuple) -> Callable[..., Any]:
        # One function for all shapes would warn about retracing.
        return tf.function(
            lambda *tensors: function(*tensors, *constants), jit_compile=True, autograph=False
        )

    def call(*arguments: Any) -> Any:
        tensors = [argument for argument in arguments if not isinstance(argument, int | float)]
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


@_pass
def _biased_gelu(x: tf.Tensor, bias: tf.Tensor, exact: bool) -> tf.Tensor:
    return tf.cast(_gelu(as_float32(x) + bias, exact), x.dtype)


@_pass
def _biased_gelu_gradient(
    x: tf.Tensor, bias: tf.Tensor, upstream: tf.Tensor, exact: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    biased = as_float32(x) + bias
    to_biased = as_float32(upstream) * gelu_slope(biased, exact)
    return tf.cast(to_biased, x.dtype), tf.reduce_sum(to_biased, axis=0)


def gelu_slope(x: tf.Tensor, exact: bool = False) -> tf.Tensor:
    """Returns the derivative of `gelu`, float32 with the shape of x."""
    x_squared = tf.square(x)
    if exact:
        density = tf.exp(-0.5 * x_squared) * (1.0 / math.sqrt(2.0 * math.pi))
        return 0.5 * (1.0 + tf.math.erf(x * math.sqrt(0.5))) + x * density
    gate = tf.sigmoid(x * (TWO_ROOT_TWO_OVER_PI * (1.0 + CUBIC * x_squared)))
    slope = TWO_ROOT_TWO_OVER_PI * (1.0 + 3.0 * CUBIC * x_squared)
    return gate + x * slope * gate * (1.0 - gate)


@_pass
def _residual_norm(
    x: tf.Tensor,
    residual: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> tf.Tensor:
    normalized, _ = _normalized(as_float32(x) + bias + as_float32(residual), epsilon)
    return tf.cast(normalized * gamma + beta, x.dtype)


@_pass
def _residual_norm_gradient(
    x: tf.Tensor,
    residual: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    upstream: tf.Tensor,
    epsilon: float,
) -> tuple[tf.Tensor, ...]:
    # The sum is recomputed, because storing it takes additional memory.
    normalized, inverse_deviation = _normalized(
        as_float32(x) + bias + as_float32(residual), epsilon
    )
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


def _normalized(x: tf.Tensor, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `x` with mean 0 and variance 1 over the last axis, and the inverse deviation."""
    centered = x - _row_mean(x)
    variance = _row_mean(tf.square(centered))
    inverse_deviation = tf.math.rsqrt(variance + epsilon)
    return centered * inverse_deviation, inverse_deviation


@_pass
def _biased_heads(x: tf.Tensor, bias: tf.Tensor, scale: float, heads: int) -> tf.Tensor:
    return _split_heads(tf.cast((as_float32(x) + bias) * scale, x.dtype), heads)


@_pass
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


@_pass
def _masked_softmax(scores: tf.Tensor, lowered: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.nn.softmax(as_float32(scores) + lowered[:, None, None, :]), scores.dtype)


def softmax_gradient(probabilities: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """Returns the gradient with respect to the scores, computed in float32."""
    wide = as_float32(probabilities)
    weighted = as_float32(upstream) * wide
    to_scores = weighted - wide * tf.reduce_sum(weighted, axis=-1, keepdims=True)
    return tf.cast(to_scores, upstream.dtype)


_softmax_gradient = _pass(softmax_gradient)


@tf.custom_gradient
def fused_cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Returns -log softmax(logits)[label] for logits float32 [..., K] and labels int32 [...]."""
    inner_labels = tf.identity(labels)
    losses, log_sum = _cross_entropy(logits, labels)
    inner_logits = tf.identity(logits)
    return losses, lambda upstream: (
        _cross_entropy_gradient(inner_logits, inner_labels, log_sum, upstream),
        None,
    )


@_pass
def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    log_sum = tf.reduce_logsumexp(logits, axis=-1)
    chosen = tf.gather(logits, labels, batch_dims=labels.shape.rank)
    return log_sum - chosen, log_sum


@_pass
def _cross_entropy_gradient(
    logits: tf.Tensor, labels: tf.Tensor, log_sum: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    # In SQuAD, the classes are positions, whose number can be unknown.
    is_label = tf.one_hot(labels, tf.shape(logits)[-1], dtype=logits.dtype)
    return (tf.exp(logits - log_sum[..., None]) - is_label) * upstream[..., None]
