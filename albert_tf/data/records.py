"""Parsing of record files with TensorFlow, and errors that name the file and the record."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import tensorflow as tf

from albert_tf.data.files import open_binary, reason_of
from albert_tf.data.strict_json import listed
from albert_tf.data.tfrecord import FeatureSpec, RecordError, frame_ends, read_records

# UnicodeDecodeError: TensorFlow's message quotes a damaged record.
_READ_ERRORS = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError)

# Removed files, and disks or networks that do not answer.
_FILE_ERRORS = (
    tf.errors.FailedPreconditionError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)


def parse_batch(serialized: tf.Tensor, specs: Sequence[FeatureSpec]) -> dict[str, tf.Tensor]:
    """Parses a batch of `tf.train.Example` messages, string [B], inside a `tf.data` pipeline.

    Returns:
        For each name of `specs` int32 or float32 [B, length].

    Raises:
        tf.errors.InvalidArgumentError: (when run) a feature is missing, has another length, or a
            value outside [0, limit). `explain_read_errors` adds the file and the record.
    """
    parsed = tf.io.parse_example(
        serialized, {spec.name: tf.io.FixedLenFeature([spec.length], spec.dtype) for spec in specs}
    )
    features = {}
    for spec in specs:
        values = parsed[spec.name]
        if spec.limit is not None:
            # On a GPU, ids beyond the table would silently be looked up as zeros.
            message = f"feature {spec.name!r} must lie in [0, {spec.limit})"
            limit = tf.constant(spec.limit, values.dtype)
            checks = [
                tf.debugging.assert_non_negative(values, message=message),
                tf.debugging.assert_less(values, limit, message=message),
            ]
            with tf.control_dependencies(checks):
                values = tf.identity(values)
        features[spec.name] = tf.cast(values, tf.int32) if spec.dtype == "int64" else values
    return features


def check_record_files(
    files: Sequence[str], specs: Sequence[FeatureSpec], *, num_records: int = 256
) -> None:
    """Checks the beginning of each file.

    Args:
        files: TFRecord files.
        specs: the features that every record must have.
        num_records: number of records per file that must not be truncated.

    Raises:
        RecordError: a first record is damaged or differs from `specs`, one of the first
            `num_records` is truncated, or there is no record.
    """
    found = False
    for path in files:
        for payload in islice(read_records(path), 1):
            _check_record(payload, specs, path, 1)
            found = True
        for _ in islice(frame_ends(path), num_records):
            pass
    if not found:
        raise RecordError(f"No record in any of the files: {', '.join(files)}")


@contextmanager
def explain_read_errors(files: Sequence[str], specs: Sequence[FeatureSpec]) -> Iterator[None]:
    """Converts reading errors of `tf.data` inside the block into errors that name the record.

    After an error the files are read again, one record at a time, up to the damaged one.

    Raises:
        RecordError: a record is damaged or differs from `specs`, or a file cannot be read. Other
            errors are re-raised unchanged.
    """
    try:
        yield
    except (*_READ_ERRORS, *_FILE_ERRORS) as error:
        try:
            for path in files:
                _check_file(path)
            if isinstance(error, _READ_ERRORS):
                _check_all_records(files, specs)
        except RecordError as explained:
            raise explained from error
        raise


def _check_file(path: str) -> None:
    try:
        with open_binary(path, "rb") as file:
            file.read(1)
    except (OSError, tf.errors.OpError) as error:
        raise RecordError(
            f"{path} can no longer be read: {reason_of(error)}. Restore the file and run the same "
            "command again."
        ) from error


def _check_all_records(files: Sequence[str], specs: Sequence[FeatureSpec]) -> None:
    for path in files:
        for number, payload in enumerate(read_records(path), start=1):
            _check_record(payload, specs, path, number)
            try:
                parse_batch(tf.constant([payload]), specs)
            except _READ_ERRORS as error:  # TensorFlow accepts less than protobuf does
                raise RecordError(
                    f"{path}, record {number}: TensorFlow cannot parse it. It is damaged; create "
                    "the records again."
                ) from error


def example_features(payload: bytes, path: str, number: int) -> Any:
    """Returns features by name; RecordError if the record is not a `tf.train.Example`."""
    if not payload:
        raise RecordError(f"{path}, record {number}: it is empty. Create the records again.")
    try:
        return tf.train.Example.FromString(payload).features.feature
    except Exception as error:  # the protobuf backends raise classes of their own
        raise RecordError(f"{path}, record {number}: not a tf.train.Example: {error}") from error


def _check_record(payload: bytes, specs: Sequence[FeatureSpec], path: str, number: int) -> None:
    """Raises RecordError unless the payload holds every feature of `specs`."""
    place = f"{path}, record {number}"
    features = example_features(payload, path, number)
    for spec in specs:
        if spec.name not in features:
            raise RecordError(
                f"{place}: feature {spec.name!r} is missing; it holds {listed(sorted(features))}. "
                "Was the file created for another task?"
            )
        _check_values(features[spec.name], spec, place)


def _check_values(feature: "tf.train.Feature", spec: FeatureSpec, place: str) -> None:
    stored = {"int64": feature.int64_list, "float32": feature.float_list}[spec.dtype].value
    if feature.WhichOneof("kind") != ("int64_list" if spec.dtype == "int64" else "float_list"):
        raise RecordError(f"{place}: feature {spec.name!r} does not hold {spec.dtype} values.")
    if len(stored) != spec.length:
        advice = f" Set `{spec.length_name}` to match, or create the records again." * bool(
            spec.length_name
        )
        raise RecordError(
            f"{place}: feature {spec.name!r} holds {len(stored)} values, "
            f"{spec.length} were expected.{advice}"
        )
    if spec.limit is not None and not 0 <= min(stored) <= max(stored) < spec.limit:
        worst = min(stored) if min(stored) < 0 else max(stored)
        source = f", the limit set by {spec.limit_source}" * bool(spec.limit_source)
        raise RecordError(
            f"{place}: feature {spec.name!r} holds {worst}, but values must lie in "
            f"[0, {spec.limit}){source}."
        )
