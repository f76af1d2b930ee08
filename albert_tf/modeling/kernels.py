"""Operations between matrix products: custom gradients, and fused passes for CPUs.

TensorFlow's gradients of GELU and layer normalization keep half a dozen tensors of the size of the
input for the backward pass; the custom ones keep one or two. The custom gradient of an embedding
lookup is dense and summed. TensorFlow's is sparse, and its unsummed rows have another global norm.

Half-precision arguments are computed in float32: sums in bfloat16 stop growing at 256 times a term.

Arguments that a gradient uses pass through `tf.identity` first: inside `tf.cond` they may belong to
the outer graph, where the gradient must not look for them.

On CPUs, these operations are bound by memory bandwidth. Inside `fusing`, functions use passes that
XLA compiles, once per shape: a pass reads its inputs once, computes in float32, and writes its
outputs once, and so does its gradient. TensorFlow's matrix products are faster than XLA's on a CPU
and are not compiled.
"""

from __future__ import annotations

import contextvars
import functools
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

# Fused passes save 20 ns of CPU time per element of the feed-forward layers of a step. Compilation
# takes one to two seconds, which steps of this size save within about twenty steps.
_MIN_ELEMENTS = 1 << 22

_is_fusing: contextvars.ContextVar[bool] = contextvars.ContextVar("fused", default=False)

Gradient = Callable[..., tf.Tensor | tuple[tf.Tensor | None, ...]]


