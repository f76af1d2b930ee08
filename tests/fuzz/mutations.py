"""Ways to damage a file: its bytes, its structure, its values.

A mutation is a function of a random number generator and of the content of a good file.
"""

from __future__ import annotations

import gzip
import io
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
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


def damage_bytes(random: Random, data: bytes) -> bytes:
    """A few runs of bytes replaced: flipped, lost, repeated, zeros, noise."""
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
    """Lines lost, moved and repeated, numbers changed, other separators, encodings, line ends."""
    for _ in range(random.choice((1, 1, 2))):
        change = random.randrange(14)
        if change < 4:
            data = b"\n".join(_change_items(random, data.split(b"\n"), b"| |\t|#|{}|[]|null"))
        elif change < 7:
            numbers = list(re.finditer(rb"[0-9][0-9.]*", data))
            start, end = random.choice(numbers).span() if numbers else (0, 0)
            data = data[:start] + random.choice(_ODD_NUMBERS) + data[end:]
        elif change < 10:
            separators = [bytes([separator]) for separator in b',\t;" =:|']
            there = [separator for separator in separators if separator in data] or [b"\n"]
            new = random.choice((*separators, b"", b'""', b"\0"))
            data = data.replace(random.choice(there), new, random.choice((1, 2, -1)))
        elif change < 12:
            place = random.randrange(len(data) + 1)
            data = data[:place] + random.choice(_ODD_BYTES) + data[place:]
        elif change < 13:
            encodings = "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig"
            text = data.decode("utf-8", errors="replace")
            data = text.encode(random.choice(encodings), errors="replace")
        else:
            endings = b"\r\n", b"\r", b"\n\n", b"", b"\0\n", b"\\n"
            data = data.replace(b"\n", random.choice(endings))
    return data


def _change_items(random: Random, items: list[bytes], odd: bytes) -> list[bytes]:
    """One of some lines or cells lost, repeated, swapped, joined with the next, or an odd one."""
    place, other = random.randrange(len(items)), random.randrange(len(items))
    change = random.randrange(5)
    if change == 0:
        del items[place]
    elif change == 1:
        items.insert(other, items[place])
    elif change == 2:
        items[place], items[other] = items[other], items[place]
    elif change == 3:
        items.insert(place, random.choice(odd.split(b"|")))
    else:
        items[place : place + 2] = [b"".join(items[place : place + 2])]
    return items


