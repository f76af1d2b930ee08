"""Reads record files as batches of parsed features."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_size, open_binary
from albert_tf.data.tfrecord import FeatureSpec
from albert_tf.pretraining.record_facts import for_each_file
from albert_tf.training.objective import EXAMPLE_WEIGHTS, WHOLE, Shard, StreamIterator

# A `Transform` changes a batch. Its second argument, int64 [B], contains the number of each example
# in the sequence of all examples of all workers.
Features = dict[str, tf.Tensor]
Ends = Mapping[str, tuple[int, bytes]]  # see `file_ends`
Transform = Callable[[Features, tf.Tensor], Features]

_MAX_STREAMS = 64
_MIN_ROWS = 8  # rows of a batch per stream, if there are more than 8 streams; limits the overhead
_MAX_UNEVENNESS = 1.2  # size of the largest stream relative to the smallest stream
_MAX_OPEN_FILES = 16  # of all streams; files are interleaved to separate neighboring records
_END_BYTES = 16  # of a file, which contain the checksum of its last record


def parse_batch(serialized: tf.Tensor, specs: Sequence[FeatureSpec]) -> Features:
    """Parses serialized `tf.train.Example` records, string [B], to int32 or float32 [B, length].

    The operations raise `tf.errors.InvalidArgumentError` if a feature is missing, has another
    length, or contains a value outside [0, limit).
    """
    parsed = tf.io.parse_example(
        serialized, {spec.name: tf.io.FixedLenFeature([spec.length], spec.dtype) for spec in specs}
    )
    features = {}
    for spec in specs:
        values = parsed[spec.name]
        if spec.limit is not None:
            # On a GPU, an embedding lookup silently returns zeros for ids outside the table.
            message = f"feature {spec.name!r} must be in [0, {spec.limit})"
            limit = tf.constant(spec.limit, values.dtype)
            checks = [
                tf.debugging.assert_non_negative(values, message=message),
                tf.debugging.assert_less(values, limit, message=message),
            ]
            with tf.control_dependencies(checks):
                values = tf.identity(values)
        features[spec.name] = tf.cast(values, tf.int32) if spec.dtype == "int64" else values
    return features


def num_streams(file_sizes: Sequence[int], batch_size: int) -> int:
    """Returns the number of streams G; stream g reads the files g, g + G, ...

    G does not depend on the number of workers. It divides the batch size, and is at most 64 and at
    most the number of files. If G is above 8, a stream provides at least 8 rows of a batch. The
    largest stream has at most 1.2 times the bytes of the smallest stream, so that examples are read
    about equally often. Among these numbers, the number with the most divisors is selected. In case
    of a tie, the number that is divisible by the largest power of two is selected.
    """

    def is_even(count: int) -> bool:
        sizes = [sum(file_sizes[number::count]) for number in range(count)]
        return max(sizes) <= _MAX_UNEVENNESS * min(sizes)

    limit = min(len(file_sizes), _MAX_STREAMS, max(_MIN_ROWS, batch_size // _MIN_ROWS))
    fitting = [n for n in range(1, limit + 1) if batch_size % n == 0 and (n == 1 or is_even(n))]
    return max(fitting, key=lambda n: (sum(n % k == 0 for k in range(1, n + 1)), n & -n, n))


def check_workers(files: Sequence[str], batch_size: int, workers: int) -> int:
    """Returns the number of streams. Raises ValueError if `workers` does not divide it."""
    sizes = [file_size(path) for path in files]
    count = num_streams(sizes, batch_size)
    if count % workers == 0:
        return count
    raise UserError(
        f"{workers} workers cannot share the input evenly: the {len(files)} files of `input_file` "
        f"({min(sizes)} to {max(sizes)} bytes) with `train_batch_size`={batch_size} are read as "
        f"{count} streams. Use a number of workers that divides {count}, or {workers} files of "
        f"equal size (create_pretraining_data.py `output_file`=train.tfrecord@{workers})."
    )


def training_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    *,
    seed: int,
    shuffle_buffer_size: int,
    transform: Transform | None = None,
    shard: Shard = WHOLE,
    ends: Ends | None = None,
) -> StreamIterator:
    """Returns endless batches in a random order, which is different in each pass.

    The files are read as `num_streams` streams. Each stream is shuffled separately, and fills
    the same row positions in every batch. The worker `shard` reads only some of the streams.

    Batches contain the features of `specs`, [B / workers, length], and `example_weights`, float32
    [B / workers], where B is `batch_size`. `shuffle_buffer_size` is the number of records in the
    buffers of all streams. Reading raises an error if a file differs from `ends`, by default its
    current end. Raises ValueError if the number of workers does not divide the number of streams.
    """
    ends = ends or file_ends(files)
    G = check_workers(files, batch_size, shard.count)
    streams = {}
    for number in range(G)[shard.rows(G)]:
        # With the same seed, streams with equal numbers of files would have the same order.
        mixed = np.random.SeedSequence([seed % 2**64, number]).generate_state(1, np.uint64)
        own_seed = int(mixed[0]) % 2**63
        own_files = files[number::G]
        open_files = min(len(own_files), max(1, _MAX_OPEN_FILES // G))
        interleaving: dict[str, Any] = {"cycle_length": open_files}
        if open_files > 1:
            interleaving |= {"num_parallel_calls": open_files, "deterministic": True}
        records = (
            tf.data.Dataset.from_tensor_slices(list(own_files))
            .shuffle(len(own_files), seed=own_seed)
            .interleave(partial(_records, ends=ends), **interleaving)
            .shuffle(-(-shuffle_buffer_size // G), seed=own_seed)
            .repeat()
        )
        batches = records.enumerate().batch(batch_size // G, drop_remainder=True)
        if batch_size // G >= _MIN_ROWS * 2:  # for fewer rows, prefetching is slower
            batches = batches.prefetch(2)
        options = tf.data.Options()
        # Autotuning has no benefit here, and its threads start slowly and may never end.
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        # Otherwise, `_unchanged` would prevent saving the position.
        policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        options.experimental_external_state_policy = policy
        # Without this, a resumed run would have another order in later passes.
        options.experimental_optimization.shuffle_and_repeat_fusion = True
        streams[number] = iter(batches.with_options(options))

    def make_batch(rows: Sequence[Any]) -> Features:
        """Concatenates the rows of the streams: numbers and records."""
        numbers = [n * G + number for number, (n, _) in zip(streams, rows, strict=True)]
        serialized = tf.concat([records for _, records in rows], axis=0)
        return _parsed(serialized, tf.concat(numbers, axis=0), specs, transform)

    return StreamIterator(streams, G, make_batch)


def evaluation_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    transform: Transform | None = None,
    ends: Ends | None = None,
) -> tf.data.Dataset:
    """Returns every example once, in the order of the files. The last batch may be smaller.

    For the arguments and features see `training_batches`.
    """
    # Parsing is the last step and runs only on request, because `transform` may be Python code,
    # which tf.data must not call while the process ends.
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False

    @tf.autograph.experimental.do_not_convert  # the conversion takes a second
    def parse(numbers: tf.Tensor, serialized: tf.Tensor) -> Features:
        return _parsed(serialized, numbers, specs, transform)

    records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(
        partial(_records, ends=ends or file_ends(files))
    )
    batches = records.enumerate().batch(batch_size).prefetch(2)
    return batches.map(parse).with_options(options)


def _records(path: tf.Tensor, ends: Ends) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(_unchanged(path, ends))


def _parsed(
    serialized: tf.Tensor,
    numbers: tf.Tensor,
    specs: Sequence[FeatureSpec],
    transform: Transform | None,
) -> Features:
    weights = tf.ones(tf.shape(serialized)[0])
    features = {**parse_batch(serialized, specs), EXAMPLE_WEIGHTS: weights}
    return transform(features, numbers) if transform else features


def file_ends(files: Sequence[str]) -> Ends:
    """Returns the size and the last bytes of each file, which detect a change during training."""
    return for_each_file(file_end, files)


def file_end(path: str) -> tuple[int, bytes]:
    """Returns the size and the last bytes of a file."""
    size = file_size(path)
    with open_binary(path, "rb") as file:
        file.seek(max(0, size - _END_BYTES))
        return size, file.read(_END_BYTES)


def _unchanged(path: tf.Tensor, ends: Ends) -> tf.Tensor:
    """Returns the path of a file. Its evaluation raises an error if the file has another end.

    Without this check, emptied files would be skipped, or read forever if all files are empty.
    """
    place = tf.argmax(tf.cast(tf.equal(list(ends), path), tf.int32))
    sizes, expected = zip(*ends.values(), strict=True)
    size = tf.gather(tf.constant(sizes, tf.int64), place)

    def read_end() -> tf.Tensor:  # a file of another size has no or several such elements
        header = size - _END_BYTES
        end = tf.data.FixedLengthRecordDataset(path, _END_BYTES, header_bytes=header)
        return end.get_single_element()

    end = tf.cond(size < _END_BYTES, lambda: tf.io.read_file(path), read_end)
    with tf.control_dependencies([tf.debugging.Assert(end == tf.gather(expected, place), [path])]):
        return tf.identity(path)
