"""Rows of a table become labelled texts, and what a file of them holds is logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from absl import logging

from albert_tf.data.strict_json import listed, shown
from albert_tf.data.tables import Cells, Row, Table
from albert_tf.data.text_examples import NO_LABEL, TEST, TRAIN, Labels, TextExample

_MANY_CLASSES = 20
_CLASSES_NAMED = 20


@dataclass(frozen=True)
class ColumnIndices:
    """Where the columns of a file are, counted from 0.

    Attributes:
        text_a: the text, or the first of a pair.
        text_b: the second of a pair; None for single texts.
        label: None for a file without labels; not looked at in a test file.
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


def read_examples(
    table: Table,
    indices: ColumnIndices,
    split: str,
    labels: Labels | None,
    guid: Callable[[int, int], str],
    *,
    is_strict: bool,
) -> list[TextExample]:
    """Reads all rows of a file; empty cells past the last column are cut off.

    Rows without a label (see `NO_LABEL`) are left out of train and dev and counted. Those of a test
    file have no label, whatever its columns.

    Args:
        table: from `read_table`; its issues are logged.
        indices: where the columns are.
        split: train, dev or test.
        labels: what is predicted; None takes any class.
        guid: makes up the name of a row from its line in the file (from 1) and its number among
            the rows, those left out included (from 0). Not used with a column of names.
        is_strict: refuse rows with too many or too few cells or without a text, and repetitions
            of the header. Else they are counted, and left out of train and dev; in a test file,
            with which predictions must stay in line, missing texts are empty.

    Raises:
        ValueError: there is no row; a row is refused; not strict: fewer rows fit than do not, or
            none in a test file; none has a label; a label of train or dev is unknown. Names file,
            line and flag.
    """
    rows = _usable_rows(table, indices, split, is_strict)
    names: list[str | None] = [None] * len(rows)
    if split != TEST:
        found = [(cells[indices.label or 0] or "").strip() for _, (_, cells) in rows]
        is_class = labels.accepts if labels is not None else _found_classes(found).__contains__
        for at, (cell, (_, (line, _))) in enumerate(zip(found, rows, strict=True)):
            if cell and is_class(cell):
                names[at] = cell
            elif labels is not None and cell not in NO_LABEL:
                raise ValueError(
                    f"{table.flag}: line {line} of {table.path} has the unknown label "
                    f"{shown(cell)}. Allowed: {labels.allowed}."
                )
            else:
                table.issues.add("no label, skipped", line)
    examples = []
    for name, (number, (line, cells)) in zip(names, rows, strict=True):
        if name is None and split != TEST:
            continue
        texts = [cells[index] or "" for index in indices.texts]
        if not all(text.strip() for text in texts):
            table.issues.add("an empty text, kept", line)
        row_name = guid(line, number) if indices.guid is None else cells[indices.guid] or ""
        examples.append(TextExample(row_name, texts[0], texts[1] if texts[1:] else None, name))
    if not examples:
        raise ValueError(f"{table.flag}: no row of {table.path} has a label.")
    table.issues.log()
    return examples


def _usable_rows(
    table: Table, indices: ColumnIndices, split: str, is_strict: bool
) -> list[tuple[int, Row]]:
    """Rows of as many cells as there are columns, with their numbers among all rows from 0."""
    rows: list[tuple[int, Row]] = []
    count = misfits = 0
    for line, cells in table.rows:
        if not any(cells[indices.width :]):
            cells = cells[: indices.width]
        misfit = _misfit(table, indices, cells)
        if misfit and is_strict:
            raise ValueError(f"{table.flag}: line {line} of {table.path} has {misfit}.")
        if misfit:
            misfits += 1
            table.issues.add(f"{misfit}, {'kept' if split == TEST else 'skipped'}", line)
        if not misfit or split == TEST:
            missing = indices.width - len(cells)
            rows.append((count, (line, cells + [None] * missing)))
        count += 1
    if not count:
        columns = listed(table.columns or [])
        raise ValueError(f"{table.flag}: {table.path} has a header and no rows: {columns}")
    fits = count - misfits
    if not fits or (fits < misfits and split != TEST):
        raise ValueError(
            f"{table.flag}: only {fits} of the {count} rows of {table.path} can be used; "
            f"{indices.width} columns are expected: {'; '.join(table.issues.messages())}"
        )
    return rows


def _misfit(table: Table, indices: ColumnIndices, cells: Cells) -> str:
    """What a row has that it should not; "" if nothing."""
    if cells == table.header:
        return "the header again"
    if len(cells) != indices.width:
        return f"too {'few' if len(cells) < indices.width else 'many'} columns"
    if any(cells[index] is None for index in indices.texts):
        return "no text (no such key, null, a list or an object)"
    return ""


def _found_classes(cells: Sequence[str]) -> set[str]:
    """Whatever is no mark of a missing label; "-" is a class beside "+"."""
    names = {*cells}
    return names if "+" in names else names.difference(NO_LABEL)


def log_labels(path: str, split: str, examples: Sequence[TextExample], labels: Labels) -> None:
    """Logs how many rows each class has, or range and mean of the numbers.

    Warns of a file with one label only, and of training data with so many classes that they may be
    numbers or texts.

    Args:
        path: the file, for the messages.
        split: train, dev or test.
        examples: its rows.
        labels: what is predicted.
    """
    found = [example.label for example in examples if example.label is not None]
    counts = Counter(found)
    text = "without labels"
    if found and labels.is_regression:
        numbers = labels.encode(found)
        text = f"labels from {numbers.min():g} to {numbers.max():g}, mean {numbers.mean():g}"
    elif found:
        names = dict.fromkeys(labels.names, 0) | counts
        shares = [f"{name}: {count} ({count / len(found):.1%})" for name, count in names.items()]
        more = f", and {len(shares) - _CLASSES_NAMED} more" * (len(shares) > _CLASSES_NAMED)
        text = f"labels {', '.join(shares[:_CLASSES_NAMED])}{more}"
    logging.info("%s: split=%s rows=%d %s", path, split, len(examples), text)
    if len(counts) == 1:
        logging.warning("%s: all %d rows have the label %r", path, len(examples), *counts)
    is_many = len(counts) > max(_MANY_CLASSES, len(examples) / 2)
    if is_many and split == TRAIN and not labels.is_regression:
        logging.warning(
            "%s: %d different labels in %d rows; are they classes? --label_column names their "
            "column, --regression predicts numbers",
            path,
            len(counts),
            len(examples),
        )
