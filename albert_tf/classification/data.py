"""Labeled texts: files of GLUE, or custom TSV, CSV or JSON files."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain

from absl import logging

from albert_tf.classification.settings import LABEL, TEXT_A, TEXT_B
from albert_tf.data.errors import UserError, visible
from albert_tf.data.files import file_exists, folder_names
from albert_tf.data.rows import format_of, is_column_number
from albert_tf.data.schema import NO_LABEL
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.data.streams import parse_lines
from albert_tf.data.strict_json import listed, shown
from albert_tf.data.tables import Cells, Row, Table, read_table
from albert_tf.finetuning.metrics import F1_OF_CLASSES
from albert_tf.finetuning.texts import TextExample
from albert_tf.glue import GLUE_TASKS, Columns, glue_task_name, plain_name
from albert_tf.labels import (
    LABEL_SEPARATOR,
    Labels,
    decimal_number,
    split_labels,
    warn_of_doubtful_labels,
)

_MANY_CLASSES = 20
# Cells of a column that stands for one label; other cells are errors.
_ONE_HOT = {
    **dict.fromkeys(("1", "1.0", "true", "yes"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", ""), False),
    **dict.fromkeys(("-1", "-1.0", "-"), None),  # unknown, as in the test set of toxic comments
}
_CLASSES_SHOWN = 20
_WORD_FILES = (".conll", ".conllu", ".bio", ".iob", ".iob2")
# Columns of other data sets that are read if there is no column with the default name.
_ALIASES = {
    TEXT_A: ("text", "sentence", "sentence1", "premise", "question1", "content"),
    TEXT_B: ("sentence2", "hypothesis", "question2"),
    LABEL: ("labels", "gold_label", "category", "class", "target", "sentiment"),
}


def read_examples(
    table: Table,
    columns: Columns,
    split: str,
    labels: Labels | None,
    *,
    is_glue: bool = False,
    multi_label: bool = False,
    label_cell: Callable[[int, Cells], str | None] | None = None,
) -> list[TextExample]:
    """Reads all rows of a file. Train and dev rows without a label are skipped and counted.

    `columns.widths` must have one element. The examples of the split "test" have no label. If
    `labels` is `None`, all classes are allowed. If `is_glue` is true, examples have the ids of the
    original, and half of the rows may be malformed; otherwise, ids are row numbers from 0, and 1%
    may be malformed. Malformed rows are counted, and skipped except in test files. `label_cell`
    returns the label of a row, given its line number, if no single cell contains it. Raises
    ValueError if a label is unknown, or if too many rows are malformed.
    """
    rows, num_rows = _usable_rows(table, columns, split, is_glue)
    names: list[str | None] = [None] * len(rows)
    if split != TEST:
        read = label_cell or (lambda _, cells: cells[columns.label or 0])
        found = [(line, read(line, cells)) for _, (line, cells) in rows]
        names = _labels_of_rows(table, found, labels, is_glue, multi_label)
    if not is_glue:
        table.issues.check(num_rows)
    examples = []
    for name, (number, (line, cells)) in zip(names, rows, strict=True):
        if name is None and split != TEST:
            continue
        texts = [cells[index] or "" for index in columns.texts]
        if not all(text.strip() for text in texts):
            table.issues.add("an empty text, kept", line)
        # Lines are counted from 1; the original counts rows from 0.
        guid = f"{split}-{line - 1}" if is_glue and split != TEST else str(number)
        if columns.guid is not None:
            guid = cells[columns.guid] or ""
        examples.append(TextExample(guid, texts[0], texts[1] if texts[1:] else None, name))
    if not examples:
        raise UserError(f"no row of {table.path} has a label.")
    table.issues.log()
    return examples


def _labels_of_rows(
    table: Table,
    rows: Sequence[tuple[int, str | None]],
    labels: Labels | None,
    is_glue: bool,
    multi_label: bool,
) -> list[str | None]:
    """Returns the label of each line and cell, or `None`, and counts missing and invalid labels."""
    names: list[str | None] = []
    no_labels = _no_labels([cell for _, cell in rows], labels, multi_label)
    for line, cell in rows:
        name = None
        try:
            if cell is None or cell.strip() in no_labels:
                table.issues.add("no label, skipped", line)
            else:
                name = _label(cell.strip(), labels, multi_label)
        except ValueError as error:
            message = f"{table.issues.unit} {line} of {table.path}: {error}"
            if is_glue or (labels is not None and not labels.is_regression):
                raise UserError(message) from error
            table.issues.add("an invalid label, skipped", line, message)
        names.append(name)
    return names


def _no_labels(
    cells: Sequence[str | None], labels: Labels | None, multi_label: bool
) -> Sequence[str]:
    """Returns the cell values that stand for a missing label."""
    if multi_label:
        return ("-",)
    if labels is not None:
        return [cell for cell in NO_LABEL if not labels.accepts(cell)]
    # In a file with the label "+", "-" is also a label.
    return ("",) if any((cell or "").strip() == "+" for cell in cells) else NO_LABEL


def _label(cell: str, labels: Labels | None, multi_label: bool) -> str:
    """Returns the label of a row; raises ValueError if it is not allowed."""
    if labels is not None and not labels.accepts(cell):
        raise UserError(f"unknown label {shown(cell)}. Allowed: {labels.allowed}.")
    return LABEL_SEPARATOR.join(split_labels(cell)) if multi_label else cell


def _usable_rows(
    table: Table, columns: Columns, split: str, is_glue: bool
) -> tuple[list[tuple[int, Row]], int]:
    """Returns padded rows with their numbers among all rows, and the number of all rows."""
    rows: list[tuple[int, Row]] = []
    count = num_malformed = 0
    [width] = columns.widths
    for line, cells in table.rows:
        if not any(cells[width:]):
            cells = cells[:width]
        problem = _problem(table, columns, cells) if cells else "malformed JSON"
        if problem:
            num_malformed += 1
        if problem and cells:
            kind = f"{problem}, {'kept' if split == TEST else 'skipped'}"
            table.issues.add(
                kind, line, f"{table.issues.unit} {line} of {table.path} has {problem}."
            )
        if not problem or split == TEST:
            rows.append((count, (line, cells + [None] * (width - len(cells)))))
        count += 1
    if not count:
        raise UserError(
            f"{table.path} has no rows, only a header. Received: {listed(table.columns or [])}"
        )
    num_usable = count - num_malformed
    if is_glue and (not num_usable or (num_usable < num_malformed and split != TEST)):
        raise UserError(
            f"only {num_usable} of the {count} rows of {table.path} can be used. Expected {width} "
            f"columns. Received: {'; '.join(table.issues.messages())}"
        )
    return rows, count


def _problem(table: Table, columns: Columns, cells: Cells) -> str:
    """Returns why a row does not match the columns; "" if it matches."""
    [width] = columns.widths
    if cells == table.header:
        return "the header again"
    if len(cells) != width:
        return f"too {'few' if len(cells) < width else 'many'} columns"
    if any(cells[index] is None for index in columns.texts):
        return "no text (no such key, null, a list or an object)"
    return ""


def log_labels(path: str, split: str, examples: Sequence[TextExample], labels: Labels) -> None:
    """Logs counts of classes, or range and mean of numbers. Warns of one or too many classes."""
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
        shares = [f"{visible(n)}: {count} ({count / len(found):.1%})" for n, count in names.items()]
        more = f", and {len(shares) - _CLASSES_SHOWN} more" * (len(shares) > _CLASSES_SHOWN)
        text = f"labels {', '.join(shares[:_CLASSES_SHOWN])}{more}"
    logging.info("%s: %d rows (%s), %s", path, len(examples), split, text)
    if len(counts) == 1 and not labels.multi_label:
        logging.warning("%s: all %d rows have the label %r", path, len(examples), *counts)
    is_many = len(counts) > max(_MANY_CLASSES, len(examples) / 2)
    if is_many and split == TRAIN and not labels.is_regression:
        logging.warning(
            "%s: %d different labels in %d rows. If they are not classes, pass `label_column`, or "
            "`regression` to predict numbers",
            path,
            len(counts),
            len(examples),
        )


_ID_NAMES = ("index", "id", "idx")
_LABEL_NAMES = ("gold_label", "label", "score", "quality", "is_duplicate")


class GlueData:
    """The files of a GLUE task.

    Columns are found by name, in any order. If the header names no text column of GLUE, GLUE's
    column order is assumed. As in the original, the id of a row is its first column, or
    `<split>-<row>` in train and dev of CoLA, MRPC and SST-2, with rows counted from 0.

    `data_dir` is GLUE's download directory, or the directory of the task.

    Attributes:
        name: the task in lower case.
        labels: the classes, or a regression.
        best_metric: score that selects the best checkpoint.
        metrics: scores in addition to accuracy or mean squared error: any of "f1", "matthews",
            "pearson", "spearman".
        submission_file: name of the file for GLUE's server; `None` for other data.

    Differs: the original assumes GLUE's column order, invents labels for test rows, and fails or
        reads wrong cells in rows of the wrong length.
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
        """Returns the path of the file of a split. The file need not exist."""
        task = self._task
        folders = (split == TEST and task.test_folders) or (task.folder,)
        names = {TRAIN: ("train.tsv",), DEV: (task.dev_file,), TEST: task.test_files}[split]
        candidates = [os.path.join(self._folder(f), name) for f in folders for name in names]
        return next(filter(file_exists, candidates), candidates[0])

    def _folder(self, name: str) -> str:
        """Returns the directory of a task or `data_dir` itself, ignoring case, "-" and "_"."""
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
        """Reads a split; see `read_examples`."""
        path = self.file(split)
        if not file_exists(path):
            raise UserError(
                f"there is no file {path!r}, the {split} data of `task_name`={self.name}. "
                f"`data_dir` must be {self._task.folder}/ or the directory that contains it. "
                f"Received: {self.data_dir!r}"
            )
        table, columns = self._table(path, split)
        if self._task.cuts_long_rows and split != TEST:
            table = replace(table, rows=self._cut_rows(table, columns))
        examples = read_examples(table, columns, split, self.labels, is_glue=True)
        log_labels(path, split, examples, self.labels)
        return examples

    @property
    def text_names(self) -> Sequence[str]:
        """Names of the column of the first text."""
        return self._task.text_names[0]

    def read_texts(self, path: str) -> list[TextExample]:
        """Reads the texts of any file with the columns of the task."""
        table, columns = self._table(path, TEST)
        if table.width not in columns.widths:
            table, columns = self._table(path, DEV)
        columns = replace(columns, label=None, guid=None)
        log_columns(table, columns)
        return read_examples(table, columns, TEST, self.labels)

    def _table(self, path: str, split: str) -> tuple[Table, Columns]:
        columns = self._task.unlabelled if split == TEST else self._task.labelled

        def is_header(cells: Cells) -> bool:
            # Column names are never numbers, but rows contain an index or a numeric label.
            is_data = any((cell or "").strip().isdigit() for cell in cells)
            return self._has_text_names(cells) or (columns.has_header and not is_data)

        table = read_table(path, is_header=is_header)
        if table.columns and self._has_text_names(table.columns):
            return table, self._named_columns(table, columns)
        return table, self._usual_columns(table, columns)

    def _cut_rows(self, table: Table, columns: Columns) -> Iterator[Row]:
        """Removes additional cells of rows whose label column contains a label."""
        [width] = columns.widths
        for line, cells in table.rows:
            if any(cells[width:]) and self.labels.accepts(cells[columns.label or 0] or ""):
                table.issues.add("too many columns, extra ones ignored", line)
                cells = cells[:width]
            yield line, cells

    def _has_text_names(self, cells: Sequence[str | None]) -> bool:
        names = {(cell or "").strip().lower() for cell in cells}
        return any(name in names for options in self._task.text_names for name in options)

    def _named_columns(self, table: Table, columns: Columns) -> Columns:
        texts = [_index(table, options) for options in self._task.text_names]
        has_ids = columns.guid is not None and any(
            name.lower() in _ID_NAMES for name in table.columns or []
        )
        return Columns(
            widths=(table.width,),
            text_a=texts[0],
            text_b=texts[1] if len(texts) > 1 else None,
            label=None if columns.label is None else _index(table, _LABEL_NAMES),
            guid=_index(table, _ID_NAMES) if has_ids else None,
        )

    def _usual_columns(self, table: Table, columns: Columns) -> Columns:
        """Returns the columns in GLUE's order."""
        width = table.width if table.width in columns.widths else columns.widths[0]
        if table.columns is not None and width != table.width:
            raise UserError(
                f"{table.path} must have {' or '.join(map(str, columns.widths))} columns, or the "
                f"columns {' and '.join(repr(names[0]) for names in self._task.text_names)}. "
                f"Received {table.width} columns: {listed(table.columns)}. For files with other "
                "columns, use `task_name`=custom."
            )
        if table.columns is not None or columns.has_header:
            logging.warning(
                "%s: the first row %s. The columns are read in GLUE's order",
                table.path,
                "contains no column name of GLUE" if table.columns else "is not a header",
            )
        label = None if columns.label is None else columns.label % width
        return replace(columns, widths=(width,), label=label)


