"""Rows of a table become labelled texts: what is odd is counted and named, nothing is shifted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from albert_tf.data.rows import Cells
from albert_tf.data.strict_json import listed, shown
from albert_tf.data.table_rows import Table
from albert_tf.data.text_examples import TEST, Labels, TextExample

# What rows without a label have in their place, unless it is a class. "-" is how SNLI and its like
# mark what the annotators did not agree on.
NO_LABEL = ("", "-")


@dataclass(frozen=True)
class Places:
    """Where the columns of a file are, counted from 0.

    Attributes:
        text_a: the text, or the first of a pair.
        text_b: the second of a pair; None for single texts.
        label: None for a file without labels.
        guid: names of rows; None to make them up.
        width: number of cells in a row.
    """

    text_a: int
    text_b: int | None
    label: int | None
    guid: int | None
    width: int

    @property
    def texts(self) -> tuple[int, ...]:
        """Where the texts are."""
        return (self.text_a,) if self.text_b is None else (self.text_a, self.text_b)


class _FittedRow(NamedTuple):
    """A row with as many cells as there are columns; `number` counts all rows from 0."""

    number: int
    line: int
    cells: Cells


def read_examples(
    table: Table,
    places: Places,
    split: str,
    labels: Labels | None,
    guid: Callable[[int, int], str],
) -> list[TextExample]:
    """Reads all rows of a file.

    * Empty cells past the last column are cut off. Other rows with too many or too few cells, or
      without a text, and repetitions of the header are left out; of a test file none is left out,
      since predictions must stay in line with it: missing texts are empty there, and cells too
      many are not looked at.
    * Rows without a label (see `NO_LABEL`) are left out of train and dev.
    * The labels of a test file are used only if all of them are labels.

    Args:
        table: from `read_table`; its oddities are logged.
        places: where the columns are.
        split: train, dev or test.
        labels: what is predicted; None takes any class.
        guid: makes up the name of a row from its line in the file (from 1) and its number among
            the rows, those left out included (from 0). Not used with a column of names.

    Raises:
        ValueError: there is no row; fewer rows fit than do not, or none in a test file; none has a
            label; a label of train or dev is unknown. Names file, line and flag.
    """
    rows = _fitted_rows(table, places, split)
    names = _labels(table, places, split, labels, rows)
    examples = [
        _example(table, places, row, name, guid)
        for row, name in zip(rows, names, strict=True)
        if name is not None or split == TEST
    ]
    if not examples:
        raise ValueError(f"{table.flag}: no row of {table.path} has a label.")
    table.oddities.log()
    return examples


def _fitted_rows(table: Table, places: Places, split: str) -> list[_FittedRow]:
    rows: list[_FittedRow] = []
    number = misfits = 0
    for number, (line, cells) in enumerate(table.rows, start=1):
        cells = _without_empty_end(table, places, line, cells)
        misfit = _misfit(table, places, cells)
        if misfit:
            misfits += 1
            table.oddities.add(f"{misfit}, {'kept' if split == TEST else 'left out'}", line)
        if not misfit or split == TEST:
            missing = places.width - len(cells)
            rows.append(_FittedRow(number - 1, line, cells + [None] * missing))
    if not number:
        columns = listed(table.columns or [])
        raise ValueError(f"{table.flag}: {table.path} has a header and no rows: {columns}")
    fits = number - misfits
    if not fits or (fits < misfits and split != TEST):
        raise ValueError(
            f"{table.flag}: only {fits} of the {number} rows of {table.path} can be used; "
            f"{places.width} columns are expected: {'; '.join(table.oddities.messages())}"
        )
    return rows


def _without_empty_end(table: Table, places: Places, line: int, cells: Cells) -> Cells:
    if len(cells) <= places.width or any(cells[places.width :]):
        return cells
    table.oddities.add("empty cells past the last column, cut off", line)
    return cells[: places.width]


def _misfit(table: Table, places: Places, cells: Cells) -> str:
    """What is wrong with a row; "" if nothing is."""
    if cells == table.header:
        return "the header once more"
    if len(cells) < places.width:
        return "too few columns"
    if len(cells) > places.width:
        return "too many columns"
    if any(cells[place] is None for place in places.texts):
        return "no text (no such key, null, a list or an object)"
    return ""


def _labels(
    table: Table, places: Places, split: str, labels: Labels | None, rows: Sequence[_FittedRow]
) -> list[str | None]:
    """The label of each row; None where it has none."""
    if places.label is None:
        return [None] * len(rows)
    cells = [(row.cells[places.label] or "").strip() for row in rows]
    accepts = _found(cells) if labels is None else labels.accepts
    names = [cell if cell and accepts(cell) else None for cell in cells]
    unlabelled = [
        (row.line, cell) for row, cell, name in zip(rows, cells, names, strict=True) if name is None
    ]
    if split == TEST:
        return _all_or_none(table, names, unlabelled)
    for line, cell in unlabelled:
        if labels is not None and cell not in NO_LABEL:
            raise ValueError(
                f"{table.flag}: line {line} of {table.path} has the unknown label {shown(cell)}. "
                f"Allowed: {labels.allowed}."
            )
        table.oddities.add("no label, left out", line)
    return names


def _all_or_none(
    table: Table, names: list[str | None], unlabelled: Sequence[tuple[int, str]]
) -> list[str | None]:
    """The labels of a test file, or none of them if one is missing or unknown."""
    done = "the file is taken as one without labels"
    for line, cell in unlabelled:
        if cell not in NO_LABEL:
            table.oddities.add(f"an unknown label: {done}", line)
        elif any(names):
            table.oddities.add(f"no label where others have one: {done}", line)
    return [None] * len(names) if unlabelled else names


def _found(cells: Sequence[str]) -> Callable[[str], bool]:
    """Takes for a class whatever is no mark of a missing label; "-" is a class beside "+"."""
    names = {*cells}
    return (names if "+" in names else names.difference(NO_LABEL)).__contains__


def _example(
    table: Table,
    places: Places,
    row: _FittedRow,
    label: str | None,
    guid: Callable[[int, int], str],
) -> TextExample:
    name = guid(row.line, row.number) if places.guid is None else row.cells[places.guid] or ""
    text_a, *text_b = (row.cells[place] or "" for place in places.texts)
    if not text_a.strip():
        table.oddities.add("an empty text, kept", row.line)
    if text_b and not text_b[0].strip():
        table.oddities.add("an empty second text, kept", row.line)
    return TextExample(name, text_a, text_b[0] if text_b else None, label)
