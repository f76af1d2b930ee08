"""Fused element-wise operations of training steps on CPUs, compiled by XLA.

The operations between the matrix products of a block are bound by memory bandwidth. A compiled pass
reads its inputs once and writes its outputs once, and so does its gradient. TensorFlow's matrix
products are faster than XLA's on a CPU and are not compiled.

With `fusing`, functions of `kernels` call their counterparts here. A pass computes in float32 and
rounds its results once, to the precision of its argument. It is compiled once per shape.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig

# gelu(x) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
TWO_ROOT_TWO_OVER_PI = 1.5957691216057308
CUBIC = 0.044715

# Fused passes save 20 ns of CPU time per element of the feed-forward layers of a step. Compilation
# takes one to two seconds, which steps of this size save within about twenty steps.
_MIN_ELEMENTS = 1 << 22

_is_fusing: contextvars.ContextVar[bool] = contextvars.ContextVar("fused", default=False)

Gradient = Callable[..., tf.Tensor | tuple[tf.Tensor | None, ...]]


def repays_compilation(config: AlbertConfig, num_tokens: int) -> bool:
    """Returns whether a training step is large enough for fused passes.

    `num_tokens` is the number of positions of a micro-batch, including padding.
    """
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
def biased_gelu(x: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
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


def residual_norm(
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


def biased_heads(x: tf.Tensor, bias: tf.Tensor, scale: float, heads: int) -> tf.Tensor:
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
def masked_softmax(scores: tf.Tensor, masked_score: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Returns the softmax of scores, float [B, N, S, T], + masked_score, float32 [B, T].

    `masked_score` has no gradient.
    """
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
def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
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
