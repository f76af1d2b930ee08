"""From record files to batches of parsed features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from albert_tf.data.damaged_records import (
    SKIPPED,
    carry_places,
    files_and_sizes,
    good_records,
)
from albert_tf.data.records import FeatureSpec, parse_batch

# Added to every batch: 1 for an example, 0 for a row that only fills the batch up.
EXAMPLE_WEIGHTS = "example_weights"

Features = dict[str, tf.Tensor]

# Changes a batch, told the place of each example in the stream, int64 [B]: one number for an
# example and a pass, whatever the size of the batches.
Transform = Callable[[Features, tf.Tensor], Features]

_MAX_OPEN_FILES = 16  # read in turn, so that neighbours in a file are not neighbours in a batch


@dataclass(frozen=True)
class Shard:
    """Which rows of every global batch a worker computes: equal shares, in the workers' order.

    Attributes:
        index: of the worker.
        count: of all workers.
    """

    index: int = 0
    count: int = 1

    def rows(self, batch_size: int) -> slice:
        """Returns the worker's rows of a batch whose size is a multiple of `count`."""
        share = batch_size // self.count
        return slice(self.index * share, (self.index + 1) * share)


WHOLE = Shard()


def training_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    *,
    seed: int,
    shuffle_buffer_size: int,
    transform: Transform | None = None,
    shard: Shard = WHOLE,
    skip_damaged: bool = False,
) -> tf.data.Dataset:
    """Endless batches in an order that the seed decides, another one in every pass.

    All workers read the same records, and each parses its own: the position of one's iterator is
    that of everyone's, whatever their number.

    Args:
        files: TFRecord files.
        specs: the features to read.
        batch_size: B, examples of every batch.
        seed: decides the order.
        shuffle_buffer_size: records among which the next one is drawn.
        transform: see `Transform`; None leaves the features as they are.
        shard: the worker's; B is a multiple of the number of workers.
        skip_damaged: leave out records that cannot be read; their places are then in the batches,
            see `damaged_records`. The order of the others stays.

    Returns:
        A data set of features, each [B / workers, length], and `example_weights` float32
        [B / workers].
    """
    sources = (
        files_and_sizes(files) if skip_damaged else tf.data.Dataset.from_tensor_slices(list(files))
    )
    records = (
        sources.shuffle(len(files), seed=seed)
        .interleave(
            partial(good_records, specs=specs) if skip_damaged else tf.data.TFRecordDataset,
            cycle_length=min(len(files), _MAX_OPEN_FILES),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .shuffle(shuffle_buffer_size, seed=seed)
        .repeat()
    )
    if skip_damaged:
        records = carry_places(records)
    # Only where the numbers are used: they are part of the saved position.
    records = records.enumerate() if transform else records
    batches = records.batch(batch_size, drop_remainder=True).prefetch(2)

    # Last, and not in parallel, so that no rows made ahead are part of the position: they would be
    # those of one worker alone.
    options = _options()
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False
    return batches.map(_parser(specs, transform, shard.rows(batch_size))).with_options(options)


def evaluation_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    transform: Transform | None = None,
) -> tf.data.Dataset:
    """Every example once, in the order of the files; the last batch may be shorter.

    Args:
        files: TFRecord files.
        specs: the features to read.
        batch_size: B, examples of every batch but the last.
        transform: as of `training_batches`.

    Returns:
        A data set of features, each [B, length], and `example_weights` float32 [B].
    """
    records = tf.data.TFRecordDataset(list(files))
    records = records.enumerate() if transform else records
    parse = _parser(specs, transform, slice(None))
    parsed = records.batch(batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return parsed.prefetch(2).with_options(_options())


def _parser(
    specs: Sequence[FeatureSpec], transform: Transform | None, rows: slice
) -> Callable[..., Features]:
    """What makes features of some rows of a batch of records, or of numbered records."""

    @tf.autograph.experimental.do_not_convert  # takes a second, and nothing here needs it
    def parse(serialized: tf.Tensor, *skipped: tf.Tensor) -> Features:
        serialized = serialized[rows]
        weights = tf.ones(tf.shape(serialized)[0])
        features = {**parse_batch(serialized, specs), EXAMPLE_WEIGHTS: weights}
        # Of all rows: the chief tells of what every worker leaves out.
        return {**features, **({SKIPPED: skipped[0]} if skipped else {})}

    @tf.autograph.experimental.do_not_convert
    def parse_numbered(numbers: tf.Tensor, records: Any) -> Features:
        assert transform is not None
        return transform(parse(*tf.nest.flatten(records)), numbers[rows])

    return parse_numbered if transform else parse


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    return options


def pad_batch(features: Mapping[str, tf.Tensor], batch_size: int) -> Features:
    """Fills a batch up with rows of zeros, whose `example_weights` are zero as well.

    Args:
        features: each [B, ...] with B <= batch_size.
        batch_size: rows of the result.
    """
    missing = batch_size - int(next(iter(features.values())).shape[0])
    if missing == 0:
        return dict(features)
    return {
        name: tf.pad(values, [[0, missing]] + [[0, 0]] * (values.shape.rank - 1))
        for name, values in features.items()
    }
