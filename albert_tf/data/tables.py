"""Rows of TSV, CSV and JSON Lines files in UTF-8.

The file name extension determines the format:

* `.tsv`, `.txt`: cells separated by tabs, rows by line feeds. Quotation marks are text, as in GLUE.
* `.csv`: cells separated by commas and quoted if necessary. Spaces after a comma are ignored.
* `.jsonl`, `.ndjson`, `.json`: one JSON object per line; its keys are the columns.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, encoding_error, file_exists, read_file
from albert_tf.data.strict_json import JsonError, listed, parse_json, shown, whole_characters

Cells = list[str | None]  # `None`: missing, null, a list or an object in JSON Lines
Row = tuple[int, Cells]  # number of its first line, from 1, and its cells

_TSV, _CSV, JSON_LINES = "TSV", "CSV", "JSON Lines"

FORMATS: Final = {
    ".tsv": _TSV,
    ".txt": _TSV,
    ".csv": _CSV,
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
    ".json": JSON_LINES,
}

_WANTED = 'one object per line (JSON Lines), such as {"text_a": "...", "label": "..."}'
_LARGEST_CELL = 2**31 - 1  # characters
_LOCATIONS_SHOWN = 5
LABEL_SEPARATOR = "|"  # between labels in multi-label classification


class DataIssues:
    """Counts malformed rows of a file or directory by kind.

    `locations` contains the numbers or names of the rows. Messages call a row `unit`.
    """

    def __init__(self, path: str, unit: str = "line") -> None:
        self.path = path
        self.locations: dict[str, list[int | str]] = {}
        self._unit = unit

    def add(self, kind: str, location: int | str) -> None:
        """Counts a row. `kind` is the problem and its treatment, such as "an empty text, kept"."""
        self.locations.setdefault(kind, []).append(location)

    def messages(self) -> list[str]:
        """Returns a message for each kind, with the number of rows and the first locations."""
        return [
            f"rows={len(found)} with {kind} ({self._unit}{'s' * (len(found) > 1)} "
            f"{', '.join(map(str, found[:_LOCATIONS_SHOWN]))}"
            f"{', ...' * (len(found) > _LOCATIONS_SHOWN)})"
            for kind, found in self.locations.items()
        ]

    def log(self) -> None:
        """Logs a warning for each kind."""
        for message in self.messages():
            logging.warning("%s: %s", self.path, message)


@dataclass
class Table:
    """A file as rows of cells.

    Attributes:
        path: the file.
        columns: names in the header, or keys of the objects; `None` for a file without a header.
        width: number of cells in the header, or in the first row.
        rows: can be iterated over once, which fills `issues`.
        header: the cells of the header; `None` for JSON Lines and files without a header.
    """

    path: str
    columns: list[str] | None
    width: int
    rows: Iterator[Row]
    issues: DataIssues = field(repr=False)
    header: Cells | None = None

    def index(self, column: str, name: str) -> int:
        """Returns the index of a column, given its name, or its number if there is no header.

        Raises ValueError, with the argument `name`, if there is no such column, or several.
        """
        if self.columns is None:
            if is_column_number(column) and int(column) < self.width:
                return int(column)
            raise UserError(
                f"`{name}` must be a number from 0 to {self.width - 1}, because {self.path} is "
                f"read without a header and has {self.width} columns. Received: {column!r}"
            )
        count = self.columns.count(column)
        if count != 1:
            raise UserError(
                f"{self.path} has {count or 'no'} column{'s' * (count > 1)} named {column!r}. Its "
                f"columns: {listed(self.columns)}. `{name}` selects the column."
            )
        return self.columns.index(column)


def is_column_number(column: str) -> bool:
    """Returns whether a column is given as a number."""
    return re.fullmatch("[0-9]{1,9}", column) is not None


def format_of(path: str) -> str | None:
    """Returns the format of a file by its extension; `None` if the extension is unknown."""
    return next((kind for end, kind in FORMATS.items() if path.lower().endswith(end)), None)


def read_table(
    path: str,
    *,
    is_header: Callable[[Cells], bool] = lambda cells: True,
    list_column: str | None = None,
) -> Table:
    """Opens a file as a table.

    Blank lines are skipped. If the file has a single column, blank lines before the last row are
    rows with an empty cell.

    Args:
        path: the file. ValueError is raised if it is missing or malformed.
        is_header: returns whether the first row contains the column names. Ignored for JSON Lines.
        list_column: a column of JSON Lines that may contain lists of labels, which are joined by
            "|".
    """
    kind = format_of(path)
    if kind is None:
        raise UserError(
            f"The file name must end in one of {', '.join(FORMATS)}. Received: {path!r}"
        )
    text, issues = read_text(path), DataIssues(path)
    if kind == JSON_LINES:
        objects = json_objects(path, text, _WANTED)
        for line, row in objects:
            if list_column in row and isinstance(row[list_column], list):
                parts = [_cell(part) for part in row[list_column]]
                if not all(part and part.strip() and LABEL_SEPARATOR not in part for part in parts):
                    raise UserError(
                        f"line {line} of {path} must have a list of labels without "
                        f"{LABEL_SEPARATOR!r} as {list_column!r}. Received: "
                        f"{shown(row[list_column])}"
                    )
                row[list_column] = LABEL_SEPARATOR.join(filter(None, parts))
        keys = list(dict.fromkeys(key for _, row in objects for key in row))
        cells = ((line, [_cell(row.get(key)) for key in keys]) for line, row in objects)
        return Table(path, keys, len(keys), cells, issues)
    rows = _tsv_rows(text) if kind == _TSV else _csv_rows(path, text)
    blanks: list[Row] = []
    for line, first in rows:
        if any((cell or "").strip() for cell in first) or len(first) > 1:
            break
        blanks.append((line, first))
    else:
        raise UserError(f"{path} is empty.")
    if not is_header(first):
        rows = _filled(chain(blanks, [(line, first)], rows), len(first), issues)
        return Table(path, None, len(first), rows, issues)
    columns = [(cell or "").strip() for cell in first]
    while columns and not columns[-1]:  # delimiters at the end of every row
        columns.pop()
    rows = _filled(rows, len(columns), issues)
    return Table(path, columns, len(columns), rows, issues, header=first)


def read_text(path: str) -> str:
    """Reads a text file; raises ValueError if it is missing, empty or not UTF-8."""
    if not file_exists(path):
        raise UserError(f"there is no file {path!r}.")
    data = read_file(path)
    text = decode_utf8(data, path)
    if data.count(b"\0") > len(data) / 10:  # probably UTF-16; a few NULs are accepted
        raise encoding_error(data, path, data.find(b"\0"))
    if not text.strip():
        raise UserError(f"{path} is empty.")
    return text


def _tsv_rows(text: str) -> Iterator[Row]:
    # The module `csv` would end a row at a single carriage return.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        line = line.rstrip("\r")
        yield number, [*line.split("\t")] if line else []


def _csv_rows(path: str, text: str) -> Iterator[Row]:
    # Without `strict`, an unclosed quotation mark would hide the following rows.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    rows: list[Row] = []
    line = 1
    limit = csv.field_size_limit(_LARGEST_CELL)  # of all readers in this process
    try:
        for cells in reader:
            rows.append((line, [*cells]))
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path} is not valid CSV from line {line} on ({error}). Quote cells that contain "
            "commas, quotation marks or line ends, and double the quotation marks in them. Use the "
            "extension .tsv for files without quoting."
        ) from error
    finally:
        csv.field_size_limit(limit)
    return iter(rows)


def _filled(rows: Iterator[Row], width: int, issues: DataIssues) -> Iterator[Row]:
    """Skips blank lines. If there is a single column, keeps blank lines before the last row."""
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


def json_objects(path: str, text: str, wanted: str) -> list[tuple[int, dict[str, Any]]]:
    """Returns the objects of JSON Lines with their line numbers; skips blank lines.

    Raises ValueError if a line is not a JSON object. The message describes objects by `wanted`.
    """
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = parse_json(line, path, line=number)
            except JsonError as error:
                raise UserError(f"{error} Expected: {wanted}.") from error
            if not isinstance(row, dict):
                raise UserError(
                    f"line {number} of {path} must be a JSON object; expected: {wanted}. "
                    f"Received: {shown(row)}"
                )
            objects.append((number, row))
    return objects


def _cell(value: Any) -> str | None:
    """Returns a JSON value as text; `None` for null, a list or an object."""
    if value is None or isinstance(value, list | dict):
        return None
    return whole_characters(value) if isinstance(value, str) else json.dumps(value)
