"""Windows of questions in record files, which the original release reads and writes as well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from albert_tf.data.examples import FeatureSpec, encode_examples
from albert_tf.data.files import write_then_rename
from albert_tf.data.records import RecordError, explain_read_errors, parse_batch
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.squad_features import SquadFeatures
from albert_tf.data.text_records import record_chunks, without_padding
from albert_tf.data.tfrecord import frame_records

_LABELS = ("start_positions", "end_positions", "is_impossible")
_RECORDS_AT_ONCE = 1024  # padded in memory at the same time


@dataclass(frozen=True, eq=False)
class SquadRecords:
    """What record files hold of `SquadFeatures`: enough to train on, not to find answers in texts.

    Attributes:
        sequences: N windows.
        unique_ids: int64 [N].
        start_positions: int32 [N]; None in files to predict from.
        end_positions: int32 [N]; None in files to predict from.
        is_impossible: bool [N]; None in files to predict from.
    """

    sequences: TokenSequences
    unique_ids: np.ndarray
    start_positions: np.ndarray | None = None
    end_positions: np.ndarray | None = None
    is_impossible: np.ndarray | None = None


def _record_specs(
    max_seq_length: int, is_training: bool, vocab_size: int | None = None
) -> tuple[FeatureSpec, ...]:
    flag = "--max_seq_length"
    vocabulary = "the vocabulary (--spm_model_file, --vocab_file)"
    labels = (
        FeatureSpec("start_positions", "int64", 1, max_seq_length, None, flag),
        FeatureSpec("end_positions", "int64", 1, max_seq_length, None, flag),
        FeatureSpec("is_impossible", "int64", 1, 2),
    )
    return (
        FeatureSpec("unique_ids", "int64", 1),
        FeatureSpec("input_ids", "int64", max_seq_length, vocab_size, flag, vocabulary),
        FeatureSpec("input_mask", "int64", max_seq_length, 2, flag),
        FeatureSpec("segment_ids", "int64", max_seq_length, 2, flag),
        FeatureSpec("p_mask", "int64", max_seq_length, 2, flag),
        *(labels if is_training else ()),
    )


def write_squad_records(path: str, features: SquadFeatures, max_seq_length: int) -> None:
    """Writes windows as the original does, one `tf.train.Example` each, padded.

    Args:
        path: the file; it appears under this name when complete.
        features: what to write; with positions of answers if it has them.
        max_seq_length: tokens of every record.

    Raises:
        ValueError: a sequence is longer.
    """
    is_training = features.start_positions is not None
    specs = _record_specs(max_seq_length, is_training)
    with write_then_rename(path) as file:
        for start in range(0, len(features), _RECORDS_AT_ONCE):
            rows = np.arange(start, min(start + _RECORDS_AT_ONCE, len(features)))
            columns = {
                **features.sequences.padded(rows, max_seq_length),
                "unique_ids": features.unique_ids[rows, None],
                "p_mask": features.p_mask(rows, max_seq_length),
            }
            for name in _LABELS if is_training else ():
                columns[name] = getattr(features, name)[rows, None].astype(np.int32)
            file.write(b"".join(frame_records(encode_examples(columns, specs))))


def read_squad_records(
    path: str, max_seq_length: int, vocab_size: int, *, is_training: bool
) -> SquadRecords:
    """Reads windows from a file of ours or of the original.

    Args:
        path: a TFRecord file.
        max_seq_length: tokens of every record.
        vocab_size: ids lie below this.
        is_training: whether the file has, and must have, positions of answers.

    Raises:
        RecordError: the file is damaged, empty or made for something else; names file and record.
    """
    specs = _record_specs(max_seq_length, is_training, vocab_size)
    sequences: list[TokenSequences] = []
    scalars: dict[str, list[np.ndarray]] = {
        name: [] for name in ("unique_ids", *(_LABELS if is_training else ()))
    }
    done = 0
    with explain_read_errors([path], specs):
        for payloads in record_chunks(path):
            parsed = parse_batch(tf.constant(payloads), specs)
            columns = {name: values.numpy() for name, values in parsed.items()}
            columns.pop("p_mask")  # follows from the others
            for name, parts in scalars.items():
                parts.append(columns.pop(name)[:, 0])
            numbers = done + 1 + np.arange(len(payloads))
            sequences.append(without_padding(columns, path, numbers))
            done += len(payloads)
    if not done:
        raise RecordError(f"{path} holds no record.")
    values = {name: np.concatenate(parts) for name, parts in scalars.items()}
    unique_ids = values.pop("unique_ids").astype(np.int64)
    if is_training:
        values["is_impossible"] = values["is_impossible"].astype(bool)
    return SquadRecords(TokenSequences.concatenate(sequences), unique_ids, **values)
