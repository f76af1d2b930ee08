"""What tasks have in common whose token sequences are all in memory, and their training batches."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.sequences import PADDINGS, TokenSequences
from albert_tf.training.task import EXAMPLE_WEIGHTS, WHOLE, Features, Shard, Task

# Up to so many tokens (left), a training batch's length is a multiple of the right one.
_STEPS = ((64, 8), (128, 16), (256, 32), (512, 64))
_SHORTEST_BUCKET = 32
_SHUFFLE_ROUNDS = 8  # with TensorFlow's usual 4 too many examples stay where they are

# N * C sequences and what else the N examples have, by name, [N, ...] each.
TrainingData = tuple[TokenSequences, dict[str, np.ndarray]]


class InMemoryTask(Task, ABC):
    """The input half of `Task`.

    Args:
        config: the model.
        max_seq_length: S that no sequence exceeds.
        padding: see `training_batches`.
        use_one_hot_embeddings: see `FactorizedEmbedding`.

    Attributes:
        sequences_per_example: C.

    Raises:
        ValueError: sequences longer than the model's position table.
    """

    sequences_per_example = 1

    def __init__(
        self,
        config: AlbertConfig,
        *,
        max_seq_length: int,
        padding: str,
        use_one_hot_embeddings: bool,
    ) -> None:
        config.check_sequence_length(max_seq_length, "--max_seq_length")
        self.config = config
        self.max_seq_length = max_seq_length
        self.padding = padding
        self.use_one_hot_embeddings = use_one_hot_embeddings

    @abstractmethod
    def _training_data(self) -> TrainingData:
        """What is trained on; raises ValueError where nothing is."""

    def train_dataset(self, batch_size: int, seed: int, shard: Shard = WHOLE) -> tf.data.Dataset:
        """See `Task`."""
        sequences, columns = self._training_data()
        return training_batches(
            sequences,
            columns,
            batch_size,
            seed=seed,
            max_seq_length=self.max_seq_length,
            padding=self.padding,
            sequences_per_example=self.sequences_per_example,
            shard=shard,
        )

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """See `Task`; features are in memory, where nothing is read."""
        return nullcontext()

    def describe_input(self) -> dict[str, Any]:
        """See `Task`."""
        sequences, columns = self._training_data()
        return {
            "examples": len(sequences) // self.sequences_per_example,
            "digest": _digest(
                sequences.tokens, sequences.starts, sequences.first_lengths, *columns.values()
            ),
            "max_seq_length": self.max_seq_length,
            "padding": self.padding,
        }


def _digest(*arrays: np.ndarray) -> str:
    """The SHA-256 of arrays, their types and their shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def padded_length(longest: int, max_seq_length: int, padding: str) -> int:
    """Returns S of a training batch, longest <= S <= max_seq_length.

    Few lengths are worth having, for some work is done anew for each: "longest" rounds up to
    multiples of 8 (up to 64), 16, 32 and 64 (above 256). "buckets" rounds up to powers of two from
    32: a device that compiles for every shape compiles five times for 512 tokens, and up to half
    of a batch is padding. "max" compiles once and pads most.

    Raises:
        ValueError: another padding, or a sequence that is too long.
    """
    if padding not in PADDINGS:
        raise ValueError(f"The padding must be one of {', '.join(PADDINGS)}. Received: {padding!r}")
    if longest > max_seq_length:
        raise ValueError(
            f"A sequence has {longest} tokens, more than --max_seq_length={max_seq_length}."
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
    """Returns how many lengths S training batches may have, see `padded_length`."""
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
    """Endless batches; every example once in an epoch, whose order the seed decides.

    Which examples batch n holds is a function of (seed, n) alone: the position of an iterator is a
    number, a few bytes in a checkpoint, and a restored one goes on with the very same batches.
    Batches run on over the end of an epoch.

    Args:
        sequences: N * C sequences; those of an example stand together.
        columns: what else an example has, each [N, ...].
        batch_size: B, a multiple of the number of workers.
        seed: decides the order.
        max_seq_length: what no sequence exceeds.
        padding: one of `PADDINGS`; decides S, batch by batch.
        sequences_per_example: C.
        shard: the worker's, whose B / workers rows alone are made; S is that of all rows.

    Returns:
        A data set of `input_ids`, `input_mask`, `segment_ids` int32 [B, S], or [B, C, S] if C > 1;
        each column [B, ...]; `example_weights` float32 [B], ones.

    Raises:
        ValueError: no example, columns of another length, a sequence that is too long.
    """
    count, rest = divmod(len(sequences), sequences_per_example)
    if rest or not count or any(len(values) != count for values in columns.values()):
        raise ValueError(
            f"{len(sequences)} sequences, {sequences_per_example} an example, do not go with "
            f"columns of { ({name: len(values) for name, values in columns.items()}) } rows."
        )
    rows = shard.rows(batch_size)
    num_rows = rows.stop - rows.start
    padded = _padder(sequences, max_seq_length, padding, (num_rows, sequences_per_example))
    with tf.device("/CPU:0"):  # where tf.data works; captured, so no part of the graph's definition
        constants = {name: tf.constant(values) for name, values in columns.items()}

    @tf.autograph.experimental.do_not_convert  # takes a second, and nothing here needs it
    def make(number: tf.Tensor) -> Features:
        positions = number * batch_size + tf.range(batch_size, dtype=tf.int64)
        examples = _shuffled(positions, count, seed)
        batch = {name: tf.gather(values, examples[rows]) for name, values in constants.items()}
        return {**padded(examples, rows), **batch, EXAMPLE_WEIGHTS: tf.ones(num_rows)}

    options = tf.data.Options()
    options.deterministic = True
    options.experimental_symbolic_checkpoint = True  # saves the position, not batches made ahead
    batches = tf.data.Dataset.counter().map(make, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.prefetch(2).with_options(options)


def _shuffled(positions: tf.Tensor, count: int, seed: int) -> tf.Tensor:
    """Which example stands at each position of the endless input; int64 [B]."""
    # tf.random.experimental.index_shuffle is this operation, but takes no seed for each index.
    return tf.raw_ops.RandomIndexShuffle(
        index=positions % count,
        seed=_order_keys(positions // count, seed),
        max_index=tf.constant(count - 1, tf.int64),
        rounds=_SHUFFLE_ROUNDS,
    )


def _order_keys(epochs: tf.Tensor, seed: int) -> tf.Tensor:
    """Hashes seed and epoch into what the order of an epoch is made from; int64 [B, 3].

    With few examples the shuffle heeds the lowest eight bits of its seed alone: unhashed, the
    orders would come round again after 256 epochs, and seeds 256 apart would give the same.
    The hash is the finalizer of SplitMix64.
    """

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
    """`TokenSequences.padded` in a graph: some of the examples int64 [B], to the length of all."""
    num_rows, choices = shape
    longest = int(sequences.lengths.max(initial=0))
    padded_length(longest, max_seq_length, padding)  # complains before anything runs
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
        # Places behind the last token are read as that one, and masked like all padding.
        input_mask = tf.cast(is_real, tf.int32)
        features = {
            "input_ids": tf.gather(tokens, tf.minimum(places, len(tokens) - 1)) * input_mask,
            "input_mask": input_mask,
            "segment_ids": tf.cast(is_second, tf.int32),
        }
        return {name: tf.ensure_shape(values, static) for name, values in features.items()}

    return padded
