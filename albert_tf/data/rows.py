"""Files as rows: TSV, CSV, JSON Lines, and tables in one JSON value, in UTF-8.

The file name extension determines the format:

* `.tsv`, `.txt`: cells separated by tabs, rows by line feeds. Quotation marks are text, as in GLUE.
* `.csv`: cells separated by commas and quoted if necessary. Spaces after a comma are ignored. If
  there is no comma in the first row, cells may be separated by semicolons, tabs or "|".
* `.jsonl`, `.ndjson`, `.json`: one JSON object per line; its keys are the columns. Or one JSON
  value: a list of objects, or a table as written by pandas, see `rows_of`.

All of them become numbered rows of named values. A `Schema` says what the values mean.
"""

import ast
import csv
import io
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import dropwhile, islice, tee
from typing import Any, Final

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, encoding_error, file_exists, read_file
from albert_tf.data.strict_json import JsonError, JsonValue, json_values, listed, parse_json

Cells = list[str]
# Number from 1, or another location; values by column; and the error if the row is malformed.
Row = tuple[int | str, JsonValue, UserError | None]

TSV, _CSV, JSON_LINES = "TSV", "CSV", "JSON Lines"
FORMATS: Final = {".tsv": TSV, ".txt": TSV, ".csv": _CSV} | dict.fromkeys(
    (".jsonl", ".ndjson", ".json"), JSON_LINES
)
_LARGEST_CELL = 2**31 - 1  # characters
_LOCATIONS_SHOWN = 5
_MOST_MALFORMED = 0.01  # share of rows
_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)  # as written by pandas
_NO_COMMA = re.compile(r"""['"]\s+['"]""")
_SEPARATORS = ";\t|"  # in CSV files of other programs


@dataclass
class RowReport:
    """Counts rows of a file or directory by kind of problem."""

    path: str
    unit: str = "line"  # what the numbers of rows count
    locations: dict[str, list[int | str]] = field(default_factory=dict)  # rows by kind
    errors: list[tuple[str, UserError | str]] = field(default_factory=list)  # with their kinds

    def add(self, kind: str, location: int | str, error: UserError | str = "") -> None:
        """Counts a row. `kind` is the problem and its treatment, such as "an empty text, kept"."""
        self.locations.setdefault(kind, []).append(location)
        self.errors += [(kind, error)] if error else []

    def check(self, num_rows: int, most: float = _MOST_MALFORMED) -> None:
        """Raises the first error if more than a share of all rows, or every row, is malformed."""
        count = len(self.errors)
        if count > most * num_rows or 0 < count == num_rows:
            raise UserError(
                f"{str(self.errors[0][1]).removesuffix('.')}. Malformed rows: {count} of "
                f"{num_rows}. At most {most:.0%} are accepted and counted."
            )

    def log(self) -> None:
        """Logs a warning for each kind, with its first locations and its first error."""
        for kind, found in self.locations.items():
            first = next((f". The first: {e}" for name, e in self.errors if name == kind), "")
            logging.warning("%s: %s%s", self.path, count_rows(self.unit, kind, found), first)


def count_rows(unit: str, kind: str, locations: Sequence[int | str]) -> str:
    """Returns the number of rows with a problem, and their first numbers or names, as text."""
    shown = ", ".join(map(str, locations[:_LOCATIONS_SHOWN]))
    more = ", ..." * (len(locations) > _LOCATIONS_SHOWN)
    units = f"{unit}{'s' * (len(locations) > 1)}"
    return f"rows={len(locations)} with {kind} ({units} {shown}{more})"


@dataclass
class Rows:
    """The rows of a file or directory. They can be iterated over once.

    Columns without a header are named "0", "1", and so on. The columns of JSON are the keys of all
    objects, and the keys of inner objects as "outer.inner".
    """

    path: str
    format: str  # for the log
    columns: list[str]
    rows: Iterator[Row] = field(default_factory=lambda: iter(()))
    unit: str = "line"  # what the numbers of rows count

    def __post_init__(self) -> None:
        self.report = RowReport(self.path, self.unit)


def format_of(path: str) -> str | None:
    """Returns the format of a file by its extension; `None` if the extension is unknown."""
    return next((kind for end, kind in FORMATS.items() if path.lower().endswith(end)), None)


def header(first: Cells, second: Cells) -> tuple[bool, list[str]]:
    """Returns `True` and the names in a header. Delimiters at the end of every row are ignored."""
    names = [cell.strip() for cell in first]
    while names and not names[-1]:
        names.pop()
    return True, names


