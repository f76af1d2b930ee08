"""The former tables of texts, until all tasks read `Rows`.

The file name extension determines the format:

* `.tsv`, `.txt`: cells separated by tabs, rows by line feeds. Quotation marks are text, as in GLUE.
* `.csv`: cells separated by commas and quoted if necessary. Spaces after a comma are ignored. If
  there is no comma in the first row, cells may be separated by semicolons, tabs or "|".
* `.jsonl`, `.ndjson`, `.json`: one JSON object per line; its keys are the columns. Or one JSON
  value: a list of objects, or a table as written by pandas.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.rows import (
    FORMATS,
    JSON_LINES,
    TSV,
    RowReport,
    _csv_lines,
    _tsv_lines,
    count_rows,
    format_of,
    parse_row,
    read_text,
    rows_of,
)
from albert_tf.data.strict_json import (
    JsonError,
    json_values,
    listed,
    shown,
    whole_characters,
)

Cells = list[Any]  # `None`: missing, null, a list or an object in JSON Lines
Row = tuple[int, Cells]  # number of its first line, from 1, and its cells

_WANTED = 'one object per line (JSON Lines), such as {"text_a": "...", "label": "..."}'
LABEL_SEPARATOR = "|"  # between labels in multi-label classification


class DataIssues(RowReport):
    """See `RowReport`."""

    @property
    def format(self) -> str | None:
        """The format of the file."""
        return "JSON" if self.unit == "row" else format_of(self.path)

    def messages(self) -> list[str]:
        """Returns a message for each kind, without its first error."""
        return [count_rows(self.unit, kind, found) for kind, found in self.locations.items()]

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
            if column.isdecimal() and int(column) < self.width:
                return int(column)
            raise UserError(
                f"`{name}` must be a number from 0 to {self.width - 1}, because {self.path} is "
                f"read without a header and has {self.width} columns. Received: {column!r}"
            )
        count = self.columns.count(column)
        if count != 1:
            advice = f"`{name}` selects the column, by number if the file has no header."
            if self.width == 1 and (other := re.search("[,;\t|]", self.columns[0])):
                advice = f"Separated by {other[0]!r}? Use commas in .csv files, otherwise tabs."
            raise UserError(
                f"{self.path} has {count or 'no'} column{'s' * (count > 1)} named {column!r}. Its "
                f"columns: {listed(self.columns)}. {advice}"
            )
        return self.columns.index(column)


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
    rows = _tsv_lines(text) if kind == TSV else _csv_lines(path, text)
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
        cells = first.values() if isinstance(first, dict) and "data" not in first else [0]
        is_row = all(isinstance(cell, list) for cell in cells)
        if not others and not is_row and (table := rows_of(first)) is not None:
            issues.unit = "row"
            return [*enumerate(table, start=1)]
        if not others and isinstance(first, dict):
            return [(1, first)]
    lines = enumerate(text.split("\n"), start=1)
    return [(at, parse_row(path, line, at, wanted)) for at, line in lines if line.strip()]


def _cell(value: Any) -> str | None:
    """Returns a JSON value as text; `None` for null, a list or an object."""
    if value is None or isinstance(value, list | dict):
        return None
    return whole_characters(value) if isinstance(value, str) else json.dumps(value)
