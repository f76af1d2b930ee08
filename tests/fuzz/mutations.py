"""Mutations of files: of their bytes, or of one of their parts.

A mutation is a function of a random number generator and of the content of a good file. Formats
differ in how a file is split into parts, in how one part is damaged, and in how the parts are
joined again, with lengths and checksums that fit.
"""

from __future__ import annotations

import gzip
import io
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from albert_tf.data.tfrecord import frame_records, masked_crc32c

Mutation = Callable[[Random, bytes], bytes]

_ODD_TEXT = (*"\"'\\\t,;=#:-\r\0", "\r\n", "\n\n\n", "\x85", "\u2028", "9" * 30, "9" * 5000)
_ODD_BYTES = (
    *(text.encode() for text in _ODD_TEXT),
    *(b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3(", b"\xed\xa0\x80"),  # the last: a surrogate
)
_ODD_NUMBERS = (
    *b"-1 0 1.5 7.0 1e400 1e18 nan -inf 9223372036854775808 0x10 1_000".split(),
    *("٣".encode(), b"9" * 400, b"9" * 5000),
)


def change_parts(
    random: Random, parts: Sequence[bytes], damage: Mutation, odd: Sequence[bytes] = ()
) -> list[bytes]:
    """Removes, repeats, swaps, joins or damages a part, or inserts an unusual one."""
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
    elif change == 4 and odd:
        parts.insert(place, random.choice(odd))
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
            *(b"", flipped, flipped, random.randbytes(len(part)), random.choice(_ODD_BYTES)),
            *(part * 2, part * 51, b"\0" * len(part), b"\xff" * len(part)),
            part + random.randbytes(random.randrange(1, 17)),
        )
        data = data[:start] + random.choice(new) + (data[end:] if random.random() < 0.9 else b"")
    if random.random() < 0.03:
        return random.choice((b"", b"\n", b"\0" * 64, random.randbytes(100), data * 2))
    return data


def damage_text(random: Random, data: bytes) -> bytes:
    """Changes a line, or all separators, line ends or the encoding."""
    for _ in range(random.choice((1, 1, 2))):
        change = random.randrange(14)
        if change < 9:
            odd = b" ", b"\t", b"#", b"{}", b"[]", b"null", b""
            data = b"\n".join(change_parts(random, data.split(b"\n"), _damage_line, odd))
        elif change < 12:
            separators = [bytes([separator]) for separator in b',\t;" =:|']
            there = [separator for separator in separators if separator in data] or [b"\n"]
            new = random.choice((*separators, b"", b'""', b"\0"))
            data = data.replace(random.choice(there), new, random.choice((1, 2, -1)))
        elif change == 12:
            encodings = "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig"
            text = data.decode("utf-8", errors="replace")
            data = text.encode(random.choice(encodings), errors="replace")
        else:
            data = data.replace(
                b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"", b"\0\n", b"\\n"))
            )
    return data


def _damage_line(random: Random, line: bytes) -> bytes:
    numbers = list(re.finditer(rb"[0-9][0-9.]*", line))
    if numbers and random.random() < 0.6:
        start, end = random.choice(numbers).span()
        return line[:start] + random.choice(_ODD_NUMBERS) + line[end:]
    place = random.randrange(len(line) + 1)
    return line[:place] + random.choice(_ODD_BYTES) + line[place:]


def damage_table(random: Random, data: bytes) -> bytes:
    """Changes, moves, removes or adds cells of a table, or leaves quotes open."""
    separator = b"\t" if b"\t" in data else b","
    rows = data.rstrip(b"\n").split(b"\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        place = random.randrange(len(rows))
        odd = b"", b'"a""b"', b'"a\nb"', b'"a'
        cells = change_parts(random, rows[place].split(separator), _damage_cell, odd)
        rows[place] = separator.join(cells + [b""] * random.choice((*(0,) * 9, 1, 3, 40)))
    ending = random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    return ending.join(rows) + random.choice((b"", ending))


def _damage_cell(random: Random, cell: bytes) -> bytes:
    quoted = b'"' + cell.replace(b'"', b'""') + b'"'
    return random.choice((*_ODD_BYTES, *_ODD_NUMBERS, b"", b" ", b'"a', *[quoted] * 8))


# Values as they are written in JSON, some of which it does not allow, between blanks.
_SHORT_JSON = rb"""
null true false 0 -1 1 2 7.0 39764.0 1.5 1e300 1e400 1000000000000000000 9223372036854775808 -0 NaN
-Infinity undefined 'text' [1,] [] {} [[]] [null] [0,1] ["a"] {"":null} {"type":"x"}
"" "text" "0" "-1" "NaN" "../../x" "a/b" "\u0000" "x\ny" "\u00e9\u2028" "\ud800" "\udc00\ud800" "\x"
"""
_LONG_JSON = b"1" + b"0" * 30, b"-1" + b"0" * 400, b"1" + b"0" * 400 + b".5", b"9" * 50_000
_ODD_JSON = (*_SHORT_JSON.split(), *_LONG_JSON, b'" "', b'"' + b"x" * 20_000 + b'"')
_ODD_KEYS = b'""', b'"x"', b'"\\u0000"', b'"' + b"x" * 5000 + b'"', b'"vocab_size"', b'"1"'
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{},]')
_JSON_KEY = re.compile(rb'\s*"(?:[^"\\]|\\.)*"\s*:')


