"""Labelled texts and pairs of texts, before they become tokens: what a source of data hands out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from albert_tf.data.strict_json import listed, shown

TRAIN, DEV, TEST = "train", "dev", "test"


# What rows without a label have in its place, unless it is a class. "-" is how SNLI and its like
# mark what the annotators did not agree on.
NO_LABEL = ("", "-")
_DECIMAL_NUMBER = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")
_LARGEST_NUMBER = float(np.finfo(np.float32).max)
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class TextExample:
    """One row of a data file.

    Attributes:
        guid: what the row is called in files of results.
        text_a: the text, or the first of a pair; as the file has it.
        text_b: the second of a pair; None for a single text.
        label: as the file has it; None where there is none.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Labels:
    """What a task predicts.

    Attributes:
        names: the classes, a class's place being its id; empty for a number (regression).

    Raises:
        ValueError: one class only, or a name twice.
    """

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what nothing can be learned from."""
        if len(self.names) == 1:
            raise ValueError(
                f"A classifier needs at least two labels. Received: {listed(self.names)}"
            )
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"Labels must be unique. Received: {listed(self.names)}")

    @property
    def is_regression(self) -> bool:
        """Whether a number is predicted instead of a class."""
        return not self.names

    @property
    def num_outputs(self) -> int:
        """K, outputs of the head: one for each class, or a single one for a number."""
        return len(self.names) or 1

    @property
    def allowed(self) -> str:
        """What a label may be, in words, for errors."""
        return "a finite number such as -2.5" if self.is_regression else listed(self.names)

    def accepts(self, label: str) -> bool:
        """Whether a label is one of the classes, or a finite number for regression."""
        if not self.is_regression:
            return label in self.names
        return decimal_number(label) is not None

    def encode(self, labels: Sequence[str]) -> np.ndarray:
        """Turns labels as files have them into int32 class ids or float32 numbers, [N].

        Raises:
            ValueError: a label is none of the classes, or no number.
        """
        known = {label: self.accepts(label) for label in set(labels)}
        unknown = next((label for label in labels if not known[label]), None)
        if unknown is not None:
            raise ValueError(f"Unknown label {shown(unknown)}; allowed: {self.allowed}")
        if self.is_regression:
            return np.array([float(label) for label in labels], np.float32)
        ids = {name: i for i, name in enumerate(self.names)}
        return np.array([ids[label] for label in labels], np.int32)


def decimal_number(label: str) -> float | None:
    """The number a label is, within float32; None for any other.

    Python's `float` also takes "1_0", other scripts' digits, "nan" and "inf", which are no scores.
    """
    if not _DECIMAL_NUMBER.fullmatch(label):
        return None
    number = float(label)
    return number if abs(number) <= _LARGEST_NUMBER else None


def label_cell(label: str) -> str:
    r"""Returns a label as a cell of a TSV, with `\\`, `\t`, `\n`, `\r` for what breaks a row."""
    return label.translate(_ESCAPES)


class TextData(Protocol):
    """A source of labelled texts: a GLUE task, or files of the user's own.

    Attributes:
        name: the task in lower case.
        labels: what is predicted.
        best_metric: the score that the best checkpoint has the highest of.
        metrics: names of the scores the benchmark defines beside accuracy or mean squared error:
            any of "f1", "matthews", "pearson", "spearman".
        submission_file: name of the file GLUE's server takes; None for other data.
    """

    name: str
    labels: Labels
    best_metric: str
    metrics: tuple[str, ...]
    submission_file: str | None

    def file(self, split: str) -> str:
        """Returns the path of a split's file, which need not exist."""
        ...

    def read(self, split: str) -> list[TextExample]:
        """Reads a split; rows that cannot be used are left out, counted and named in the log.

        Raises:
            ValueError: the file is missing, has not the columns it should have, or holds a label
                that is none of the task's; names file, row and flag.
        """
        ...
