"""Operations between matrix products, most of them with custom gradients.

The gradients of TensorFlow for GELU and layer normalization keep half a dozen tensors of the size
of the input for the backward pass; the custom ones keep one or two. The custom gradient of an
embedding lookup is dense and summed. TensorFlow's is sparse, and its unsummed rows have another
global norm.

Half-precision arguments are computed in float32: sums in bfloat16 stop growing at 256 times a term.

Arguments that a gradient uses pass through `tf.identity` first: inside `tf.cond` they may belong to
the outer graph, where the gradient must not look for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import control_flow_util

from albert_tf.modeling import fused_kernels

Gradient = Callable[..., tf.Tensor | tuple[tf.Tensor, ...]]


def as_float32(x: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns half precision as float32, and other types unchanged."""
    x = tf.convert_to_tensor(x)
    return tf.cast(x, tf.float32) if x.dtype in (tf.bfloat16, tf.float16) else x


@tf.custom_gradient
def gelu(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Gaussian error linear unit in its tanh approximation, element-wise.

    The forward pass is `tf.nn.gelu`, which TensorFlow's graph rewriter fuses into the preceding
    matrix product in float32 without a gradient.
    """
    inner_x = tf.identity(x)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * tf.cast(fused_kernels.gelu_slope(as_float32(inner_x)), x.dtype)

    # The name matters for speed: the rewriter sorts the factors of a product by name, and detects
    # GELU only if x is first. "intermediate/..." sorts before this name, but not before "Gelu".
    result = tf.nn.gelu(as_float32(x), approximate=True, name="tanh_gelu")
    return tf.cast(result, x.dtype), gradient


def add_bias(x: tf.Tensor, bias: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns x [..., K] + bias [K], in the precision of x.

    With x in half precision the bias is float32; otherwise its gradient would be rounded again.
    """
    return tf.cast(as_float32(x) + as_float32(bias), x.dtype)


def biased_gelu(x: tf.Tensor, bias: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns `gelu(x + bias)`; see `gelu` and `add_bias`."""
    if fused_kernels.fuses():
        return fused_kernels.biased_gelu(x, tf.convert_to_tensor(bias))
    return gelu(add_bias(x, bias))


def biased_heads(
    x: tf.Tensor, bias: tf.Tensor | keras.Variable, scale: float, heads: int
) -> tf.Tensor:
    """Returns (x + bias) * scale, float [B, S, N * D], head-major, split into [B, N, S, D]."""
    if fused_kernels.fuses():
        return fused_kernels.biased_heads(x, tf.convert_to_tensor(bias), scale, heads)
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
    if fused_kernels.fuses():
        return fused_kernels.masked_softmax(scores, lowered)
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
    return probabilities, lambda upstream: (
        fused_kernels.softmax_gradient(probabilities, upstream),
        None,
    )


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
    """Layer normalization over the last axis: gamma * (x - mean) / sqrt(var + epsilon) + beta.

    x is float [..., H], gamma and beta are float [H], and the variance is biased.
    """

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
    if fused_kernels.fuses():
        flat = tf.reshape(x, tf.shape(rows))
        normalized = fused_kernels.residual_norm(flat, rows, bias, gamma, beta, epsilon)
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
