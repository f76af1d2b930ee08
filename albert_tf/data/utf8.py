"""Bytes of a file as text, or an error that names the file and the line."""

from __future__ import annotations

from albert_tf.data.files import open_binary


class EncodingError(ValueError):
    """A file is not UTF-8 text."""


def decode_utf8(data: bytes, where: str, *, line: int = 1) -> str:
    """Decodes UTF-8; a byte order mark at the start of the file is dropped.

    Args:
        data: content of a file, or of a part of it.
        where: the file and the flag it came from, for the error.
        line: number of the line `data` begins with, from 1.

    Raises:
        EncodingError: the bytes are not UTF-8; names the line and the first such byte.
    """
    try:
        return data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise encoding_error(data, where, error.start, line=line) from error


def read_utf8(path: str) -> str:
    r"""Reads a text file of this package; lines end in \n, whatever an editor made of them.

    Args:
        path: any path `data.files` takes.

    Raises:
        EncodingError: see `decode_utf8`.
        OSError: it cannot be read.
    """
    with open_binary(path, "rb") as file:
        text = decode_utf8(file.read(), path)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def encoding_error(data: bytes, where: str, place: int, *, line: int = 1) -> EncodingError:
    """Returns the error for the byte at `place`; the other arguments are as for `decode_utf8`."""
    line += data.count(b"\n", 0, place)
    return EncodingError(
        f"{where} is not UTF-8 text: line {line} holds byte 0x{data[place]:02x}. Convert it first."
    )
