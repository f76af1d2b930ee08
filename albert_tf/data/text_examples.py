"""Labeled texts and pairs of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from albert_tf.data.errors import UserError

T = TypeVar("T")
TRAIN, DEV, TEST = "train", "dev", "test"


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
