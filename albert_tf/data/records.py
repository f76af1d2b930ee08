"""Record files as TensorFlow reads them: parsing, and errors that name the file and the record."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import tensorflow as tf

from albert_tf.data.files import open_binary, reason_of
from albert_tf.data.strict_json import listed
from albert_tf.data.tfrecord import FeatureSpec, RecordError, frame_ends, read_records

# The last one is what Python makes of TensorFlow's message when that quotes a damaged record.
_READ_ERRORS = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError)

# Of files that were removed, or whose disk or network does not answer.
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
            value outside [0, limit). Read inside `explain_read_errors` to learn where.
    """
    parsed = tf.io.parse_example(
        serialized, {spec.name: tf.io.FixedLenFeature([spec.length], spec.dtype) for spec in specs}
    )
    features = {}
    for spec in specs:
        values = parsed[spec.name]
        if spec.limit is not None:
            # On a GPU an id beyond the table would be looked up as zeros, in silence.
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
    """Looks at the beginning of each file; fast, to be done at the start.

    Args:
        files: TFRecord files.
        specs: the features that every record must have.
        num_records: how many of a file must not be cut short.

    Raises:
        RecordError: a first record is damaged or differs, one of the first `num_records` is cut
            short, or no file holds a record.
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
    """Turns a reading error of `tf.data` inside the block into one that names file and record.

    `tf.data` says neither. After an error the files are read again, one record at a time, up to the
    damaged one.

    Raises:
        RecordError: a record is damaged or not as `specs` say, or a file cannot be read. Errors
            that the files do not explain go through unchanged.
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
            except _READ_ERRORS as error:  # TensorFlow takes less than protobuf does
                raise RecordError(
                    f"{path}, record {number}: TensorFlow cannot parse it. It is damaged; create "
                    "the records again."
                ) from error


def example_features(payload: bytes, path: str, number: int) -> Any:
    """The features of a record by name; RecordError if it is empty or no `tf.train.Example`."""
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
        advice = f" Set {spec.length_flag} to match, or create the records again." * bool(
            spec.length_flag
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
