"""Mutations of files.

A mutation takes a random number generator and the content of a valid file, and returns damaged
content. Structured formats are split into parts, one part is damaged, and the parts are joined with
correct lengths and checksums, so that the damage reaches the code behind the checks of both.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from albert_tf.data.tfrecord import frame_records, masked_crc32c

Mutation = Callable[[Random, bytes], bytes]

_NUMBERS = (
    *b"-1 0 -0 1 2 1.5 7.0 1e300 1e400 1e18 nan -inf 9223372036854775808 0x10 1_000".split(),
    *("٣".encode(), b"9" * 400, b"9" * 50_000, b"-1" + b"0" * 400, b"1" + b"0" * 400 + b".5"),
)
_BYTES = (
    *(text.encode() for text in "\"'\\\t,;=#:-\r\0\x85\u2028"),
    *(b"\r\n", b"\n\n\n", b'""', b'"a""b"', b'"a\nb"', b'"a', b" ", b"", b"../x", b"x" * 3000),
    *(b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3(", b"\xed\xa0\x80"),  # not UTF-8, or a BOM
)
_NESTED = [b"[" * depth + b"1" + b"]" * depth for depth in (10, 2000, 50_000)]
_JSON = (
    *rb"""null true false NaN -Infinity undefined 'text' [1,] [] {} [[]] [null] [0,1] ["a"]
    {"":null} {"type":"x"} "" "text" "0" "-1" "NaN" "../../x" "a/b" "\u0000" "x\ny" "\u00e9\u2028"
    "\ud800" "\udc00\ud800" "\x" """.split(),
    *(*_NUMBERS, *_NESTED, b'" "', b'"' + b"x" * 20_000 + b'"'),
)
_KEYS = b'""', b'"x"', b'"\\u0000"', b'"' + b"x" * 5000 + b'"', b'"vocab_size"', b'"1"'
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[\w.+-]+|.', re.DOTALL)


def change_parts(random: Random, parts: Sequence[bytes], damage: Mutation) -> list[bytes]:
    """Removes, repeats, swaps, joins, inserts or damages a part."""
    parts = list(parts)
    place, other = random.randrange(len(parts)), random.randrange(len(parts))
    change = random.randrange(12)
    if change == 0:
        del parts[place]
    elif change == 1:
        parts[other:other] = [parts[place]] * random.choice((1, 1, 3, 30))
    elif change == 2:
        parts[place], parts[other] = parts[other], parts[place]
    elif change == 3:
        parts[place : place + 2] = [b"".join(parts[place : place + 2])]
    elif change == 4:
        parts.insert(place, random.choice((b"", b"\0" * 16, b" ", b"\t", b"#", b"{}", b"," * 40)))
    else:
        parts[place] = damage(random, parts[place])
    return parts


def damage_bytes(random: Random, data: bytes) -> bytes:
    """Replaces a few runs of bytes: flipped, removed, repeated, zeros, noise."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        start = random.randrange(len(data) + 1)
        longest = random.choice((0, 1, 1, 4, 16, 64, len(data)))
        end = min(len(data), start + random.randint(min(longest, 1), longest))
        part = data[start:end]
        flipped = bytes([part[0] ^ 1 << random.randrange(8)]) + part[1:] if part else b"\1"
        new = (
            *(b"", flipped, flipped, random.randbytes(len(part)), random.choice(_BYTES)),
            *(part * 2, part * 51, b"\0" * len(part), b"\xff" * len(part)),
            part + random.randbytes(random.randrange(1, 17)),
        )
        data = data[:start] + random.choice(new) + (data[end:] if random.random() < 0.9 else b"")
    if random.random() < 0.03:
        return random.choice((b"", b"\n", b"\0" * 64, random.randbytes(100), data * 2))
    return data


def damage_text(random: Random, data: bytes) -> bytes:
    """Changes lines, words, cells, separators or the encoding."""
    change = random.randrange(10)
    if change == 0:
        encoding = random.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig"))
        return data.decode("utf-8", errors="replace").encode(encoding, errors="replace")
    if change < 3:
        old = random.choice([bytes([byte]) for byte in b'\n,\t;" =:|' if byte in data] or [b"\n"])
        new = random.choice((b"\n", b"\r\n", b"\r", b"\0", b"\\n", *_BYTES))
        return data.replace(old, new, random.choice((1, 2, -1)))
    if change < 6:
        return b"\n".join(change_parts(random, data.split(b"\n"), _damage_tokens))
    for _ in range(random.choice((1, 1, 2, 3))):
        data = _damage_tokens(random, data)
    return data


def _damage_tokens(random: Random, data: bytes) -> bytes:
    return b"".join(change_parts(random, _TOKEN.findall(data) or [b""], _damage_token))


def _damage_token(random: Random, token: bytes) -> bytes:
    quoted = b'"' + token.replace(b'"', b'""') + b'"'
    place = random.randrange(len(token) + 1)
    inserted = token[:place] + random.choice(_BYTES) + token[place:]
    return random.choice((quoted, inserted, *map(random.choice, (_BYTES, _NUMBERS, _JSON))))


def damage_json(random: Random, data: bytes) -> bytes:
    """Removes or replaces a value or a key of JSON, or of a line of JSON Lines."""
    try:
        root = [json.loads(data)]
    except ValueError:
        lines = data.rstrip(b"\n").split(b"\n")
        damage = damage_json if len(lines) > 1 else damage_text
        return b"\n".join(change_parts(random, lines, damage)) + b"\n"
    container, key = random.choice(list(_values(root)))
    change, mark, choices = random.randrange(8), "(replaced)", _JSON
    if change == 0:
        del container[key]
    elif change == 1 and isinstance(container, dict):
        container[mark] = container.pop(key)
        choices = _KEYS
    else:
        container[key] = mark
    text = json.dumps(root, indent=1).encode()[1:-1].strip()
    return text.replace(f'"{mark}"'.encode(), random.choice(choices)) + b"\n"


