"""The layout of the tokens of a batch in memory, and the positions that a head reads.

Only attention needs sequences, [B, S, ...]. Every other operation of the encoder works on each
token alone, so tokens can be stored as rows without padding, [T, ...].

Of the last layer, only the vectors that a head reads are computed.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import tensorflow as tf

# The positions whose vectors are read: all, including padding; where a bool [B, S] is true; the
# first of each sequence; or the first and others, int32 [B, P].
Read: TypeAlias = Literal["all", "first"] | tf.Tensor


def is_selective(read: Read) -> bool:
    """Returns whether numbered positions are read, so that the last layer computes only these."""
    return read == "first" if isinstance(read, str) else read.dtype != tf.bool


class Padded:
    """Tokens are stored as sequences, [B, S, ...], with padding."""

    def tokens(self, x: tf.Tensor) -> tf.Tensor:
        """Maps sequences, [B, S, ...], to tokens of this layout."""
        return x

    def add_positions(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Adds values of positions, [S, E], to tokens of this layout, [..., E]."""
        return x + positions

    def read(self, x: tf.Tensor, read: Read) -> tf.Tensor:
        """Maps tokens of this layout to the vectors that are read, [B, R, H]."""
        if not is_selective(read):
            return x
        if isinstance(read, str):
            return x[:, :1]
        return tf.gather(x, tf.pad(read, [[0, 0], [1, 0]]), batch_dims=1)

    def split_heads(self, x: tf.Tensor, heads: int) -> tf.Tensor:
        """Maps tokens of this layout, or vectors that are read, [..., N * D], to [B, N, R, D]."""
        batch, length = tf.unstack(tf.shape(x)[:2])
        split = tf.reshape(x, [batch, length, heads, x.shape[-1] // heads])
        return tf.transpose(split, [0, 2, 1, 3])

    def merge_heads(self, context: tf.Tensor, read: tf.Tensor) -> tf.Tensor:
        """Maps the context, [B, N, R, D], to the shape of `read`, unless `keeps_axes(read)`."""
        merged = tf.transpose(context, [0, 2, 1, 3])
        return merged if keeps_axes(read) else tf.reshape(merged, tf.shape(read))


PADDED = Padded()


class Unpadded(Padded):
    """Tokens are stored as rows, [T, ...], without padding.

    A position is a token if `input_mask`, [B, S], is not 0, if the row of the mask contains only
    zeros, which has the same effect as ones, or if the position is read. Queries have N `heads`.

    The last row replaces all padding. Its key has the probability 0, and its gradient is 0. T is a
    multiple of 8, because oneDNN multiplies 8 rows at a time, and rounds the rest differently. With
    `rounds_up`, there are fewer values of T, because operations are compiled for each of them.
    """

    def __init__(self, input_mask: tf.Tensor, read: Read, heads: int, *, rounds_up: bool) -> None:
        batch, length = self._shape = tf.unstack(tf.shape(input_mask))
        is_token = tf.not_equal(input_mask, 0)
        is_token |= ~tf.reduce_any(is_token, axis=1, keepdims=True)
        is_token |= tf.equal(tf.range(length), 0)
        if not isinstance(read, str):
            chosen = tf.one_hot(read, length, True, False) if is_selective(read) else read[:, None]
            is_token |= tf.reduce_any(chosen, axis=1)
        is_token = tf.reshape(is_token, [-1])
        tokens = tf.cast(tf.where(is_token)[:, 0], tf.int32)
        size, count = batch * length, tf.size(tokens)
        multiple = 64 * (1 + size // 2048) if rounds_up else 8  # 64 rows, or 3% of all positions
        rows = tf.where(count < size, (count // multiple + 1) * multiple, size)
        padding = tf.fill([rows - count], tf.argmin(is_token, output_type=tf.int32))
        # The place of each row in [B * S], and the row of each place in [T].
        self._places = tf.concat([tokens, padding], axis=0)
        self._rows = tf.where(is_token, tf.cumsum(tf.cast(is_token, tf.int32)) - 1, rows - 1)
        # The same for the vectors of heads, in [B * N * S] and [T * N].
        head = tf.range(heads)
        sequence, position = self._places[:, None] // length, self._places[:, None] % length
        self._head_places = tf.reshape((sequence * heads + head) * length + position, [-1])
        self._head_rows = tf.reshape(self._rows, [batch, 1, length]) * heads + head[:, None]

    def tokens(self, x: tf.Tensor) -> tf.Tensor:
        """See `Padded`. Gradients are not supported."""
        return tf.gather(tf.reshape(x, [-1]), self._places)

    def add_positions(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """See `Padded`."""
        # Otherwise, if x is a sum, TensorFlow's graph rewriter adds three tensors at once, in an
        # order that depends on which of them is still in use: the last bits vary between runs.
        x = tf.ensure_shape(x, x.shape)
        return x + tf.gather(positions, self._places % self._shape[1])

    def read(self, x: tf.Tensor, read: Read) -> tf.Tensor:
        """See `Padded`."""
        if not is_selective(read):
            rows = _permuted(x, self._rows, self._places)
            return tf.reshape(rows, [*self._shape, x.shape[-1]])
        # Positions beyond the sequence fail, as in `Padded`, instead of selecting another sequence.
        return tf.gather(x, super().read(tf.reshape(self._rows, self._shape), read))

    def split_heads(self, x: tf.Tensor, heads: int) -> tf.Tensor:
        """See `Padded`."""
        if x.shape.rank == 3:  # vectors that are read
            return super().split_heads(x, heads)
        vectors = tf.reshape(x, [-1, x.shape[-1] // heads])
        return _permuted(vectors, self._head_rows, self._head_places)

    def merge_heads(self, context: tf.Tensor, read: tf.Tensor) -> tf.Tensor:
        """See `Padded`."""
        if read.shape.rank == 3:
            return super().merge_heads(context, read)
        vectors = tf.reshape(context, [-1, context.shape[-1]])
        rows = _permuted(vectors, self._head_places, tf.reshape(self._head_rows, [-1]))
        return tf.reshape(rows, tf.shape(read))


def _permuted(x: tf.Tensor, indices: tf.Tensor, inverse: tf.Tensor) -> tf.Tensor:
    """Returns rows of x, [R, K]. `inverse` are the indices of the gradient, without a scatter."""

    @tf.custom_gradient
    def permute(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.gather(tf.reshape(upstream, [-1, x.shape[-1]]), inverse)

        return tf.gather(x, indices), gradient

    return permute(x)


def keeps_axes(x: tf.Tensor) -> bool:
    """Returns whether projections multiply x without reshaping it to rows: on TPUs in bfloat16.

    XLA selects the memory layouts. If projections merged axes, XLA would copy their results to
    another layout for the products of attention heads.
    """
    return x.dtype == tf.bfloat16 and on_tpu()


def rows_of(x: tf.Tensor) -> tf.Tensor:
    """Reshapes [..., K] to [R, K]."""
    return tf.reshape(x, [-1, x.shape[-1]])


def factor_of(x: tf.Tensor) -> tf.Tensor:
    """Returns x, [..., K], as the left factor of a product: [R, K], unless `keeps_axes(x)`."""
    return x if x.shape.rank == 2 or keeps_axes(x) else rows_of(x)


def with_axes_of(x: tf.Tensor, product: tf.Tensor) -> tf.Tensor:
    """Reshapes a product of `factor_of(x)`, [R, K], to [..., K]."""
    if x.shape.rank == 2 or keeps_axes(x):
        return product
    return tf.reshape(product, tf.concat([tf.shape(x)[:-1], [product.shape[-1]]], axis=0))


def on_tpu() -> bool:
    """Returns whether the current strategy runs on a TPU."""
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
