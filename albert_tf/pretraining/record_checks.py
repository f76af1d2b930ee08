"""Checks of record files: before a run, and after an error while they are read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.files import file_size, reason_of
from albert_tf.data.strict_json import listed
from albert_tf.data.tfrecord import FeatureSpec, RecordError, frame_ends, read_records
from albert_tf.pretraining.batching import Ends, file_end, parse_batch
from albert_tf.pretraining.instances import NONE, NSP, PREDICTION_FEATURES, SOP, same_labels_warning
from albert_tf.pretraining.masking import TOKEN_BOUNDARY

_CHECKED_RECORDS = 256  # of each file, whose checksums are checked
_RECORDS_TO_CHECK = 16  # more than 1, because a masked record can lack predictions

# TensorFlow raises UnicodeDecodeError if a message contains a part of a damaged record.
_READ_ERRORS = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError)

# Removed files, and disks or networks that fail.
_FILE_ERRORS = (
    tf.errors.FailedPreconditionError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)


def check_record_files(files: Sequence[str], specs: Sequence[FeatureSpec]) -> None:
    """Checks the first record of each file, and the checksums of the first 256 records.

    Raises RecordError if a record is damaged or does not match `specs`, or if there is no record.
    """
    found = False
    for path in files:
        if not file_size(path):
            logging.warning("%s is empty", path)
        for payload in islice(read_records(path), 1):
            _check_record(payload, specs, path, 1)
            found = True
        for _ in islice(frame_ends(path), _CHECKED_RECORDS):
            pass
    if not found:
        raise RecordError(f"There is no record in the files: {', '.join(files)}")


def are_masked(path: str) -> bool | None:
    """Returns whether the records of a file were masked when they were created.

    Returns `None` if the first record is damaged, or not a pretraining record.
    """
    weights = PREDICTION_FEATURES[-1]
    answer = None
    with suppress(RecordError):  # raised again by `check_record_files`
        for number, payload in enumerate(islice(read_records(path), _RECORDS_TO_CHECK), start=1):
            features = example_features(payload, path, number)
            if TOKEN_BOUNDARY not in features:
                return None
            answer = weights in features and any(features[weights].float_list.value)
            if answer:
                break
    return answer


def check_masking(files: Sequence[str], *, masked: bool) -> None:
    """Raises RecordError if the first records of a file do not match `masked`."""
    for path in files:
        answer = are_masked(path)
        if answer and not masked:
            raise RecordError(
                f"The records in {path} are already masked, and `masked_lm_prob` (or "
                "`masked_lm_budget`) would mask them again. Omit this setting, or create plain "
                "records with create_pretraining_data.py `masked_lm_prob`=0."
            )
        if answer is False and masked:
            raise RecordError(
                f"The records in {path} are not masked. Pass `masked_lm_prob`=0.15 to mask them "
                "during training, or create masked records with create_pretraining_data.py."
            )


def check_sentence_pairs(files: Sequence[str], sentence_loss: str) -> None:
    """Raises RecordError if a sentence loss requires pairs, but a file contains single segments.

    Logs a warning if the first records of the files have the same sentence label.
    """
    labels: list[int] = []
    for path in files if sentence_loss != NONE else ():
        count = max(1, _CHECKED_RECORDS // len(files))
        for number, payload in enumerate(islice(read_records(path), count), start=1):
            features = example_features(payload, path, number)
            labels += features["next_sentence_labels"].int64_list.value
            if number == 1 and not any(features["segment_ids"].int64_list.value):
                raise RecordError(
                    f"{path} contains single segments (created with `sentence_loss`={NONE}), "
                    f"but `sentence_loss`={sentence_loss} requires pairs of segments. Use "
                    f"`sentence_loss`={NONE}, or records created with {SOP} or {NSP}."
                )
    for warning in same_labels_warning(
        sum(labels), len(labels), f"the first records of {listed(files)}"
    ):
        logging.warning(warning)


@contextmanager
def explain_read_errors(
    inputs: Sequence[tuple[str, Sequence[FeatureSpec]]], ends: Ends | None = None
) -> Iterator[None]:
    """Context manager that converts reading errors of `tf.data` into a RecordError.

    After an error, the files in `inputs`, each with the features of its records, are compared with
    `ends`, and read again to find the damaged record.
    """
    try:
        yield
    except (*_READ_ERRORS, *_FILE_ERRORS) as error:
        try:
            for path, _ in inputs:
                _check_file(path, (ends or {}).get(path))
            for path, specs in inputs if isinstance(error, _READ_ERRORS) else ():
                _check_all_records(path, specs)
        except RecordError as explained:
            raise explained from error
        if isinstance(error, tf.errors.DataLossError):
            raise RecordError(
                "The records are intact, but were read from a wrong position: a file was replaced, "
                "or the disk failed. Run the same command again. If this does not help, remove "
                "`train_state` in `output_dir` to read the input from the start."
            ) from error
        raise


def _check_file(path: str, end: tuple[int, bytes] | None) -> None:
    try:
        found = file_end(path)
    except (OSError, tf.errors.OpError) as error:
        raise RecordError(
            f"{path} can no longer be read: {reason_of(error)}. Restore the file and run the same "
            "command again."
        ) from error
    if end is not None and found != end:
        raise RecordError(
            f"{path} was changed while it was in use (size {end[0]} before, {found[0]} now). "
            "Restore or complete the file, and run the same command again."
        )


def _check_all_records(path: str, specs: Sequence[FeatureSpec]) -> None:
    for number, payload in enumerate(read_records(path), start=1):
        _check_record(payload, specs, path, number)
        try:
            parse_batch(tf.constant([payload]), specs)
        except _READ_ERRORS as error:  # TensorFlow is stricter than protobuf
            raise RecordError(
                f"{path}, record {number}: TensorFlow cannot parse it. It is damaged; create "
                "the records again."
            ) from error


def example_features(payload: bytes, path: str, number: int) -> Any:
    """Returns the features of a record by name. Raises RecordError if it is damaged."""
    if not payload:
        raise RecordError(f"{path}, record {number}: the record is empty. Create it again.")
    try:
        return tf.train.Example.FromString(payload).features.feature
    except Exception as error:  # each protobuf backend raises its own classes
        raise RecordError(f"{path}, record {number}: not a tf.train.Example: {error}") from error


def _check_record(payload: bytes, specs: Sequence[FeatureSpec], path: str, number: int) -> None:
    """Raises RecordError unless the record contains every feature of `specs`."""
    place = f"{path}, record {number}"
    features = example_features(payload, path, number)
    for spec in specs:
        if spec.name not in features:
            raise RecordError(
                f"{place}: feature {spec.name!r} is missing. The record contains "
                f"{listed(sorted(features))}. Was the file created for another task?"
            )
        kind = {"int64": "int64_list", "float32": "float_list"}[spec.dtype]
        if features[spec.name].WhichOneof("kind") != kind:
            raise RecordError(f"{place}: feature {spec.name!r} must contain {spec.dtype} values.")
        stored = getattr(features[spec.name], kind).value
        if len(stored) != spec.length:
            advice = f" Set `{spec.length_name}` to match, or create the records again."
            raise RecordError(
                f"{place}: feature {spec.name!r} contains {len(stored)} values, but "
                f"{spec.length} were expected.{advice if spec.length_name else ''}"
            )
        if spec.limit is not None and not 0 <= min(stored) <= max(stored) < spec.limit:
            worst = min(stored) if min(stored) < 0 else max(stored)
            source = f", the limit set by {spec.limit_source}" if spec.limit_source else ""
            raise RecordError(
                f"{place}: feature {spec.name!r} contains {worst}, but values must be in "
                f"[0, {spec.limit}){source}."
            )
