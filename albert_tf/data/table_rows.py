"""Tables people have: TSV, CSV and JSON-lines files, read row by row, whatever is wrong with them.

The ending of a file says how it is read:

* `.tsv`, `.txt`: columns parted by tabs, rows by line feeds, and nothing else: quotation marks are
  text, as in GLUE, and so are U+0085, U+2028 and single carriage returns.
* `.csv`: quoted as spreadsheets and pandas write it, with line ends inside quotes; parted by
  commas, semicolons or tabs, whichever the header has most of (commas without a header), or by
  what a first line such as `sep=;` names, which Excel knows.
* `.jsonl`, `.ndjson`, `.json`: one JSON object a line, its keys being the columns (`json_rows`).

All are UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from albert_tf.data.delimited_rows import comma_separated, tab_separated
from albert_tf.data.files import file_exists, open_binary
from albert_tf.data.json_rows import json_rows
from albert_tf.data.rows import Cells, Oddities, Row
from albert_tf.data.strict_json import listed
from albert_tf.data.utf8 import decode_utf8, encoding_error

TSV, CSV, JSONL = "TSV", "CSV", "JSON lines"
FORMATS: Final = {
    ".tsv": TSV,
    ".txt": TSV,
    ".csv": CSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": JSONL,
}


@dataclass
class Table:
    """A file as rows of cells.

    Attributes:
        path: the file.
        flag: the flag it came from, for errors.
        columns: names in the header, or keys of the objects; None for a file without a header.
        width: cells in the header, or else in the first row.
        rows: the line each row begins at and its cells; None where an object of JSON lines has no
            text. Can be gone through once.
        oddities: grows while the rows are read.
        header: the row the columns were read from; None if there is none.
    """

    path: str
    flag: str
    columns: list[str] | None
    width: int
    rows: Iterator[Row]
    oddities: Oddities = field(repr=False)
    header: Cells | None = None

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
        hint = ", or numbers it from 0 if there is no header" if self.header else ""
        raise ValueError(
            f"{self.path} has {found} named {column!r}. Its columns: "
            f"{listed(self.columns)}. {flag} names the one to take{hint}."
        )

    def has(self, column: str) -> bool:
        """Whether there is a column of this name, or this number in a file without a header."""
        if self.columns is None:
            return is_column_number(column) and int(column) < self.width
        return column in self.columns

    def _numbered_place(self, column: str, flag: str) -> int:
        if self.has(column):
            return int(column)
        is_csv = file_format(self.path, self.flag) == CSV
        hint = " Without a header it is parted by commas unless its first line is sep=; or alike."
        raise ValueError(
            f"{self.path} is read without a header, and its first row has {self.width} columns: "
            f"{flag} must be a number from 0 to {self.width - 1}. Received: {column!r}."
            f"{hint if is_csv else ''}"
        )


def is_column_number(column: str) -> bool:
    """Whether a column is given by its number instead of its name."""
    return re.fullmatch("[0-9]{1,9}", column) is not None


def is_any_header(cells: Cells) -> bool:
    """Takes any first row for a header."""
    return True


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


def read_table(
    path: str, flag: str, *, is_header: Callable[[Cells], bool] = is_any_header
) -> Table:
    """Opens a file as a table.

    Blank lines are left out and counted, except where the file has one column only: there they
    are rows with an empty cell, unless they are the last lines.

    Args:
        path: the file.
        flag: the flag it came from, for errors.
        is_header: whether the first row names the columns; JSON lines always have names.

    Raises:
        ValueError: the file is missing, empty, no UTF-8 text, or of an unknown ending. While the
            rows are read: broken CSV or JSON, naming the line.
    """
    form = file_format(path, flag)
    text = read_text(path, flag)
    oddities = Oddities(path)
    if form == JSONL:
        keys, rows = json_rows(path, flag, text, oddities)
        return Table(path, flag, keys, len(keys), rows, oddities)
    if form == CSV:
        rows = comma_separated(path, flag, text, is_header, oddities)
    else:
        rows = tab_separated(text, oddities)
    return _table(path, flag, rows, is_header, oddities)


def read_text(path: str, flag: str) -> str:
    """Reads a text file, without byte order mark.

    Raises:
        ValueError: the file is missing, empty or no UTF-8 text; names the flag.
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


def _table(
    path: str,
    flag: str,
    rows: Iterator[Row],
    is_header: Callable[[Cells], bool],
    oddities: Oddities,
) -> Table:
    """Finds the first row, which may be a header, and what to do with blank lines."""
    blanks: list[Row] = []
    for line, first in rows:
        if not _is_blank(first):
            break
        blanks.append((line, first))
    else:
        raise ValueError(f"{flag}: {path} is empty.")
    if not is_header(first):
        rows = _filled(chain(blanks, [(line, first)], rows), len(first), oddities)
        return Table(path, flag, None, len(first), rows, oddities)
    for blank, _ in blanks:
        oddities.add("nothing in them, left out", blank)
    columns = [(cell or "").strip() for cell in first]
    while columns and not columns[-1]:  # delimiters at the end of every row
        columns.pop()
    rows = _filled(rows, len(columns), oddities)
    return Table(path, flag, columns, len(columns), rows, oddities, header=first)


def _is_blank(cells: Cells) -> bool:
    return not cells or (len(cells) == 1 and not (cells[0] or "").strip())


def _filled(rows: Iterator[Row], width: int, oddities: Oddities) -> Iterator[Row]:
    """The rows without blank lines; those of a single column, before its last row, are rows."""
    blanks: list[int] = []
    for line, cells in rows:
        if not cells or (width > 1 and _is_blank(cells)):
            blanks.append(line)
            continue
        for blank in blanks:
            if width == 1:
                yield blank, [""]
            else:
                oddities.add("nothing in them, left out", blank)
        blanks.clear()
        yield line, cells
    if width == 1:
        for blank in blanks:
            oddities.add("nothing in them at the end of the file, left out", blank)
