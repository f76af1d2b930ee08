"""Damage to protocol buffers that keeps them well-formed, and the checksum of records."""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
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
    """What records hold beside their content: a masked CRC-32C."""
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
