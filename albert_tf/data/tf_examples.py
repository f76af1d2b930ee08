"""Serialised `tf.train.Example` messages, written many at a time with NumPy and without TensorFlow.

The bytes follow the protocol buffer wire format: an Example holds Features, Features is a map from
a name to a Feature, a Feature holds one packed list. Every reader of `tf.train.Example` takes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

# Field numbers of tf.train.Feature, as the tag byte of a length-delimited field.
_LIST_TAG = {"int64": b"\x1a", "float32": b"\x12"}


@dataclass(frozen=True)
class FeatureSpec:
    """One feature of a record: what is written, and what a reader insists on.

    Attributes:
        name: key in the `tf.train.Example`.
        dtype: "int64" or "float32".
        length: number of values; every record has exactly this many.
        limit: values of an int64 feature lie in [0, limit); None checks nothing.
        length_flag: the command-line flag that decides `length`, for error messages.
        limit_source: what decides `limit`, for error messages.
    """

    name: str
    dtype: str
    length: int
    limit: int | None = None
    length_flag: str | None = None
    limit_source: str | None = None


def encode_examples(columns: Mapping[str, np.ndarray], specs: Sequence[FeatureSpec]) -> list[bytes]:
    """Serialises one `tf.train.Example` for each row.

    Args:
        columns: for each feature an array [B, length]; int64 features hold values in [0, 2**56).
        specs: the features, in the order in which they are written.

    Returns:
        B messages; equal columns give equal bytes.

    Raises:
        ValueError: a column has another shape than its specification says, or an integer outside
            [0, 2**56).
    """
    features = [_encode_column(columns[spec.name], spec) for spec in specs]
    examples = []
    for row in zip(*features, strict=True):
        body = b"".join(row)
        examples.append(b"\x0a" + _varint(len(body)) + body)
    return examples


def _encode_column(values: np.ndarray, spec: FeatureSpec) -> list[bytes]:
    """The map entries of one feature, one for each row of `values` [B, length]."""
    if values.ndim != 2 or values.shape[1] != spec.length:
        raise ValueError(
            f"Feature {spec.name!r} needs {spec.length} values per record. Received: shape "
            f"{values.shape}"
        )
    rows = _float_rows(values) if spec.dtype == "float32" else _varint_rows(values, spec.name)
    return [_entry_header(spec.name, spec.dtype, len(row)) + row for row in rows]


def _float_rows(values: np.ndarray) -> list[bytes]:
    """Packed little-endian floats of each row."""
    width = 4 * values.shape[1]
    return _split(values.astype("<f4").tobytes(), [width] * len(values))


def _varint_rows(values: np.ndarray, name: str) -> list[bytes]:
    """Packed variable-length integers of each row: seven bits a byte, lowest first."""
    if not values.size:
        return []
    if values.min() < 0 or values.max() >= 1 << 56:
        raise ValueError(
            f"Feature {name!r} must lie in [0, 2**56). Received: {values.min()} to {values.max()}"
        )
    width = max(1, -(-int(values.max()).bit_length() // 7))
    if width == 1:
        return _split(values.astype(np.uint8).tobytes(), [values.shape[1]] * len(values))
    # The bytes of a number side by side in one word, and beside them which of them are used.
    values = np.ascontiguousarray(values, "<u4" if width <= 4 else "<u8")
    coded, used = values & 0x7F, np.ones_like(values)
    for byte in range(1, width):
        coded |= (values >> 7 * byte & 0x7F) << 8 * byte
        goes_on = (values >= 1 << 7 * byte).astype(values.dtype)
        coded |= goes_on << (8 * byte - 1)
        used |= goes_on << 8 * byte
    kept = used.view(bool)
    lengths = np.count_nonzero(kept, axis=1)
    return _split(coded.view(np.uint8)[kept].tobytes(), lengths.tolist())


def _split(buffer: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cuts `buffer` into pieces of the given lengths."""
    pieces, start = [], 0
    for length in lengths:
        pieces.append(buffer[start : start + length])
        start += length
    return pieces


@lru_cache(maxsize=65536)
def _entry_header(name: str, dtype: str, payload: int) -> bytes:
    """Everything of a map entry that stands before its `payload` bytes of packed values."""
    packed = b"\x0a" + _varint(payload)
    feature_length = len(packed) + payload
    feature = _LIST_TAG[dtype] + _varint(feature_length) + packed
    value_length = len(feature) + payload
    key = name.encode()
    entry = b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(value_length) + feature
    return b"\x0a" + _varint(len(entry) + payload) + entry


def _varint(value: int) -> bytes:
    """One variable-length integer."""
    coded = bytearray()
    while value > 0x7F:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    coded.append(value)
    return bytes(coded)
