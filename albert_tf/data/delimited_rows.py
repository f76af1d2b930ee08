"""TSV and CSV as rows of cells, blank lines and all."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator

from absl import logging

from albert_tf.data.rows import Cells, Oddities, Row

_SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n\0])"?\r?\n', re.IGNORECASE)
_MAX_FIELD_CHARACTERS = 2**31 - 1


def tab_separated(text: str, oddities: Oddities) -> Iterator[Row]:
    """Parts lines at tabs, and does nothing else: quotation marks are text.

    Args:
        text: what is in the file.
        oddities: grows while the rows are read.

    Returns:
        All lines; an empty one has no cells.
    """
    if "\n" not in text:  # line ends of very old programs
        text = text.replace("\r", "\n")
    has_nul, has_quotes = "\0" in text, '""' in text
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        line = line.rstrip("\r")
        cells: Cells = [*line.split("\t")] if line else []
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


def comma_separated(
    path: str, flag: str, text: str, is_header: Callable[[Cells], bool], oddities: Oddities
) -> Iterator[Row]:
    """Reads quoted rows, parted by commas, semicolons, tabs or what a first line `sep=` names.

    Args:
        path: the file, for errors.
        flag: the flag it came from, for errors.
        text: what is in it.
        is_header: whether a first row names the columns.
        oddities: grows while the rows are read.

    Returns:
        All rows but `sep=`; an empty line has no cells.

    Raises:
        ValueError: quotation marks are not as they should be; names the line.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    named = _SEPARATOR_LINE.match(text)
    text, skipped = (text[named.end() :], 1) if named else (text, 0)
    line = skipped + 1
    try:
        delimiter = named[1] if named else _delimiter(path, text, is_header)
        # Strict, so that a quotation mark that is never closed does not swallow the rows after it.
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        for cells in reader:
            if any("\0" in cell for cell in cells):
                oddities.add("NUL characters, kept", line)
            yield line, [*cells]
            line = skipped + reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{flag}: {path} is no CSV from line {line} on ({error}). Quote a cell that holds "
            "commas, quotation marks or line ends, and double the quotation marks inside; a file "
            "without quoting is a .tsv."
        ) from error


def _delimiter(path: str, text: str, is_header: Callable[[Cells], bool]) -> str:
    """What the first row has most of, if it is a header; else texts may hold more of anything."""
    # Other characters that Python takes for line ends belong to the row.
    first = text.lstrip("\r\n").partition("\n")[0].partition("\r")[0]
    delimiter = max(",;\t", key=first.count)
    if is_header([*next(csv.reader([first], delimiter=delimiter))]):
        return delimiter
    if delimiter in first and "," not in first:
        logging.warning(
            "%s: without a header it is read as parted by commas, so that its first row is a "
            "single cell; if it is parted by %r, its first line must be sep=%s",
            path,
            delimiter,
            delimiter,
        )
    return ","
