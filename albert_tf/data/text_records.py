"""Features of texts in record files, which the original release reads and writes as well."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import tensorflow as tf

from albert_tf.data.examples import FeatureSpec, encode_examples
from albert_tf.data.files import write_then_rename
from albert_tf.data.records import RecordError, explain_read_errors, parse_batch
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.text_examples import Labels
from albert_tf.data.text_features import TextFeatures
from albert_tf.data.tfrecord import frame_records, read_records

_RECORDS_AT_ONCE = 1024  # padded in memory at the same time


def _record_specs(
    max_seq_length: int, labels: Labels, vocab_size: int | None = None
) -> tuple[FeatureSpec, ...]:
    flag = "--max_seq_length"
    vocabulary = "the vocabulary (--spm_model_file, --vocab_file)"
    return (
        FeatureSpec("input_ids", "int64", max_seq_length, vocab_size, flag, vocabulary),
        FeatureSpec("input_mask", "int64", max_seq_length, 2, flag),
        FeatureSpec("segment_ids", "int64", max_seq_length, 2, flag),
        FeatureSpec("label_ids", "float32", 1)
        if labels.is_regression
        else FeatureSpec("label_ids", "int64", 1, labels.num_outputs, None, "the task's labels"),
        FeatureSpec("is_real_example", "int64", 1, 2),
    )


def write_text_records(
    path: str, features: TextFeatures, max_seq_length: int, labels: Labels
) -> None:
    """Writes features as the original does, one `tf.train.Example` a row, padded.

    Rows without labels get 0, as in the original.

    Args:
        path: the file; it appears under this name when complete.
        features: what to write; guids are not.
        max_seq_length: tokens of every record.
        labels: what is predicted.

    Raises:
        ValueError: a sequence is longer.
    """
    specs = _record_specs(max_seq_length, labels)
    count = len(features.sequences)
    label_ids = features.label_ids
    if label_ids is None:
        label_ids = np.zeros(count, np.float32 if labels.is_regression else np.int32)
    with write_then_rename(path) as file:
        for start in range(0, count, _RECORDS_AT_ONCE):
            rows = np.arange(start, min(start + _RECORDS_AT_ONCE, count))
            columns = {
                **features.sequences.padded(rows, max_seq_length),
                "label_ids": label_ids[rows, None],
                "is_real_example": np.ones((len(rows), 1), np.int32),
            }
            file.write(b"".join(frame_records(encode_examples(columns, specs))))


def read_text_records(
    path: str, max_seq_length: int, labels: Labels, vocab_size: int
) -> TextFeatures:
    """Reads features from a file of ours or of the original; padding examples are left out.

    Args:
        path: a TFRecord file.
        max_seq_length: tokens of every record.
        labels: what is predicted.
        vocab_size: ids lie below this.

    Returns:
        The features; guids, which are in no record, are the numbers of the records from 1.

    Raises:
        RecordError: the file is damaged, empty or made for something else; names file and record.
    """
    specs = _record_specs(max_seq_length, labels, vocab_size)
    sequences, label_ids = [], []
    guids: list[str] = []
    done = 0
    with explain_read_errors([path], specs):
        for payloads in record_chunks(path):
            parsed = parse_batch(tf.constant(payloads), specs)
            columns = {name: values.numpy() for name, values in parsed.items()}
            kept = np.flatnonzero(columns.pop("is_real_example")[:, 0])
            numbers = done + 1 + kept
            columns = {name: values[kept] for name, values in columns.items()}
            label_ids.append(columns.pop("label_ids")[:, 0])
            sequences.append(without_padding(columns, path, numbers))
            guids += map(str, numbers.tolist())
            done += len(payloads)
    if not guids:
        raise RecordError(f"{path} holds no example.")
    return TextFeatures(TokenSequences.concatenate(sequences), np.concatenate(label_ids), guids)


def record_chunks(path: str) -> Iterator[list[bytes]]:
    """Yields the records of a file, some at a time."""
    payloads = read_records(path)
    while chunk := list(islice(payloads, _RECORDS_AT_ONCE)):
        yield chunk


def without_padding(
    columns: dict[str, np.ndarray], path: str, numbers: np.ndarray
) -> TokenSequences:
    """Takes the padding off.

    Args:
        columns: `input_ids`, `input_mask`, `segment_ids`, each int32 [n, S].
        path: the file they are from, for errors.
        numbers: [n], the record each row is from.

    Raises:
        RecordError: padding is not zeros at the end, or segment 1 not the last tokens.
    """
    is_real = columns["input_mask"] == 1
    lengths = is_real.sum(axis=1)
    first_lengths = np.maximum(lengths - columns["segment_ids"].sum(axis=1), 0)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    sequences = TokenSequences(columns["input_ids"][is_real], starts, first_lengths.astype("i4"))
    # What cannot be padded back to the same rows was no such sequence.
    again = sequences.padded(np.arange(len(lengths)), is_real.shape[1])
    differs = np.zeros(len(lengths), bool)
    for name, values in again.items():
        differs |= np.any(values != columns[name], axis=1)
    if differs.any():
        raise RecordError(
            f"{path}, record {numbers[differs.argmax()]}: input_mask must be ones for the tokens "
            "and zeros for padding behind them, segment_ids ones for the last tokens alone, and "
            "padding zero everywhere. Was the file made for another model?"
        )
    return sequences