def read_rows(
    path: str,
    *,
    kind: str | None = None,
    lists: Sequence[str] = (),
    name_columns: Callable[[Cells, Cells], tuple[bool, list[str]]] = header,
    wanted: str = "",
) -> Rows:
    """Opens a file as rows.

    Blank lines are skipped and counted. If the file has a single column, blank lines before the
    last row are rows with an empty cell.

    Args:
        path: the file. ValueError is raised if it is missing, empty, or contains no object.
        kind: the format. If `None`, the extension determines it.
        lists: columns whose cells are lists of texts, see `rows_of`.
        name_columns: receives the cells of the first two rows of a file that is not JSON. Returns
            whether the first row is a header, and the names of the columns.
        wanted: an example of the expected objects, for errors.
    """
    kind = kind or format_of(path)
    if kind is None:
        raise UserError(
            f"The file name must end in one of {', '.join(FORMATS)}. Received: {path!r}"
        )
    text = read_text(path)
    if kind == JSON_LINES:
        return _json_rows(path, text, lists, wanted)
    lines, ahead = tee(_tsv_lines(text) if kind == TSV else _csv_lines(path, text))
    filled = (line for line in ahead if len(line[1]) > 1 or "".join(line[1]).strip())
    heads = [*islice(filled, 2)]
    if not heads:
        raise UserError(f"{path} is empty.")
    (number, first), (_, second) = (*heads, (0, []))[:2]
    has_header, columns = name_columns(first, second)
    rows = Rows(path, kind, columns)
    if has_header:
        lines = dropwhile(lambda line: line[0] <= number, lines)
    rows.rows = _named(rows.report, columns, lines, first if has_header else [])
    return rows


def _named(
    report: RowReport, columns: list[str], lines: Iterator[tuple[int, Cells]], header: Cells
) -> Iterator[Row]:
    """Yields the cells of each line by column. Lines with a wrong number of cells are malformed."""
    width, ending = len(columns), f" of {report.path}"
    blanks: list[int] = []
    for number, cells in lines:
        if not cells or (len(cells) == 1 < width and not cells[0].strip()):
            blanks.append(number)
            continue
        for blank in blanks:
            if width == 1:
                yield blank, JsonValue({columns[0]: ""}, f"line {blank}{ending}"), None
            else:
                report.add("nothing in them, skipped", blank)
        blanks.clear()
        where, problem = f"line {number}{ending}", None
        if len(cells) > width and not any(cells[width:]):
            del cells[width:]
        if len(cells) != width:
            few = "few" if len(cells) < width else "many"
            problem = UserError(f"{where} has too {few} columns: {len(cells)} instead of {width}.")
        elif cells == header[:width]:
            problem = UserError(f"{where} has the header again.")
        yield number, JsonValue(dict(zip(columns, cells, strict=False)), where), problem


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


def _tsv_lines(text: str) -> Iterator[tuple[int, Cells]]:
    # The module `csv` would end a row at a single carriage return.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        line = line.rstrip("\r")
        yield number, line.split("\t") if line else []


def _csv_lines(path: str, text: str) -> Iterator[tuple[int, Cells]]:
    rows: list[tuple[int, Cells]] = []
    line = 1
    limit = csv.field_size_limit(_LARGEST_CELL)  # of all readers in this process
    try:
        separator, text = _separator(path, text)
        # Without `strict`, an unclosed quotation mark would hide the following rows. UTF-8 needs
        # half the memory of a StringIO.
        file = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", newline="")
        reader = csv.reader(file, delimiter=separator, strict=True, skipinitialspace=True)
        for cells in reader:
            rows.append((line, cells))
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


def _json_rows(path: str, text: str, lists: Sequence[str], wanted: str) -> Rows:
    kind, unit = JSON_LINES, "line"
    found: list[tuple[int, Any]] | None = None
    problem = None  # of the text as one JSON value
    try:
        first, *others = (value for _, value in islice(json_values(text, path), 2))
        if not others and (table := rows_of(first, lists, path)) is not None:
            kind, unit, found = "JSON", "row", [*enumerate(table, start=1)]
        elif not others and isinstance(first, dict):
            found = [(1, first)]
    except JsonError as error:
        problem = UserError(f"{error} Expected: {wanted}.")
    if found is None:
        lines = enumerate(text.split("\n"), start=1)
        found = [(at, parse_row(path, line, at, wanted)) for at, line in lines if line.strip()]
    if not found:
        raise UserError(f"{path} contains no rows.")
    columns = _keys(row for _, row in found if isinstance(row, dict))
    if not columns and isinstance(found[0][1], UserError):
        is_lines = path.lower().endswith((".jsonl", ".ndjson"))
        raise found[0][1] if is_lines else problem or found[0][1]
    return Rows(path, kind, columns, _values(path, unit, found), unit)