def _values(container: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the containers and keys of all values inside a container."""
    if isinstance(container, dict | list):
        for key in container if isinstance(container, dict) else range(len(container)):
            yield container, key
            yield from _values(container[key])


def damage_safetensors(random: Random, data: bytes) -> bytes:
    """Changes the JSON of the header with a correct length, or only the length."""
    length = int.from_bytes(data[:8], "little")
    header, values = data[8 : 8 + length], data[8 + length :]
    if random.random() < 0.15:
        lengths = 0, 1, 7, length - 1, length + 1, 2**63, 2**64 - 1, 10**8, 10**8 + 1
        return struct.pack("<Q", random.choice(lengths)) + header + values
    header = damage_json(random, header)
    return struct.pack("<Q", len(header)) + header + values


def split_records(data: bytes) -> list[bytes]:
    """Splits a file into records with lengths and checksums. The payload is `record[12:-4]`."""
    records, place = [], 0
    while place < len(data):
        end = place + 16 + int.from_bytes(data[place : place + 8], "little")
        records.append(data[place:end])
        place = end
    return records


def damage_records(
    random: Random, data: bytes, lengths: Sequence[int] = (0, 10**6, 2**31)
) -> bytes:
    """Changes records: zeros, a wrong length, or a valid frame of a damaged payload."""

    def damage(random: Random, record: bytes) -> bytes:
        payload, change = record[12:-4], random.randrange(8)
        if change == 0:
            return b"\0" * len(record)
        if change == 1:
            header = random.choice((*lengths, len(payload) + 1)).to_bytes(8, "little")
            check = masked_crc32c(header) if random.random() < 0.7 else b"\0\0\0\0"
            return header + check + record[12:]
        damage_payload = damage_message if change > 4 else damage_bytes
        short = payload[: random.randrange(4)]
        return bytes(frame_records([short if change == 2 else damage_payload(random, payload)])[0])

    return b"".join(change_parts(random, split_records(data), damage))


def damage_tar(random: Random, data: bytes) -> bytes:
    """Changes a block of a tar file. Headers have a correct checksum."""
    is_gzip = data[:2] == b"\x1f\x8b"
    content = gzip.decompress(data) if is_gzip else data
    used = range(0, len(content.rstrip(b"\0")), 512)
    blocks = change_parts(random, [content[at : at + 512] for at in used], _damage_block)
    content = b"".join(blocks) + bytes(1024)
    return gzip.compress(content, 1, mtime=0) if is_gzip else content


def _damage_block(random: Random, block: bytes) -> bytes:
    if block[257:262] != b"ustar":  # for example the records of a PAX header
        return damage_bytes(random, block)[:512].ljust(512, b"\0")
    header = bytearray(block)
    start, size = random.choice(((0, 100), (124, 12), (156, 1), (156, 1), (345, 155)))
    field = damage_bytes(random, block[start : start + size])
    field = bytes([random.choice(b"01234567xgLKSDVX")]) if size == 1 else field
    header[start : start + size] = field[:size].ljust(size, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def damage_message(random: Random, data: bytes) -> bytes:
    """Changes a field of a protocol buffer. All lengths around it are correct."""
    fields = _split_message(data)
    if not fields:
        return data + b"\x0a\x03" + random.randbytes(3)
    return b"".join(change_parts(random, fields, _damage_field))


def _damage_field(random: Random, field: bytes) -> bytes:
    tag, start = _read_varint(field, 0)
    if random.random() < 0.1:
        tag = random.choice((1, 2, 3, 4, 7, 15, 100)) << 3 | tag & 7
        return _varint(tag) + field[start:]
    if tag & 7 == 0:
        value, _ = _read_varint(field, start)
        powers = (
            2**power + change for power in (0, 7, 8, 31, 32, 40, 62, 63) for change in (-1, 0)
        )
        near = (value + 1) % 2**64, (value - 1) % 2**64
        return _varint(tag) + _varint(random.choice((*powers, 2**64 - 1, *near)))
    if tag & 7 == 2:
        _, start = _read_varint(field, start)
        is_message = _split_message(field[start:])
        content = (damage_message if is_message else damage_bytes)(random, field[start:])
        return _varint(tag) + _varint(len(content)) + content
    bad = b"\0" * 8, b"\xff" * 8, struct.pack("<f", float("nan")) * 2, random.randbytes(8)
    return _varint(tag) + random.choice(bad)[: len(field) - start]


def _split_message(data: bytes) -> list[bytes]:
    """Returns the fields of a message. The result is empty if the bytes are not a message."""
    fields, place = [], 0
    try:
        while place < len(data):
            start = place
            tag, place = _read_varint(data, place)
            if tag & 7 in (0, 2):
                number, place = _read_varint(data, place)
            place += {0: 0, 1: 8, 2: number if tag & 7 == 2 else 0, 5: 4}[tag & 7]
            if not tag >> 3 or place > len(data):
                return []
            fields.append(data[start:place])
    except LookupError:
        return []
    return fields


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns the number at a position, and the position after it."""
    end = place
    while data[end] & 0x80:
        end += 1
    if end - place > 9:
        raise IndexError
    digits = (byte & 0x7F for byte in data[place : end + 1])
    return sum(digit << 7 * index for index, digit in enumerate(digits)), end + 1


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
