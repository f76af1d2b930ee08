"""Pretraining records for the model of `small_model`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.pretraining.instances import PREDICTION_FEATURES

LENGTH, PREDICTIONS, VOCABULARY = 11, 3, 31


def pretraining_columns(
    count: int, seed: int, *, length: int = LENGTH, vocabulary: int = VOCABULARY
) -> dict[str, np.ndarray]:
    """Returns ragged examples, [count, ...] by feature. Example i has 1 + i % 3 predictions."""
    random = np.random.default_rng(seed)
    tokens = random.integers(5, length + 1, (count, 1))
    is_token = np.arange(length) < tokens
    predictions = 1 + np.arange(count)[:, None] % PREDICTIONS
    is_prediction = np.arange(PREDICTIONS) < predictions
    return {
        "input_ids": random.integers(5, vocabulary, (count, length)) * is_token,
        "input_mask": is_token.astype(np.int64),
        "segment_ids": (is_token & (np.arange(length) >= tokens // 2)).astype(np.int64),
        "token_boundary": is_token.astype(np.int64),
        "masked_lm_positions": random.integers(1, tokens, (count, PREDICTIONS)) * is_prediction,
        "masked_lm_ids": random.integers(5, vocabulary, (count, PREDICTIONS)) * is_prediction,
        "masked_lm_weights": is_prediction.astype(np.float32),
        "next_sentence_labels": random.integers(0, 2, (count, 1)),
    }


def plain_columns(count: int, seed: int, length: int = LENGTH) -> dict[str, np.ndarray]:
    """Returns the same examples without the features that masking adds."""
    columns = pretraining_columns(count, seed, length=length)
    return {name: values for name, values in columns.items() if name not in PREDICTION_FEATURES}


def write_records(path: Path, columns: Mapping[str, np.ndarray]) -> Path:
    """Writes an example per row of the columns with TensorFlow's writer."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in zip(*columns.values(), strict=True):
            features = dict(zip(columns, map(_feature, row), strict=True))
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


def _feature(values: np.ndarray) -> tf.train.Feature:
    if values.dtype == np.float32:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def pretraining_batch(count: int, seed: int) -> dict[str, tf.Tensor]:
    """Returns examples in the form of the input pipeline."""
    columns = pretraining_columns(count, seed)
    del columns["token_boundary"]
    batch = {
        name: tf.constant(values, tf.int32 if values.dtype.kind == "i" else tf.float32)
        for name, values in columns.items()
    }
    return {**batch, "example_weights": tf.ones(count)}


def record_offset(path: Path, number: int) -> int:
    """Returns the offset of a record. Numbers start at 1."""
    data, position = path.read_bytes(), 0
    for _ in range(number - 1):
        position += 12 + int.from_bytes(data[position : position + 8], "little") + 4
    return position


def damage_record(path: Path, number: int) -> None:
    """Changes a byte in the middle of a record."""
    data = bytearray(path.read_bytes())
    data[(record_offset(path, number) + record_offset(path, number + 1)) // 2] ^= 0x55
    path.write_bytes(data)