def _keys(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the keys of all objects, and the keys of inner objects as "outer.inner"."""
    keys: dict[str, None] = {}
    for row in rows:
        for key, value in row.items():
            keys.setdefault(key)
            if isinstance(value, dict):
                keys.update(dict.fromkeys(f"{key}.{inner}" for inner in value))
    return [*keys]


def _values(path: str, unit: str, rows: list[tuple[int, Any]]) -> Iterator[Row]:
    for number, row in rows:
        problem = row if isinstance(row, UserError) else None
        yield number, JsonValue({} if problem else row, f"{unit} {number} of {path}"), problem


def value_at(row: JsonValue, column: str) -> JsonValue | None:
    """Returns the value in a column, see `Rows.columns`; `None` if it is missing or null."""
    is_missing = isinstance(row.value, dict) and column not in row.value  # faster than an object
    if (found := None if is_missing else row.get(column)) is not None or "." not in column:
        return found
    outer, inner = column.split(".", 1)
    found = row.get(outer)
    return found.get(inner) if found is not None and isinstance(found.value, dict) else None


def find_value(row: JsonValue, names: Sequence[str]) -> JsonValue | None:
    """Returns the value of the first column that exists and is not null."""
    for name in names:
        if (found := value_at(row, name)) is not None:
            return found
    return None


# What annotation tools store with a row that an annotator rejected or skipped
_REJECTED: dict[str, Sequence[Any]] = {
    "answer": ("reject", "ignore"),  # prodigy
    "was_cancelled": (True, "true", "True"),  # Label Studio
}
REJECTED = "an answer of the annotator other than accept, skipped"


def is_rejected(row: JsonValue, used: Container[str] = ()) -> bool:
    """Returns whether an annotator rejected or skipped a row. Columns in `used` have a meaning."""
    return any(
        name not in used and row.value.get(name) in values for name, values in _REJECTED.items()
    )


def literal(value: JsonValue) -> JsonValue:
    """Returns the value in the text of a cell, in JSON or as Python and pandas print it."""
    cell = value.value
    if not isinstance(cell, str):
        return value
    with suppress(JsonError):
        return JsonValue(parse_json(cell, value.where), value.where, value.keys)
    # NumPy prints lists without commas. Python would concatenate their texts.
    if not _NO_COMMA.search(cell):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            cell = ast.literal_eval(_ARRAY.sub(r"\1", cell))
    if isinstance(cell, tuple | set):
        cell = sorted(cell, key=repr) if isinstance(cell, set) else [*cell]
    return JsonValue(cell, value.where, value.keys)


def parse_row(path: str, line: str, number: int, wanted: str) -> dict[str, Any] | UserError:
    """Returns the object in a line, or the error if the line is malformed."""
    try:
        row = parse_json(line, path, line=number)
        if not isinstance(row, dict):
            raise JsonValue(row, f"line {number} of {path}").error("a JSON object")
        return row
    except JsonError as error:
        return UserError(f"{error} Expected: {wanted}.")


def rows_of(value: Any, lists: Sequence[str] = (), path: str = "") -> list[dict[str, Any]] | None:
    """Returns the rows of a table in one JSON value, or `None`.

    A table is a list of objects, or an object with a list per column, or an object written by
    pandas: "data" with a list of objects, or with lists of cells for "columns"; cells by column and
    index; or rows by index. An object is not a table, but a row, if a column in `lists` has texts.
    """
    parts = [*value.values()] if isinstance(value, dict) else []
    if parts and any(_has_texts(value.get(name)) for name in lists):
        return None
    match value:
        case {"columns": [*columns], "data": [*data]} if _are(list, data):
            names = [*map(str, columns)]
            if {*map(len, [{*names}, *data])} != {len(names)}:
                rule = (
                    '"columns" must be different, and every row of "data" must have a cell of each'
                )
                raise UserError(f"{path or 'A table'}: {rule}. Received: {listed(columns)}")
            value = [dict(zip(names, row, strict=True)) for row in data]
        case {"data": [*data]}:
            value = data
        case {} if _are(list, parts) and len({*map(len, parts)}) == 1:
            value = [dict(zip(value, row, strict=True)) for row in zip(*parts, strict=True)]
        case {} if parts and _are(dict, parts):
            is_index = _is_index(value, parts[0])
            value = parts if is_index else [{k: value[k].get(at) for k in value} for at in parts[0]]
    return value if isinstance(value, list) and _are(dict, value) else None


def _has_texts(cells: Any) -> bool:
    return isinstance(cells, list) and str in map(type, cells)


def _are(kind: type, values: Iterable[Any]) -> bool:
    return {*map(type, values)} <= {kind}


def _is_index(keys: Collection[str], inner: Collection[str]) -> bool:
    """Returns whether keys of pandas are numbers, unlike the inner keys, or more than these."""
    numbers = [all(map(str.isdigit, part)) for part in (keys, inner)]
    return numbers == [True, False] or (not any(numbers) and len(keys) > len(inner))
