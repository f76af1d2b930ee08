"""Random numbers that are a function of a key and a counter, for a whole batch at once.

`tf.random.stateless_*` takes one seed a call: a row of a batch would depend on its neighbours. Here
every row has a key of its own, and what it draws is the same in a batch of one and of thousands.
The generator is SplitMix64: a counter times an odd constant, mixed by two multiplications.

Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
"""

from __future__ import annotations

import tensorflow as tf

_STEP = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio, made odd
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def row_keys(seed: int, numbers: tf.Tensor) -> tf.Tensor:
    """Keys that differ between rows and between seeds.

    Args:
        seed: any integer.
        numbers: int64 [B]; what tells the rows apart.

    Returns:
        uint64 [B].
    """
    start = _mixed(tf.constant(seed % 2**64, tf.uint64))
    return _numbered(start, tf.bitcast(numbers, tf.uint64))


def random_bits(keys: tf.Tensor, count: int) -> tf.Tensor:
    """Draws 64 random bits for each row and counter.

    Args:
        keys: uint64 [B]; from `row_keys`.
        count: C, draws a row.

    Returns:
        uint64 [B, C].
    """
    counters = tf.bitcast(tf.range(count, dtype=tf.int64), tf.uint64)
    return _numbered(keys[:, None], counters)


def _numbered(keys: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    return _mixed(keys + (counters + tf.constant(1, tf.uint64)) * tf.constant(_STEP, tf.uint64))


def _mixed(values: tf.Tensor) -> tf.Tensor:
    """The finaliser of SplitMix64, a one-to-one map of 64 bits."""
    for shift, factor in _MIX:
        values = _folded(values, shift) * tf.constant(factor, tf.uint64)
    return _folded(values, 31)


def _folded(values: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(values, shifted(values, shift))


def shifted(bits: tf.Tensor, count: int) -> tf.Tensor:
    """Shifts uint64 to the right; zeros come in."""
    return tf.bitwise.right_shift(bits, tf.constant(count, tf.uint64))


def low_half(bits: tf.Tensor) -> tf.Tensor:
    """The lower 32 bits of uint64, as uint64."""
    return tf.bitwise.bitwise_and(bits, tf.constant(2**32 - 1, tf.uint64))


def uniform(bits: tf.Tensor) -> tf.Tensor:
    """Numbers in [0, 1) from the upper 24 bits of uint64; float32, every value of equal weight."""
    return tf.cast(tf.cast(shifted(bits, 40), tf.int32), tf.float32) * tf.constant(2.0**-24)


def below(bits: tf.Tensor, limit: int) -> tf.Tensor:
    """Integers in [0, limit) from the lower 32 bits of uint64, limit <= 2**31; int32.

    Values differ in probability by 2**-32 at most.
    """
    return tf.cast(shifted(low_half(bits) * tf.constant(limit, tf.uint64), 32), tf.int32)
