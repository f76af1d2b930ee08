"""The index of a checkpoint of TensorFlow: a look at it before TensorFlow opens it.

TensorFlow trusts an index whose checksums are right. Where it says what cannot be (a shape below
zero, a kind of values that there is none of), TensorFlow ends the whole process.

The file is a table: blocks of keys and values, and a block that says where they are. The value of
the key "" describes the checkpoint, every other one a tensor.

Source: tensor_bundle.proto of TensorFlow, and the table format of LevelDB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import tensorflow as tf
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from albert_tf.checkpoints.report import DamagedError
from albert_tf.data.files import file_exists, file_size, open_binary
from albert_tf.data.strict_json import shown
from albert_tf.data.tfrecord import masked_crc32c

_FOOTER_BYTES = 48
_CHECKSUM_BYTES = 4
_UNCOMPRESSED = 0
_MOST_AXES = 254
_OF_ANY_SIZE = (tf.string, tf.variant)  # an element takes a byte at least


def check_index(prefix: str) -> None:
    """Makes sure that what an index says can be, and fits the files with the values.

    Args:
        prefix: of the checkpoint; files that cannot be opened are left to TensorFlow.

    Raises:
        DamagedError: it cannot be.
    """
    ends: dict[str, float] = {}  # of the files with the values
    for key, entry, path in _entries(prefix):
        if path not in ends:
            ends[path] = file_size(path) if file_exists(path) else math.inf
        if not _is_tensor(entry):
            raise DamagedError(
                f"{prefix!r} is damaged: what its index says of {shown(key)} cannot be."
            )
        if not 0 <= entry.offset <= entry.offset + entry.size <= ends[path]:
            raise DamagedError(f"{prefix!r} is damaged: the values of {shown(key)} are cut off.")


def _is_tensor(entry: BundleEntryProto) -> bool:
    """Whether there can be a tensor of this kind, shape and size."""
    axes = [axis.size for axis in entry.shape.dim]
    if entry.shape.unknown_rank or min(axes, default=0) < 0 or len(axes) > _MOST_AXES:
        return False
    try:
        dtype, size = tf.as_dtype(entry.dtype), math.prod(axes)
    except TypeError:
        return False
    if dtype in _OF_ANY_SIZE:
        return size <= entry.size
    if entry.slices:  # which stand under other keys
        return size < 2**48
    return size * dtype.size == entry.size


def check_variants(prefix: str) -> None:
    """Compares the checksums of variants, which TensorFlow decodes before it does so.

    Args:
        prefix: of a checkpoint that `check_index` lets pass.

    Raises:
        DamagedError: one differs.
    """
    for key, entry, path in _entries(prefix):
        if entry.dtype != tf.variant.as_datatype_enum:
            continue
        with open_binary(path, "rb") as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
        try:
            is_whole = masked_crc32c([b"".join(_variant_parts(data))]) == entry.crc32c
        except IndexError:  # the last one is cut off
            is_whole = False
        if not is_whole:
            raise DamagedError(f"{prefix!r} is damaged: the checksum of {shown(key)} differs.")


def _entries(prefix: str) -> Iterator[tuple[bytes, BundleEntryProto, str]]:
    """Yields key, BundleEntryProto and file of values of every tensor.

    Nothing where there is no index, or one with compressed blocks, which TensorFlow does not write.
    """
    index = f"{prefix}.index"
    if not file_exists(index):
        return
    try:
        with open_binary(index, "rb") as file:
            (first, description), *table = _table(file.read())
        keys = [first, *(key for key, _ in table)]
        if first or any(key >= later for key, later in pairwise(keys)):
            raise ValueError("The keys are not in order.")
        header = BundleHeaderProto.FromString(description)
        entries = [(key, BundleEntryProto.FromString(value)) for key, value in table]
    except (OSError, tf.errors.OpError, _CompressedError):
        return  # of the first two TensorFlow meets the same, and says why
    except Exception as error:  # protobuf's DecodeError is public under no stable name
        raise DamagedError(
            f"{prefix!r} cannot be read as a checkpoint: {index!r} is damaged, or no index."
        ) from error
    for key, entry in entries:
        yield key, entry, f"{prefix}.data-{entry.shard_id:05d}-of-{header.num_shards:05d}"


def _variant_parts(data: bytes) -> Iterator[bytes]:
    """What the checksum of variants covers: of each length, bytes and a checksum of both."""
    place = 0
    while place < len(data):
        length, place = _number(data, place)
        end = place + length + _CHECKSUM_BYTES
        yield (length & (2**64 - 1)).to_bytes(8, "little") + data[place:end]
        place = end


class _CompressedError(Exception):
    """A block of a table is compressed."""


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table."""
    place = len(data) - _FOOTER_BYTES
    for _ in range(2):  # a block of metadata comes first
        _, place = _number(data, place)
    for _, handle in _block(data, data[place:]):
        yield from _block(data, handle)


def _block(data: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of the block whose offset and size a handle begins with."""
    offset, place = _number(handle, 0)
    size, _ = _number(handle, place)
    if data[offset + size] != _UNCOMPRESSED:
        raise _CompressedError
    block = data[offset : offset + size]
    end = size - 4 * (1 + int.from_bytes(block[-4:], "little"))
    place, key = 0, b""
    while place < end:
        shared, place = _number(block, place)
        length, place = _number(block, place)
        value_length, place = _number(block, place)
        key = key[:shared] + block[place : place + length]
        place += length
        yield key, block[place : place + value_length]
        place += value_length


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and the place behind it."""
    value = shift = 0
    while data[place] & 0x80:
        value |= (data[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1
