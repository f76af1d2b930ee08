"""Labeled texts and pairs of texts, and the tasks of GLUE."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import listed, shown

T = TypeVar("T")
TRAIN, DEV, TEST = "train", "dev", "test"

NO_LABEL = ("", "-")  # cells of rows without a label; SNLI uses "-" if annotators disagreed
LABEL_SEPARATOR = "|"  # between labels in multi-label classification
_DECIMAL_NUMBER = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")
_MISSING_VALUES = frozenset({"nan", "none", "null", "na", "n/a", "<na>"})
_LARGEST_NUMBER = float(np.finfo(np.float32).max)
_ESCAPES = {code: ascii(chr(code))[1:-1] for code in (*range(32), ord("\\"), *range(127, 160))}


def given_labels(labels: Sequence[tuple[str, T | None]], what: str) -> list[T]:
    """Returns the labels of (name, label) pairs; raises ValueError if only some have a label."""
    given = [label for _, label in labels if label is not None]
    if 0 < len(given) < len(labels):
        missing = next(name for name, label in labels if label is None)
        raise UserError(
            f"Only {len(given)} of {len(labels)} {what} have a label; {missing!r} has none. Label "
            "all of them, or none."
        )
    return given


@dataclass(frozen=True, slots=True)
class TextExample:
    """A row of a data file. Missing texts and labels are `None`.

    `guid` is the name of the row in result files.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Labels:
    """The labels of a task: names of classes in the order of their ids; empty for a regression.

    With `multi_label`, an example has any number of classes, separated by "|" in files. A class is
    predicted if its probability is at least `threshold`.

    Raises:
        ValueError: there is only one class, a name is repeated, or a name of a multi-label task
            contains "|" or surrounding blanks.
    """

    names: tuple[str, ...] = ()
    multi_label: bool = False
    threshold: float = field(default=0.5, compare=False)

    def __post_init__(self) -> None:
        if self.multi_label:
            for name in self.names:
                if split_labels(name) != [name]:
                    raise UserError(
                        f"Multi-label names must not be empty or '-', contain {LABEL_SEPARATOR!r}, "
                        f"or begin or end with a blank. Received: {shown(name)}"
                    )
            if not (self.names and 0 < self.threshold < 1):
                raise UserError(
                    "Multi-label tasks need names and a threshold between 0 and 1. Received: "
                    f"{listed(self.names) or 'no names'}, {self.threshold}"
                )
        if len(self.names) == 1:
            raise UserError(
                f"A classifier needs at least two labels. Received: {listed(self.names)}"
            )
        if len(set(self.names)) != len(self.names):
            raise UserError(f"Labels must be unique. Received: {listed(self.names)}")

    @property
    def is_regression(self) -> bool:
        """Whether a number is predicted instead of a class."""
        return not self.names

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the head: one per class, or 1 for regression."""
        return len(self.names) or 1

    @property
    def allowed(self) -> str:
        """Description of the allowed labels, for errors."""
        if self.multi_label:
            separated = f"separated by {LABEL_SEPARATOR}"
            return f"any of the following, each at most once, {separated}: {listed(self.names)}"
        return "a finite number such as -2.5" if self.is_regression else listed(self.names)

    def accepts(self, label: str) -> bool:
        """Returns whether a label is a class, or for regression a finite number.

        With `multi_label`, `label` may contain several classes, see `split_labels`.
        """
        if self.multi_label:
            return set(split_labels(label)) <= set(self.names)
        if not self.is_regression:
            return label in self.names
        return decimal_number(label) is not None

    def encode(self, labels: Sequence[str]) -> np.ndarray:
        """Converts labels to class ids, int32 [N], or for regression to numbers, float32 [N].

        With `multi_label`, returns uint8 [N, K], 1 for the labels of each example. Raises
        ValueError if a label is unknown.
        """
        known = {label: self.accepts(label) for label in set(labels)}
        unknown = next((label for label in labels if not known[label]), None)
        if unknown is not None:
            raise UserError(f"Unknown label {shown(unknown)}; allowed: {self.allowed}")
        if self.is_regression:
            return np.array([float(label) for label in labels], np.float32)
        ids = {name: i for i, name in enumerate(self.names)}
        if self.multi_label:
            matrix = np.zeros([len(labels), len(ids)], np.uint8)
            for row, label in zip(matrix, labels, strict=True):
                row[[ids[name] for name in split_labels(label)]] = 1
            return matrix
        return np.array([ids[label] for label in labels], np.int32)


def split_labels(cell: str) -> list[str]:
    """Splits a cell at "|". Raises ValueError if a label is empty, repeated, or "-"."""
    names = [name.strip() for name in cell.split(LABEL_SEPARATOR)] if cell.strip() else []
    if len(set(names)) < len(names) or any(name in NO_LABEL for name in names):
        raise UserError(
            f"Labels must be separated by {LABEL_SEPARATOR!r}, different, and not empty or '-'. "
            f"Received: {shown(cell)}"
        )
    return names


def warn_of_doubtful_labels(path: str, names: Sequence[str]) -> None:
    """Warns of classes that may be missing values, or different spellings of the same class."""
    spellings: dict[str | float, list[str]] = {}
    for name in names:
        folded = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        number = decimal_number(folded)
        spellings.setdefault(folded if number is None else number, []).append(name)
    doubts = [" / ".join(map(shown, same)) for same in spellings.values() if len(same) > 1]
    missing = [f"{shown(n)} (a missing value?)" for n in names if n.casefold() in _MISSING_VALUES]
    if doubts or missing:
        logging.warning(
            "%s: some classes have similar names or may be missing values: %s. Each name is a "
            "separate class. Correct the file if this is not intended.",
            path,
            ", ".join(doubts + missing),
        )


def numbered_labels(number: int) -> tuple[str, ...]:
    """Returns the names that transformers gives to unnamed labels."""
    return tuple(f"LABEL_{i}" for i in range(number))


def decimal_number(label: str) -> float | None:
    """Converts a label to a number within float32; returns `None` for other labels.

    Unlike `float`, rejects "1_0", digits of other scripts, "nan" and "inf".
    """
    if not _DECIMAL_NUMBER.fullmatch(label):
        return None
    number = float(label)
    return number if abs(number) <= _LARGEST_NUMBER else None


def label_cell(label: str) -> str:
    r"""Escapes backslashes and control characters of a label, such as `\\`, `\t`, `\n`, `\x1b`."""
    return label.translate(_ESCAPES)


@dataclass(frozen=True)
class Columns:
    """Columns of a file: indices from 0, -1 for the last column, or `None` if missing.

    `widths` contains the possible numbers of columns.
    """

    widths: tuple[int, ...]
    text_a: int
    text_b: int | None = None
    label: int | None = None
    guid: int | None = None
    has_header: bool = True

    @property
    def texts(self) -> tuple[int, ...]:
        """Indices of the text columns."""
        return (self.text_a,) if self.text_b is None else (self.text_a, self.text_b)


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE.

    Attributes:
        folder: name of the task's directory in the download.
        labels: the classes, or a regression.
        text_names: possible names of each text column, in lower case.
        labelled, unlabelled: columns of train and dev files, and of test files.
        server_name: name of the task on GLUE's server. If empty, `folder`.
        best_metric, metrics: see `GlueData`.
        dev_file, test_files: name of the dev file, and possible names of the test file.
        test_folders: directories of the test file. If empty, `folder`.
        cuts_long_rows: whether additional cells in rows of train and dev files are ignored.
    """

    folder: str
    labels: Labels
    text_names: tuple[tuple[str, ...], ...]
    labelled: Columns
    unlabelled: Columns
    server_name: str = ""
    best_metric: str = "eval_accuracy"
    metrics: tuple[str, ...] = ()
    dev_file: str = "dev.tsv"
    test_files: tuple[str, ...] = ("test.tsv",)
    test_folders: tuple[str, ...] = ()
    cuts_long_rows: bool = False

    @property
    def submission_file(self) -> str:
        """Name of the file for GLUE's server."""
        return f"{self.server_name or self.folder}.tsv"


