"""TFRecord files of `tf.train.Example` protos, many at a time, with NumPy and without TensorFlow.

A record is: its length (uint64), a checksum of that, the payload, a checksum of the payload; all
little-endian. The checksum is CRC-32C, rotated and shifted by a constant. An Example holds
Features, a map from a name to a Feature, which holds one packed list, as protocol buffers do.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice

import numpy as np

from albert_tf.data.files import file_size, open_binary

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
    """Serialises one `tf.train.Example` for each row; equal columns give equal bytes.

    Args:
        columns: for each feature an array [B, length]; int64 features hold values in [0, 2**56).
        specs: the features, in the order in which they are written.

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
    if spec.dtype == "float32":
        width = 4 * spec.length
        rows = _split(values.astype("<f4").tobytes(), [width] * len(values))
    else:
        rows = _varint_rows(values, spec.name)
    return [_entry_header(spec.name, spec.dtype, len(row)) + row for row in rows]


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


_HEADER_BYTES = 12  # length and its checksum
_CHECK = struct.Struct("<I")
_CASTAGNOLI = 0x82F63B78  # the polynomial, lowest bit first
_ALL_ONES = bytes.fromhex("54641f64")  # takes a checksum from zero to all ones
_RECORDS_A_CHECK = 256
_MOST_PADDED_BYTES = 1 << 24  # of strings whose checksums are computed together


class RecordError(ValueError):
    """A record file is damaged or does not hold what is expected; says which file and record."""


def frame_records(payloads: Sequence[bytes]) -> list[bytes]:
    """Puts lengths and checksums around payloads, ready to be written one after the other."""
    lengths = [len(payload).to_bytes(8, "little") for payload in payloads]
    length_checks = masked_crc32c(lengths).tolist()
    checks = masked_crc32c(payloads).tolist()
    return [
        length + _CHECK.pack(length_check) + payload + _CHECK.pack(check)
        for length, length_check, payload, check in zip(
            lengths, length_checks, payloads, checks, strict=True
        )
    ]


def masked_crc32c(payloads: Sequence[bytes]) -> np.ndarray:
    """Checksums of many byte strings at once, as TFRecord files hold them: uint32 [B].

    All strings advance together, eight bytes a step, so that a step is a few array operations.
    """
    if not payloads:
        return np.zeros(0, np.uint32)
    longest = max(map(len, payloads))
    if len(payloads) > 1 and len(payloads) * longest > _MOST_PADDED_BYTES:
        half = len(payloads) // 2
        return np.concatenate([masked_crc32c(payloads[:half]), masked_crc32c(payloads[half:])])
    crc = ~_crc(_padded(payloads))
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)


