"""Ways to damage a file: its bytes, its structure, its values.

A mutation is a function of a random number generator and of the content of a good file.
"""

from __future__ import annotations

import copy
import io
import json
import struct
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.wire import checksum, damage_message

Mutation = Callable[[Random, bytes], bytes]

_ODD_TEXT = (*"\"'\\\t,;=#:-\r\0", "\r\n", "\n\n\n", "\x85", "\u2028", "9" * 30, "9" * 5000)
# Half of a surrogate pair among them, encoded.
_ODD_CODES = (b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3(", b"\xed\xa0\x80")
_ODD_BYTES = (*(text.encode() for text in _ODD_TEXT), *_ODD_CODES)
_ODD_NUMBERS = (
    *b"-1 0 1.5 7.0 1e400 1e18 nan -inf 9223372036854775808 0x10 1_000".split(),
    *("٣".encode(), b"9" * 400, b"9" * 5000),
)


def damage_bytes(random: Random, data: bytes) -> bytes:
    """A few changes of single bytes and of runs of them."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(_BYTE_CHANGES)(random, data)
    return data


def _run(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    longest = random.choice((1, 4, 16, 64, len(data) + 1))
    return start, min(len(data), start + random.randrange(longest + 1))


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return b"\x01"
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def _set(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.randbytes(1) + data[place + 1 :]


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _delete(random: Random, data: bytes) -> bytes:
    start, end = _run(random, data)
    return data[:start] + data[end:]


def _insert(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.randbytes(random.randrange(1, 17)) + data[place:]


def _insert_odd(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(_ODD_BYTES) + data[place:]


def _duplicate(random: Random, data: bytes) -> bytes:
    start, end = _run(random, data)
    return data[:end] + data[start:end] * random.choice((1, 1, 1, 50)) + data[end:]


def _fill(random: Random, data: bytes) -> bytes:
    start, end = _run(random, data)
    return data[:start] + random.choice((b"\0", b"\0", b"\xff")) * (end - start) + data[end:]


def _scramble(random: Random, data: bytes) -> bytes:
    start, end = _run(random, data)
    return data[:start] + random.randbytes(end - start) + data[end:]


def _replace_all(random: Random, data: bytes) -> bytes:
    return random.choice(
        (b"", b"\n", b"\0" * 64, random.randbytes(random.randrange(1, 200)), data * 2)
    )


_BYTE_CHANGES = (
    *((_flip, _set, _cut, _delete, _insert, _insert_odd, _duplicate, _fill, _scramble) * 4),
    _replace_all,
)


def damage_text(random: Random, data: bytes) -> bytes:
    """Lines lost, moved and repeated, numbers changed, other encodings and line ends."""
    for _ in range(random.choice((1, 1, 2))):
        data = random.choice(_TEXT_CHANGES)(random, data)
    return data


def _change_lines(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    place, other = random.randrange(len(lines)), random.randrange(len(lines))
    change = random.randrange(5)
    if change == 0:
        del lines[place]
    elif change == 1:
        lines.insert(other, lines[place])
    elif change == 2:
        lines[place], lines[other] = lines[other], lines[place]
    elif change == 3:
        lines.insert(place, random.choice((b"", b" ", b"\t", b"#", b"{}", b"[]", b"null")))
    else:
        lines[place : place + 2] = [b"".join(lines[place : place + 2])]
    return b"\n".join(lines)


def _change_numbers(random: Random, data: bytes) -> bytes:
    places = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return _insert_odd(random, data)
    start = end = random.choice(places)
    while end < len(data) and (48 <= data[end] <= 57 or data[end] == 46):
        end += 1
    return data[:start] + random.choice(_ODD_NUMBERS) + data[end:]


def _encode_otherwise(random: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", errors="replace")
    encoding = random.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig"))
    return text.encode(encoding, errors="replace")


def _end_lines_otherwise(random: Random, data: bytes) -> bytes:
    return data.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"", b"\0\n", b"\\n")))


def _change_separators(random: Random, data: bytes) -> bytes:
    separators = (b",", b"\t", b";", b'"', b" ", b"=", b":", b"|")
    there = [separator for separator in separators if separator in data] or [b"\n"]
    new = random.choice((*separators, b"", b'""', b"\0"))
    return data.replace(random.choice(there), new, random.choice((1, 2, -1)))


_TEXT_CHANGES = (
    *((_change_lines, _change_numbers, _change_separators, _insert_odd) * 3),
    _encode_otherwise,
    _end_lines_otherwise,
)


class _Raw(NamedTuple):
    """JSON text that stands for itself."""

    text: str


class _Object(NamedTuple):
    """A JSON object, in which a key may be there twice."""

    pairs: list[list[Any]]


# Values as they stand in JSON, some of which it does not allow; between blanks.
_SHORT_JSON = r"""
null true false 0 -1 1 2 7.0 39764.0 1.5 1e300 1e400 1000000000000000000 9223372036854775808 -0 NaN
-Infinity undefined 'text' [1,] [] {} [[]] [null] [0,1] ["a"] {"":null} {"type":"x"}
"" "text" "0" "-1" "NaN" "../../x" "a/b" "\u0000" "x\ny" "\u00e9\u2028" "\ud800" "\udc00\ud800" "\x"
"""
_LONG_JSON = ("1" + "0" * 30, "-1" + "0" * 400, "1" + "0" * 400 + ".5", "9" * 5000, "9" * 50_000)
_ODD_JSON = (*_SHORT_JSON.split(), *_LONG_JSON, '" "', '"' + "x" * 20_000 + '"')


def _odd_value(random: Random) -> _Raw:
    depth = random.choice((10, 200, 2000, 50_000))
    deep = ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth)
    return _Raw(random.choice((*_ODD_JSON, *deep)))


def damage_json(random: Random, data: bytes) -> bytes:
    """Keys lost or doubled, values of other types and sizes, of a document in JSON."""
    tree = json.loads(data, object_pairs_hook=lambda pairs: _Object([list(p) for p in pairs]))
    holder = [tree]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _change_node(random, holder)
    text = _json_text(holder[0])
    if random.random() < 0.05:
        text += random.choice((" ", "\n{}", "]", "}", ",", "\0", "garbage"))
    return text.encode("utf-8", errors="surrogatepass")


def _change_node(random: Random, holder: list[Any]) -> None:
    """Changes one value somewhere below."""
    places = list(_places(holder))
    # What lies deep is more often hit than what lies high, for there is more of it.
    container, key = random.choice(places)
    if isinstance(container, _Object):
        change = random.randrange(6)
        if change == 0:
            del container.pairs[key]
        elif change == 1:
            container.pairs.insert(
                random.randrange(len(container.pairs) + 1),
                [container.pairs[key][0], _odd_value(random)],
            )
        elif change == 2:
            container.pairs[key][0] = random.choice(("", "x", "\0", "x" * 5000, "vocab_size", "1"))
        else:
            container.pairs[key][1] = _other_value(random, places)
        return
    change = random.randrange(5)
    if change == 0 and container is not holder:
        del container[key]
    elif change == 1 and container is not holder:
        container[key:key] = [container[key]] * random.choice((1, 1, 30))
    else:
        container[key] = _other_value(random, places)


def _other_value(random: Random, places: list[tuple[Any, int]]) -> Any:
    if random.random() < 0.7:
        return _odd_value(random)
    container, key = random.choice(places)
    value = container.pairs[key][1] if isinstance(container, _Object) else container[key]
    value = copy.deepcopy(value)  # lest the tree become a circle
    return random.choice((value, value, [value], _Object([["x", value]])))


def _places(holder: Any) -> Any:
    """Every container with every key in it, but the topmost document only once in a while."""
    if isinstance(holder, _Object):
        for key, (_, value) in enumerate(holder.pairs):
            yield holder, key
            yield from _places(value)
    elif isinstance(holder, list):
        for key, value in enumerate(holder):
            yield holder, key
            yield from _places(value)


def _json_text(node: Any) -> str:
    if isinstance(node, _Raw):
        return node.text
    if isinstance(node, _Object):
        return "{" + ", ".join(f"{json.dumps(k)}: {_json_text(v)}" for k, v in node.pairs) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(_json_text, node)) + "]"
    return json.dumps(node)


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
        row = random.choice(rows)
        place = random.randrange(len(row) + 1)
        change = random.randrange(7)
        odd = random.choice((*_ODD_BYTES, *_ODD_NUMBERS, b"", b" ", b'"a""b"', b'"a\nb"', b'"a'))
        if change == 0:
            row[place : place + 1] = []
        elif change == 1:
            row.insert(place, odd)
        elif change == 2 and row:
            row.append(random.choice(row))
        elif change == 3:
            row.extend([b""] * random.choice((1, 3, 40)))
        elif change == 4 and row:
            place = min(place, len(row) - 1)
            row[place] = b'"' + row[place].replace(b'"', b'""') + b'"'
        else:
            row[place : place + 1] = [odd]
    ending = random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    return ending.join(separator.join(row) for row in rows) + random.choice((b"", ending))


def frame(payload: bytes) -> bytes:
    """A TFRecord, written by hand so that it may be empty."""
    length = struct.pack("<Q", len(payload))
    return length + checksum(length) + payload + checksum(payload)


def payloads_of(data: bytes) -> list[bytes]:
    """The payloads of good records."""
    payloads, place = [], 0
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        payloads.append(data[place + 12 : place + 12 + length])
        place += 16 + length
    return payloads


_LENGTHS = (0, 10**6, 2**31)
# Where its checksum fits, TensorFlow takes a length for granted, and ends when it gets no memory.
_ENORMOUS_LENGTHS = (*_LENGTHS, 2**40, 2**63, 2**64 - 1)


def damage_records(random: Random, data: bytes) -> bytes:
    """Records that are empty, short, zeros, of a false length, or sound around damage."""
    return _damaged_records(random, data, _LENGTHS)


def damage_records_at_will(random: Random, data: bytes) -> bytes:
    """The same with lengths beyond all memory, and a checksum that fits them."""
    return _damaged_records(random, data, _ENORMOUS_LENGTHS)


def _damaged_records(random: Random, data: bytes, lengths: Sequence[int]) -> bytes:
    records = [frame(payload) for payload in payloads_of(data)]
    place = random.randrange(len(records))
    payload = records[place][12:-4]
    change = random.randrange(10)
    if change == 0:
        records[place] = frame(b"")
    elif change == 1:
        records[place] = frame(payload[: random.randrange(4)])
    elif change in (2, 3):
        records[place] = frame(damage_bytes(random, payload))
    elif change in (4, 5):
        records[place] = frame(damage_message(random, payload))
    elif change == 6:
        records[place : random.choice((place, place + 1))] = [
            b"\0" * random.choice((12, 16, 32, 64, len(records[place])))
        ]
    elif change == 7:
        length = random.choice((*lengths, len(payload) + 1))
        header = struct.pack("<Q", length)
        check = checksum(header) if random.random() < 0.7 else b"\0\0\0\0"
        records[place] = header + check + records[place][12:]
    elif change == 8:
        records[place:place] = [random.choice(records)] * random.choice((1, 3))
    else:
        del records[place]
    return b"".join(records)


def damage_header_of_safetensors(random: Random, data: bytes) -> bytes:
    """The header's JSON changed, its length set right, or the length changed alone."""
    length = int.from_bytes(data[:8], "little")
    header, values = data[8 : 8 + length], data[8 + length :]
    if random.random() < 0.15:
        length = random.choice(
            (0, 1, 7, length - 1, length + 1, 2**63, 2**64 - 1, 10**8, 10**8 + 1)
        )
        return struct.pack("<Q", length) + header + values
    header = damage_json(random, header)
    return struct.pack("<Q", len(header)) + header + values


def damage_zip(random: Random, data: bytes) -> bytes:
    """A member of a zip file changed, with its checksum set right."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return damage_bytes(random, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = random.randrange(len(members))
    name, content = members[place]
    change = random.randrange(8)
    if change == 0:
        del members[place]
    elif change == 1:
        members[place] = (name + "x", content)
    else:
        members[place] = (name, damage_bytes(random, content))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()