# Values as they stand in JSON, some of which it does not allow; between blanks.
_SHORT_JSON = rb"""
null true false 0 -1 1 2 7.0 39764.0 1.5 1e300 1e400 1000000000000000000 9223372036854775808 -0 NaN
-Infinity undefined 'text' [1,] [] {} [[]] [null] [0,1] ["a"] {"":null} {"type":"x"}
"" "text" "0" "-1" "NaN" "../../x" "a/b" "\u0000" "x\ny" "\u00e9\u2028" "\ud800" "\udc00\ud800" "\x"
"""
_LONG_JSON = b"1" + b"0" * 30, b"-1" + b"0" * 400, b"1" + b"0" * 400 + b".5", b"9" * 50_000
_ODD_JSON = (*_SHORT_JSON.split(), *_LONG_JSON, b'" "', b'"' + b"x" * 20_000 + b'"')
_ODD_KEYS = b'""', b'"x"', b'"\\u0000"', b'"' + b"x" * 5000 + b'"', b'"vocab_size"', b'"1"'
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^][{}:,"\s]+|[][{}:]')


def damage_json(random: Random, data: bytes) -> bytes:
    """Keys lost or doubled, values of other types and sizes, of a document in JSON."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        data = _change_json(random, data)
    if random.random() < 0.05:
        data += random.choice((b" ", b"\n{}", b"]", b"}", b",", b"\0", b"garbage"))
    return data


def _change_json(random: Random, data: bytes) -> bytes:
    members = _json_members(data)
    if not members:
        return random.choice(_ODD_JSON)
    start, value, end = random.choice(members)
    change = random.randrange(10)
    if change == 0 and start:  # lost, with a comma beside it
        before, behind = data[:start].rstrip(), data[end:].lstrip()
        if behind[:1] == b",":
            return before + behind[1:]
        return before.removesuffix(b",") + behind
    if change == 1 and start:
        return data[:end] + (b"," + data[start:end]) * random.choice((1, 1, 30)) + data[end:]
    if change == 2 and start < value:  # its key twice
        return data[:start] + data[start:value] + _odd_json(random) + b"," + data[start:]
    if change == 3 and start < value:
        return data[:start] + random.choice(_ODD_KEYS) + b":" + data[value:]
    _, other, other_end = random.choice(members)
    copied = data[other:other_end]
    new = random.choice((copied, b"[" + copied + b"]", b'{"x": ' + copied + b"}"))
    return data[:value] + (new if random.random() < 0.3 else _odd_json(random)) + data[end:]


def _odd_json(random: Random) -> bytes:
    if random.random() < 0.95:
        return random.choice(_ODD_JSON)
    depth = random.choice((10, 200, 2000, 50_000))
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")))
    return opened * depth + b"1" + closed * depth


def _json_members(data: bytes) -> list[tuple[int, int, int]]:
    """Of every value: where its key begins, if it has one, where it begins itself, and its end."""
    members, opened, key = [], [], None
    for token in _JSON_TOKEN.finditer(data):
        if token[0] == b":":
            key = members.pop()[0] if members else None
        elif token[0] in b"[{":
            opened.append((token.start() if key is None else key, token.start()))
            key = None
        elif token[0] not in b"]}":
            members.append((token.start() if key is None else key, *token.span()))
            key = None
        elif opened:
            members.append((*opened.pop(), token.end()))
    return members


def damage_json_lines(random: Random, data: bytes) -> bytes:
    """The same of one line of JSON lines."""
    lines = data.rstrip(b"\n").split(b"\n")
    place = random.randrange(len(lines))
    lines[place] = damage_json(random, lines[place])
    return b"\n".join(lines) + b"\n"


def damage_table(random: Random, data: bytes) -> bytes:
    """Cells of a table changed, moved, lost, quoted by halves."""
    separator = b"\t" if b"\t" in data else b","
    rows = [line.split(separator) for line in data.rstrip(b"\n").split(b"\n")]
    for _ in range(random.choice((1, 1, 2, 3))):
        row = random.choice(rows) or [b""]
        place = random.randrange(len(row))
        change = random.randrange(7)
        if change < 3:
            _change_items(random, row, b'|"a""b"|"a\nb"|"a')
        elif change == 3:
            row.extend([b""] * random.choice((1, 3, 40)))
        elif change == 4:
            row[place] = b'"' + row[place].replace(b'"', b'""') + b'"'
        else:
            row[place] = random.choice((*_ODD_BYTES, *_ODD_NUMBERS, b"", b" ", b'"a'))
    ending = random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    return ending.join(separator.join(row) for row in rows) + random.choice((b"", ending))


def payloads_of(data: bytes) -> list[bytes]:
    """The payloads of good records."""
    payloads, place = [], 0
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        payloads.append(data[place + 12 : place + 12 + length])
        place += 16 + length
    return payloads


def checksum(data: bytes) -> bytes:
    """What records hold beside their content."""
    return masked_crc32c(data)


def damage_records(
    random: Random, data: bytes, lengths: Sequence[int] = (0, 10**6, 2**31)
) -> bytes:
    """Records that are empty, short, zeros, of a false length, or sound around damage."""
    payloads = payloads_of(data)
    records = frame_records(payloads)
    place = random.randrange(len(records))
    payload, change = payloads[place], random.randrange(10)
    if change < 6:
        short = payload[: random.randrange(4)]
        changed = damage_bytes(random, payload), damage_message(random, payload)
        records[place] = frame_records([(b"", short, *changed * 2)[change]])[0]
    elif change == 6:
        zeros = b"\0" * random.choice((12, 16, 32, 64, len(records[place])))
        records[place : random.choice((place, place + 1))] = [zeros]
    elif change == 7:
        header = random.choice((*lengths, len(payload) + 1)).to_bytes(8, "little")
        check = checksum(header) if random.random() < 0.7 else b"\0\0\0\0"
        records[place] = header + check + records[place][12:]
    elif change == 8:
        records[place:place] = [random.choice(records)] * random.choice((1, 3))
    else:
        del records[place]
    return b"".join(records)


def damage_records_at_will(random: Random, data: bytes) -> bytes:
    """The same with lengths beyond all memory, and a checksum that fits them.

    TensorFlow takes such a length for granted, and ends when it gets no memory.
    """
    return damage_records(random, data, (0, 10**6, 2**31, 2**40, 2**63, 2**64 - 1))


def damage_header_of_safetensors(random: Random, data: bytes) -> bytes:
    """The header's JSON changed, its length set right, or the length changed alone."""
    length = int.from_bytes(data[:8], "little")
    header, values = data[8 : 8 + length], data[8 + length :]
    if random.random() < 0.15:
        lengths = 0, 1, 7, length - 1, length + 1, 2**63, 2**64 - 1, 10**8, 10**8 + 1
        return struct.pack("<Q", random.choice(lengths)) + header + values
    header = damage_json(random, header)
    return struct.pack("<Q", len(header)) + header + values


def damage_zip(random: Random, data: bytes) -> bytes:
    """A member of a zip file changed, with its checksum set right."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return damage_bytes(random, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    name, content = members.pop(place := random.randrange(len(members)))
    change = random.randrange(8)
    if change == 1:
        members.insert(place, (name + "x", content))
    elif change:
        members.insert(place, (name, damage_bytes(random, content)))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def damage_tar(random: Random, data: bytes) -> bytes:
    """Changes a header, with a correct checksum, or other blocks of a tar file."""
    is_gzip = data[:2] == b"\x1f\x8b"
    content = gzip.decompress(data) if is_gzip else data
    blocks = [content[place : place + 512] for place in range(0, len(content), 512)]
    headers = [place for place, block in enumerate(blocks) if block[257:262] == b"ustar"]
    place, change = random.choice(headers), random.randrange(6)
    if change < 3:
        header = bytearray(blocks[place])
        start, size = random.choice(((0, 100), (124, 12), (156, 1), (156, 1), (345, 155)))
        field = damage_bytes(random, bytes(header[start : start + size]))
        field = random.choice(b"01234567xgLKSDVX").to_bytes() if size == 1 else field
        header[start : start + size] = field[:size].ljust(size, b"\0")
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        blocks[place] = bytes(header)
    elif change == 3:  # often the records of a PAX header
        blocks[place + 1] = damage_bytes(random, blocks[place + 1])[:512].ljust(512, b"\0")
    elif change == 4:
        blocks[place:place] = blocks[random.choice(headers) :][: random.choice((1, 2, 4))]
    else:
        del blocks[place : place + random.choice((1, 2))]
    content = b"".join(blocks)
    return gzip.compress(content, 1, mtime=0) if is_gzip else content


_ODD_FIELDS = (0, 1, 2, 7, 127, 128, 255, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1)


def damage_message(random: Random, data: bytes) -> bytes:
    """Changes one field somewhere in a protocol buffer; all lengths around it fit."""
    fields = _parse_message(data)
    if not fields:
        return data + b"\x0a\x03" + random.randbytes(3)
    place = random.randrange(len(fields))
    tag, value = fields[place]
    change = random.randrange(6)
    if isinstance(value, bytes) and tag & 7 == 2 and value and random.random() < 0.75:
        damage = damage_message if _parse_message(value) else _damage_value
        fields[place] = tag, damage(random, value)
    elif change == 0:
        del fields[place]
    elif change == 1:
        fields[place:place] = [fields[place]] * random.choice((1, 2, 20))
    elif change == 2:
        other = random.randrange(len(fields))
        fields[place], fields[other] = fields[other], fields[place]
    elif change == 3:
        fields[place] = random.choice((1, 2, 3, 4, 7, 15, 100)) << 3 | tag & 7, value
    elif isinstance(value, int):
        near = (value + 1) % 2**64, (value - 1) % 2**64
        fields[place] = tag, random.choice((*_ODD_FIELDS, *near))
    elif tag & 7 == 2:
        fields[place] = tag, _damage_value(random, value)
    else:
        bad = b"\0" * 8, b"\xff" * 8, struct.pack("<f", float("nan")) * 2, random.randbytes(8)
        fields[place] = tag, random.choice(bad)[: len(value)]
    return b"".join(_field(tag, value) for tag, value in fields)


def _damage_value(random: Random, value: bytes) -> bytes:
    start = random.randrange(len(value) + 1)
    odd = (b"", b"\0", b"\xff\xfe", b"../x", "é".encode(), b"x" * 3000, random.randbytes(5))
    return value[:start] + random.choice(odd) + value[start + random.randrange(4) :]


def _parse_message(data: bytes) -> list[tuple[int, int | bytes]] | None:
    """The tags and values of a message's fields; None where the bytes are no message."""
    fields: list[tuple[int, int | bytes]] = []
    place = 0
    try:
        while place < len(data):
            tag, place = _read_varint(data, place)
            value: int | bytes
            if tag & 7 == 0:
                value, place = _read_varint(data, place)
            else:
                width = {1: 8, 5: 4}.get(tag & 7)
                if tag & 7 == 2:
                    width, place = _read_varint(data, place)
                if width is None:
                    return None
                value, place = data[place : place + width], place + width
            if not tag >> 3 or place > len(data):
                return None
            fields.append((tag, value))
    except IndexError:
        return None
    return fields


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
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


def _field(tag: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(tag) + _varint(value)
    return _varint(tag) + (_varint(len(value)) if tag & 7 == 2 else b"") + value