def _index(table: Table, options: Sequence[str]) -> int:
    """Returns the index of the first option that is a column name, ignoring case."""
    names = [name.lower() for name in table.columns or []]
    name = next((option for option in options if option in names), None)
    if name is None or names.count(name) > 1:
        found = f"no column {' or '.join(map(repr, options))}"
        if name is not None:
            found = f"{names.count(name)} columns named {name!r}"
        raise UserError(f"{table.path} has {found}. Its columns: {listed(table.columns or [])}")
    return names.index(name)


class CustomData:
    """Custom files, with the same attributes as `GlueData`.

    Columns are named, or numbered from 0 in files without a header. Train and dev rows without a
    label (missing, null, "" or "-") are skipped. "-" is a class only if the training file also has
    the label "+", or if the model was trained with it. The label column of a test file is optional
    and ignored. With `multi_label`, a cell contains labels separated by "|", or a list in JSON, and
    an empty cell or list is a text without labels. With several label columns, the name of each
    column is a label, and its cells are 0 or 1, or false or true. An empty cell means 0.

    Args:
        train_file, dev_file, test_file: paths. Only files that are read are needed.
        text_a_column, text_b_column, label_column: names or numbers of columns. If `text_b_column`
            is `None`, the column "text_b" is used if it exists. Pass "" to read single texts.
            Several label columns are separated by "," or "|".
        regression: whether labels are numbers.
        labels: labels of a trained model. If `None`, the classes are read from the training file,
            and sorted as numbers if all are numbers, otherwise by code points.
        multi_label: whether a text has any number of labels.
        threshold: see `Labels`.

    Raises:
        ValueError: columns or settings contradict each other, or the training file is invalid.
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
        self._one_hot = _several_names(label_column) if multi_label else []
        self.text_names = (text_a_column, *_ALIASES.get(text_a_column, ()))
        self._read_already: dict[str, list[TextExample]] = {}
        self._pairs: dict[str, bool] = {}
        self._multi_label = multi_label
        self._check_columns()
        if multi_label and regression:
            raise UserError("`multi_label` and `regression` cannot be combined.")
        if labels is not None:
            for name, given, trained in (
                ("regression", regression, labels.is_regression),
                ("multi_label", multi_label, labels.multi_label),
            ):
                if given != trained:
                    raise UserError(
                        f"The model was trained with `{name}`={trained}. Use this value, or train "
                        f"into another `output_dir`. Received: `{name}`={given}"
                    )
        found = labels or (Labels() if regression else self._read_labels())
        self.labels = replace(found, threshold=threshold) if multi_label else found
        self.best_metric, self.metrics = metrics_for(self.labels)

    def _check_columns(self) -> None:
        labels = self._one_hot or [self._label]
        columns = [column for column in (self._text_a, self._text_b, *labels) if column]
        given = (
            f"`text_a_column`={self._text_a!r}, `text_b_column`={self._text_b!r}, "
            f"`label_column`={self._label!r}"
        )
        # The default label column is a name, even if the other columns are numbers.
        kinds = {is_column_number(column) for column in columns if column != LABEL}
        if len(kinds) > 1:
            raise UserError(f"Columns must be all names, or all numbers. Received: {given}")
        if len(set(columns)) < len(columns):
            raise UserError(f"Texts and label must be different columns. Received: {given}")

    def file(self, split: str) -> str:
        """Returns the path of the file of a split; raises ValueError if it is not given."""
        path = self._files[split]
        if not path:
            raise UserError(f"`task_name`={self.name} needs `{split}_file`.")
        return path

    def read(self, split: str) -> list[TextExample]:
        """Reads a split; see `read_examples`."""
        examples = self._read_already.pop(split, None)
        if examples is None:
            examples = self._examples(split, self.labels)
            log_labels(self.file(split), split, examples, self.labels)
        return examples

    def _read_labels(self) -> Labels:
        """Returns the classes of the training file and keeps its examples for `read`."""
        if not self._files[TRAIN]:
            raise UserError(
                "The classes are unknown. Pass `train_file` to read them, or an `output_dir` that "
                "contains a model with labels."
            )
        examples = self._examples(TRAIN, None)
        cells = [example.label or "" for example in examples]
        if self._multi_label:
            cells = [name for cell in cells for name in split_labels(cell)]
        names = self._one_hot or sorted(set(cells))
        if not self._one_hot and all(decimal_number(name) is not None for name in names):
            names.sort(key=float)
        if len(names) < 2:
            raise UserError(
                "`train_file` must have at least two different labels in `label_column`. Received: "
                f"{self.file(TRAIN)}, which has only {listed(names) or 'texts without labels'}."
            )
        labels = Labels(tuple(names), self._multi_label)
        log_labels(self.file(TRAIN), TRAIN, examples, labels)
        warn_of_doubtful_labels(self.file(TRAIN), names)
        _warn_of_lists(self.file(TRAIN), names, self._multi_label)
        self._read_already[TRAIN] = examples
        return labels

    def read_texts(self, path: str) -> list[TextExample]:
        """Reads the texts of any file with the columns of the training file."""
        return self._examples(TEST, self.labels, path)

    def _examples(
        self, split: str, labels: Labels | None, path: str | None = None
    ) -> list[TextExample]:
        path = path or self.file(split)

        def is_header(cells: Cells) -> bool:
            if not is_column_number(self._text_a):
                return True
            # pandas names columns without names 0, 1, ... If it writes an index, the first cell of
            # the header is empty.
            names = cells[1:] if cells[:1] == [""] else cells
            known = {*_ALIASES, *chain.from_iterable(_ALIASES.values())} & {*names}
            is_numbered = names == [str(number) for number in range(len(names))]
            if len(names) > 1 and (is_numbered or len(known) > 1):
                raise UserError(
                    f"the first row of {path} is a header, but columns are numbered. Remove the "
                    f"header, or pass names of columns. Received: {listed(cells)}"
                )
            return False

        table = read_table(
            path,
            is_header=is_header,
            list_columns=() if split == TEST else (self._label, *_ALIASES.get(self._label, ())),
            multi_label=self._multi_label,
        )
        columns = self._columns(table, split)
        if table.columns is None and labels is not None and is_column_number(self._label):
            table = replace(table, rows=_without_header(table, int(self._label), labels))
        log_columns(table, columns, self._one_hot)
        one_hot = None
        if self._one_hot and split != TEST:
            places = {name: table.index(name, "label_column") for name in self._one_hot}
            one_hot = partial(_one_hot_cell, table, places)
        return read_examples(
            table, columns, split, labels, multi_label=self._multi_label, label_cell=one_hot
        )

    def _columns(self, table: Table, split: str) -> Columns:
        names = [] if self._multi_label else _several_names(self._label)
        if names and self._label not in (table.columns or []):
            raise UserError(f"Several label columns need `multi_label`. Received: {listed(names)}")
        text_a = _index_of(table, self._text_a, "text_a_column")
        text_b = self._text_b
        if text_b is None and self._text_a != TEXT_B:
            names = table.columns or []
            others = _ALIASES[TEXT_B] if self._text_a == TEXT_A not in names else ()
            if any(name.lower() in (TEXT_B, *others) for name in names):
                text_b = TEXT_B
        is_pair = bool(text_b)
        self._pairs[table.path] = is_pair
        for other, other_is_pair in self._pairs.items():
            if other_is_pair != is_pair:
                pairs, singles = (table.path, other) if is_pair else (other, table.path)
                raise UserError(
                    f"{pairs} has a column {TEXT_B!r}, unlike {singles}."
                    ' Set `text_b_column` to the column of the second text, or to "" for single '
                    "texts."
                )
        return Columns(
            widths=(table.width,),
            text_a=text_a,
            text_b=_index_of(table, text_b, "text_b_column") if text_b else None,
            label=None
            if split == TEST or self._one_hot
            else _index_of(table, self._label, "label_column"),
        )


def _several_names(columns: str) -> list[str]:
    """Returns the names in `label_column`; an empty list if it is a single name."""
    names = [name.strip() for name in re.split(f"[,{re.escape(LABEL_SEPARATOR)}]", columns)]
    return names if len(names) > 1 else []


def _one_hot_cell(table: Table, places: Mapping[str, int], line: int, cells: Cells) -> str | None:
    """Returns the labels of a row with a column per label; `None` if one of them is unknown."""
    names = []
    for name, place in places.items():
        cell = cells[place]
        value = None if cell is None else _ONE_HOT.get(cell.strip().lower(), cell)
        if isinstance(value, str):
            raise UserError(
                f"line {line} of {table.path}: the label column {name!r} must be 0 or 1, or false "
                f"or true. Received: {shown(cell)}"
            )
        if value is None:
            return None
        names += [name] * value
    if not all((cells[place] or "").strip() for place in places.values()):
        table.issues.add("an empty label cell, read as 0", line)
    return LABEL_SEPARATOR.join(names)


def _index_of(table: Table, column: str, flag: str) -> int:
    """Returns the index of a column, see `Table.index`, or of the only alias of its name."""
    names = table.columns or []
    if column in _ALIASES and column not in names:
        found = [name for name in names if name.lower() in (column, *_ALIASES[column])]
        column = found[0] if len(found) == 1 else column
    return table.index(column, flag)


def log_columns(table: Table, columns: Columns, labels: Sequence[str] = ()) -> None:
    """Logs the format of a file, and its columns. Columns named after `labels` are also used."""
    names = table.columns or [str(number) for number in range(table.width)]
    used = {TEXT_A: columns.text_a, TEXT_B: columns.text_b, LABEL: columns.label}
    parts = [f"{key}: {names[at]!r}" for key, at in used.items() if at is not None]
    unused = [name for at, name in enumerate(names) if at not in used.values()]
    if unused := [name for name in unused if name not in labels]:
        parts.append(f"not used: {listed(unused)}")
    logging.info("Reading %s as %s (%s)", table.path, table.issues.format, ", ".join(parts))


def _without_header(table: Table, label: int, labels: Labels) -> Iterator[Row]:
    """Returns the rows; raises ValueError if only the first one has an unknown label."""
    rows = [*table.rows]
    cells = [(cells[label] or "").strip() if label < len(cells) else "" for _, cells in rows[:2]]
    if [labels.accepts(cell) for cell in cells] == [False, True] and cells[0] not in NO_LABEL:
        raise UserError(
            f"the first row of {table.path} seems to be a header, but columns are numbered. Remove "
            f"it, or pass names of columns. Received: {listed(rows[0][1])}"
        )
    return iter(rows)


def _warn_of_lists(path: str, names: Sequence[str], multi_label: bool) -> None:
    """Warns of labels that seem to be lists of labels, with another separator than "|"."""
    parts = [
        {part.strip(" '\"") for part in re.split("[,;]", name.strip("[](){}"))} for name in names
    ]
    counts = Counter(chain.from_iterable(parts))

    def is_list(name: str, found: set[str]) -> bool:
        shared = [counts[part] > 1 for part in found]
        is_known = any(shared) if multi_label else all(shared) or bool(found & {*names})
        return name[:1] + name[-1:] in ("[]", "{}") or (len(found) > 1 and is_known)

    lists = [name for name, found in zip(names, parts, strict=True) if is_list(name, found)]
    if lists:
        logging.warning(
            "%s: each of these labels is a single label: %s. If they are lists, pass `multi_label` "
            "and separate labels by %r, or use lists in JSON Lines",
            path,
            listed(lists),
            LABEL_SEPARATOR,
        )


def read_prediction_file(
    data: GlueData | CustomData, path: str, is_pair: bool
) -> list[TextExample] | None:
    """Reads a file to predict; `None` if it contains raw texts, one example per line.

    Files with the extension .txt or an unknown one, and .tsv files of two columns if `is_pair`,
    contain raw texts, unless the first row contains the column of the first text. Raises ValueError
    if the first row seems to be CSV or JSON, or if only some examples are pairs.
    """
    if path.lower().endswith(_WORD_FILES):
        raise UserError(
            f"{path} must contain texts, but this extension stands for words in columns, which "
            "run_token_classifier reads. Rename it to end in .txt if it contains one text per line."
        )
    is_tsv = path.lower().endswith(".tsv")
    if format_of(path) is None or path.lower().endswith(".txt") or (is_tsv and is_pair):
        line = next(parse_lines(path, lambda text, number: text), [""])[0]
        names, cells = data.text_names, line.split("\t")
        is_json = re.match(r'\s*[\[{]*\{\s*"[^"]+"\s*:', line) is not None
        row = re.split("[,;|]", line)
        if is_json or (" " not in line and len(row) > 1 and {*names} & {*row}):
            raise UserError(
                f"{path} seems to have columns, but files with this extension contain raw texts, "
                "one per line. Rename it to end in .csv or .jsonl, or pass texts on the standard "
                f"input. Its first line: {shown(line)}"
            )
        is_table = len(cells) > 1 and not {*names}.isdisjoint([*cells, *line.lower().split("\t")])
        if is_column_number(names[0]):
            is_table = len(cells) > 1 + is_pair
        is_table = is_table or line == names[0] or (is_tsv and len(cells) != 2)
        if not is_table:
            logging.info("Reading %s as raw texts (one example per line)", path)
            return None
    examples = data.read_texts(path)
    if any((example.text_b is None) == is_pair for example in examples):
        expected = "pairs of texts" if is_pair else "single texts"
        raise UserError(f"{path} must contain {expected}, like the training data of the model.")
    return examples


def metrics_for(labels: Labels) -> tuple[str, tuple[str, ...]]:
    """Returns `best_metric` and `metrics` of custom data."""
    if labels.is_regression:
        return "pearson", ("pearson", "spearman", "R2", "RMSE", "RMSE_of_mean")
    single = (F1_OF_CLASSES,) if len(labels.names) <= _MANY_CLASSES else ()
    if labels.multi_label:
        return "f1_micro", ("f1_micro", "f1_macro", *single)
    f1 = "f1" if len(labels.names) == 2 else "f1_macro"
    return "eval_accuracy", (f1, *single, "matthews")
