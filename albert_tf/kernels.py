"""The three functions whose automatic gradients would be wasteful, with gradients of their own.

Differentiated by TensorFlow, GELU and layer normalisation keep half a dozen tensors of the size of
their input alive until the backward pass and read each again; written out, they keep one or two.
An embedding look-up yields a sparse gradient whose parts are not summed, so that the global norm
taken over it is not the norm of the gradient (the original release clips by that other norm except
on TPU); here the gradient is dense and summed.

Half-precision arguments (bfloat16, float16) are computed in single precision and the results cast
back: sums over a batch stall in bfloat16 as soon as they reach 256 times a term.

Arguments that a gradient uses pass through `tf.identity` first: inside `tf.cond` they may belong to
the graph around it, where the gradient must not look for them.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

# gelu(x) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
_TWO_ROOT_TWO_OVER_PI = 1.5957691216057308
_CUBIC = 0.044715

Gradient = Callable[..., tf.Tensor | tuple[tf.Tensor, ...]]


def widened(x: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns half precision as float32, everything else as it is."""
    x = tf.convert_to_tensor(x)
    return tf.cast(x, tf.float32) if x.dtype in (tf.bfloat16, tf.float16) else x


@tf.custom_gradient
def gelu(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Gaussian error linear unit in its tanh approximation, element by element.

    The forward pass is `tf.nn.gelu`, the form that TensorFlow's graph rewriter fuses into the
    matrix product before it where no gradient is taken (and where precision is single).

    Source: modeling.py of the original release.
    """
    inner_x = tf.identity(x)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        wide = widened(inner_x)
        x_squared = tf.square(wide)
        gate = tf.sigmoid(wide * (_TWO_ROOT_TWO_OVER_PI * (1.0 + _CUBIC * x_squared)))
        slope = _TWO_ROOT_TWO_OVER_PI * (1.0 + 3.0 * _CUBIC * x_squared)
        return upstream * tf.cast(gate + wide * slope * gate * (1.0 - gate), x.dtype)

    # The name matters for speed: the rewriter sorts the factors of a product by name, and knows the
    # function only if x comes first. "intermediate/..." sorts before this, but not before "Gelu".
    result = tf.nn.gelu(widened(x), approximate=True, name="tanh_gelu")
    return tf.cast(result, x.dtype), gradient


def add_bias(x: tf.Tensor, bias: tf.Tensor | keras.Variable) -> tf.Tensor:
    """Returns x + bias, in the precision of x.

    Args:
        x: float [..., K].
        bias: float [K]; float32 beside half precision, or its gradient is rounded once more.
    """
    return tf.cast(widened(x) + widened(bias), x.dtype)


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Layer normalisation over the last axis: gamma * (x - mean) / sqrt(var + epsilon) + beta.

    Args:
        x: float [..., H].
        gamma: float [H], scale.
        beta: float [H], offset.
        epsilon: added to the (biased) variance.
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

    return tf.cast(normalize(widened(x), widened(gamma), widened(beta)), x.dtype)


@tf.custom_gradient
def embedding_lookup(table: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Rows of an embedding table, with a dense gradient.

    Args:
        table: float [V, E].
        ids: int32 of any shape, in 0..V-1.

    Returns:
        Float [..., E].
    """
    inner_ids, num_rows = tf.identity(ids), tf.shape(table)[0]

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        summed = tf.math.unsorted_segment_sum(widened(upstream), inner_ids, num_rows)
        return tf.cast(summed, table.dtype), None

    return tf.gather(table, ids), gradient