_BINARY = Labels(("0", "1"))
_TWO_WAY = Labels(("entailment", "not_entailment"))
_SENTENCE = (("sentence",),)
_SENTENCES = (("sentence1", "premise"), ("sentence2", "hypothesis"))
_SINGLE_TEST = Columns((2,), guid=0, text_a=1)
_PAIR = Columns((4,), guid=0, text_a=1, text_b=2, label=-1)
_PAIR_TEST = Columns((3,), guid=0, text_a=1, text_b=2)
_MNLI = GlueTask(
    "MNLI",
    Labels(("contradiction", "entailment", "neutral")),
    _SENTENCES,
    Columns((12, 16), guid=0, text_a=8, text_b=9, label=-1),
    Columns((10,), guid=0, text_a=8, text_b=9),
    "MNLI-m",
    dev_file="dev_matched.tsv",
    test_files=("test_matched.tsv",),
)

GLUE_TASKS: Final[dict[str, GlueTask]] = {
    "cola": GlueTask(
        "CoLA",
        _BINARY,
        _SENTENCE,
        Columns((4,), text_a=3, label=1, has_header=False),
        _SINGLE_TEST,
        best_metric="matthew_corr",
        metrics=("matthews",),
    ),
    "mnli": _MNLI,
    "mismnli": replace(
        _MNLI,
        server_name="MNLI-mm",
        dev_file="dev_mismatched.tsv",
        test_files=("test_mismatched.tsv",),
    ),
    "mrpc": GlueTask(
        "MRPC",
        _BINARY,
        (("#1 string", "sentence1"), ("#2 string", "sentence2")),
        Columns((5,), text_a=3, text_b=4, label=0),
        Columns((5,), guid=0, text_a=3, text_b=4),
        metrics=("f1",),
    ),
    "rte": GlueTask("RTE", _TWO_WAY, _SENTENCES, _PAIR, _PAIR_TEST),
    "sst-2": GlueTask("SST-2", _BINARY, _SENTENCE, Columns((2,), text_a=0, label=1), _SINGLE_TEST),
    "sts-b": GlueTask(
        "STS-B",
        Labels(),
        _SENTENCES,
        Columns((10,), guid=0, text_a=7, text_b=8, label=-1),
        Columns((9,), guid=0, text_a=7, text_b=8),
        best_metric="pearson",
        metrics=("pearson", "spearman"),
    ),
    "qqp": GlueTask(
        "QQP",
        _BINARY,
        (("question1",), ("question2",)),
        Columns((6,), guid=0, text_a=3, text_b=4, label=5),
        _PAIR_TEST,
        metrics=("f1",),
        cuts_long_rows=True,
    ),
    "qnli": GlueTask("QNLI", _TWO_WAY, (("question",), ("sentence",)), _PAIR, _PAIR_TEST),
    "wnli": GlueTask("WNLI", _BINARY, _SENTENCES, _PAIR, _PAIR_TEST),
    "ax": replace(
        _MNLI,
        unlabelled=_PAIR_TEST,
        server_name="AX",
        test_files=("diagnostic.tsv", "test.tsv", "AX.tsv"),
        test_folders=("diagnostic", "AX"),
    ),
}

_OTHER_NAMES = {
    "mnli": ("mnlim", "mnlimatched"),
    "mismnli": ("mnlimm", "mnlimismatched"),
    "ax": ("diagnostic", "diagnostics"),
}


def glue_task_name(name: str) -> str:
    """Returns the key in `GLUE_TASKS` of a task in any spelling; raises ValueError if unknown."""
    for known in GLUE_TASKS:
        if plain_name(name) in (plain_name(known), *_OTHER_NAMES.get(known, ())):
            return known
    raise UserError(
        f"`task_name` must be one of {', '.join(GLUE_TASKS)}, or custom for other files. "
        f"Received: {name!r}"
    )


def plain_name(name: str) -> str:
    """Returns a name in lower case without hyphens and underscores."""
    return name.lower().replace("-", "").replace("_", "")
