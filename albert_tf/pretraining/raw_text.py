"""Reads raw text in parts of about a megabyte, so that files need not fit in memory.

The content of a file determines its format: plain text, documents between `<doc>` and `</doc>`, as
a Wikipedia extractor writes them, or JSON Lines. Compressed files are decompressed.
"""

import bz2
import html
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from albert_tf.data.errors import UserError, extra_packages
from albert_tf.data.files import decode_utf8, encoding_error
from albert_tf.data.streams import open_input, source_name
from albert_tf.data.strict_json import JsonError, JsonValue
from albert_tf.pretraining.corpus import find_cut

PART_BYTES = 1 << 20
_LONGEST_JSON = 64 << 20  # bytes of a line
_BYTES_AT_ONCE = 1 << 10  # gzip and Zstandard can expand them to 32 MiB
_MOST_MEMORY = 1 << 29  # bytes that a file may request for decompression
_DECOMPRESSORS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY),
    b"\x28\xb5\x2f\xfd": lambda: _zstandard_decompressor(),
}
_MARKUP = re.compile(rb"\s*<(\?xml|mediawiki|!doctype|html)\b", re.IGNORECASE)
# For each format: how a file starts, and the last end of a document in a part.
_FORMATS = {
    "<doc>": (rb"\s*<doc[ >]", rb"(?s:.*)</doc>\s*\n"),
    "JSON Lines": (rb'\s*(\{\s*"|\[\s*\{)', rb"(?s:.*)\n"),
    "plain text": (rb"", rb"(?s:.*\n)(?=\r?\n)"),
}
_DOC_START = re.compile(r'<doc\b(?:.*">|[^>]*>)')
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|\w+);")


def _zstandard_decompressor() -> Any:
    with extra_packages("languages"):
        import zstandard
    return zstandard.ZstdDecompressor().decompressobj()


class Part(NamedTuple):
    """A part of a file. It ends with a document unless the document is longer than a part."""

    path: str
    line: int  # number of the first line, from 1
    format: str  # a key of `_FORMATS`
    data: bytes
    is_cut: bool = False  # whether a line that is longer than a part was cut at the end


def read_parts(path: str, update: Callable[[int], Any]) -> Iterator[Part]:
    """Yields the parts of a file or of the standard input, "-".

    Calls `update` with the number of bytes of each read. Raises ValueError for damaged files.
    """
    line, kind, data, least = 1, "", bytearray(), PART_BYTES
    with open_input(path) as file:
        for block in _contents(iter(lambda: file.read(_BYTES_AT_ONCE), b""), path, update):
            data += block
            while len(data) > least:
                kind = kind or _detect_format(data, path)
                end, is_cut = _find_end(data, kind)
                # A line without an end is not searched again after every block.
                least = PART_BYTES if end else len(data) + _BYTES_AT_ONCE * 64
                if not end:
                    break
                yield Part(path, line, kind, bytes(data[:end]), is_cut)
                line += data.count(b"\n", 0, end)
                del data[:end]
            if len(data) > _LONGEST_JSON:
                raise UserError(
                    f"{source_name(path)}, line {line} has more than {_LONGEST_JSON:,} bytes. "
                    "Write one document per line (JSON Lines)."
                )
    if data:
        yield Part(path, line, kind or _detect_format(data, path), bytes(data))


def _contents(blocks: Iterator[bytes], path: str, update: Callable[[int], Any]) -> Iterator[bytes]:
    """Yields the decompressed content of a file, which may consist of several streams, in parts."""
    first = next(blocks, b"")
    create = next((_DECOMPRESSORS[sign] for sign in _DECOMPRESSORS if first.startswith(sign)), None)
    stream: Any = create() if create else None
    for data in chain([first], blocks):
        update(len(data))
        while create and (data or not (stream.eof or getattr(stream, "needs_input", True))):
            stream = create() if stream.eof else stream
            limit = [PART_BYTES] if hasattr(stream, "needs_input") else []  # bz2, xz
            try:
                yield stream.decompress(data, *limit)
            except Exception as error:  # every package has its own class
                raise UserError(f"{source_name(path)} cannot be decompressed: {error}") from error
            data = stream.unused_data.lstrip(b"\0") if stream.eof else b""
        yield data
    if stream and not stream.eof:
        raise UserError(f"{source_name(path)} is truncated: the end of its content is missing.")


