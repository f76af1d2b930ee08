"""Arguments of a command, those in the files that `--flagfile` names among them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from albert_tf.data.files import file_exists
from albert_tf.data.utf8 import read_utf8

_FLAG = "flagfile"


@dataclass(frozen=True)
class Argument:
    """An argument.

    Attributes:
        text: as it is typed.
        place: the file and line it stands in, for messages; "" for the command line.
    """

    text: str
    place: str = ""


class FlagFileError(ValueError):
    """A file of flags cannot be read."""


def with_flag_files(texts: Sequence[str]) -> list[Argument]:
    """Returns arguments with the contents of files in place of the flags that name these.

    In a file each line is a flag, --name=value or --name value; the value is the rest of the line,
    and blanks or a # belong to it if it stands in quotes. Empty lines, lines that begin with # or
    // and what follows a blank and # are left out. A file may name others.

    Raises:
        FlagFileError: a file is missing, cannot be decoded, or names itself.
    """
    return list(_expanded([Argument(text) for text in texts], ()))


def _expanded(arguments: Sequence[Argument], open_files: tuple[str, ...]) -> Iterator[Argument]:
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.text.partition("=")
        if name not in (f"--{_FLAG}", f"-{_FLAG}"):
            yield argument
            continue
        path = value if has_value else getattr(next(rest, None), "text", "")
        yield from _expanded(_read(path, argument.place, open_files), (*open_files, path))


def _read(path: str, place: str, open_files: tuple[str, ...]) -> list[Argument]:
    where = f" ({place})" if place else ""
    if not path:
        raise FlagFileError(f"--{_FLAG} needs the name of a file: --{_FLAG}=FILE{where}.")
    if path in open_files:
        raise FlagFileError(f"--{_FLAG}={path}{where}: the file names itself.")
    full = os.path.expanduser(path)
    if not file_exists(full):
        raise FlagFileError(f"--{_FLAG}={path}{where}: there is no such file.")
    try:
        lines = read_utf8(full).split("\n")
    except (OSError, ValueError) as error:
        raise FlagFileError(f"--{_FLAG}={path}{where} cannot be read: {error}") from error
    return [
        Argument(text, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        for text in line_arguments(line)
    ]


def line_arguments(line: str) -> list[str]:
    """Returns the arguments of a line of a file: none, --name, --name=value, or name and value."""
    line = line.strip()
    if not line or line.startswith(("#", "//")):
        return []
    name, separator, value = _parted(line)
    value = _without_comment(value)
    if separator == "=":
        return [f"{name}={value}"]
    return [name, value] if value else [name]


def _parted(line: str) -> tuple[str, str, str]:
    """The name, what ends it ("=", " " or nothing) and the rest."""
    for place, character in enumerate(line):
        if character == "=" or character.isspace():
            return line[:place], "=" if character == "=" else " ", line[place + 1 :].strip()
    return line, "", ""


def _without_comment(value: str) -> str:
    """A value without the quotes around it and the comment behind it."""
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        behind = value[end + 1 :].lstrip()
        if end > 0 and (not behind or behind.startswith("#")):
            return value[1:end]
    if value.startswith("#"):
        return ""
    for place in range(1, len(value)):
        if value[place] == "#" and value[place - 1].isspace():
            return value[:place].rstrip()
    return value
