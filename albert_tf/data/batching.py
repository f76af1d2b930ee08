"""From record files to batches of parsed features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.data.records import FeatureSpec, parse_batch

# Added to every batch: 1 for an example, 0 for a row that only fills the batch up.
EXAMPLE_WEIGHTS = "example_weights"

Features = dict[str, tf.Tensor]

_MAX_OPEN_FILES = 16  # read in turn, so that neighbours in a file are not neighbours in a batch


def training_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    *,
    seed: int,
    shuffle_buffer_size: int,
) -> tf.data.Dataset:
    """Endless batches in an order that the seed decides, another one in every pass.

    Args:
        files: TFRecord files.
        specs: the features to read.
        batch_size: B, examples of every batch.
        seed: decides the order.
        shuffle_buffer_size: records among which the next one is drawn.

    Returns:
        A data set of features, each [B, length], and `example_weights` float32 [B].
    """
    records = (
        tf.data.Dataset.from_tensor_slices(list(files))
        .shuffle(len(files), seed=seed)
        .interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(len(files), _MAX_OPEN_FILES),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .shuffle(shuffle_buffer_size, seed=seed)
        .repeat()
    )
    batches = records.batch(batch_size, drop_remainder=True)
    return _parsed(batches, specs)


def evaluation_batches(
    files: Sequence[str], specs: Sequence[FeatureSpec], batch_size: int
) -> tf.data.Dataset:
    """Every example once, in the order of the files; the last batch may be shorter.

    Args:
        files: TFRecord files.
        specs: the features to read.
        batch_size: B, examples of every batch but the last.

    Returns:
        As `training_batches`.
    """
    return _parsed(tf.data.TFRecordDataset(list(files)).batch(batch_size), specs)


def _parsed(batches: tf.data.Dataset, specs: Sequence[FeatureSpec]) -> tf.data.Dataset:
    def parse(serialized: tf.Tensor) -> Features:
        weights = tf.ones(tf.shape(serialized)[0])
        return {**parse_batch(serialized, specs), EXAMPLE_WEIGHTS: weights}

    options = tf.data.Options()
    options.deterministic = True
    parsed = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    return parsed.with_options(options)


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
