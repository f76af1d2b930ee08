"""What a file of labelled texts holds: one line for the log, and warnings about what harms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from absl import logging

from albert_tf.data.text_examples import TRAIN, Labels, TextExample, decimal_number

IMBALANCE = 9  # largest class over smallest from which on accuracy alone says little
MANY_CLASSES = 20
_CLASSES_NAMED = 20


def log_labels(path: str, split: str, examples: Sequence[TextExample], labels: Labels) -> None:
    """Logs how many rows each class has, or range and mean of the numbers.

    Warns of a file with one label only, and for training data of classes without a row, of labels
    that look alike, of imbalance, and of so many classes that they may be numbers or texts.

    Args:
        path: the file, for the messages.
        split: train, dev or test.
        examples: its rows.
        labels: what is predicted.
    """
    logging.info(
        "%s: split=%s rows=%d %s", path, split, len(examples), _label_text(examples, labels)
    )
    found = _found(examples)
    if found and not labels.is_regression and split == TRAIN:
        _warn_of_classes(path, _counts(found, labels))
    if found and len(set(found)) == 1:
        logging.warning("%s: all %d rows have the label %r", path, len(found), found[0])


def _label_text(examples: Sequence[TextExample], labels: Labels) -> str:
    """Says how many rows each class has, or range and mean of the numbers.

    Args:
        examples: rows of a file.
        labels: what is predicted.
    """
    found = _found(examples)
    if not found:
        return "without labels"
    if labels.is_regression:
        numbers = labels.encode(found)
        return f"labels from {numbers.min():g} to {numbers.max():g}, mean {numbers.mean():g}"
    counts = _counts(found, labels)
    shares = [f"{name}: {count} ({count / len(found):.1%})" for name, count in counts.items()]
    more = f", and {len(shares) - _CLASSES_NAMED} more" if len(shares) > _CLASSES_NAMED else ""
    return f"labels {', '.join(shares[:_CLASSES_NAMED])}{more}"


def _found(examples: Sequence[TextExample]) -> list[str]:
    return [example.label for example in examples if example.label is not None]


def _counts(found: Sequence[str], labels: Labels) -> dict[str, int]:
    return dict.fromkeys(labels.names, 0) | Counter(found)


def _warn_of_classes(path: str, counts: dict[str, int]) -> None:
    rows = sum(counts.values())
    present = {name: count for name, count in counts.items() if count}
    missing = [name for name in counts if name not in present]
    if missing:
        logging.warning(
            "%s: no row has the label%s %s, which cannot be learned from it",
            path,
            "s" if len(missing) > 1 else "",
            ", ".join(map(repr, missing)),
        )
    _warn_of_lookalikes(path, present)
    largest, smallest = max(present, key=present.__getitem__), min(present, key=present.__getitem__)
    if present[largest] > IMBALANCE * present[smallest]:
        logging.warning(
            "%s: the classes are out of balance: %r has %d rows, %r %d; look at f1 and "
            "matthew_corr beside accuracy",
            path,
            largest,
            present[largest],
            smallest,
            present[smallest],
        )
    if len(present) > max(MANY_CLASSES, rows / 2):
        logging.warning(
            "%s: %d different labels in %d rows; are they classes? --label_column names their "
            "column, --regression predicts numbers",
            path,
            len(present),
            rows,
        )


def _warn_of_lookalikes(path: str, names: Iterable[str]) -> None:
    """Names classes that may be meant to be one."""
    alike: dict[str | float, list[str]] = {}
    for name in names:
        number = decimal_number(name)
        alike.setdefault(name.casefold() if number is None else number, []).append(name)
    for key, spellings in alike.items():
        if len(spellings) > 1:
            logging.warning(
                "%s: the labels %s %s",
                path,
                ", ".join(map(repr, spellings)),
                "differ only in case" if isinstance(key, str) else "are one number",
            )
