"""TFRecord files of `tf.train.Example` protos, read and written without TensorFlow.

A record consists of its length (uint64), a checksum of the length, the payload, and a checksum of
the payload, all little-endian. The checksum is CRC-32C, rotated and increased by a constant. An
Example contains a map from names to Features, each of which is one packed list.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import google_crc32c
import numpy as np

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_size, open_binary

# Field numbers of tf.train.Feature, as the tag byte of a length-delimited field.
_LIST_TAG = {"int64": b"\x1a", "float32": b"\x12"}


@dataclass(frozen=True)
class FeatureSpec:
    """Specification of one feature of a record, for writing and for reading.

    Attributes:
        name: key in the `tf.train.Example`.
        dtype: "int64" or "float32".
        length: number of values in every record.
        limit: values of an int64 feature must be in [0, limit). If `None`, they are not checked.
        length_name, limit_source: the settings that determine `length` and `limit`, for errors.
    """

    name: str
    dtype: str
    length: int
    limit: int | None = None
    length_name: str | None = None
    limit_source: str | None = None


def encode_examples(columns: Mapping[str, np.ndarray], specs: Sequence[FeatureSpec]) -> list[bytes]:
    """Serializes one `tf.train.Example` per row; equal columns give equal bytes.

    `columns` contains an array [B, length] per feature; int64 features have values in [0, 2**56).
    Features are written in the order of `specs`. Raises ValueError for other shapes and values.
    """
    features = [_encode_column(columns[spec.name], spec) for spec in specs]
    return [proto_field(1, b"".join(row)) for row in zip(*features, strict=True)]


def proto_field(number: int, content: bytes) -> bytes:
    """Returns a field of a proto: a string, bytes or another proto. `number` is less than 16."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _encode_column(values: np.ndarray, spec: FeatureSpec) -> list[bytes]:
    """Returns a map entry for each row of `values` [B, length]."""
    if values.ndim != 2 or values.shape[1] != spec.length:
        raise UserError(
            f"Feature {spec.name!r} needs {spec.length} values per record. Received: shape "
            f"{values.shape}"
        )
    if spec.dtype == "float32":
        width = 4 * spec.length
        rows = _split(values.astype("<f4").tobytes(), [width] * len(values))
    else:
        rows = _varint_rows(values, spec.name)
    return [_entry_header(spec.name, spec.dtype, len(row)) + row for row in rows]


def _varint_rows(values: np.ndarray, name: str) -> list[bytes]:
    """Returns packed variable-length integers per row: 7 bits per byte, lowest first."""
    if not values.size:
        return []
    if values.min() < 0 or values.max() >= 1 << 56:
        raise UserError(
            f"Feature {name!r} must be in [0, 2**56). Received: {values.min()} to {values.max()}"
        )
    width = max(1, -(-int(values.max()).bit_length() // 7))
    if width == 1:
        return _split(values.astype(np.uint8).tobytes(), [values.shape[1]] * len(values))
    # The bytes of each number are stored in one word, with a mask of the bytes in use.
    values = np.ascontiguousarray(values, "<u4" if width <= 4 else "<u8")
    coded, used = values & 0x7F, np.ones_like(values)
    for byte in range(1, width):
        coded |= (values >> 7 * byte & 0x7F) << 8 * byte
        continues = (values >= 1 << 7 * byte).astype(values.dtype)
        coded |= continues << (8 * byte - 1)
        used |= continues << 8 * byte
    kept = used.view(bool)
    lengths = np.count_nonzero(kept, axis=1)
    return _split(coded.view(np.uint8)[kept].tobytes(), lengths.tolist())


def _split(buffer: bytes, lengths: Sequence[int]) -> list[bytes]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(buffer[start : start + length])
        start += length
    return pieces


@lru_cache(maxsize=65536)
def _entry_header(name: str, dtype: str, payload: int) -> bytes:
    """Returns the part of a map entry before its `payload` bytes of packed values."""
    packed = b"\x0a" + _varint(payload)
    feature_length = len(packed) + payload
    feature = _LIST_TAG[dtype] + _varint(feature_length) + packed
    value_length = len(feature) + payload
    entry = proto_field(1, name.encode()) + b"\x12" + _varint(value_length) + feature
    return b"\x0a" + _varint(len(entry) + payload) + entry


def _varint(value: int) -> bytes:
    coded = bytearray()
    while value > 0x7F:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    coded.append(value)
    return bytes(coded)


_HEADER_BYTES = 12  # length and its checksum
_CHECK = struct.Struct("<I")
_TRUNCATED, _WRONG_CHECKSUM = "the file ends inside this record", "the checksum is wrong"


class RecordError(UserError):
    """Raised if a record is damaged or unexpected. The message contains the file and the record."""


def frame_records(payloads: Sequence[bytes]) -> list[bytes]:
    """Returns the records of a file: payloads with their lengths and checksums."""
    frames = []
    for payload in payloads:
        length = len(payload).to_bytes(8, "little")
        frames.append(length + masked_crc32c(length) + payload + masked_crc32c(payload))
    return frames


def masked_crc32c(data: bytes) -> bytes:
    """Returns the checksum of a byte string as stored in TFRecord files, 4 bytes."""
    crc = google_crc32c.value(data)
    return _CHECK.pack((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def read_records(path: str) -> Iterator[bytes]:
    """Yields the payloads of a TFRecord file.

    Raises RecordError if the file is truncated or a checksum is wrong.
    """
    remaining, number = file_size(path), 0
    with open_binary(path, "rb") as file:
        while remaining:
            number += 1
            header = file.read(_HEADER_BYTES)
            length = int.from_bytes(header[:8], "little")
            remaining -= _HEADER_BYTES + length + _CHECK.size
            if remaining < 0:
                raise _damaged(path, number, _TRUNCATED)
            if header[8:] != masked_crc32c(header[:8]):
                raise _damaged(path, number, _WRONG_CHECKSUM)
            payload = file.read(length)
            if file.read(_CHECK.size) != masked_crc32c(payload):
                raise _damaged(path, number, _WRONG_CHECKSUM)
            yield payload


def _damaged(path: str, number: int, problem: str) -> RecordError:
    return RecordError(
        f"{path}, record {number}: {problem}. The file is damaged or not a TFRecord file. Copy or "
        "create it again."
    )


def count_records(files: Sequence[str]) -> int:
    """Returns the number of records, without reading their payloads; see `frame_ends`."""
    return sum(1 for path in files for _ in frame_ends(path))


def estimate_records(files: Sequence[str], num_records: int = 100) -> int:
    """Estimates the number of records from the mean size of the first `num_records`."""
    number = size = 0
    for path in files:
        ends = [0]
        with suppress(RecordError):  # raised again when the records are read
            ends.extend(islice(frame_ends(path), num_records - number))
        number += len(ends) - 1
        size += ends[-1]
    return round(number * sum(map(file_size, files)) / max(size, 1))


def frame_ends(path: str) -> Iterator[int]:
    """Yields the end of each record in bytes; raises RecordError if the file is truncated."""
    size = file_size(path)
    position = number = 0
    with open_binary(path, "rb") as file:
        while position < size:
            number += 1
            file.seek(position)
            position += _HEADER_BYTES + int.from_bytes(file.read(8), "little") + _CHECK.size
            if position > size:
                raise _damaged(path, number, _TRUNCATED)
            yield position