def _padded(payloads: Sequence[bytes]) -> np.ndarray:
    """Payloads padded on the left to one length, a multiple of 8, as uint8 [B, length].

    Zeros in front leave a checksum that starts from zero as it is. The checksum really starts from
    all ones, which four bytes in front of the payload make of zero.
    """
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    width = -(-(int(lengths.max()) + len(_ALL_ONES)) // 8) * 8
    matrix = np.frombuffer(
        bytearray().join(payload.rjust(width, b"\0") for payload in payloads), np.uint8
    ).reshape(len(payloads), width)
    head = (width - lengths - len(_ALL_ONES))[:, None] + np.arange(len(_ALL_ONES))
    matrix[np.arange(len(payloads))[:, None], head] = np.frombuffer(_ALL_ONES, np.uint8)
    return matrix


def _crc(matrix: np.ndarray) -> np.ndarray:
    """The checksum of each row, from zero on: uint8 [B, length] gives uint32 [B]."""
    tables = _crc_tables()
    words = np.ascontiguousarray(matrix.view("<u2").T)
    # The last two words of a step do not meet the running checksum: done for all steps at once.
    ahead = tables[1][words[2::4]] ^ tables[0][words[3::4]]
    crc: np.ndarray = np.zeros(len(matrix), np.uint32)
    for first, second, rest in zip(words[0::4], words[1::4], ahead, strict=True):
        crc = tables[3][(crc & 0xFFFF) ^ first] ^ tables[2][(crc >> 16) ^ second] ^ rest
    return crc


@cache
def _crc_tables() -> np.ndarray:
    """uint32 [4, 65536]: checksum of a two-byte word followed by 0, 2, 4 or 6 zero bytes."""
    crc: np.ndarray = np.arange(65536, dtype=np.uint32)
    tables = []
    for _ in range(4):
        for _ in range(16):
            crc = (crc >> 1) ^ np.where(crc & 1, np.uint32(_CASTAGNOLI), np.uint32(0))
        tables.append(crc)
    return np.stack(tables)


def read_records(path: str) -> Iterator[bytes]:
    """Yields the payloads of a TFRecord file, each after its checksums were compared.

    Raises:
        RecordError: the file is cut short or a checksum differs; names the file and the record,
            counted from 1. The records before it are yielded.
    """
    frames = _read_frames(path)
    number = 0
    while batch := list(islice(frames, _RECORDS_A_CHECK)):
        whole = [frame for frame in batch if frame is not None]
        header_crcs = masked_crc32c([header[:8] for header, _, _ in whole]).tolist()
        are_right = [
            header[8:] == _CHECK.pack(crc)
            for (header, _, _), crc in zip(whole, header_crcs, strict=True)
        ]
        # What a wrong length makes a payload may be the rest of the file: it is not looked at.
        trusted = whole[: are_right.index(False)] if False in are_right else whole
        payload_crcs = masked_crc32c([payload for _, payload, _ in trusted]).tolist()
        for (_, payload, check), crc in zip(trusted, payload_crcs, strict=True):
            number += 1
            if check != _CHECK.pack(crc):
                raise _wrong_checksum(path, number)
            yield payload
        if len(trusted) < len(whole):
            raise _wrong_checksum(path, number + 1)
        if len(whole) < len(batch):
            raise _cut_short(path, number + 1)


def _read_frames(path: str) -> Iterator[tuple[bytes, bytes, bytes] | None]:
    """Yields length and its checksum, payload, checksum; in the end None if one is cut short."""
    remaining = file_size(path)
    with open_binary(path, "rb") as file:
        while remaining:
            header = file.read(_HEADER_BYTES)
            length = int.from_bytes(header[:8], "little")
            remaining -= _HEADER_BYTES + length + _CHECK.size
            if remaining < 0:
                yield None
                return
            yield header, file.read(length), file.read(_CHECK.size)


def _wrong_checksum(path: str, number: int) -> RecordError:
    return RecordError(
        f"{path}, record {number}: the checksum differs. The file is damaged or not a TFRecord "
        "file; copy or create it again."
    )


def _cut_short(path: str, number: int) -> RecordError:
    return RecordError(
        f"{path}, record {number}: the file ends inside this record. It is truncated, damaged or "
        "not a TFRecord file; copy or create it again."
    )


def count_records(files: Sequence[str]) -> int:
    """Number of records, from the lengths alone; RecordError if a file is cut short."""
    return sum(1 for path in files for _ in frame_ends(path))


def estimate_records(files: Sequence[str], num_records: int = 100) -> int:
    """Estimates the number of records by the sizes of the first; exact if all are among them."""
    number = size = 0
    for path in files:
        ends = [0]
        with suppress(RecordError):  # found, or skipped, where the records are read
            ends.extend(islice(frame_ends(path), num_records - number))
        number += len(ends) - 1
        size += ends[-1]
    return round(number * sum(map(file_size, files)) / max(size, 1))


def frame_ends(path: str) -> Iterator[int]:
    """Yields where each record ends, in bytes, by the lengths alone; RecordError if one is cut."""
    size = file_size(path)
    position = number = 0
    with open_binary(path, "rb") as file:
        while position < size:
            number += 1
            file.seek(position)
            position += _HEADER_BYTES + int.from_bytes(file.read(8), "little") + _CHECK.size
            if position > size:
                raise _cut_short(path, number)
            yield position
