"""Damage below the level of bytes that keeps files well-formed: protocol buffers, and tables.

A table is what TensorFlow keeps the index of a checkpoint in: sorted keys and values in blocks,
each with a checksum.
"""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_ODD_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1)


def _crc_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_CRC_OF_BYTE = list(map(_crc_of_byte, range(256)))


class Field(NamedTuple):
    """A field of a message: its number, its kind, and its value as it is stored."""

    number: int
    kind: int
    value: int | bytes


def varint(value: int) -> bytes:
    """A number, seven bits a byte."""
    coded = bytearray()
    while value > 0x7F:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*coded, value])


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return value, place


def checksum(data: bytes) -> bytes:
    """What records and tables hold beside their content: a masked CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_OF_BYTE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def parse_message(data: bytes) -> list[Field] | None:
    """The fields of a message; None where the bytes are none."""
    fields, place = [], 0
    try:
        while place < len(data):
            tag, place = read_varint(data, place)
            number, kind = tag >> 3, tag & 7
            value: int | bytes
            if kind == _VARINT:
                value, place = read_varint(data, place)
            elif kind in (_FIXED64, _FIXED32):
                width = 8 if kind == _FIXED64 else 4
                value, place = data[place : place + width], place + width
            elif kind == _BYTES:
                length, place = read_varint(data, place)
                value, place = data[place : place + length], place + length
            else:
                return None
            if not number or place > len(data):
                return None
            fields.append(Field(number, kind, value))
    except IndexError:
        return None
    return fields


def message(fields: list[Field]) -> bytes:
    """The bytes of a message."""
    parts = []
    for number, kind, value in fields:
        tag = varint(number << 3 | kind)
        if isinstance(value, int):
            parts.append(tag + varint(value))
        else:
            parts.append(tag + (varint(len(value)) if kind == _BYTES else b"") + value)
    return b"".join(parts)


def damage_message(random: Random, data: bytes) -> bytes:
    """Changes one field somewhere in a message; all lengths around it fit."""
    fields = parse_message(data)
    if not fields:
        return data + message([Field(1, _BYTES, random.randbytes(3))])
    place = random.randrange(len(fields))
    number, kind, value = fields[place]
    if isinstance(value, bytes) and kind == _BYTES and value and random.random() < 0.75:
        inner = parse_message(value)
        changed = damage_message(random, value) if inner else _damaged_value(random, value)
        fields[place] = Field(number, kind, changed)
        return message(fields)
    change = random.randrange(6)
    if change == 0:
        del fields[place]
    elif change == 1:
        fields[place:place] = [fields[place]] * random.choice((1, 2, 20))
    elif change == 2:
        other = random.randrange(len(fields))
        fields[place], fields[other] = fields[other], fields[place]
    elif change == 3:
        fields[place] = Field(random.choice((1, 2, 3, 4, 7, 15, 100)), kind, value)
    elif isinstance(value, int):
        odd = random.choice((*_ODD_NUMBERS, (value + 1) % 2**64, (value - 1) % 2**64))
        fields[place] = Field(number, kind, odd)
    else:
        fields[place] = Field(number, kind, _damaged_value(random, value, kind))
    return message(fields)


def _damaged_value(random: Random, value: bytes, kind: int = _BYTES) -> bytes:
    if kind != _BYTES:
        bad = (b"\0" * 8, b"\xff" * 8, struct.pack("<f", float("nan")) * 2, random.randbytes(8))
        return random.choice(bad)[: len(value)]
    start = random.randrange(len(value) + 1)
    odd = (b"", b"\0", b"\xff\xfe", b"../x", "é".encode(), b"x" * 3000, random.randbytes(5))
    return value[:start] + random.choice(odd) + value[start + random.randrange(4) :]


def read_table(data: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of a good table whose blocks are not compressed."""
    place = len(data) - 48
    _, place = read_varint(data, place)
    _, place = read_varint(data, place)
    offset, place = read_varint(data, place)
    size, _ = read_varint(data, place)
    entries = []
    for _, handle in _block_entries(data[offset : offset + size]):
        offset, after = read_varint(handle, 0)
        size, _ = read_varint(handle, after)
        assert data[offset + size] == 0, "compressed"
        entries += _block_entries(data[offset : offset + size])
    return entries


def _block_entries(block: bytes) -> list[tuple[bytes, bytes]]:
    entries, place, key = [], 0, b""
    end = len(block) - 4 * (1 + int.from_bytes(block[-4:], "little"))
    while place < end:
        shared, place = read_varint(block, place)
        rest, place = read_varint(block, place)
        length, place = read_varint(block, place)
        key = key[:shared] + block[place : place + rest]
        place += rest
        entries.append((key, block[place : place + length]))
        place += length
    return entries


def table(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A table of one block with these entries, in this order, all checksums right."""
    content, index_handle = b"", b""
    handles = []
    for block in (_block(entries), _block([])):
        handles.append(varint(len(content)) + varint(len(block)))
        content += _with_checksum(block)
    last = max((key for key, _ in entries), default=b"")
    index = _block([(last, handles[0])])
    index_handle = varint(len(content)) + varint(len(index))
    content += _with_checksum(index)
    return content + (handles[1] + index_handle).ljust(40, b"\0") + _MAGIC


def _block(entries: list[tuple[bytes, bytes]]) -> bytes:
    parts, restarts, size = [], [], 0
    for key, value in entries:
        restarts.append(size)
        part = b"\0" + varint(len(key)) + varint(len(value)) + key + value
        parts.append(part)
        size += len(part)
    restarts = restarts or [0]
    return b"".join(parts) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def _with_checksum(block: bytes) -> bytes:
    return block + b"\0" + checksum(block + b"\0")


def damage_table_entries(random: Random, data: bytes) -> bytes:
    """Entries of a table changed, lost, renamed or doubled, with all checksums set right."""
    entries = read_table(data)
    for _ in range(random.choice((1, 1, 2))):
        if not entries:
            break
        place = random.randrange(len(entries))
        key, value = entries[place]
        change = random.randrange(8)
        if change == 0:
            del entries[place]
        elif change == 1:
            entries[place] = (_damaged_value(random, key), value)
        elif change == 2:
            entries.insert(place, (key, random.choice(entries)[1]))
        elif change == 3:
            entries[place] = (key, random.choice(entries)[1])
        else:
            entries[place] = (key, damage_message(random, value))
    if random.random() < 0.9:
        entries.sort()
    return table(entries)
