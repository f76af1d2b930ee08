"""Rows of a table become labelled texts: what is odd is counted and named, nothing is shifted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from albert_tf.data.table_rows import Cells, Table
from albert_tf.data.text_examples import TEST, Labels, TextExample

NO_LABEL = ("", "-")  # "-" is how SNLI and its like mark rows the annotators did not agree on


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


def read_examples(
    table: Table,
    places: Places,
    split: str,
    labels: Labels | None,
    guid: Callable[[int, int], str],
) -> list[TextExample]:
    """Reads all rows of a file.

    * Empty cells past the last column are cut off. Other rows with too many or too few cells are
      left out; of a test file none is left out, since predictions must stay in line with it:
      missing texts are empty there, and cells too many are not looked at.
    * Rows without a label ("", or "-" where that is no class) are left out of train and dev.
    * The labels of a test file are used only if all of them are labels.

    Args:
        table: from `read_table`; its oddities are logged.
        places: where the columns are.
        split: train, dev or test.
        labels: what is predicted; None takes any class.
        guid: makes up the name of a row from its line in the file (from 1) and its number among
            the rows, those left out included (from 0). Not used with a column of names.

    Raises:
        ValueError: no row can be used, or fewer than have a wrong number of columns; a label of
            train or dev is unknown. Names file, line and flag.
    """
    examples = []
    misfits = 0
    for number, (line, cells) in enumerate(table.rows):
        fitted = _fitted(table, places, split, line, cells)
        if fitted is None:
            misfits += 1
            continue
        label = _label(table, places, line, fitted, labels, strict=split != TEST)
        if label is None and split != TEST:
            table.oddities.add("no label, left out", line)
            continue
        name = guid(line, number) if places.guid is None else fitted[places.guid] or ""
        text_a, *text_b = (fitted[place] or "" for place in places.texts)
        if not text_a.strip():
            table.oddities.add("an empty text, kept", line)
        if text_b and not text_b[0].strip():
            table.oddities.add("an empty second text, kept", line)
        examples.append(TextExample(name, text_a, text_b[0] if text_b else None, label))
    table.oddities.log()
    if not examples or len(examples) < misfits:
        raise ValueError(
            f"{table.flag}: only {len(examples)} rows of {table.path} can be used, {misfits} have "
            f"not {places.width} columns as its first row has, or no label."
        )
    labelled = sum(example.label is not None for example in examples)
    if 0 < labelled < len(examples):
        return [replace(example, label=None) for example in examples]
    return examples


def _fitted(table: Table, places: Places, split: str, line: int, cells: Cells) -> Cells | None:
    """The row in its width; None when it is left out."""
    if len(cells) > places.width and not any(cells[places.width :]):
        table.oddities.add("empty cells past the last column, cut off", line)
        cells = cells[: places.width]
    missing = len(cells) < places.width or any(cells[place] is None for place in places.texts)
    if not missing and len(cells) == places.width:
        return cells
    kind = "too few columns" if missing else "too many columns"
    done = "kept" if split == TEST else "left out"
    table.oddities.add(f"{kind}, {done}", line)
    return cells + [None] * (places.width - len(cells)) if split == TEST else None


def _label(
    table: Table, places: Places, line: int, cells: Cells, labels: Labels | None, strict: bool
) -> str | None:
    """The label of a row; None where it has none, or an unknown one in a test file."""
    cell = None if places.label is None else cells[places.label]
    if cell is None:
        return None
    label = cell.strip()
    if label and (labels is None or labels.accepts(label)):
        return label
    if labels is not None and label not in NO_LABEL:
        if strict:
            raise ValueError(
                f"{table.flag}: line {line} of {table.path} has the unknown label {label!r}. "
                f"Allowed: {labels.allowed}."
            )
        table.oddities.add("an unknown label: the file is taken as one without labels", line)
    return None
