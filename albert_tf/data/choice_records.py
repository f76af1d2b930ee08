"""Features of questions with options in record files, which the original release reads as well."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.data.choice_features import ChoiceFeatures
from albert_tf.data.examples import FeatureSpec, encode_examples
from albert_tf.data.files import write_then_rename
from albert_tf.data.race import NUM_OPTIONS
from albert_tf.data.records import RecordError, explain_read_errors, parse_batch
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.text_records import record_chunks, without_padding
from albert_tf.data.tfrecord import frame_records

_INPUTS = ("input_ids", "input_mask", "segment_ids")
_RECORDS_AT_ONCE = 256  # padded in memory at the same time


def _record_specs(
    max_seq_length: int, num_choices: int, vocab_size: int | None = None
) -> tuple[FeatureSpec, ...]:
    flag = "--max_seq_length"
    width = num_choices * max_seq_length
    vocabulary = "the vocabulary (--spm_model_file, --vocab_file)"
    return (
        FeatureSpec("input_ids", "int64", width, vocab_size, flag, vocabulary),
        FeatureSpec("input_mask", "int64", width, 2, flag),
        FeatureSpec("segment_ids", "int64", width, 2, flag),
        FeatureSpec("label_ids", "int64", 1, num_choices, None, "the number of options"),
        FeatureSpec("is_real_example", "int64", 1, 2),
    )


def write_choice_records(path: str, features: ChoiceFeatures, max_seq_length: int) -> None:
    """Writes features as the original does, one `tf.train.Example` a question, padded.

    Options that a question does not have are all padding. Questions without labels get 0.

    Args:
        path: the file; it appears under this name when complete.
        features: what to write; names and levels are not.
        max_seq_length: tokens of every sequence.

    Raises:
        ValueError: a sequence is longer.
    """
    count, num_choices = len(features), features.num_choices
    specs = _record_specs(max_seq_length, num_choices)
    label_ids = features.label_ids
    if label_ids is None:
        label_ids = np.zeros(count, np.int32)
    with write_then_rename(path) as file:
        for start in range(0, count, _RECORDS_AT_ONCE):
            end = min(start + _RECORDS_AT_ONCE, count)
            rows = np.arange(start * num_choices, end * num_choices)
            padded = features.sequences.padded(rows, max_seq_length)
            columns = {
                **{name: values.reshape(end - start, -1) for name, values in padded.items()},
                "label_ids": label_ids[start:end, None],
                "is_real_example": np.ones((end - start, 1), np.int32),
            }
            file.write(b"".join(frame_records(encode_examples(columns, specs))))


def read_choice_records(
    path: str, max_seq_length: int, vocab_size: int, num_choices: int = NUM_OPTIONS
) -> ChoiceFeatures:
    """Reads features from a file of ours or of the original; padding examples are left out.

    Args:
        path: a TFRecord file.
        max_seq_length: tokens of every sequence.
        vocab_size: ids lie below this.
        num_choices: C, sequences of every record.

    Returns:
        The features; questions are called by the numbers of their records from 1, and have no
        level.

    Raises:
        RecordError: the file is damaged, empty or made for something else; names file and record.
    """
    specs = _record_specs(max_seq_length, num_choices, vocab_size)
    sequences, label_ids, kept = [], [], []
    done = 0
    with explain_read_errors([path], specs):
        for payloads in record_chunks(path):
            parsed = parse_batch(tf.constant(payloads), specs)
            columns = {name: values.numpy() for name, values in parsed.items()}
            rows = np.flatnonzero(columns["is_real_example"][:, 0])
            numbers = done + 1 + rows
            padded = {name: columns[name][rows].reshape(-1, max_seq_length) for name in _INPUTS}
            sequences.append(without_padding(padded, path, np.repeat(numbers, num_choices)))
            label_ids.append(columns["label_ids"][rows, 0])
            kept.append(numbers)
            done += len(payloads)
    numbers = np.concatenate([np.zeros(0, np.int64), *kept])
    if not len(numbers):
        raise RecordError(f"{path} holds no example.")
    joined = TokenSequences.concatenate(sequences)
    counts = np.count_nonzero(joined.lengths.reshape(-1, num_choices), axis=1).astype(np.int32)
    names, levels = list(map(str, numbers.tolist())), [""] * len(numbers)
    try:
        return ChoiceFeatures(joined, counts, np.concatenate(label_ids), names, levels)
    except ValueError as error:
        raise RecordError(f"{path}: {error} Was the file made for another task?") from error
