"""Labeled texts: files of GLUE, or custom TSV, CSV or JSON files."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

from absl import logging

from albert_tf.classification.settings import LABEL, TEXT_A, TEXT_B
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, folder_names
from albert_tf.data.rows import (
    JSON_LINES,
    Cells,
    Row,
    RowReport,
    Rows,
    format_of,
    header,
    literal,
    read_rows,
)
from albert_tf.data.schema import NO_LABEL, Field, Schema, as_is, log_counts
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.data.streams import parse_lines
from albert_tf.data.strict_json import JsonValue, listed, shown
from albert_tf.finetuning.metrics import F1_OF_CLASSES
from albert_tf.finetuning.texts import TextExample
from albert_tf.glue import GLUE_TASKS, glue_task_name, plain_name
from albert_tf.labels import (
    LABEL_SEPARATOR,
    Labels,
    decimal_number,
    split_labels,
    warn_of_doubtful_labels,
)

_MANY_CLASSES = 20
_LIST = re.compile(r"[\[({]|array\(|set\(")
_IDS = ("id", "index", "idx")  # columns of test files
_WANTED = 'one object per line (JSON Lines), such as {"text_a": "...", "label": "..."}'
# Cells of a column that stands for one label; other cells are errors.
_ONE_HOT = {
    **dict.fromkeys(("1", "1.0", "true", "yes"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", ""), False),
    **dict.fromkeys(("-1", "-1.0", "-"), None),  # unknown, as in the test set of toxic comments
}
_WORD_FILES = (".conll", ".conllu", ".bio", ".iob", ".iob2")
# Columns of other data sets that are read if there is no column with the default name.
_ALIASES = {
    TEXT_A: ("text", "sentence", "sentence1", "premise", "question1", "content"),
    TEXT_B: ("sentence2", "hypothesis", "question2"),
    LABEL: ("labels", "gold_label", "category", "class", "target", "sentiment"),
}


def _example(
    report: RowReport,
    prefix: str,
    index: int,
    number: int,
    text_a: str,
    text_b: str | None = None,
    guid: str | None = None,
    label: str | None = None,
    **flags: JsonValue | None,
) -> TextExample:
    """Returns the example of a row. With `prefix`, the default id is the number of the line."""
    if not text_a.strip() or (text_b is not None and not text_b.strip()):
        report.add("an empty text, kept", number)
    if any(not str(cell.value).strip() for cell in flags.values() if cell):
        report.add("an empty label cell, read as 0", number)
    if not guid:
        guid = f"{prefix}{number - 1}" if prefix else str(index)
    return TextExample(guid, text_a, text_b, label)


def _cell(value: JsonValue) -> str:
    """Reads a text, a number or a truth value as text."""
    return json.dumps(value.value) if isinstance(value.value, int | float) else value.whole_text()


def _listed(value: JsonValue, multi_label: bool) -> JsonValue:
    """Returns the list in a cell of several labels, or the value."""
    return literal(value) if multi_label and _LIST.match(str(value.value)) else value


def _label(
    labels: Labels | None,
    multi_label: bool,
    no_label: Sequence[str],
    value: JsonValue,
    values: Mapping[str, Any],
) -> str | None:
    """Returns the label in a cell, several ones separated by "|", or `None` for missing labels."""
    if isinstance((found := _listed(value, multi_label)).value, list):
        parts = [_cell(part) for part in found.elements()]
        is_right = all(part.strip() and LABEL_SEPARATOR not in part for part in parts)
        if not is_right or (len(parts) > 1 and not multi_label):
            raise value.error(
                f"a list of labels without {LABEL_SEPARATOR!r}; several labels need `multi_label`"
            )
        cell = LABEL_SEPARATOR.join(parts)
    else:
        cell = _cell(value).strip()
    if cell in no_label and (labels is None or multi_label or not labels.accepts(cell)):
        return None
    if labels is not None and not labels.accepts(cell):
        raise UserError(f"unknown label {shown(cell)}. Allowed: {labels.allowed}.")
    return LABEL_SEPARATOR.join(split_labels(cell)) if multi_label else cell


def _one_hot_label(
    names: Sequence[str], value: JsonValue, values: Mapping[str, JsonValue | None]
) -> str | None:
    """Returns the names of the columns with 1; `None` if a cell is unknown."""
    found = []
    for name in names:
        cell = values[f"is {name}"]
        is_set = cell and _ONE_HOT.get(str(cell.value).strip().lower(), cell)
        if is_set is None:
            return None
        if not isinstance(is_set, bool):
            raise is_set.error("0 or 1, or false or true")
        found += [name] * is_set
    return LABEL_SEPARATOR.join(found)


def log_labels(path: str, split: str, examples: Sequence[TextExample], labels: Labels) -> None:
    """Logs counts of classes, or range and mean of numbers. Warns of one or too many classes."""
    found = [example.label for example in examples if example.label is not None]
    counts = Counter(found)
    if labels.multi_label:
        counts = Counter(name for cell in found for name in split_labels(cell))
    text = ""
    if found and labels.is_regression:
        numbers = labels.encode(found)
        text = f"labels from {numbers.min():g} to {numbers.max():g}, mean {numbers.mean():g}"
    names = dict.fromkeys(labels.names, 0) | counts
    log_counts(path, split, "row", len(examples), names, labels=text)
    is_many = len(counts) > max(_MANY_CLASSES, len(examples) / 2)
    if is_many and split == TRAIN and not labels.is_regression:
        logging.warning(
            "%s: %d different labels in %d rows. If they are not classes, pass `label_column`, or "
            "`regression` to predict numbers",
            path,
            len(counts),
            len(examples),
        )


_LABEL_NAMES = ("gold_label", "label", "score", "quality", "is_duplicate")


class GlueData:
    """The files of a GLUE task.

    Columns are found by name, in any order. If the header names no text column of GLUE, GLUE's
    column order is assumed. As in the original, the id of a row is its first column, or
    `<split>-<row>` in train and dev of CoLA, MRPC and SST-2, with rows counted from 0.

    `data_dir` is GLUE's download directory, or the directory of the task. For the attributes see
    `GlueTask`; `name` is the task in lower case.

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
        """Reads a split; see `Schema.read`. Up to half of its rows may be malformed."""
        path = self.file(split)
        if not file_exists(path):
            raise UserError(
                f"there is no file {path!r}, the {split} data of `task_name`={self.name}. "
                f"`data_dir` must be {self._task.folder}/ or the directory that contains it. "
                f"Received: {self.data_dir!r}"
            )
        orders = self._task.unlabelled if split == TEST else self._task.labelled
        rows, fields = self._rows(path, orders), self._text_fields()
        if "index" in orders[0]:
            fields["guid"] = Field(_IDS, is_required=False)
        if "label" in orders[0]:
            fields[LABEL] = Field(_LABEL_NAMES, as_is)
            if self._task.cuts_long_rows:
                rows.rows = self._cut_rows(rows, rows.rows, fields[LABEL].find(rows.columns))
        schema = Schema(
            partial(_example, rows.report, "" if split == TEST else f"{split}-"),
            [fields],
            partial(_label, self.labels, False, NO_LABEL),
            is_strict=True,
            keeps_malformed=True,
            most_malformed=1.0 if split == TEST else 0.5,
        )
        examples = schema.read(rows, split)
        log_labels(path, split, examples, self.labels)
        return examples

    @property
    def text_names(self) -> Sequence[str]:
        """Names of the column of the first text."""
        return self._task.text_names[0]

    def read_texts(self, path: str) -> list[TextExample]:
        """Reads the texts of any file with the columns of the task."""
        rows = self._rows(path, self._task.unlabelled + self._task.labelled)
        make = partial(_example, rows.report, "")
        return Schema(make, [self._text_fields()], keeps_malformed=True).read(rows, TEST)

    def _text_fields(self) -> dict[str, Field]:
        names = zip((TEXT_A, TEXT_B), self._task.text_names, strict=False)
        return {name: Field((*options, name)) for name, options in names}

    def _rows(self, path: str, orders: Sequence[str]) -> Rows:
        """Opens a file. Without names of GLUE, the columns have the order of the same width."""

        def name_columns(first: Cells, second: Cells) -> tuple[bool, list[str]]:
            _, names = header(first, second)
            fitting = [order for order in orders if order.count(" ") + 1 == len(names)]
            order = (*fitting, orders[0])[0]
            # Column names are never numbers, but rows contain an index or a numeric label.
            may_be_header = self._task.has_header or order in self._task.unlabelled
            is_header = may_be_header and not any(map(str.isdigit, names))
            known = {*chain(*self._task.text_names)} & {name.lower() for name in names}
            if known or (is_header and not fitting):
                return True, names
            if may_be_header:
                logging.warning(
                    "%s: the first row %s. The columns are read in GLUE's order",
                    path,
                    "contains no column name of GLUE" if is_header else "is not a header",
                )
            return is_header, order.split()

        return read_rows(path, name_columns=name_columns, wanted=_WANTED)

    def _cut_rows(self, rows: Rows, found: Iterator[Row], label: Sequence[str]) -> Iterator[Row]:
        """Accepts additional cells of rows whose label column contains a label."""
        for number, row, problem in found:
            if problem and all(self.labels.accepts(row.value.get(name, "")) for name in label):
                rows.report.add("too many columns, extra ones ignored", number)
                problem = None
            yield number, row, problem


