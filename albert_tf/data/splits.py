"""The names of splits, and labels that all rows of a split have or lack."""

from collections.abc import Sequence
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
