"""Rows of TSV, CSV and JSON-lines files, all of them UTF-8.

The ending of a file says how it is read:

* `.tsv`, `.txt`: cells parted by tabs, rows by line feeds. Quotation marks are text, as in GLUE.
* `.csv`: cells separated by commas and quoted where needed. Blanks after a comma are ignored.
* `.jsonl`, `.ndjson`, `.json`: one JSON object a line, its keys being the columns.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from typing import Any, Final

from absl import logging

from albert_tf.data.files import decode_utf8, encoding_error, file_exists, open_binary
from albert_tf.data.strict_json import JsonError, listed, parse_json, shown, whole_characters

Cells = list[str | None]  # None: an object of JSON lines has no text there
Row = tuple[int, Cells]  # the line it begins at, from 1 as editors count, and its cells

_TSV, _CSV, _JSONL = "TSV", "CSV", "JSON lines"

FORMATS: Final = {
    ".tsv": _TSV,
    ".txt": _TSV,
    ".csv": _CSV,
    ".jsonl": _JSONL,
    ".ndjson": _JSONL,
    ".json": _JSONL,
}

_WANTED = 'one object per line (JSON Lines), such as {"text_a": "...", "label": "..."}'
_LARGEST_CELL = 2**31 - 1  # characters
_CSV_LIMIT = Lock()
_LINES_NAMED = 5


class DataIssues:
    """Counts what is odd in a file, or a folder, by kind, while it is read.

    Attributes:
        path: the file or folder.
        locations: where the rows of each kind are: lines counted from 1 as editors do, or names of
            `unit`.
    """

    def __init__(self, path: str, unit: str = "line") -> None:
        self.path = path
        self.locations: dict[str, list[int | str]] = {}
        self._unit = unit

    def add(self, kind: str, location: int | str) -> None:
        """Counts a row; the kind says what is odd and what was done: "an empty text, kept"."""
        self.locations.setdefault(kind, []).append(location)

    def messages(self) -> list[str]:
        """One message for each kind: how many rows, and where the first are."""
        return [
            f"rows={len(found)} with {kind} ({self._unit}{'s' * (len(found) > 1)} "
            f"{', '.join(map(str, found[:_LINES_NAMED]))}{', ...' * (len(found) > _LINES_NAMED)})"
            for kind, found in self.locations.items()
        ]

    def log(self) -> None:
        """Warns once for each kind."""
        for message in self.messages():
            logging.warning("%s: %s", self.path, message)


@dataclass
class Table:
    """A file as rows of cells.

    Attributes:
        path: the file.
        flag: the flag it came from, for errors.
        columns: names in the header, or keys of the objects; None for a file without a header.
        width: cells in the header, or else in the first row.
        rows: can be gone through once.
        issues: grows while the rows are read.
        header: the row the columns were read from; None if there is none.
    """

    path: str
    flag: str
    columns: list[str] | None
    width: int
    rows: Iterator[Row]
    issues: DataIssues = field(repr=False)
    header: Cells | None = None

    def index(self, column: str, flag: str) -> int:
        """Finds a column by its name, or its number from 0 in a file without a header.

        Raises ValueError: no column, or several, of this name; says which flag names it.
        """
        if self.columns is None:
            if is_column_number(column) and int(column) < self.width:
                return int(column)
            raise ValueError(
                f"{self.path} is read without a header, and its first row has {self.width} "
                f"columns: {flag} must be a number from 0 to {self.width - 1}. "
                f"Received: {column!r}"
            )
        count = self.columns.count(column)
        if count != 1:
            raise ValueError(
                f"{self.path} has {count or 'no'} column{'s' * (count > 1)} named {column!r}. Its "
                f"columns: {listed(self.columns)}. {flag} names the one to take."
            )
        return self.columns.index(column)


def is_column_number(column: str) -> bool:
    """Whether a column is given by its number instead of its name."""
    return re.fullmatch("[0-9]{1,9}", column) is not None


def read_table(
    path: str,
    flag: str,
    *,
    is_header: Callable[[Cells], bool] = lambda cells: True,
    list_column: str | None = None,
    separator: str = "",
) -> Table:
    """Opens a file as a table.

    Blank lines are left out, except where the file has one column only: there they are rows with
    an empty cell, unless they are the last lines.

    Args:
        path: the file.
        flag: the flag it came from, for errors.
        is_header: whether the first row names the columns; JSON lines always have names.
        list_column: a column whose lists in JSON lines are cells, their parts joined by
            `separator`; other lists are no text.
        separator: what no part of such a list may contain.

    Raises:
        ValueError: the file is missing, empty, no UTF-8 text, or of an unknown ending; a part of a
            list is no text. While the rows are read: broken CSV or JSON, naming the line.
    """
    kind = next((kind for ending, kind in FORMATS.items() if path.lower().endswith(ending)), None)
    if kind is None:
        raise ValueError(
            f"{flag} must be a file that ends in {', '.join(FORMATS)}, which determines how it is "
            f"read. Received: {path!r}"
        )
    text, issues = read_text(path, flag), DataIssues(path)
    if kind == _JSONL:
        objects = json_objects(path, flag, text, _WANTED)
        for line, row in objects:
            if list_column in row and isinstance(row[list_column], list):
                parts = [_cell(part) for part in row[list_column]]
                if not all(part and part.strip() and separator not in part for part in parts):
                    raise ValueError(
                        f"{flag}: line {line} of {path} must have a list of texts without "
                        f"{separator!r} as {list_column!r}. Received: {shown(row[list_column])}"
                    )
                row[list_column] = separator.join(filter(None, parts))
        keys = list(dict.fromkeys(key for _, row in objects for key in row))
        cells = ((line, [_cell(row.get(key)) for key in keys]) for line, row in objects)
        return Table(path, flag, keys, len(keys), cells, issues)
    rows = _tsv_rows(text) if kind == _TSV else _csv_rows(path, flag, text)
    blanks: list[Row] = []
    for line, first in rows:
        if any((cell or "").strip() for cell in first) or len(first) > 1:
            break
        blanks.append((line, first))
    else:
        raise ValueError(f"{flag}: {path} is empty.")
    if not is_header(first):
        rows = _filled(chain(blanks, [(line, first)], rows), len(first), issues)
        return Table(path, flag, None, len(first), rows, issues)
    columns = [(cell or "").strip() for cell in first]
    while columns and not columns[-1]:  # delimiters at the end of every row
        columns.pop()
    rows = _filled(rows, len(columns), issues)
    return Table(path, flag, columns, len(columns), rows, issues, header=first)


def read_text(path: str, flag: str) -> str:
    """Reads a text file, without byte order mark.

    Raises ValueError: it is missing, empty or no UTF-8 text; names the flag.
    """
    if not file_exists(path):
        raise ValueError(f"{flag}: there is no file {path!r}.")
    with open_binary(path, "rb") as file:
        data = file.read()
    text = decode_utf8(data, f"{flag}: {path}")
    if data.count(b"\0") > len(data) / 10:  # a stray NUL is noise; many mean UTF-16
        raise encoding_error(data, f"{flag}: {path}", data.find(b"\0"))
    if not text.strip():
        raise ValueError(f"{flag}: {path} is empty.")
    return text


def _tsv_rows(text: str) -> Iterator[Row]:
    # Not `csv`, for which a single carriage return ends a row: here it is text.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        line = line.rstrip("\r")
        yield number, [*line.split("\t")] if line else []


def _csv_rows(path: str, flag: str, text: str) -> Iterator[Row]:
    # Strict, so that a quotation mark that is never closed does not swallow the rows after it.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    line = 1
    try:
        while (cells := _next_csv_row(reader)) is not None:
            yield line, [*cells]
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{flag}: {path} is not valid CSV from line {line} on ({error}). Quote a cell that "
            "holds commas, quotation marks or line ends, and double the quotation marks inside; a "
            "file without quoting is a .tsv."
        ) from error


def _next_csv_row(reader: Iterator[list[str]]) -> list[str] | None:
    """Reads a row with cells of any size; the limit of the `csv` module is one for all programs."""
    with _CSV_LIMIT:
        limit = csv.field_size_limit(_LARGEST_CELL)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(limit)


def _filled(rows: Iterator[Row], width: int, issues: DataIssues) -> Iterator[Row]:
    """The rows without blank lines; those of a single column, before its last row, are rows."""
    blanks: list[int] = []
    for line, cells in rows:
        if not cells or (len(cells) == 1 < width and not (cells[0] or "").strip()):
            blanks.append(line)
            continue
        for blank in blanks:
            if width == 1:
                yield blank, [""]
            else:
                issues.add("nothing in them, skipped", blank)
        blanks.clear()
        yield line, cells


def json_objects(path: str, flag: str, text: str, wanted: str) -> list[tuple[int, dict[str, Any]]]:
    """Reads JSON lines; returns the objects with the numbers of their lines. Blanks are left out.

    Raises ValueError: a line is no JSON object; names the line, and what is `wanted`.
    """
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = parse_json(line, f"{flag}: {path}", line=number)
            except JsonError as error:
                raise ValueError(f"{error} Expected: {wanted}.") from error
            if not isinstance(row, dict):
                raise ValueError(
                    f"{flag}: line {number} of {path} must be a JSON object; expected: {wanted}. "
                    f"Received: {shown(row)}"
                )
            objects.append((number, row))
    return objects


def _cell(value: Any) -> str | None:
    """A JSON value as the text a table would hold; None for null, a list or an object."""
    if value is None or isinstance(value, list | dict):
        return None
    return whole_characters(value) if isinstance(value, str) else json.dumps(value)