class CustomData:
    """Custom files, with the same attributes as `GlueData`, see `ClassificationSettings`.

    "-" is a class only if the training file also has the label "+", or if the model was trained
    with it. The label column of a test file is optional and ignored. If `text_b_column` is `None`,
    the column "text_b" is used if it exists; "" selects single texts. Several label columns are
    separated by "," or "|"; an empty cell means 0.

    `labels` are the labels of a trained model. If `None`, the classes are read from the training
    file, and sorted as numbers if all are numbers, otherwise by code points.

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
        self._pairs: dict[bool, str] = {}  # a file with, and one without, second texts
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
        # The default label column is a name, even if the other columns are numbers.
        kinds = {column.isdecimal() for column in columns if column != LABEL}
        if len(kinds) > 1 or len(set(columns)) < len(columns):
            raise UserError(
                "Texts and label must be different columns: all names, or all numbers. Received: "
                f"`text_a_column`={self._text_a!r}, `text_b_column`={self._text_b!r}, "
                f"`label_column`={self._label!r}"
            )

    def file(self, split: str) -> str:
        """Returns the path of the file of a split; raises ValueError if it is not given."""
        path = self._files[split]
        if not path:
            raise UserError(f"`task_name`={self.name} needs `{split}_file`.")
        return path

    def read(self, split: str) -> list[TextExample]:
        """Reads a split; see `Schema.read`."""
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
        rows = read_rows(path, name_columns=partial(self._names, path), wanted=_WANTED)
        if self._text_a.isdecimal() and format_of(rows.path) != JSON_LINES:
            self._skip_header(rows, labels)
        fields = self._fields(rows, split)
        if split == TEST and path == self._files[TEST]:
            fields["guid"] = Field(_IDS, _cell, is_required=False)
        no_label: Sequence[str] = ("-",) if self._multi_label else NO_LABEL
        if labels is None and not self._multi_label:
            rows.rows = iter(found := [*rows.rows])
            columns = fields[LABEL].find(rows.columns)
            cells = (str(row.value.get(name)).strip() for _, row, _ in found for name in columns)
            # In a file with the label "+", "-" is also a label.
            no_label = ("",) if "+" in cells else NO_LABEL
        find_label = partial(_label, labels, self._multi_label, no_label)
        if self._one_hot and split != TEST:
            fields |= {
                f"is {name}": Field((name,), as_is, setting="label_column")
                for name in self._one_hot
            }
            fields[LABEL] = Field((self._one_hot[0],), as_is)
            find_label = partial(_one_hot_label, self._one_hot)
        schema = Schema(
            partial(_example, rows.report, ""),
            [fields],
            find_label,
            is_strict=bool(self._one_hot) or (labels is not None and not labels.is_regression),
            keeps_malformed=True,
        )
        return schema.read(rows, split)

    def _names(self, path: str, first: Cells, second: Cells) -> tuple[bool, list[str]]:
        if not self._text_a.isdecimal():
            return header(first, second)
        numbers = [*map(str, range(len(first)))]
        # pandas numbers columns without names, but not its index.
        if len(first) > 1 and first == ["", *numbers[:-1]]:
            problem = "is a header whose numbers are not positions. Remove the index and the header"
            raise UserError(f"the first row of {path} {problem}. Received: {listed(first)}")
        return False, numbers

    def _skip_header(self, rows: Rows, labels: Labels | None) -> None:
        """Skips a first row with several usual names, or with a label that seems to be a name."""
        rows.rows = iter(found := [*rows.rows])
        first, *others = (row.value for _, row, _ in found)
        label, *parts = (self._parts(row.get(self._label, "")) for row in (first, *others))
        counts = Counter(chain.from_iterable(parts))
        if labels is None:  # If other labels occur only once, too, it may be a label.
            is_name = bool(counts) and 1 not in counts.values()
            is_name = is_name and all(decimal_number(name) is None for name in label)
        else:  # If there are other unknown labels, the column contains something else.
            is_name = bool(others) and not any(map(labels.accepts, label))
            is_name = is_name and all(map(labels.accepts, counts))
        usual = {*_ALIASES, *chain.from_iterable(_ALIASES.values())}
        if (
            (label and is_name and label.isdisjoint(counts))
            or len(usual & {cell.strip().lower() for cell in first.values()}) > 1
            or [*first] == [*first.values()]
        ):
            next(rows.rows)
            names = listed(first.values())
            logging.warning("%s: the first row is a header, and skipped: %s", rows.path, names)

    def _parts(self, cell: str) -> set[str]:
        found = _listed(JsonValue(cell, ""), self._multi_label).value
        names = found if isinstance(found, list) else cell.split(LABEL_SEPARATOR)
        return {str(name).strip() for name in names} - {*NO_LABEL}

    def _fields(self, rows: Rows, split: str) -> dict[str, Field]:
        several = [] if self._multi_label else _several_names(self._label)
        if several and self._label not in rows.columns:
            raise UserError(
                f"Several label columns need `multi_label`. Received: {listed(several)}"
            )
        text_b = self._text_b
        if text_b is None and self._text_a != TEXT_B:
            others = _ALIASES[TEXT_B] if self._text_a == TEXT_A not in rows.columns else ()
            if any(name.lower() in (TEXT_B, *others) for name in rows.columns):
                text_b = TEXT_B
        self._pairs.setdefault(bool(text_b), rows.path)
        if len(self._pairs) > 1:
            raise UserError(
                f"{self._pairs[True]} has a column {TEXT_B!r}, unlike {self._pairs[False]}. Set "
                '`text_b_column` to the column of the second text, or to "" for single texts.'
            )
        label = None if split == TEST else self._label
        return {
            key: Field(
                (name, *_ALIASES.get(name, ())),
                as_is if key == LABEL else _cell,
                setting=f"{key}_column",
                default="" if key == TEXT_B else None,  # as in CSV
            )
            for key, name in ((TEXT_A, self._text_a), (TEXT_B, text_b), (LABEL, label))
            if name
        }


def _several_names(columns: str) -> list[str]:
    """Returns the names in `label_column`; an empty list if it is a single name."""
    names = [name.strip() for name in re.split(f"[,{re.escape(LABEL_SEPARATOR)}]", columns)]
    return names if len(names) > 1 else []


def _warn_of_lists(path: str, names: Sequence[str], multi_label: bool) -> None:
    """Warns of labels that seem to be lists of labels, with another separator than "|"."""
    parts = [
        {part.strip(" '\"") for part in re.split("[,;]", name.strip("[](){}"))} for name in names
    ]
    counts, known = Counter(chain.from_iterable(parts)), {*names}

    def is_list(name: str, found: set[str]) -> bool:
        shared = [counts[part] > 1 for part in found]
        is_known = any(shared) if multi_label else all(shared) or bool(found & known)
        return name[:1] + name[-1:] in ("[]", "{}") or (len(found) > 1 and is_known)

    lists = [name for name, found in zip(names, parts, strict=True) if is_list(name, found)]
    if lists:
        logging.warning(
            "%s: each of these labels is a single label: %s. If they are lists, %swrite a%sb or "
            "['a', 'b']",
            path,
            listed(lists),
            "" if multi_label else "pass `multi_label` and ",
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
    may_be_raw = format_of(path) is None or path.lower().endswith(".txt") or (is_tsv and is_pair)
    if may_be_raw and not _has_columns(path, data.text_names, is_tsv, is_pair):
        logging.info("Reading %s as raw texts (one example per line)", path)
        return None
    examples = data.read_texts(path)
    if any((example.text_b is None) == is_pair for example in examples):
        expected = "pairs of texts" if is_pair else "single texts"
        raise UserError(f"{path} must contain {expected}, like the training data of the model.")
    return examples


def _has_columns(path: str, names: Sequence[str], is_tsv: bool, is_pair: bool) -> bool:
    """Returns whether the first row contains the column of the first text."""
    line = next(parse_lines(path, lambda text, number: text), [""])[0]
    is_json = re.match(r'\s*[\[{]*\{\s*"[^"]+"\s*:', line) is not None
    row = re.split("[,;|]", line)
    if is_json or (" " not in line and len(row) > 1 and {*names} & {*row}):
        raise UserError(
            f"{path} seems to have columns, but files with this extension contain raw texts, one "
            "per line. Rename it to end in .csv or .jsonl, or pass texts on the standard input. "
            f"Its first line: {shown(line)}"
        )
    cells = line.split("\t")
    is_named = len(cells) > 1 and not {*names}.isdisjoint([*cells, *line.lower().split("\t")])
    if names[0].isdecimal():
        is_named = len(cells) > 1 + is_pair
    return is_named or line == names[0] or (is_tsv and len(cells) != 2)


def metrics_for(labels: Labels) -> tuple[str, tuple[str, ...]]:
    """Returns `best_metric` and `metrics` of custom data."""
    if labels.is_regression:
        return "pearson", ("pearson", "spearman", "R2", "RMSE", "RMSE_of_mean")
    single = (F1_OF_CLASSES,) if len(labels.names) <= _MANY_CLASSES else ()
    if labels.multi_label:
        return "f1_micro", ("f1_micro", "f1_macro", *single)
    f1 = "f1" if len(labels.names) == 2 else "f1_macro"
    return "eval_accuracy", (f1, *single, "matthews")