def _detect_format(data: bytes | bytearray, path: str) -> str:
    data = data[:PART_BYTES].removeprefix(b"\xef\xbb\xbf")
    if _MARKUP.match(data):
        raise UserError(
            f"{source_name(path)} contains HTML or XML. Extract the text first, for example with "
            "WikiExtractor."
        )
    if re.search(r"\.(json|jsonl|ndjson)(\.\w+)?$", path):
        return "JSON Lines"
    return next(name for name, (start, _) in _FORMATS.items() if re.match(start, data))


def _find_end(data: bytearray, kind: str) -> tuple[int, bool]:
    """Returns where the first part ends, 0 if more data is needed, and whether it cuts a line."""
    for end in (_FORMATS[kind][1], rb"(?s:.*)\n"):
        if found := re.compile(end).match(data, 0, PART_BYTES):
            return found.end(), False
    if kind == "JSON Lines":
        return data.find(b"\n") + 1, False
    return find_cut(data, 0, PART_BYTES), True


def read_documents(part: Part, text_key: str) -> list[list[str]]:
    """Returns the paragraphs of each document in a part, without surplus white space.

    The first document continues the last document of the previous part of the file. If a document
    starts or ends with the part, the first or the last list is empty. Raises ValueError if the part
    is not text, or is JSON without a text as the value of `text_key`.
    """
    where = source_name(part.path)
    text = decode_utf8(part.data, where, line=part.line).replace("\ufeff", "")
    if part.data.count(b"\0") > len(part.data) / 100:  # UTF-16, or a binary file
        raise encoding_error(part.data, where, part.data.find(b"\0"), line=part.line)
    documents: Iterable[list[str]]
    if part.format == "JSON Lines":
        documents = _json_documents(text, part, text_key)
    else:
        split = _split_at_tags if part.format == "<doc>" else _split_at_empty_lines
        documents = split(text.splitlines())
    return [list(filter(None, map(_clean, lines))) for lines in documents]


def _clean(line: str) -> str:
    """Removes surplus white space, and replaces escaped characters such as `&amp;`."""
    if "&" in line:
        line = _REFERENCE.sub(lambda found: html.unescape(found[0]), line)
    return " ".join(line.split())


def _json_documents(text: str, part: Part, text_key: str) -> Iterator[list[str]]:
    yield []
    for number, line in enumerate(text.split("\n"), part.line):
        if not line.strip():
            continue
        where = f"{source_name(part.path)}, line {number}"
        try:
            found = JsonValue(json.loads(line), where)[text_key]
            lines = [] if found.value is None else found.whole_text().splitlines()
        except JsonError as error:
            raise UserError(f"{str(error).rstrip('.')}. Check `text_key`.") from error
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{where} is not valid JSON: {error}. Every line must be an object (JSON Lines)."
            ) from error
        yield from (lines, [])


def _split_at_tags(lines: Iterable[str]) -> list[list[str]]:
    documents: list[list[str]] = [[]]
    for line in lines:
        if start := _DOC_START.match(line):
            documents.append([])
            line = line[start.end() :]
        text, end, rest = line.partition("</doc>")
        documents[-1].append(text)
        if end:
            documents.append([rest])
    return documents


def _split_at_empty_lines(lines: Iterable[str]) -> list[list[str]]:
    documents: list[list[str]] = [[]]
    for line in lines:
        if line and not line.isspace():
            documents[-1].append(line)
        elif documents[-1] or len(documents) == 1:
            documents.append([])
    return documents