def damage_json(random: Random, data: bytes) -> bytes:
    """Removes, repeats and moves members; changes types and sizes of keys and values."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        containers = _json_containers(data)
        if not containers:
            return _odd_json(random)
        places = random.choice(containers)
        members = [data[start + 1 : end] for start, end in pairwise(places)]
        members = change_parts(random, members, _damage_member)
        data = data[: places[0] + 1] + b",".join(members) + data[places[-1] :]
    if random.random() < 0.05:
        data += random.choice((b" ", b"\n{}", b"]", b"}", b",", b"\0", b"garbage"))
    return data


def _json_containers(data: bytes) -> list[list[int]]:
    """Returns the positions of brackets and commas of each object and array."""
    found: list[list[int]] = []
    opened: list[list[int]] = []
    for token in _JSON_TOKEN.finditer(data):
        if token[0] in b"[{":
            opened.append([token.start()])
        elif opened and token[0] == b",":
            opened[-1].append(token.start())
        elif opened and token[0] in b"]}":
            found.append([*opened.pop(), token.start()])
    return found


def _damage_member(random: Random, member: bytes) -> bytes:
    key = _JSON_KEY.match(member)
    start = key.end() if key else 0
    change = random.randrange(8)
    if key and change == 0:
        return random.choice(_ODD_KEYS) + b":" + member[start:]
    if key and change == 1:  # its key twice
        return member[:start] + _odd_json(random) + b"," + member
    if change == 2:
        return member[:start] + random.choice((b"[%s]", b'{"x": %s}')) % member[start:]
    return member[:start] + _odd_json(random)


def _odd_json(random: Random) -> bytes:
    if random.random() < 0.95:
        return random.choice(_ODD_JSON)
    depth = random.choice((10, 200, 2000, 50_000))
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")))
    return opened * depth + b"1" + closed * depth


def damage_json_lines(random: Random, data: bytes) -> bytes:
    """Changes a line of JSON Lines."""
    lines = data.rstrip(b"\n").split(b"\n")
    return b"\n".join(change_parts(random, lines, damage_json)) + b"\n"


def damage_header_of_safetensors(random: Random, data: bytes) -> bytes:
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


def _record_mutation(*lengths: int) -> Mutation:
    """Returns a mutation of records: empty, short, zeros, wrong length, or valid around damage."""

    def damage(random: Random, record: bytes) -> bytes:
        payload, change = record[12:-4], random.randrange(8)
        if change == 0:
            return b"\0" * len(record)
        if change == 1:
            header = random.choice((*lengths, len(payload) + 1)).to_bytes(8, "little")
            check = masked_crc32c(header) if random.random() < 0.7 else b"\0\0\0\0"
            return header + check + record[12:]
        short = b"", payload[: random.randrange(4)]
        damaged = [damage(random, payload) for damage in (damage_bytes, damage_message) * 2]
        return bytes(frame_records([[*short, *damaged][change - 2]])[0])

    zeros = [b"\0" * count for count in (12, 16, 32, 64)]
    return lambda random, data: b"".join(change_parts(random, split_records(data), damage, zeros))


damage_records = _record_mutation(0, 10**6, 2**31)
# TensorFlow allocates such lengths if their checksum fits, and aborts.
damage_records_at_will = _record_mutation(0, 10**6, 2**31, 2**40, 2**63, 2**64 - 1)


def damage_zip(random: Random, data: bytes) -> bytes:
    """Changes a member of a zip file, with a correct checksum."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return damage_bytes(random, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [name.encode() + b"\0" + archive.read(name) for name in archive.namelist()]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member in change_parts(random, members, _damage_zip_member):
            name, _, content = member.partition(b"\0")
            archive.writestr(zipfile.ZipInfo(name.decode(errors="replace")), content)
    return file.getvalue()


def _damage_zip_member(random: Random, member: bytes) -> bytes:
    name, _, content = member.partition(b"\0")
    if random.random() < 0.2:
        return name + b"x\0" + content
    return name + b"\0" + damage_bytes(random, content)


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
    field = random.choice(b"01234567xgLKSDVX").to_bytes() if size == 1 else field
    header[start : start + size] = field[:size].ljust(size, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


_ODD_FIELDS = (0, 1, 2, 7, 127, 128, 255, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1)


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
    elif tag & 7 == 0:
        value, _ = _read_varint(field, start)
        near = (value + 1) % 2**64, (value - 1) % 2**64
        return _varint(tag) + _varint(random.choice((*_ODD_FIELDS, *near)))
    elif tag & 7 == 2:
        _, start = _read_varint(field, start)
        damage = damage_message if _split_message(field[start:]) else _damage_value
        content = damage(random, field[start:])
        return _varint(tag) + _varint(len(content)) + content
    else:
        bad = b"\0" * 8, b"\xff" * 8, struct.pack("<f", float("nan")) * 2, random.randbytes(8)
        return _varint(tag) + random.choice(bad)[: len(field) - start]
    return _varint(tag) + field[start:]


def _damage_value(random: Random, value: bytes) -> bytes:
    start = random.randrange(len(value) + 1)
    odd = (b"", b"\0", b"\xff\xfe", b"../x", "é".encode(), b"x" * 3000, random.randbytes(5))
    return value[:start] + random.choice(odd) + value[start + random.randrange(4) :]


def _split_message(data: bytes) -> list[bytes]:
    """Returns the fields of a message. The result is empty if the bytes are not a message."""
    fields, place = [], 0
    try:
        while place < len(data):
            start = place
            tag, place = _read_varint(data, place)
            size = {0: 0, 1: 8, 2: 0, 5: 4}[tag & 7]
            if tag & 7 in (0, 2):
                number, place = _read_varint(data, place)
                size = number if tag & 7 else 0
            place += size
            if not tag >> 3 or place > len(data):
                return []
            fields.append(data[start:place])
    except LookupError:
        return []
    return fields


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns the number at a position, and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise IndexError


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