def as_float32(x: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns half precision as float32, and other types unchanged."""
    x = tf.convert_to_tensor(x)
    return tf.cast(x, tf.float32) if x.dtype in (tf.bfloat16, tf.float16) else x


@tf.custom_gradient
def gelu(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Gaussian error linear unit in its tanh approximation, element-wise.

    In float32 without a gradient, TensorFlow fuses `tf.nn.gelu` into the preceding matrix product.
    """
    inner_x = tf.identity(x)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * tf.cast(gelu_slope(as_float32(inner_x)), x.dtype)

    # The name matters for speed: the rewriter sorts the factors of a product by name, and detects
    # GELU only if x is first. "intermediate/..." sorts before this name, but not before "Gelu".
    result = tf.nn.gelu(as_float32(x), approximate=True, name="tanh_gelu")
    return tf.cast(result, x.dtype), gradient


def add_bias(x: tf.Tensor, bias: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns x [..., K] + bias [K], in the precision of x; a float32 bias is not rounded."""
    return tf.cast(as_float32(x) + as_float32(bias), x.dtype)


def biased_gelu(x: tf.Tensor, bias: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns `gelu(x + bias)`; see `gelu` and `add_bias`."""
    if fuses():
        return fused_biased_gelu(x, tf.convert_to_tensor(bias))
    return gelu(add_bias(x, bias))


def biased_heads(
    x: tf.Tensor, bias: tf.Tensor | keras.Variable, scale: float, heads: int
) -> tf.Tensor:
    """Returns (x + bias) * scale, float [B, S, N * D], head-major, split into [B, N, S, D]."""
    if fuses():
        return fused_biased_heads(x, tf.convert_to_tensor(bias), scale, heads)
    biased = add_bias(x, bias)
    if scale != 1.0:
        biased *= scale
    batch, length = tf.unstack(tf.shape(x)[:2])
    split = tf.reshape(biased, [batch, length, heads, x.shape[-1] // heads])
    return tf.transpose(split, [0, 2, 1, 3])


def masked_softmax(scores: tf.Tensor, attention_mask: tf.Tensor, masked_score: float) -> tf.Tensor:
    """Returns the softmax of scores, float [B, N, S, T], over the keys, in the same precision.

    `attention_mask` is [B, T] of any number type; 1 = a key to attend to, 0 = padding, to whose
    scores `masked_score` is added. In half precision, only the rounded probabilities are saved for
    the backward pass. The mask has no gradient.
    """
    wide = as_float32(scores)
    lowered = (1.0 - tf.cast(attention_mask, wide.dtype)) * masked_score
    if fuses():
        return fused_masked_softmax(scores, lowered)
    # Not lowered[:, None, None, :], which LiteRT does not have.
    lowered = tf.expand_dims(tf.expand_dims(lowered, 1), 1)
    if scores.dtype == wide.dtype:
        return tf.nn.softmax(wide + lowered)
    return _rounded_softmax(scores, lowered)


@tf.custom_gradient
def _rounded_softmax(scores: tf.Tensor, lowered: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Softmax in half precision that keeps only the rounded result for the gradient."""
    probabilities = tf.cast(tf.nn.softmax(as_float32(scores) + lowered), scores.dtype)
    if in_xla():
        # Otherwise XLA would keep float32 values instead of rounding them.
        (probabilities,) = xla.optimization_barrier(probabilities)
    return probabilities, lambda upstream: (softmax_gradient(probabilities, upstream), None)


def in_xla() -> bool:
    """Returns whether XLA compiles the current graph."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Zeroes entries of x with a probability near `rate`, in [0, 1), and scales the others.

    An entry is dropped if 16 random bits are below a threshold: with a probability of exactly
    round(rate * 65536) / 65536, at most 65535 / 65536. The mask depends only on the seed, int32
    [2], and on the number of entries.
    """
    threshold = min(round(rate * 65536), 65535)
    scale = 65536 / (65536 - threshold)

    @tf.custom_gradient
    def drop(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        mask = _dropout_mask(x, threshold, seed)

        def apply(values: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.where(mask(), as_float32(values) * scale, 0.0), values.dtype)

        return apply(x), apply

    return drop(x)


def _dropout_mask(x: tf.Tensor, threshold: int, seed: tf.Tensor) -> Callable[[], tf.Tensor]:
    """Returns a function that returns the mask, bool of the shape of x, and keeps few bytes.

    Two entries share a word. XLA packs eight into a byte, in the loop that draws their words.
    """
    is_tpu = isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
    if is_tpu or not tf.compat.v1.executing_eagerly_outside_functions():
        # One draw per entry: TPUs pad short last axes to 128, and graphs of TensorFlow 1 (TF-Hub
        # modules) cannot draw words.
        is_kept = tf.random.stateless_uniform(tf.shape(x), seed) >= threshold / 65536
        return lambda: is_kept
    size = x.shape.num_elements() if x.shape.is_fully_defined() else tf.size(x, tf.int64)
    words = tf.random.stateless_uniform([(size + 7) // 8, 4], seed, None, None, tf.uint32)
    if not in_xla():
        halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])  # the lower one first
        is_kept = tf.reshape(halves[:size] >= threshold, tf.shape(x))
        return lambda: is_kept
    lowest = tf.constant(threshold << 16, tf.uint32)
    columns = tf.unstack(words, axis=1)  # Philox computes them in parallel
    uppers = [half for word in columns for half in (tf.bitwise.left_shift(word, 16), word)]
    bits = [tf.cast(upper >= lowest, tf.uint8) * 2**place for place, upper in enumerate(uppers)]
    packed = functools.reduce(tf.bitwise.bitwise_or, bits)

    def unpack() -> tf.Tensor:
        places = tf.constant([1 << place for place in range(8)], tf.uint8)
        bits = tf.bitwise.bitwise_and(tf.expand_dims(packed, 1), places)
        return tf.reshape(tf.reshape(bits > 0, [-1])[:size], tf.shape(x))

    return unpack


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
    """Returns `layer_norm(x + rows + bias)` of x [B, S, H], rows [B * S, H] and bias [H]."""
    bias, gamma, beta = map(tf.convert_to_tensor, (bias, gamma, beta))
    if fuses():
        flat = tf.reshape(x, tf.shape(rows))
        normalized = fused_residual_norm(flat, rows, bias, gamma, beta, epsilon)
        return tf.reshape(normalized, tf.shape(x))
    return layer_norm(x + tf.reshape(add_bias(rows, bias), tf.shape(x)), gamma, beta, epsilon)


@tf.custom_gradient
def embedding_lookup(table: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Returns rows, float [..., E], of a table [V, E] by int32 ids, with a dense gradient."""
    inner_ids, num_rows = tf.identity(ids), tf.shape(table)[0]

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        summed = tf.math.unsorted_segment_sum(as_float32(upstream), inner_ids, num_rows)
        return tf.cast(summed, table.dtype), None

    return tf.gather(table, ids), gradient


def repays_compilation(config: AlbertConfig, num_tokens: int) -> bool:
    """Returns whether a micro-batch of `num_tokens`, including padding, is large enough."""
    runs = config.num_hidden_layers * config.inner_group_num
    return num_tokens * config.intermediate_size * runs >= _MIN_ELEMENTS


@contextmanager
def fusing(is_fusing: bool) -> Iterator[None]:
    """Context manager in which this thread builds graphs from fused passes, or plain operations."""
    token = _is_fusing.set(is_fusing)
    try:
        yield
    finally:
        _is_fusing.reset(token)


def fuses() -> bool:
    """Returns whether `fusing` is active."""
    return _is_fusing.get()


def _pass(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors, and of `constants` that are part of the compiled code."""

    @functools.cache
    def compiled(*constants: Any) -> Callable[..., Any]:
        # One function per set of shapes: a single one would warn about retracing.
        return tf.function(
            lambda *tensors: function(*tensors, *constants[1:]), jit_compile=True, autograph=False
        )

    @functools.wraps(function)
    def call(*tensors: tf.Tensor, constants: tuple[Any, ...] = ()) -> Any:
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        return compiled(shapes, *constants)(*tensors)

    return call


def _wide(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _row_mean(x: tf.Tensor) -> tf.Tensor:
    """Returns the means of rows, [R, H] -> [R, 1], as a matrix product, which is vectorized."""
    return tf.matmul(x, tf.fill([x.shape[1], 1], 1.0 / x.shape[1]))


def _column_sum(x: tf.Tensor) -> tf.Tensor:
    """Returns the sums of columns, [R, K] -> [K], of a cheaply computed `x`, without writing `x`.

    The exact factor of 16 keeps XLA from merging the two sums.
    """
    rows = x.shape[0]
    if rows is None or rows % 16:
        return tf.reduce_sum(x, axis=0)
    partial = tf.reduce_sum(tf.reshape(x, [16, rows // 16, x.shape[1]]), axis=0) / 16.0
    return tf.reduce_sum(partial, axis=0) * 16.0


@tf.custom_gradient
def fused_biased_gelu(x: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Returns GELU (tanh approximation) of x + bias for x float [R, F] and bias float32 [F]."""
    inner_x, inner_bias = tf.identity(x), tf.identity(bias)
    return _biased_gelu(x, bias), lambda upstream: _biased_gelu_gradient(
        inner_x, inner_bias, upstream
    )


@_pass
def _biased_gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.nn.gelu(_wide(x) + bias, approximate=True), x.dtype)


@_pass
def _biased_gelu_gradient(
    x: tf.Tensor, bias: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    biased = _wide(x) + bias
    to_biased = _wide(upstream) * gelu_slope(biased)
    return tf.cast(to_biased, x.dtype), tf.reduce_sum(to_biased, axis=0)


def gelu_slope(x: tf.Tensor) -> tf.Tensor:
    """Returns the derivative of GELU (tanh approximation), float32 with the shape of x."""
    x_squared = tf.square(x)
    gate = tf.sigmoid(x * (TWO_ROOT_TWO_OVER_PI * (1.0 + CUBIC * x_squared)))
    slope = TWO_ROOT_TWO_OVER_PI * (1.0 + 3.0 * CUBIC * x_squared)
    return gate + x * slope * gate * (1.0 - gate)


def fused_residual_norm(
    x: tf.Tensor,
    residual: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> tf.Tensor:
    """Returns the layer normalization of residual + x + bias.

    `x` and `residual` are float [R, H]; `bias`, `gamma` and `beta` are float32 [H].
    """

    @tf.custom_gradient
    def normalize(*tensors: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        inner_x, inner_residual, inner_bias, inner_gamma, _ = map(tf.identity, tensors)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return _residual_norm_gradient(
                inner_x, inner_residual, inner_bias, inner_gamma, upstream, constants=(epsilon,)
            )

        return _residual_norm(*tensors, constants=(epsilon,)), gradient

    return normalize(x, residual, bias, gamma, beta)


@_pass
def _residual_norm(
    x: tf.Tensor,
    residual: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> tf.Tensor:
    normalized, _ = _normalized(_wide(x) + bias + _wide(residual), epsilon)
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
    normalized, inverse_deviation = _normalized(_wide(x) + bias + _wide(residual), epsilon)
    upstream = _wide(upstream)
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


def fused_biased_heads(x: tf.Tensor, bias: tf.Tensor, scale: float, heads: int) -> tf.Tensor:
    """Returns `kernels.biased_heads` of a float32 bias."""

    @tf.custom_gradient
    def split(x: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        return _biased_heads(
            x, bias, constants=(scale, heads)
        ), lambda upstream: _biased_heads_gradient(upstream, constants=(scale,))

    return split(x, bias)


@_pass
def _biased_heads(x: tf.Tensor, bias: tf.Tensor, scale: float, heads: int) -> tf.Tensor:
    biased = tf.cast((_wide(x) + bias) * scale, x.dtype)
    batch, length = tf.unstack(tf.shape(x)[:2])
    split = tf.reshape(biased, [batch, length, heads, x.shape[-1] // heads])
    return tf.transpose(split, [0, 2, 1, 3])


@_pass
def _biased_heads_gradient(upstream: tf.Tensor, scale: float) -> tuple[tf.Tensor, tf.Tensor]:
    _, heads, _, size = upstream.shape
    merged = tf.transpose(upstream, [0, 2, 1, 3])
    batch, length = tf.unstack(tf.shape(merged)[:2])
    rows = _wide(tf.reshape(merged, [batch * length, heads * size])) * scale
    to_x = tf.reshape(tf.cast(rows, upstream.dtype), [batch, length, heads * size])
    return to_x, _column_sum(rows)


@tf.custom_gradient
def fused_masked_softmax(scores: tf.Tensor, masked_score: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Returns the softmax of scores, float [B, N, S, T], + masked_score, float32 [B, T]."""
    probabilities = _masked_softmax(scores, masked_score)
    return probabilities, lambda upstream: (_softmax_gradient(probabilities, upstream), None)


@_pass
def _masked_softmax(scores: tf.Tensor, masked_score: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.nn.softmax(_wide(scores) + masked_score[:, None, None, :]), scores.dtype)


def softmax_gradient(probabilities: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """Returns the gradient with respect to the scores, computed in float32."""
    wide = _wide(probabilities)
    weighted = _wide(upstream) * wide
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
    # The classes of SQuAD are positions, whose number can be dynamic.
    is_label = tf.one_hot(labels, tf.shape(logits)[-1], dtype=logits.dtype)
    return (tf.exp(logits - log_sum[..., None]) - is_label) * upstream[..., None]
