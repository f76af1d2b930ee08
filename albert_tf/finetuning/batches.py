"""Shuffled batches of token sequences in memory, and their padded lengths."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.data.sequences import TokenSequences
from albert_tf.training.objective import EXAMPLE_WEIGHTS, WHOLE, Features, Shard

# (limit, multiple): lengths up to `limit` are rounded up to a multiple of `multiple`.
_STEPS = ((64, 8), (128, 16), (256, 32), (512, 64))
_SHORTEST_BUCKET = 32
_SHUFFLE_ROUNDS = 8  # with TensorFlow's default of 4, too many examples keep their position


def padded_length(longest: int, max_seq_length: int, padding: str) -> int:
    """Returns the length S of a training batch, longest <= S <= max_seq_length.

    If `padding` is "longest", S is a multiple of 8, or for longer sequences of 16, 32 or 64 (see
    `_STEPS`). If it is "buckets", for devices that compile once per shape, S is a power of 2 from
    32 on. If it is "max", S is `max_seq_length`. Raises ValueError if a sequence is longer than
    `max_seq_length`.
    """
    if longest > max_seq_length:
        raise UserError(
            f"A sequence has {longest} tokens, more than `max_seq_length`={max_seq_length}."
        )
    if padding == "max":
        return max_seq_length
    if padding == "buckets":
        length = max(_SHORTEST_BUCKET, 1 << max(0, longest - 1).bit_length())
    else:
        step = next((step for limit, step in _STEPS if longest <= limit), _STEPS[-1][1])
        length = max(1, -(-longest // step)) * step
    return min(length, max_seq_length)


def num_padded_lengths(max_seq_length: int, padding: str) -> int:
    """Returns the number of possible lengths of training batches, see `padded_length`."""
    lengths = range(1, max_seq_length + 1)
    return len({padded_length(length, max_seq_length, padding) for length in lengths})


def training_batches(
    sequences: TokenSequences,
    columns: Mapping[str, np.ndarray],
    batch_size: int,
    *,
    seed: int,
    max_seq_length: int,
    padding: str = "longest",
    sequences_per_example: int = 1,
    shard: Shard = WHOLE,
) -> tf.data.Dataset:
    """Returns endless shuffled batches; every example occurs once per epoch.

    The examples of batch n depend only on seed and n, so a restored iterator continues with the
    same batches. A batch may contain examples of two epochs.

    The C `sequences` of an example are adjacent. `columns` are other values of the examples, each
    [N, ...]. `batch_size`, B, is a multiple of the number of workers. `shard` selects the rows of
    this worker; S, see `padded_length`, is the same for all workers.

    Returns:
        `input_ids`, `input_mask`, `segment_ids` int32 [B, S], or [B, C, S] if C > 1; each column
        [B, ...]; `example_weights` float32 [B], ones.
    """
    count = len(sequences) // sequences_per_example
    rows = shard.rows(batch_size)
    num_rows = rows.stop - rows.start
    padded = _padder(sequences, max_seq_length, padding, (num_rows, sequences_per_example))
    with tf.device("/CPU:0"):  # tensors, because NumPy arrays would be copied into the graph
        constants = {name: tf.constant(values) for name, values in columns.items()}

    @tf.autograph.experimental.do_not_convert  # conversion takes a second and is not needed
    def make(number: tf.Tensor) -> Features:
        positions = number * batch_size + tf.range(batch_size, dtype=tf.int64)
        # tf.random.experimental.index_shuffle accepts only one seed for all indices.
        examples = tf.raw_ops.RandomIndexShuffle(
            index=positions % count,
            seed=_order_keys(positions // count, seed),
            max_index=tf.constant(count - 1, tf.int64),
            rounds=_SHUFFLE_ROUNDS,
        )
        batch = {name: tf.gather(values, examples[rows]) for name, values in constants.items()}
        return {**padded(examples, rows), **batch, EXAMPLE_WEIGHTS: tf.ones(num_rows)}

    options = tf.data.Options()
    options.deterministic = True
    options.experimental_symbolic_checkpoint = True  # saves the position, not prefetched batches
    batches = tf.data.Dataset.counter().map(make, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.prefetch(2).with_options(options)


def _order_keys(epochs: tf.Tensor, seed: int) -> tf.Tensor:
    """Returns the shuffle keys of epochs [B], int64 [B, 3], by hashing seed and epoch."""

    # The hash is the finalizer of SplitMix64. For few examples, the shuffle uses only the lowest
    # 8 bits of its key. Without hashing, orders would repeat after 256 epochs.
    def constant(value: int) -> tf.Tensor:
        return tf.constant(value % 2**64, tf.uint64)

    words = tf.cast(epochs[:, None] * 3 + tf.range(3, dtype=tf.int64), tf.uint64)
    mixed = (words + constant(seed * 0xD1B54A32D192ED03)) * constant(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        shifted = tf.bitwise.right_shift(mixed, constant(shift))
        mixed = tf.bitwise.bitwise_xor(mixed, shifted) * constant(factor)
    return tf.cast(tf.bitwise.right_shift(mixed, constant(33)), tf.int64)


def _padder(
    sequences: TokenSequences, max_seq_length: int, padding: str, shape: tuple[int, int]
) -> Callable[[tf.Tensor, slice], Features]:
    """Returns a graph function that pads the sequences of examples, int64 [B]."""
    num_rows, choices = shape
    longest = int(sequences.lengths.max(initial=0))
    table = [padded_length(length, max_seq_length, padding) for length in range(longest + 1)]
    with tf.device("/CPU:0"):
        tokens, starts, first_lengths, lengths, padded_lengths = map(
            tf.constant,
            (
                sequences.tokens,
                sequences.starts,
                sequences.first_lengths,
                sequences.lengths,
                np.array(table, np.int32),
            ),
        )
    static = [num_rows, choices, max_seq_length if padding == "max" else None]
    if choices == 1:
        del static[1]

    def padded(examples: tf.Tensor, wanted: slice) -> Features:
        all_rows = examples[:, None] * choices + tf.range(choices, dtype=tf.int64)
        length = tf.gather(padded_lengths, tf.reduce_max(tf.gather(lengths, all_rows)))
        positions = tf.range(length)
        rows = tf.reshape(all_rows[wanted], static[:-1])
        row_lengths = tf.gather(lengths, rows)
        is_real = positions < row_lengths[..., None]
        is_second = is_real & (positions >= tf.gather(first_lengths, rows)[..., None])
        places = tf.gather(starts, rows)[..., None] + tf.cast(positions, tf.int64)
        # Indices after the last token are replaced by its index; their values are masked.
        input_mask = tf.cast(is_real, tf.int32)
        features = {
            "input_ids": tf.gather(tokens, tf.minimum(places, len(tokens) - 1)) * input_mask,
            "input_mask": input_mask,
            "segment_ids": tf.cast(is_second, tf.int32),
        }
        return {name: tf.ensure_shape(values, static) for name, values in features.items()}

    return padded
