"""Element-wise operations, normalization and losses, with custom gradients.

TensorFlow's gradients of GELU and layer normalization store about six tensors of the size of the
input for the backward pass; the custom gradients store one or two. The custom gradient of an
embedding lookup is dense. TensorFlow's gradient is sparse, and its global norm is wrong if ids are
repeated.

Activations, softmax, normalization, losses and sums over rows are computed in float32, because a
sum in bfloat16 stops growing at 256 times the added number.

Arguments that a gradient uses are copied by `tf.identity`, because inside `tf.cond` they may belong
to the outer graph.

Layers and losses take the operations between two matrix products from an object, `Ops`. A training
step selects another one if it is faster on its device; see `ops_fused.py` and `fused_attention.py`.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import control_flow_util

from albert_tf.modeling.layouts import (
    PADDED,
    Read,
    Unpadded,
    factor_of,
    on_tpu,
    with_axes_of,
)

# gelu(x) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
TWO_ROOT_TWO_OVER_PI = 1.5957691216057308
CUBIC = 0.044715
MASKED_SCORE = -10000.0  # added to the attention scores of padding keys
LAYER_NORM_EPSILON = 1e-12

Gradient = Callable[..., tf.Tensor | tuple[tf.Tensor | None, ...]]
Parameter: TypeAlias = tf.Tensor | keras.Variable


def as_float32(x: Parameter) -> tf.Tensor:
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

        return tf.cast(gelu_forward(as_float32(x), exact), x.dtype), gradient

    return activate(x)


def gelu_forward(x: tf.Tensor, exact: bool) -> tf.Tensor:
    """Returns `gelu` with the gradient of TensorFlow."""
    if exact:  # twice as fast as `tf.nn.gelu` on a CPU
        return 0.5 * x * (1.0 + tf.math.erf(x * math.sqrt(0.5)))
    # In float32 without a gradient, TensorFlow fuses `tf.nn.gelu` into the preceding matrix
    # product. Its graph rewriter sorts factors by name and detects GELU only if x comes first. The
    # name of x, "intermediate/...", sorts before "tanh_gelu", but after the default name "Gelu".
    return tf.nn.gelu(x, approximate=True, name="tanh_gelu")


def gelu_slope(x: tf.Tensor, exact: bool = False) -> tf.Tensor:
    """Returns the derivative of `gelu`, float32 with the shape of x."""
    x_squared = tf.square(x)
    if exact:
        density = tf.exp(-0.5 * x_squared) * (1.0 / math.sqrt(2.0 * math.pi))
        return 0.5 * (1.0 + tf.math.erf(x * math.sqrt(0.5))) + x * density
    gate = tf.sigmoid(x * (TWO_ROOT_TWO_OVER_PI * (1.0 + CUBIC * x_squared)))
    slope = TWO_ROOT_TWO_OVER_PI * (1.0 + 3.0 * CUBIC * x_squared)
    return gate + x * slope * gate * (1.0 - gate)


def exact_gelu(x: tf.Tensor) -> tf.Tensor:
    """Returns x * Phi(x), element-wise, where Phi is the normal distribution function."""
    return gelu(x, exact=True)


def add_bias(x: tf.Tensor, bias: Parameter) -> tf.Tensor:
    """Adds a bias [K] to x [..., K] in float32, and converts the sum to the dtype of x."""
    return tf.cast(as_float32(x) + as_float32(bias), x.dtype)


@tf.custom_gradient
def _rounded_softmax(scores: tf.Tensor, lowered: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    probabilities = tf.cast(tf.nn.softmax(as_float32(scores) + lowered), scores.dtype)
    if in_xla():
        # Otherwise XLA would store float32 values for the gradient.
        (probabilities,) = xla.optimization_barrier(probabilities)
    return probabilities, lambda upstream: (softmax_gradient(probabilities, upstream), None)


def softmax_gradient(probabilities: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """Returns the gradient with respect to the scores, computed in float32."""
    wide = as_float32(probabilities)
    weighted = as_float32(upstream) * wide
    to_scores = weighted - wide * tf.reduce_sum(weighted, axis=-1, keepdims=True)
    return tf.cast(to_scores, upstream.dtype)


def in_xla() -> bool:
    """Returns whether XLA compiles the current graph."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Zeroes entries of x with a probability of `rate`, in [0, 1), and scales the others.

    If `seed` is `None` or the rate is 0, returns x. Otherwise, `rate` is rounded to a multiple of
    1 / 65536 below 1. The mask depends only on the rate, the seed, int32 [2], and the number of
    entries. For TPUs, see `byte_threshold` and `random_bytes`.
    """
    if seed is None or rate == 0.0:
        return x
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


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Returns gamma * (x - mean) / sqrt(biased variance + 1e-12) + beta over the last axis."""

    @tf.custom_gradient
    def normalize(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        gamma = tf.identity(gamma)
        centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        inverse_deviation = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
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


@tf.custom_gradient
def embedding_lookup(table: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Returns the rows, float [..., E], of a table [V, E] with the given ids, int32 [...]."""
    inner_ids, num_rows = tf.identity(ids), tf.shape(table)[0]

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        summed = tf.math.unsorted_segment_sum(as_float32(upstream), inner_ids, num_rows)
        return tf.cast(summed, table.dtype), None

    return tf.gather(table, ids), gradient


class Attention(Protocol):
    """Attention of compiled training steps, which returns no probabilities."""

    def takes(self, query: tf.Tensor, key: tf.Tensor) -> bool:
        """Returns whether these shapes are supported; otherwise attention is plain.

        The query is [B, N, R, D], the key [B, N, S, D].
        """
        ...

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        attention_mask: tf.Tensor,
        dropout_rate: float = 0.0,
        dropout_seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the context, float [B, N, R, D]."""
        ...


class Ops:
    """The operations between matrix products, in plain TensorFlow.

    `attention` replaces the plain attention. If it is `None`, attention is plain. With `unpads`,
    only attention computes padding, unless it is read; not for XLA, which needs static shapes.
    """

    layout = PADDED
    rounds_up = False  # see `Unpadded`

    def __init__(self, attention: Attention | None = None, *, unpads: bool = False) -> None:
        self.attention = attention
        self.unpads = unpads

    def for_batch(self, input_mask: tf.Tensor, read: Read, heads: int) -> Ops:
        """Returns the same operations, with the layout for this batch; see `Unpadded`."""
        if not self.unpads or (isinstance(read, str) and read == "all"):
            return self
        ops = copy.copy(self)
        ops.layout = Unpadded(input_mask, read, heads, rounds_up=self.rounds_up)
        return ops

    def with_plain_attention(self) -> Ops:
        """Returns the same operations with plain attention, which returns probabilities."""
        return type(self)()

    def apply(self, function: Callable[..., tf.Tensor], *arguments: Any) -> tf.Tensor:
        """Returns `function(*arguments)`. The arguments are tensors, then hashable constants."""
        return function(*arguments)

    def recomputed(self, function: Callable[..., tf.Tensor], *arguments: Parameter) -> tf.Tensor:
        """Returns `function(*arguments)`. Large steps may recompute it for its gradient."""
        return function(*arguments)

    def project_heads(
        self, x: tf.Tensor, read: tf.Tensor, projections: Sequence[Any], scale: float, heads: int
    ) -> list[tf.Tensor]:
        """Returns query * scale of `read`, and key and value of all tokens x.

        x has the layout of this batch, and `read` is x or [B, R, H]. The results are [B, N, R, D]
        and [B, N, S, D].
        """
        found: list[tf.Tensor] = []
        for projection, factor in zip(projections, (scale, 1.0, 1.0), strict=True):
            tokens = x if found else read
            product = with_axes_of(tokens, projection.product(factor_of(tokens)))
            found.append(self.biased_heads(product, projection.bias, factor, heads))
        return found

    def biased_gelu(self, x: tf.Tensor, bias: Parameter, exact: bool = False) -> tf.Tensor:
        """Returns `gelu(x + bias, exact)`; see `gelu` and `add_bias`."""
        return gelu(add_bias(x, bias), exact)

    def biased_heads(self, x: tf.Tensor, bias: Parameter, scale: float, heads: int) -> tf.Tensor:
        """Returns (x + bias) * scale, split into heads [B, N, R, D]; see `Padded.split_heads`."""
        biased = add_bias(x, bias)
        return self.layout.split_heads(biased * scale if scale != 1.0 else biased, heads)

    def attend(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        attention_mask: tf.Tensor,
        rate: float,
        seed: tf.Tensor | None,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the context, float [B, N, R, D], and the probabilities, [B, N, R, S] or `None`.

        The query is [B, N, R, D], key and value are [B, N, S, D]. `attention_mask` [B, S] is 0 for
        padding. `rate` and `seed` belong to the dropout of the probabilities.
        """
        if self.attention is not None and self.attention.takes(query, key):
            return self.attention(query, key, value, attention_mask, rate, seed), None
        scores = tf.matmul(query, key, transpose_b=True)
        probabilities = self.masked_softmax(scores, attention_mask)
        return tf.matmul(dropout(probabilities, rate, seed), value), probabilities

    def masked_softmax(self, scores: tf.Tensor, attention_mask: tf.Tensor) -> tf.Tensor:
        """Returns the softmax of scores, float [B, N, R, S], over the keys, in their dtype.

        `MASKED_SCORE` is added to the scores of padding, which has 0 in `attention_mask` [B, S]. In
        half precision, only the rounded probabilities are stored for the backward pass.
        """
        lowered = lowered_scores(scores, attention_mask)
        # LiteRT does not support lowered[:, None, None, :].
        lowered = tf.expand_dims(tf.expand_dims(lowered, 1), 1)
        if scores.dtype == lowered.dtype:
            return tf.nn.softmax(as_float32(scores) + lowered)
        return _rounded_softmax(scores, lowered)

    def residual_norm(self, x: tf.Tensor, rows: tf.Tensor, *parameters: Parameter) -> tf.Tensor:
        """Returns `layer_norm(x + rows + bias, gamma, beta)`; see `LayerNorm.of_sum` for shapes."""
        bias, gamma, beta = map(tf.convert_to_tensor, parameters)
        return layer_norm(x + tf.reshape(add_bias(rows, bias), tf.shape(x)), gamma, beta)

    def cross_entropy(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns -log softmax(logits)[label], for logits float32 [..., K] and int labels [...]."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


PLAIN = Ops()


def lowered_scores(scores: tf.Tensor, attention_mask: tf.Tensor) -> tf.Tensor:
    """Returns what is added to the scores of each key, [B, S]."""
    return (1.0 - tf.cast(attention_mask, as_float32(scores).dtype)) * MASKED_SCORE
