"""What the columns of a file mean: one declaration for each kind of data.

A `Schema` finds the columns by their names in this package or in other data sets, reads each row
with its fields, counts malformed rows, and treats rows without a label alike for all tasks.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from absl import logging

from albert_tf.data.errors import UserError, visible
from albert_tf.data.rows import REJECTED, Rows, find_value, is_rejected
from albert_tf.data.splits import TEST
from albert_tf.data.strict_json import JsonError, JsonValue, listed

E = TypeVar("E")
Found = dict[str, tuple["Field", list[str]]]  # the fields of a layout with their columns

LABEL = "label"  # name of the field that contains the label
NO_LABEL: Final = ("", "-")  # cells of rows without a label; SNLI uses "-" if annotators disagreed
_COUNTS_SHOWN = 20
_FEWEST_ROWS = 10  # the labels of fewer rows can be the same by chance


class LabelError(UserError):
    """Raised if the label of an otherwise valid row is not allowed."""


def text(value: JsonValue) -> str:
    """Reads a text."""
    return value.whole_text()


def as_is(value: JsonValue) -> JsonValue:
    """Reads a value that the other values of its row explain."""
    return value


@dataclass(frozen=True)
class Field:
    """A value of each row: the names of its column, and how it is read.

    The first name with a value is used. Case is ignored if there is no exact match of a name.
    """

    names: Sequence[str]  # in this package, then in other data sets
    read: Callable[[JsonValue], Any] = text  # raises ValueError if a value is malformed
    is_required: bool = True  # whether the column must exist, and have values without `default`
    setting: str = ""  # argument that selects the column; several of the names are an error
    is_pattern: bool = False  # the name is a regular expression for one or several columns
    default: Any = None  # value of rows without one

    def find(self, columns: Sequence[str]) -> list[str]:
        """Returns the columns of a file that this field reads, in the order of the names."""
        if self.is_pattern:
            return sorted(
                name for name in columns if re.fullmatch(self.names[0], name, re.IGNORECASE)
            )
        found: list[str] = []
        for name in self.names:
            exact = [column for column in columns if column == name]
            if exact and self.setting and name == self.names[0]:
                return exact
            similar = [column for column in columns if column.lower() == name.lower()]
            found += similar if self.setting else exact or similar
        return found

    def is_found(self, columns: Sequence[str]) -> bool:
        """Returns whether the field can read the result of `find`."""
        if not columns:
            return not self.is_required
        return len(columns) == (1 if self.setting else len({*columns}))

    def value(self, row: JsonValue, name: str, columns: Sequence[str]) -> Any:
        """Returns the value of a row, given the name of the field and the result of `find`."""
        if self.is_pattern and len(columns) > 1:
            count = sum(column in row.value for column in columns)  # the last ones may be missing
            found = [row.value.get(column) for column in columns[:count]]
            return self.read(JsonValue(found, row.where, name))
        value = find_value(row, columns)
        if value is not None:
            return self.read(value)
        if self.is_required and self.default is None and self.read is not as_is:
            raise UserError(f"{row.where} has no {columns[0]!r} (no such key, or null).")
        return self.default


@dataclass(frozen=True)
class Schema(Generic[E]):
    """The fields of each row, and the example that their values make.

    `make` receives the index of a row, from 0, its number in the file, and the values by field.
    `find_label` receives the label and the values of the other fields. It returns `None` if the
    row has no label, and raises ValueError if the label is not allowed.
    """

    make: Callable[..., E]
    layouts: Sequence[Mapping[str, Field]]  # fields by name, here and in other data sets
    find_label: Callable[[JsonValue, Mapping[str, Any]], Any] = lambda value, values: value.value
    what: str = "row"  # in messages
    is_strict: bool = False  # whether a label that is not allowed is an error, and not counted
    keeps_malformed: bool = False  # whether test files keep malformed rows, with their texts
    most_malformed: float = 0.01  # share of rows

    def choose(self, rows: Rows) -> Found:
        """Returns the first layout that matches the columns, preferably with a label; logs it."""
        layouts = [
            {name: (field, field.find(rows.columns)) for name, field in fields.items()}
            for fields in self.layouts
        ]
        complete = [
            found for found in layouts if all(field.is_found(c) for field, c in found.values())
        ]
        if not complete:
            raise self._missing(rows, layouts)
        chosen = max(complete, key=lambda found: bool(found.get(LABEL, ("", ()))[1]))
        used = {column for _, columns in chosen.values() for column in columns}
        parts = [f"{name}: {listed(columns)}" for name, (_, columns) in chosen.items() if columns]
        used |= {column.partition(".")[0] for column in used}
        unused = [name for name in rows.columns if used.isdisjoint((name, name.partition(".")[0]))]
        if unused:
            parts.append(f"not used: {listed(unused)}")
        logging.info("Reading %s as %s (%s)", rows.path, rows.format, ", ".join(parts))
        return chosen

    def _missing(self, rows: Rows, layouts: Sequence[Found]) -> UserError:
        """Returns the error for a column of the first layout that is missing or ambiguous."""
        field, found = next(c for c in layouts[0].values() if not c[0].is_found(c[1]))
        advice = f" `{field.setting}` selects the column, by number if the file has no header."
        if len(layouts) > 1:
            known = "; ".join(
                ", ".join(f.names[0] for f, _ in fields.values()) for fields in layouts
            )
            advice = f" Expected one of: {known}."
        elif len(rows.columns) == 1 and (other := re.search("[,;\t|]", rows.columns[0])):
            advice = f" Separated by {other[0]!r}? Use commas in .csv files, otherwise tabs."
        elif not field.setting:
            advice = " Rename the columns."
        return UserError(
            f"{rows.path} has {len(found) or 'no'} column{'s' * (len(found) > 1)} named "
            f"{' or '.join(map(repr, field.names))}. Its columns: {listed(rows.columns)}.{advice}"
        )

    def each(self, rows: Rows, split: str) -> Iterator[E]:
        """Yields the examples; counts rows that are malformed or have no label.

        In train and dev, rows without a label (missing, null, "" or "-") are skipped. Examples of a
        test file without a label, or with a label that is not allowed, have the label `None`.
        Raises ValueError if a required column is missing, or if too many rows are malformed.
        """
        found, report, is_test = self.choose(rows), rows.report, split == TEST
        used = {column for _, columns in found.values() for column in columns}
        keeps_malformed = self.keeps_malformed and is_test
        malformed = f"malformed values, {'kept' if keeps_malformed else 'skipped'}"
        unlabelled: list[int | str] = []
        count = 0
        for count, (number, row, problem) in enumerate(rows.rows, start=1):
            try:
                if problem:
                    raise problem
                if not is_test and is_rejected(row, used):
                    report.add(REJECTED, number)
                    continue
                values = self._values(row, found, is_test)
                if values.get(LABEL, "") is None:
                    unlabelled.append(number)
                    if not is_test:
                        continue
                example = self.make(count - 1, number, **values)
            except UserError as error:
                is_label = isinstance(error, LabelError)
                if is_label and self.is_strict:
                    raise
                report.add("an invalid label, skipped" if is_label else malformed, number, error)
                if not keeps_malformed:
                    continue
                example = self.make(count - 1, number, **_known(row, found))
            yield example
        report.check(count, self.most_malformed)
        kind = "no label, skipped"
        if is_test:
            kind = f"no label, while other {self.what}s have labels: all labels are ignored"
        if not is_test or len(unlabelled) < count - len(report.errors):
            for number in unlabelled:
                report.add(kind, number)
        report.log()

    def _values(self, row: JsonValue, found: Found, is_test: bool) -> dict[str, Any]:
        """Returns the values of a row. Missing labels, and invalid labels of tests, are `None`."""
        values = {name: field.value(row, name, columns) for name, (field, columns) in found.items()}
        if values.get(LABEL) is None:
            return values
        label = values.pop(LABEL)
        try:
            return values | {LABEL: self.find_label(label, values)}
        except UserError as error:
            if is_test or label.value in NO_LABEL:
                return values | {LABEL: None}
            place = "" if isinstance(error, JsonError) else f"{label.where}: "
            raise LabelError(f"{place}{error}") from error

    def read(self, rows: Rows, split: str) -> list[E]:
        """Returns all examples, see `each`. Labels of a test file are used only if all are valid.

        Raises ValueError also if no row (of train or dev: with a label) is left.
        """
        examples: list[Any] = [*self.each(rows, split)]
        if not examples:
            raise UserError(
                f"No {self.what} {'has a label' if rows.report.locations else 'exists'} in "
                f"{rows.path}, the {split} data. Its columns: {listed(rows.columns)}."
            )
        if split == TEST and any(example.label is None for example in examples):
            examples = [replace(example, label=None) for example in examples]
        return examples


def _known(row: JsonValue, found: Found) -> dict[str, Any]:
    """Returns the texts and numbers in a malformed row, "" for other values."""
    cells = {name: row.value.get(columns[0]) for name, (_, columns) in found.items() if columns}
    return {n: str(cell) if isinstance(cell, str | int) else "" for n, cell in cells.items()}


def log_counts(
    path: str, split: str, what: str, number: int, counts: Mapping[str, int], labels: str = ""
) -> None:
    """Logs `labels`, or how many rows have each label. Warns if all rows have the same label."""
    if not labels and any(counts.values()):
        shown = [*counts.items()][:_COUNTS_SHOWN]
        shares = ", ".join(f"{visible(name)}: {n} ({n / number:.1%})" for name, n in shown)
        more = f", and {len(counts) - len(shown)} more" * (len(counts) > len(shown))
        labels = f"labels {shares}{more}"
    logging.info("%s: %d %ss (%s), %s", path, number, what, split, labels or "without labels")
    for name, n in counts.items():
        if n == number >= _FEWEST_ROWS:
            logging.warning("%s: all %d %ss have the label %r", path, number, what, name)
