"""Everybody's own labelled texts: TSV, CSV or JSON-lines files with columns of any name."""

from __future__ import annotations

from collections.abc import Iterable

from albert_tf.classification.tables import ColumnIndices, log_labels, read_examples
from albert_tf.data.strict_json import shown
from albert_tf.data.tables import Cells, Table, is_column_number, read_table
from albert_tf.data.text_examples import DEV, TEST, TRAIN, Labels, TextExample, decimal_number

TEXT_A, TEXT_B, LABEL = "text_a", "text_b", "label"

FILE_FLAGS = {TRAIN: "--train_file", DEV: "--dev_file", TEST: "--test_file"}

_A_FLAG, _B_FLAG, _LABEL_FLAG = "--text_a_column", "--text_b_column", "--label_column"


class CustomData:
    """Files of the user's own (see `TextData`).

    Columns are named, each file having them in any order among others; or numbered from 0, and
    then no file has a header. JSON lines go by names.

    Labels are any strings, and the numbers and truth values of JSON, which become strings; or
    finite decimal numbers for regression. No label, null, "" and "-" leave a row out of train and
    dev, since data such as SNLI marks with "-" what has no agreed label. "-" is a class only where
    the training file also has the label "+", or where a model has been trained with it. A test file
    needs no label column, and none is looked at.

    Rows are called by their number in the file from 0, header and blank lines not counted.

    Attributes:
        name: "custom".
        labels, best_metric, metrics, submission_file: see `TextData`.
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
    ) -> None:
        """Says what is where; without `labels` the training file is read to find them.

        Args:
            train_file: path; None where there is none.
            dev_file: likewise.
            test_file: likewise.
            text_a_column: name or number of the column with the text, or the first of a pair.
            text_b_column: that of the second; None takes a column named "text_b" if there is one,
                "" takes none.
            label_column: that of the labels.
            regression: whether labels are numbers to predict.
            labels: what a model saved with its labels predicts; None finds the classes in the
                training file: in order of size if they all are numbers, or else of code points.

        Raises:
            ValueError: columns partly named and partly numbered, or one twice; no labels are to be
                had, or they do not fit `regression`; the training file cannot be read.
        """
        self._files = {TRAIN: train_file, DEV: dev_file, TEST: test_file}
        self._text_a, self._text_b, self._label = text_a_column, text_b_column, label_column
        self._read_already: dict[str, list[TextExample]] = {}
        self._pairs: dict[str, bool] = {}
        self._check_columns()
        if labels is not None and labels.is_regression != regression:
            kind = "numbers" if labels.is_regression else f"the classes {labels.allowed}"
            raise ValueError(
                f"The model predicts {kind}, but --regression is {regression}; "
                f"set it to {labels.is_regression}, or train into another --output_dir."
            )
        self.labels = labels or (Labels() if regression else self._found_labels())
        self.best_metric = "pearson" if regression else "eval_accuracy"
        self.metrics: tuple[str, ...] = ("pearson", "spearman")
        if not regression:
            self.metrics = ("f1" if len(self.labels.names) == 2 else "f1_macro", "matthews")

    def _check_columns(self) -> None:
        given = {_A_FLAG: self._text_a, _B_FLAG: self._text_b, _LABEL_FLAG: self._label}
        # What was not given has its default, which is a name.
        named = [
            flag
            for flag, column in given.items()
            if column and not is_column_number(column) and column != LABEL
        ]
        numbered = [flag for flag, column in given.items() if column and is_column_number(column)]
        if named and numbered:
            raise ValueError(
                f"Name all columns, or number all of them for files without a header. "
                f"{', '.join(numbered)} gave a number, {', '.join(named)} a name: {given}"
            )
        columns = [column for column in given.values() if column]
        if len(set(columns)) < len(columns):
            raise ValueError(f"Texts and label must be different columns. Received: {given}")

    def file(self, split: str) -> str:
        """Returns the path of a split's file, which need not exist.

        Raises:
            ValueError: no file was given; names the flag.
        """
        path = self._files[split]
        if not path:
            raise ValueError(f"--task_name={self.name} needs {FILE_FLAGS[split]} for this.")
        return path

    def read(self, split: str) -> list[TextExample]:
        """Reads a split; what is odd is counted and named in the log.

        Raises:
            ValueError: the file is missing, has not the columns it should have, or a row with more
                or fewer, or a label that is none of the classes; names file, line and flag.
        """
        examples = self._read_already.pop(split, None)
        if examples is None:
            examples = self._examples(split, self.labels)
            log_labels(self.file(split), split, examples, self.labels)
        return examples

    def _found_labels(self) -> Labels:
        """The classes in the training file, whose rows are kept for the first `read`."""
        if not self._files[TRAIN]:
            raise ValueError(
                "The classes are not known: pass --train_file to read them from, or an "
                "--output_dir with a model that was saved with its labels."
            )
        examples = self._examples(TRAIN, None)
        names = sorted_labels(example.label for example in examples if example.label is not None)
        if len(names) == 1:
            raise ValueError(
                f"--train_file: all {len(examples)} rows of {self.file(TRAIN)} that have a label "
                f"have {shown(names[0])}; there is nothing to learn. {_LABEL_FLAG} names the "
                "column."
            )
        labels = Labels(tuple(names))
        log_labels(self.file(TRAIN), TRAIN, examples, labels)
        self._read_already[TRAIN] = examples
        return labels

    def _examples(self, split: str, labels: Labels | None) -> list[TextExample]:
        def is_header(cells: Cells) -> bool:
            if not is_column_number(self._text_a):
                return True
            names = cells[1:] if cells[:1] == [""] else cells  # without that above row numbers
            if len(names) > 1 and names == [str(number) for number in range(len(names))]:
                raise ValueError(
                    f"{FILE_FLAGS[split]}: the first row of {self.file(split)} numbers the columns."
                    " Files with numbered columns have no header: remove it, or name all columns."
                )
            return False

        table = read_table(self.file(split), FILE_FLAGS[split], is_header=is_header)
        indices = self._indices(table, split)
        return read_examples(
            table, indices, split, labels, lambda line, row: str(row), is_strict=True
        )

    def _indices(self, table: Table, split: str) -> ColumnIndices:
        text_a = table.index(self._text_a, _A_FLAG)
        text_b = self._text_b
        if text_b is None and TEXT_B in (table.columns or ()) and self._text_a != TEXT_B:
            text_b = TEXT_B
        self._check_pairs(split, bool(text_b))
        return ColumnIndices(
            text_a=text_a,
            text_b=table.index(text_b, _B_FLAG) if text_b else None,
            label=None if split == TEST else table.index(self._label, _LABEL_FLAG),
            guid=None,
            width=table.width,
        )

    def _check_pairs(self, split: str, is_pair: bool) -> None:
        """Makes sure that files do not differ in whether they hold single texts or pairs."""
        self._pairs[split] = is_pair
        for other, other_is_pair in self._pairs.items():
            if other_is_pair != is_pair:
                pairs, singles = (split, other) if is_pair else (other, split)
                raise ValueError(
                    f"{self.file(pairs)} has a column {TEXT_B!r}, {self.file(singles)} has none. "
                    f'{_B_FLAG} names the second text; {_B_FLAG}="" takes single texts.'
                )


def sorted_labels(labels: Iterable[str]) -> list[str]:
    """Each label once: in order of size if all are numbers, or else of code points."""
    names = sorted(set(labels))
    sizes = {name: size for name in names if (size := decimal_number(name)) is not None}
    return sorted(names, key=sizes.__getitem__) if len(sizes) == len(names) else names
