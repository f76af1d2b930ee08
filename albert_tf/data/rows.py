"""Rows of TSV, CSV and JSON Lines files in UTF-8.

The file name extension determines the format:

* `.tsv`, `.txt`: cells separated by tabs, rows by line feeds. Quotation marks are text, as in GLUE.
* `.csv`: cells separated by commas and quoted if necessary. Spaces after a comma are ignored. If
  there is no comma in the first row, cells may be separated by semicolons, tabs or "|".
* `.jsonl`, `.ndjson`, `.json`: one JSON object per line; its keys are the columns. Or one JSON
  value: a list of objects, or a table as written by pandas.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, encoding_error, file_exists, read_file
from albert_tf.data.strict_json import (
    JsonError,
    JsonValue,
    json_values,
    listed,
    parse_json,
    shown,
    whole_characters,
)

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
_MOST_MALFORMED = 0.01  # share of rows
_SEPARATORS = ";\t|"  # in CSV files of other programs
LABEL_SEPARATOR = "|"  # between labels in multi-label classification


class DataIssues:
    """Counts malformed rows of a file or directory by kind.

    `locations` contains the numbers or names of the rows. Messages call a row `unit`.
    """

    def __init__(self, path: str, unit: str = "line") -> None:
        self.path = path
        self.locations: dict[str, list[int | str]] = {}
        self.unit = unit
        self._errors: list[object] = []

    def add(self, kind: str, location: int | str, error: object = None) -> None:
        """Counts a row. `kind` is the problem and its treatment, such as "an empty text, kept".

        `error` is the message of `check` if the row is the first malformed one.
        """
        self.locations.setdefault(kind, []).append(location)
        self._errors += [error] if error else []

    def check(self, num_rows: int) -> None:
        """Raises ValueError, with the first error, if more than 1% of all rows are malformed."""
        if len(self._errors) > _MOST_MALFORMED * num_rows:
            raise UserError(
                f"{str(self._errors[0]).removesuffix('.')}. Malformed rows: {len(self._errors)} of "
                f"{num_rows}. At most {_MOST_MALFORMED:.0%} are accepted and counted."
            )

    @property
    def format(self) -> str | None:
        """The format of the file. A single JSON value, which has rows, is not JSON Lines."""
        return "JSON" if self.unit == "row" else format_of(self.path)

    def messages(self) -> list[str]:
        """Returns a message for each kind, with the number of rows and the first locations."""
        return [
            f"rows={len(found)} with {kind} ({self.unit}{'s' * (len(found) > 1)} "
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
            advice = f"`{name}` selects the column, by number if the file has no header."
            if self.width == 1 and (other := re.search(f"[,{_SEPARATORS}]", self.columns[0])):
                advice = f"Separated by {other[0]!r}? Use commas in .csv files, otherwise tabs."
            raise UserError(
                f"{self.path} has {count or 'no'} column{'s' * (count > 1)} named {column!r}. Its "
                f"columns: {listed(self.columns)}. {advice}"
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
    list_columns: Collection[str] = (),
    multi_label: bool = False,
) -> Table:
    """Opens a file as a table.

    Blank lines are skipped. If the file has a single column, blank lines before the last row are
    rows with an empty cell.

    Args:
        path: the file. ValueError is raised if it is missing or malformed.
        is_header: returns whether the first row contains the column names. Ignored for JSON Lines.
        list_columns: columns of JSON files that may contain lists of labels, which are joined by
            "|".
        multi_label: whether a list may contain several labels.
    """
    kind = format_of(path)
    if kind is None:
        raise UserError(
            f"The file name must end in one of {', '.join(FORMATS)}. Received: {path!r}"
        )
    text, issues = read_text(path), DataIssues(path)
    if kind == JSON_LINES:
        return _json_table(path, text, issues, list_columns, multi_label)
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


def _json_table(
    path: str, text: str, issues: DataIssues, list_columns: Collection[str], multi_label: bool
) -> Table:
    objects = json_objects(path, text, _WANTED, issues)
    rows: list[tuple[int, dict[str, Any]]] = []
    for line, value in objects:
        if isinstance(value, UserError):
            issues.add("malformed JSON", line, value)
        rows.append((line, value if isinstance(value, dict) else {}))
    issues.check(len(objects))
    columns = rows[0][1] if len(rows) == 1 else {}
    if columns and all(isinstance(cells, list) for cells in columns.values()):
        issues.unit = "row"
        lengths = sorted({len(cells) for cells in columns.values()})
        if len(lengths) > 1:
            raise UserError(f"The lists in {path} must have the same length. Received: {lengths}")
        table = zip(*columns.values(), strict=True)
        rows = [(n, dict(zip(columns, row, strict=True))) for n, row in enumerate(table, start=1)]
    for line, row in rows:
        for key in list_columns:
            if isinstance(labels := row.get(key), list):
                parts = [_cell(part) or "" for part in labels]
                is_right = all(part.strip() and LABEL_SEPARATOR not in part for part in parts)
                if not is_right or (len(parts) > 1 and not multi_label):
                    raise UserError(
                        f"{issues.unit} {line} of {path} must have a list of labels without "
                        f"{LABEL_SEPARATOR!r} as {key!r}; several labels need `multi_label`. "
                        f"Received: {shown(labels)}"
                    )
                row[key] = LABEL_SEPARATOR.join(parts) if parts or multi_label else None
    keys = list(dict.fromkeys(key for _, row in rows for key in row))
    # A malformed line has no cells.
    cells = ((line, [_cell(row.get(key)) for key in keys if row]) for line, row in rows)
    return Table(path, keys, len(keys), cells, issues)


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
    rows: list[Row] = []
    line = 1
    limit = csv.field_size_limit(_LARGEST_CELL)  # of all readers in this process
    try:
        separator, text = _separator(path, text)
        # Without `strict`, an unclosed quotation mark would hide the following rows.
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True
        )
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


def _separator(path: str, text: str) -> tuple[str, str]:
    """Returns the separator of CSV, and the text without a line that names the separator."""
    first = text.lstrip().partition("\n")[0]
    others = [separator for separator in _SEPARATORS if separator in first]
    if named := re.fullmatch(r'"?sep=(.)"?\r?', first):  # written by Excel
        others, text = [named[1]], text.replace(named[0], "", 1)  # keeps the line numbers
    elif "," in first or len(others) != 1:
        return ",", text
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=others[0])
    widths = [len(cells) for cells in rows if cells]
    if named is None and widths.count(widths[0]) < (1 - _MOST_MALFORMED) * len(widths):
        return ",", text
    logging.info("%s: the cells are separated by %r", path, others[0])
    return others[0], text


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


def json_objects(
    path: str, text: str, wanted: str, issues: DataIssues
) -> list[tuple[int, dict[str, Any] | UserError]]:
    """Returns the rows of a JSON file, numbered from 1: objects, or errors for malformed lines.

    Rows of JSON Lines are numbered by line; blank lines are skipped. Errors describe objects by
    `wanted`. If the file is one JSON value, see `_table_rows`, the unit of `issues` becomes "row".
    """
    with suppress(JsonError):
        first, *others = (value for _, value in islice(json_values(text, path), 2))
        if not others and (table := _table_rows(first)) is not None:
            issues.unit = "row"
            return [*enumerate(table, start=1)]
        if not others and isinstance(first, dict):
            return [(1, first)]
    lines = enumerate(text.split("\n"), start=1)
    return [(at, json_object(path, line, at, wanted)) for at, line in lines if line.strip()]


def json_object(path: str, line: str, number: int, wanted: str) -> dict[str, Any] | UserError:
    """Returns the object in a line, or the error if the line is malformed."""
    try:
        row = parse_json(line, path, line=number)
        if not isinstance(row, dict):
            raise JsonValue(row, f"line {number} of {path}").error("a JSON object")
        return row
    except JsonError as error:
        return UserError(f"{error} Expected: {wanted}.")


def _table_rows(value: Any) -> list[dict[str, Any]] | None:
    """Returns the rows of a table in one JSON value, or `None`.

    A table is a list of objects, or an object written by pandas: "data" with a list of objects, or
    with lists of cells for "columns"; cells by column; or rows by index.
    """
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        columns, value = value.get("columns"), value["data"]
        if isinstance(columns, list) and all(isinstance(cells, list) for cells in value):
            value = [dict(zip(columns, cells, strict=False)) for cells in value]
    elif isinstance(value, dict) and all(isinstance(part, dict) for part in value.values()):
        parts = [*value.values()]
        numbers = [all(map(str.isdigit, keys)) for keys in (value, *parts[:1])]
        if numbers == [True, False] or (numbers == [False, False] and len(parts) > len(parts[0])):
            value = parts
        else:
            value = [{name: value[name].get(key) for name in value} for key in chain(*parts[:1])]
    is_table = isinstance(value, list) and all(isinstance(row, dict) for row in value)
    return value if is_table else None


def _cell(value: Any) -> str | None:
    """Returns a JSON value as text; `None` for null, a list or an object."""
    if value is None or isinstance(value, list | dict):
        return None
    return whole_characters(value) if isinstance(value, str) else json.dumps(value)
