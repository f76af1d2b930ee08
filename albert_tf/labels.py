"""The labels of tasks, and their texts in files."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.schema import NO_LABEL
from albert_tf.data.strict_json import listed, shown

LABEL_SEPARATOR = "|"  # between labels in multi-label classification
_DECIMAL_NUMBER = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")
_MISSING_VALUES = frozenset({"nan", "none", "null", "na", "n/a", "<na>"})
_LARGEST_NUMBER = float(np.finfo(np.float32).max)
_ESCAPES = {code: ascii(chr(code))[1:-1] for code in (*range(32), ord("\\"), *range(127, 160))}


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
            raise UserError(f"Classifiers need at least two labels. Received: {listed(self.names)}")
        if len(set(self.names)) != len(self.names):
            raise UserError(f"Labels must be unique. Received: {listed(self.names)}")

    def __str__(self) -> str:
        several = "any number of " * self.multi_label
        return "numbers" if self.is_regression else several + ", ".join(map(shown, self.names))

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

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    def accepts(self, label: str) -> bool:
        """Returns whether a label is a class, or for regression a finite number.

        With `multi_label`, `label` may contain several classes, see `split_labels`.
        """
        if self.multi_label:
            return self._known >= {*split_labels(label)}
        if not self.is_regression:
            return label in self._known
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
