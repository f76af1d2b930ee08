"""Labelled texts: GLUE's files, or custom files in TSV, CSV or JSON Lines.

Columns of GLUE are found by their names in the header, in any order. If the header contains none of
GLUE's names, GLUE's column order is assumed, as in the original release.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, folder_names
from albert_tf.data.strict_json import listed, shown
from albert_tf.data.tables import Cells, Row, Table, is_column_number, read_table
from albert_tf.data.text_examples import (
    DEV,
    GLUE_TASKS,
    LABEL_SEPARATOR,
    NO_LABEL,
    TEST,
    TRAIN,
    Columns,
    Labels,
    TextExample,
    decimal_number,
    glue_task_name,
    plain_name,
    split_labels,
    warn_of_doubtful_labels,
)

_MANY_CLASSES = 20
_CLASSES_NAMED = 20


@dataclass(frozen=True)
class ColumnIndices:
    """Indices of the columns of a file, from 0."""

    text_a: int  # the text, or the first of a pair
    text_b: int | None  # `None` for single texts
    label: int | None  # `None` without labels; ignored in test files
    guid: int | None  # names of rows; `None` if they are generated
    width: int  # number of cells in a row

    @property
    def texts(self) -> tuple[int, ...]:
        """Indices of the text columns."""
        return (self.text_a,) if self.text_b is None else (self.text_a, self.text_b)


def read_examples(
    table: Table,
    indices: ColumnIndices,
    split: str,
    labels: Labels | None,
    guid: Callable[[int, int], str],
    *,
    is_strict: bool,
    multi_label: bool = False,
) -> list[TextExample]:
    """Reads all rows of a file; empty cells after the last column are removed.

    Train and dev rows without a label are skipped and counted. Test examples have no label.

    Args:
        table: the rows.
        indices: the columns.
        split: "train", "dev" or "test".
        labels: the allowed labels. If `None`, all classes are allowed.
        guid: returns the name of a row from its line in the file, from 1, and its number among all
            rows, from 0. Not used if a column contains names.
        is_strict: whether to reject rows with a wrong number of cells or without a text, and
            repeated headers. Otherwise, such rows are counted, and skipped in train and dev.
        multi_label: whether a label is any number of classes, see `Labels`.

    Raises:
        ValueError: a row or a label is rejected, or most rows are unusable.
    """
    rows = _usable_rows(table, indices, split, is_strict)
    names: list[str | None] = [None] * len(rows)
    if split != TEST:
        found = [cells[indices.label or 0] for _, (_, cells) in rows]
        no_labels = _no_labels(found, labels, multi_label)
        for at, (cell, (_, (line, _))) in enumerate(zip(found, rows, strict=True)):
            if cell is None or cell.strip() in no_labels:
                table.issues.add("no label, skipped", line)
                continue
            try:
                names[at] = _label(cell.strip(), labels, multi_label)
            except ValueError as error:
                raise UserError(f"line {line} of {table.path}: {error}") from error
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
        raise UserError(f"no row of {table.path} has a label.")
    table.issues.log()
    return examples


def _no_labels(
    cells: Sequence[str | None], labels: Labels | None, multi_label: bool
) -> Sequence[str]:
    """Returns the cells that mean that a row has no label."""
    if multi_label:
        return ("-",)
    if labels is not None:
        return [cell for cell in NO_LABEL if not labels.accepts(cell)]
    has_plus = any((cell or "").strip() == "+" for cell in cells)  # then "-" is a class, too
    return ("",) if has_plus else NO_LABEL


def _label(cell: str, labels: Labels | None, multi_label: bool) -> str:
    """Returns the label of a row; raises ValueError if it is not allowed."""
    if labels is not None and not labels.accepts(cell):
        raise UserError(f"unknown label {shown(cell)}. Allowed: {labels.allowed}.")
    return LABEL_SEPARATOR.join(split_labels(cell)) if multi_label else cell


def _usable_rows(
    table: Table, indices: ColumnIndices, split: str, is_strict: bool
) -> list[tuple[int, Row]]:
    """Returns rows padded to the number of columns, with their numbers among all rows."""
    rows: list[tuple[int, Row]] = []
    count = num_mismatches = 0
    for line, cells in table.rows:
        if not any(cells[indices.width :]):
            cells = cells[: indices.width]
        mismatch = _mismatch(table, indices, cells)
        if mismatch and is_strict:
            raise UserError(f"line {line} of {table.path} has {mismatch}.")
        if mismatch:
            num_mismatches += 1
            table.issues.add(f"{mismatch}, {'kept' if split == TEST else 'skipped'}", line)
        if not mismatch or split == TEST:
            missing = indices.width - len(cells)
            rows.append((count, (line, cells + [None] * missing)))
        count += 1
    if not count:
        columns = listed(table.columns or [])
        raise UserError(f"{table.path} has a header and no rows: {columns}")
    num_usable = count - num_mismatches
    if not num_usable or (num_usable < num_mismatches and split != TEST):
        raise UserError(
            f"only {num_usable} of the {count} rows of {table.path} can be used; "
            f"{indices.width} columns are expected: {'; '.join(table.issues.messages())}"
        )
    return rows


def _mismatch(table: Table, indices: ColumnIndices, cells: Cells) -> str:
    """Returns why a row does not match the columns; "" if it matches."""
    if cells == table.header:
        return "the header again"
    if len(cells) != indices.width:
        return f"too {'few' if len(cells) < indices.width else 'many'} columns"
    if any(cells[index] is None for index in indices.texts):
        return "no text (no such key, null, a list or an object)"
    return ""


def log_labels(path: str, split: str, examples: Sequence[TextExample], labels: Labels) -> None:
    """Logs counts of classes, or range and mean of numbers; warns of one or too many classes."""
    found = [example.label for example in examples if example.label is not None]
    counts = Counter(found)
    if labels.multi_label:
        counts = Counter(name for cell in found for name in split_labels(cell))
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
    if len(counts) == 1 and not labels.multi_label:
        logging.warning("%s: all %d rows have the label %r", path, len(examples), *counts)
    is_many = len(counts) > max(_MANY_CLASSES, len(examples) / 2)
    if is_many and split == TRAIN and not labels.is_regression:
        logging.warning(
            "%s: %d different labels in %d rows. If they are not classes, pass --label_column, or "
            "--regression to predict numbers",
            path,
            len(counts),
            len(examples),
        )


_ID_NAMES = ("index", "id", "idx")
_LABEL_NAMES = ("gold_label", "label", "score", "quality", "is_duplicate")


class GlueData:
    """The files of a GLUE task.

    Rows have the names of the original: the first column, or `<split>-<row>` in train and dev of
    CoLA, MRPC and SST-2, where the first row of a file is row 0.

    Args:
        task_name: name of the task in any case.
        data_dir: GLUE's download directory, or the directory of the task.

    Attributes:
        name: the task in lower case.
        labels: the classes, or a regression.
        best_metric: score that selects the best checkpoint.
        metrics: scores in addition to accuracy or mean squared error: any of "f1", "matthews",
            "pearson", "spearman".
        submission_file: name of the file for GLUE's server; `None` for other data.

    Differs: test rows have no label, columns are found by name, and train and dev rows of the wrong
        length are skipped. The original invents labels for test rows, and otherwise fails or reads
        wrong cells.
    """

    def __init__(self, task_name: str, data_dir: str) -> None:
        self.name = glue_task_name(task_name)
        self.data_dir = data_dir
        self._task = GLUE_TASKS[self.name]
        self.labels = self._task.labels
        self.best_metric = self._task.best_metric
        self.metrics = self._task.metrics
        self.submission_file: str | None = self._task.submission_file

    def file(self, split: str) -> str:
        """Returns the path of a split's file, which need not exist."""
        task = self._task
        folders = (split == TEST and task.test_folders) or (task.folder,)
        names = {TRAIN: ("train.tsv",), DEV: (task.dev_file,), TEST: task.test_files}[split]
        candidates = [os.path.join(self._folder(f), name) for f in folders for name in names]
        return next(filter(file_exists, candidates), candidates[0])

    def _folder(self, name: str) -> str:
        """Returns the directory of a task, matched without case, or `data_dir` itself."""
        matches = [found for found in self._folders if plain_name(found) == plain_name(name)]
        if matches:
            return os.path.join(self.data_dir, name if name in matches else matches[0])
        own = plain_name(os.path.basename(os.path.abspath(self.data_dir)))
        others = {plain_name(task.folder) for task in GLUE_TASKS.values()} - {plain_name(name)}
        has_files = any(found.endswith(".tsv") for found in self._folders)
        is_own = own == plain_name(name) or (has_files and own not in others)
        return self.data_dir if is_own else os.path.join(self.data_dir, name)

    @cached_property
    def _folders(self) -> list[str]:
        return folder_names(self.data_dir)

    def read(self, split: str) -> list[TextExample]:
        """Reads a split; unusable rows are skipped, counted and logged."""
        path = self.file(split)
        if not file_exists(path):
            raise UserError(
                f"there is no file {path!r}, the {split} data of `task_name`={self.name}. "
                f"`data_dir` must be the directory that contains {self._task.folder}/, or that "
                f"directory itself. Received: {self.data_dir!r}"
            )
        table, indices = self._table(path, split)
        if self._task.cuts_long_rows and split != TEST:
            table = replace(table, rows=self._cut_rows(table, indices))
        # Lines are counted from 1; the original counts rows from 0.
        examples = read_examples(
            table,
            indices,
            split,
            self.labels,
            lambda line, row: str(row) if split == TEST else f"{split}-{line - 1}",
            is_strict=False,
        )
        log_labels(path, split, examples, self.labels)
        return examples

    def _table(self, path: str, split: str) -> tuple[Table, ColumnIndices]:
        columns = self._task.unlabelled if split == TEST else self._task.labelled

        def is_header(cells: Cells) -> bool:
            # Names are never numbers, and every data row of GLUE has a label or an index.
            is_data = any((cell or "").strip().isdigit() for cell in cells)
            return self._has_text_names(cells) or (columns.has_header and not is_data)

        table = read_table(path, is_header=is_header)
        if table.columns and self._has_text_names(table.columns):
            return table, self._named_columns(table, columns)
        return table, self._usual_columns(table, columns)

    def _cut_rows(self, table: Table, indices: ColumnIndices) -> Iterator[Row]:
        """Removes extra cells of rows whose label column contains a label."""
        width, label = indices.width, indices.label or 0
        for line, cells in table.rows:
            if any(cells[width:]) and self.labels.accepts(cells[label] or ""):
                table.issues.add("too many columns, extra ones ignored", line)
                cells = cells[:width]
            yield line, cells

    def _has_text_names(self, cells: Sequence[str | None]) -> bool:
        names = {(cell or "").strip().lower() for cell in cells}
        return any(name in names for options in self._task.text_names for name in options)

    def _named_columns(self, table: Table, columns: Columns) -> ColumnIndices:
        texts = [_required_index(table, options) for options in self._task.text_names]
        return ColumnIndices(
            text_a=texts[0],
            text_b=texts[1] if len(texts) > 1 else None,
            label=None if columns.label is None else _required_index(table, _LABEL_NAMES),
            guid=None if columns.guid is None else _index(table, _ID_NAMES),
            width=table.width,
        )

    def _usual_columns(self, table: Table, columns: Columns) -> ColumnIndices:
        """Returns the columns in GLUE's order; every row must have as many."""
        width = table.width if table.width in columns.widths else columns.widths[0]
        if table.columns is not None and width != table.width:
            raise UserError(
                f"{table.path} has {table.width} columns ("
                f"{listed(table.columns)}), but {self._task.folder} has "
                f"{' or '.join(map(str, columns.widths))}, "
                f"{' and '.join(repr(options[0]) for options in self._task.text_names)} among "
                "them. `task_name`=custom reads any columns."
            )
        if table.columns is not None or columns.has_header:
            logging.warning(
                "%s: the first row %s; assuming GLUE's column order",
                table.path,
                "has none of GLUE's names" if table.columns else "is data, not a header",
            )
        return ColumnIndices(
            text_a=columns.text_a,
            text_b=columns.text_b,
            label=None if columns.label is None else columns.label % width,
            guid=columns.guid,
            width=width,
        )


