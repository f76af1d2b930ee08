"""The tasks of the GLUE benchmark, from the files of its download.

Columns are found by their names in the header, whatever their order. A header without any of the
names GLUE gave them is taken for one in GLUE's own order, as the original release takes every file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from absl import logging

from albert_tf.classification.tables import ColumnIndices, log_labels, read_examples
from albert_tf.data.files import file_exists, folder_names
from albert_tf.data.strict_json import listed
from albert_tf.data.tables import Cells, Row, Table, read_table
from albert_tf.data.text_examples import (
    DEV,
    GLUE_TASKS,
    TEST,
    TRAIN,
    Columns,
    TextExample,
    glue_task_name,
    plain_name,
)

FLAG = "--data_dir"
_ID_NAMES = ("index", "id", "idx")
_LABEL_NAMES = ("gold_label", "label", "score", "quality", "is_duplicate")


class GlueData:
    """The files of a GLUE task (see `TextData`).

    Rows are called as the original calls them: by their first column, or `<split>-<row>` in train
    and dev of CoLA, MRPC and SST-2, where the first row of a file is row 0.

    Differs: test rows have no label, where the original makes one up. Columns are found by name.
    Rows of train and dev that are too short or too long are left out and counted, where the
    original stops at them or takes shifted cells. Those of QQP are as in the original: too short
    ones are left out, and of too long ones the cells past the label are; where the cell in the
    label's place is none, the original stops, and here the row is left out.

    Attributes:
        name, labels, best_metric, metrics, submission_file: see `TextData`.
        data_dir: the download, with a folder for each task, or the folder of the task itself.
    """

    def __init__(self, task_name: str, data_dir: str) -> None:
        """Chooses a task.

        Args:
            task_name: a key of `GLUE_TASKS`, in any case.
            data_dir: the download, or the task's folder in it.

        Raises:
            ValueError: no task of GLUE.
        """
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
        """A folder of the download, written in any case, or `data_dir` if that is the one."""
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
        """Reads a split; what is odd is counted and named in the log.

        Raises:
            ValueError: the file is missing, has not the columns it should have, or holds a label
                that is none of the task's; names file, row and flag.
        """
        path = self.file(split)
        if not file_exists(path):
            raise ValueError(
                f"{FLAG}: there is no file {path!r}, the {split} data of --task_name={self.name}. "
                f"{FLAG} must be the directory that contains {self._task.folder}/, or that "
                f"directory itself. Received: {self.data_dir!r}"
            )
        table, indices = self._table(path, split)
        if self._task.cuts_long_rows and split != TEST:
            table = replace(table, rows=self._cut_rows(table, indices))
        # Lines are counted from 1, rows by the original from 0.
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
            # A name is never a number alone, while every data row of GLUE has a label or an index.
            is_data = any((cell or "").strip().isdigit() for cell in cells)
            return self._has_text_names(cells) or (columns.has_header and not is_data)

        table = read_table(path, FLAG, is_header=is_header)
        if table.columns and self._has_text_names(table.columns):
            return table, self._named_columns(table, columns)
        return table, self._usual_columns(table, columns)

    def _cut_rows(self, table: Table, indices: ColumnIndices) -> Iterator[Row]:
        """The rows without the cells that are too many, where a label is in its place."""
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
        """The columns by their names in the header."""
        texts = [_required_index(table, options) for options in self._task.text_names]
        return ColumnIndices(
            text_a=texts[0],
            text_b=texts[1] if len(texts) > 1 else None,
            label=None if columns.label is None else _required_index(table, _LABEL_NAMES),
            guid=None if columns.guid is None else _index(table, _ID_NAMES),
            width=table.width,
        )

    def _usual_columns(self, table: Table, columns: Columns) -> ColumnIndices:
        """The columns in GLUE's order; every row is checked to have as many as there."""
        width = table.width if table.width in columns.widths else columns.widths[0]
        if table.columns is not None and width != table.width:
            raise ValueError(
                f"{FLAG}: {table.path} has {table.width} columns ("
                f"{listed(table.columns)}), but {self._task.folder} has "
                f"{' or '.join(map(str, columns.widths))}, "
                f"{' and '.join(repr(options[0]) for options in self._task.text_names)} among "
                "them. --task_name=custom reads any columns."
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
    """Where the first of the names is that the header has, in any case."""
    names = [name.lower() for name in table.columns or []]
    name = next((option for option in options if option in names), None)
    if name is not None and names.count(name) > 1:
        raise ValueError(
            f"{FLAG}: {table.path} has {names.count(name)} columns named {name!r}, which is "
            f"ambiguous. Its columns: {listed(names)}"
        )
    return None if name is None else names.index(name)


def _required_index(table: Table, options: Sequence[str]) -> int:
    index = _index(table, options)
    if index is None:
        raise ValueError(
            f"{FLAG}: {table.path} has no column {' or '.join(map(repr, options))}. "
            f"Its columns: {listed(table.columns or [])}"
        )
    return index
