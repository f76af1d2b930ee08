"""Tables people have: TSV, CSV and JSON-lines files, read row by row, whatever is wrong with them.

The ending of a file says how it is read:

* `.tsv`, `.txt`: columns parted by tabs, rows by line feeds, and nothing else: quotation marks are
  text, as in GLUE, and so are U+0085, U+2028 and single carriage returns.
* `.csv`: quoted as spreadsheets and pandas write it, with line ends inside quotes; parted by
  commas, semicolons or tabs, whichever the header has most of (commas without a header).
* `.jsonl`, `.ndjson`, `.json`: one JSON object a line, its keys being the columns.

All are UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from absl import logging

from albert_tf.data.files import file_exists, open_binary

TSV, CSV, JSONL = "TSV", "CSV", "JSON lines"
FORMATS: Final = {
    ".tsv": TSV,
    ".txt": TSV,
    ".csv": CSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": JSONL,
}
_LINES_NAMED = 5
_MAX_FIELD_CHARACTERS = 2**31 - 1

Cells = list[str | None]
Row = tuple[int, Cells]


class Oddities:
    """Counts the odd rows of a file, by kind.

    Attributes:
        path: the file.
        lines: where the rows of each kind begin, counted from 1 as editors do.
    """

    def __init__(self, path: str) -> None:
        """Begins with none."""
        self.path = path
        self.lines: dict[str, list[int]] = {}

    def add(self, kind: str, line: int) -> None:
        """Counts a row.

        Args:
            kind: what is odd and what was done, for example "empty text, kept".
            line: where the row begins.
        """
        self.lines.setdefault(kind, []).append(line)

    def log(self) -> None:
        """Warns once for each kind, naming the first rows."""
        for kind, lines in self.lines.items():
            named = ", ".join(map(str, lines[:_LINES_NAMED]))
            more = ", ..." if len(lines) > _LINES_NAMED else ""
            logging.warning(
                "%s: rows=%d with %s (line%s %s%s)",
                self.path,
                len(lines),
                kind,
                "s" if len(lines) > 1 else "",
                named,
                more,
            )


@dataclass
class Table:
    """A file as rows of cells.

    Attributes:
        path: the file.
        flag: the flag it came from, for errors.
        columns: names in the header, or keys of the objects; None for a file without a header.
        width: cells in the header, or else in the first row.
        rows: the line each row begins at and its cells; None for a key that an object lacks or
            has null for. Can be gone through once.
        oddities: grows while the rows are read.
    """

    path: str
    flag: str
    columns: list[str] | None
    width: int
    rows: Iterator[Row]
    oddities: Oddities = field(repr=False)

    def place(self, column: str, flag: str) -> int:
        """Finds a column.

        Args:
            column: its name, or its number from 0 in a file without a header.
            flag: the flag that says so, for the error.

        Raises:
            ValueError: no column, or several, of this name.
        """
        if self.columns is None:
            return self._numbered_place(column, flag)
        number = self.columns.count(column)
        if number == 1:
            return self.columns.index(column)
        found = f"{number} columns" if number else "no column"
        raise ValueError(
            f"{self.path} has {found} named {column!r}. Its columns: "
            f"{', '.join(map(repr, self.columns))}. {flag} names the one to take."
        )

    def has(self, column: str) -> bool:
        """Whether there is a column of this name, or this number in a file without a header."""
        if self.columns is None:
            return column.isdecimal() and int(column) < self.width
        return column in self.columns

    def _numbered_place(self, column: str, flag: str) -> int:
        if self.has(column):
            return int(column)
        raise ValueError(
            f"{self.path} is read without a header, and its first row has {self.width} columns: "
            f"{flag} must be a number from 0 to {self.width - 1}. Received: {column!r}"
        )


def file_format(path: str, flag: str) -> str:
    """Tells TSV, CSV or JSONL from the ending of a file.

    Raises:
        ValueError: another ending.
    """
    for ending, name in FORMATS.items():
        if path.lower().endswith(ending):
            return name
    raise ValueError(
        f"{flag} takes a file that ends in {', '.join(FORMATS)}, so that it is known how to read "
        f"it. Received: {path!r}"
    )


def read_table(path: str, flag: str, *, has_header: bool | Callable[[Cells], bool] = True) -> Table:
    """Opens a file as a table.

    Blank lines, and repetitions of the header, are no rows: they are left out and counted.

    Args:
        path: the file.
        flag: the flag it came from, for errors.
        has_header: whether the first row names the columns, or what tells it from that row;
            JSON lines always have names.

    Raises:
        ValueError: the file is missing, empty, no UTF-8 text, or of an unknown ending. While the
            rows are read: broken CSV or JSON, naming the line.
    """
    form = file_format(path, flag)
    text = read_text(path, flag)
    oddities = Oddities(path)
    if form == JSONL:
        return _json_table(path, flag, text, oddities)
    if form == CSV:
        delimiter = _delimiter(text) if has_header is True else ","
        rows = _comma_separated(path, flag, text, delimiter, oddities)
    else:
        rows = _tab_separated(text, oddities)
    line, first = next(rows)
    if has_header(first) if callable(has_header) else has_header:
        columns = [(cell or "").strip() for cell in first]
        while columns and not columns[-1]:  # delimiters at the end of every row
            columns.pop()
        rows = _without_headers(rows, first, oddities)
        return Table(path, flag, columns, len(columns), rows, oddities)
    return Table(path, flag, None, len(first), chain([(line, first)], rows), oddities)


def read_text(path: str, flag: str) -> str:
    """Reads a text file, without byte order mark and line ends at its end.

    Raises:
        ValueError: the file is missing, empty or no UTF-8 text; names the flag.
    """
    if not file_exists(path):
        raise ValueError(f"{flag}: there is no file {path!r}.")
    with open_binary(path, "rb") as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
        # A stray NUL is noise; many mean UTF-16.
        place = data.find(b"\0") if data.count(b"\0") > len(data) / 10 else -1
    except UnicodeDecodeError as error:
        place = error.start
    if place >= 0:
        line = data.count(b"\n", 0, place) + 1
        raise ValueError(
            f"{flag}: {path} is not UTF-8 text: line {line} holds byte 0x{data[place]:02x}. "
            "Convert it first."
        )
    if not text.strip():
        raise ValueError(f"{flag}: {path} is empty.")
    return text.rstrip("\r\n")


def _tab_separated(text: str, oddities: Oddities) -> Iterator[Row]:
    # All rows in one, as files of very old programs have them.
    if "\n" not in text:
        text = text.replace("\r", "\n")
    has_nul, has_quotes = "\0" in text, '""' in text
    for number, line in enumerate(text.split("\n"), start=1):
        if "\t" not in line and not line.strip():
            oddities.add("nothing in them, left out", number)
            continue
        cells: Cells = [*line.rstrip("\r").split("\t")]
        if has_nul and "\0" in line:
            oddities.add("NUL characters, kept", number)
        if has_quotes and any(map(_looks_quoted, cells)):
            oddities.add(
                "cells quoted as in CSV, taken as they are (name the file .csv to unquote)", number
            )
        yield number, cells


def _looks_quoted(cell: str | None) -> bool:
    """Whether a cell is what a program writes for a text with quotation marks."""
    return (
        cell is not None
        and len(cell) > 4
        and cell[0] == cell[-1] == '"'
        and '""' in cell[1:-1]
        and '"' not in cell[1:-1].replace('""', "")
    )


def _delimiter(text: str) -> str:
    header = text.lstrip("\r\n").splitlines()[0]
    return max(",;\t", key=header.count)


def _comma_separated(
    path: str, flag: str, text: str, delimiter: str, oddities: Oddities
) -> Iterator[Row]:
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    # Strict, so that a quotation mark that is never closed does not swallow the rows after it.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            if len(cells) < 2 and not "".join(cells).strip():
                oddities.add("nothing in them, left out", line)
            else:
                if any("\0" in cell for cell in cells):
                    oddities.add("NUL characters, kept", line)
                yield line, [*cells]
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{flag}: {path} is no CSV from line {line} on ({error}). Quote a cell that holds "
            "commas, quotation marks or line ends, and double the quotation marks inside; a file "
            "without quoting is a .tsv."
        ) from error


def _without_headers(rows: Iterator[Row], header: Cells, oddities: Oddities) -> Iterator[Row]:
    for line, cells in rows:
        if cells == header:
            oddities.add("the header once more, left out", line)
        else:
            yield line, cells


def _json_table(path: str, flag: str, text: str, oddities: Oddities) -> Table:
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            objects.append((number, _json_object(path, flag, number, line)))
        else:
            oddities.add("nothing in them, left out", number)
    columns = list(dict.fromkeys(key for _, row in objects for key in row))
    rows = (
        (number, [_json_cell(row.get(key), number, oddities) for key in columns])
        for number, row in objects
    )
    return Table(path, flag, columns, len(columns), rows, oddities)


def _json_object(path: str, flag: str, number: int, line: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise ValueError("a key is there twice")
        return values

    try:
        row = json.loads(line, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{flag}: line {number} of {path} is broken JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(
            f"{flag}: line {number} of {path} must be a JSON object such as "
            f'{{"text_a": "...", "label": "..."}}. Received: {line[:80]}'
        )
    return row


def _json_cell(value: Any, line: int, oddities: Oddities) -> str | None:
    """A JSON value as the text a table would hold."""
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        oddities.add("halves of characters (lone surrogates), replaced by U+FFFD", line)
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