def _index(table: Table, options: Sequence[str]) -> int | None:
    """Returns the index of the first name that the header contains in any case."""
    names = [name.lower() for name in table.columns or []]
    name = next((option for option in options if option in names), None)
    if name is not None and names.count(name) > 1:
        raise UserError(
            f"{table.path} has {names.count(name)} columns named {name!r}, which is "
            f"ambiguous. Its columns: {listed(names)}"
        )
    return None if name is None else names.index(name)


def _required_index(table: Table, options: Sequence[str]) -> int:
    index = _index(table, options)
    if index is None:
        raise UserError(
            f"{table.path} has no column {' or '.join(map(repr, options))}. "
            f"Its columns: {listed(table.columns or [])}"
        )
    return index


TEXT_A, TEXT_B, LABEL = "text_a", "text_b", "label"

_A_FLAG, _B_FLAG, _LABEL_FLAG = "`text_a_column`", "`text_b_column`", "`label_column`"


class CustomData:
    """Custom files, with the same attributes as `GlueData`.

    Columns are named, or numbered from 0 in files without a header. Labels are strings, or finite
    decimal numbers for regression. Train and dev rows without a label (missing, null, "" or "-")
    are skipped. "-" is a class only if the training file also has the label "+", or if the model
    was trained with it. The label column of a test file is optional and ignored. Rows are named by
    their number from 0.

    With `multi_label` a cell contains labels separated by "|", or JSON contains a list. An empty
    cell or list is a text without labels.

    Args:
        train_file, dev_file, test_file: paths; only files that are read are needed.
        text_a_column, text_b_column, label_column: names or numbers of columns. If `text_b_column`
            is `None`, the column "text_b" is used if it exists. "" reads single texts.
        regression: whether labels are numbers.
        labels: labels of a trained model. If `None`, the classes of the training file are used,
            sorted as numbers if all are numbers, otherwise by code points.
        multi_label: whether a text has any number of labels.
        threshold: see `Labels`.

    Raises:
        ValueError: columns or settings contradict each other, or the training file, which is read
            if `labels` is `None`, is invalid.
    """

    name = "custom"
    submission_file: str | None = None

    def __init__(
        self,
        train_file: str | None = None,
        dev_file: str | None = None,
        test_file: str | None = None,
        *,
        text_a_column: str = TEXT_A,
        text_b_column: str | None = None,
        label_column: str = LABEL,
        regression: bool = False,
        labels: Labels | None = None,
        multi_label: bool = False,
        threshold: float = 0.5,
    ) -> None:
        self._files = {TRAIN: train_file, DEV: dev_file, TEST: test_file}
        self._text_a, self._text_b, self._label = text_a_column, text_b_column, label_column
        self._read_already: dict[str, list[TextExample]] = {}
        self._pairs: dict[str, bool] = {}
        self._check_columns()
        if labels is not None and labels.is_regression != regression:
            kind = "numbers" if labels.is_regression else f"the classes {labels.allowed}"
            raise UserError(
                f"The model predicts {kind}, but `regression` is {regression}; "
                f"set it to {labels.is_regression}, or train into another `output_dir`."
            )
        self._multi_label = multi_label
        if multi_label and regression:
            raise UserError("`multi_label` is for classes, `regression` for numbers: use one.")
        if labels is not None and labels.multi_label != multi_label:
            several = "any number of labels" if labels.multi_label else "one label"
            raise UserError(
                f"The model predicts {several} per text, but `multi_label` is {multi_label}; set "
                f"it to {labels.multi_label}, or train into another `output_dir`."
            )
        found = labels or (Labels() if regression else self._found_labels())
        self.labels = replace(found, threshold=threshold) if multi_label else found
        self.best_metric, self.metrics = metrics_for(self.labels)

    def _check_columns(self) -> None:
        given = {_A_FLAG: self._text_a, _B_FLAG: self._text_b, _LABEL_FLAG: self._label}
        columns = [column for column in given.values() if column]
        # The default label column is a name, even if the other columns are numbers.
        kinds = {is_column_number(column) for column in columns if column != LABEL}
        if len(kinds) > 1:
            raise UserError(
                "Name all columns, or number all columns of files without a header. Received: "
                f"{given}"
            )
        if len(set(columns)) < len(columns):
            raise UserError(f"Texts and label must be different columns. Received: {given}")

    def file(self, split: str) -> str:
        """Returns the path of a split's file; ValueError if it is not given."""
        path = self._files[split]
        if not path:
            raise UserError(f"`task_name`={self.name} needs `{split}_file`.")
        return path

    def read(self, split: str) -> list[TextExample]:
        """Reads a split; a row with a wrong number of cells is rejected."""
        examples = self._read_already.pop(split, None)
        if examples is None:
            examples = self._examples(split, self.labels)
            log_labels(self.file(split), split, examples, self.labels)
        return examples

    def _found_labels(self) -> Labels:
        """Returns the classes of the training file and keeps its examples for `read`."""
        if not self._files[TRAIN]:
            raise UserError(
                "The classes are not known: pass `train_file` to read them from, or an "
                "`output_dir` with a model that was saved with its labels."
            )
        examples = self._examples(TRAIN, None)
        cells = [example.label or "" for example in examples]
        if self._multi_label:
            cells = [name for cell in cells for name in split_labels(cell)]
        names = sorted_labels(cells)
        if len(names) < 2:
            raise UserError(
                f"`train_file` must have at least two different labels in {_LABEL_FLAG}. Received: "
                f"{self.file(TRAIN)}, which has only {listed(names) or 'texts without labels'}."
            )
        labels = Labels(tuple(names), self._multi_label)
        log_labels(self.file(TRAIN), TRAIN, examples, labels)
        warn_of_doubtful_labels(self.file(TRAIN), names)
        self._read_already[TRAIN] = examples
        return labels

    def _examples(self, split: str, labels: Labels | None) -> list[TextExample]:
        def is_header(cells: Cells) -> bool:
            if not is_column_number(self._text_a):
                return True
            names = cells[1:] if cells[:1] == [""] else cells  # without the cell above row numbers
            if len(names) > 1 and names == [str(number) for number in range(len(names))]:
                raise UserError(
                    f"the first row of {self.file(split)} contains column numbers. Files with "
                    "numbered columns have no header: remove it, or name all columns."
                )
            return False

        table = read_table(
            self.file(split),
            is_header=is_header,
            list_column=self._label if self._multi_label and split != TEST else None,
            separator=LABEL_SEPARATOR,
        )
        return read_examples(
            table,
            self._indices(table, split),
            split,
            labels,
            lambda line, row: str(row),
            is_strict=True,
            multi_label=self._multi_label,
        )

    def _indices(self, table: Table, split: str) -> ColumnIndices:
        text_a = table.index(self._text_a, "text_a_column")
        text_b = self._text_b
        if text_b is None and TEXT_B in (table.columns or ()) and self._text_a != TEXT_B:
            text_b = TEXT_B
        self._check_pairs(split, bool(text_b))
        return ColumnIndices(
            text_a=text_a,
            text_b=table.index(text_b, "text_b_column") if text_b else None,
            label=None if split == TEST else table.index(self._label, "label_column"),
            guid=None,
            width=table.width,
        )

    def _check_pairs(self, split: str, is_pair: bool) -> None:
        """Checks that all files contain pairs, or that all contain single texts."""
        self._pairs[split] = is_pair
        for other, other_is_pair in self._pairs.items():
            if other_is_pair != is_pair:
                pairs, singles = (split, other) if is_pair else (other, split)
                raise UserError(
                    f"{self.file(pairs)} has a column {TEXT_B!r}, {self.file(singles)} has none. "
                    f'Set {_B_FLAG} to the column of the second text, or to "" for single texts.'
                )


def metrics_for(labels: Labels) -> tuple[str, tuple[str, ...]]:
    """Returns `best_metric` and `metrics` of custom data."""
    if labels.is_regression:
        return "pearson", ("pearson", "spearman")
    if labels.multi_label:
        return "f1_micro", ("f1_micro", "f1_macro")
    return "eval_accuracy", ("f1" if len(labels.names) == 2 else "f1_macro", "matthews")


def sorted_labels(labels: Iterable[str]) -> list[str]:
    """Returns distinct labels, sorted as numbers if all are numbers, otherwise by code points."""
    names = sorted(set(labels))
    sizes = {name: size for name in names if (size := decimal_number(name)) is not None}
    return sorted(names, key=sizes.__getitem__) if len(sizes) == len(names) else names
