"""Checks of the arguments of public functions."""

import os
import reprlib
from collections.abc import Iterable, Mapping, Set, Sized
from enum import Enum
from typing import Any

import numpy as np

from albert_tf.data.errors import UserError


def as_texts(name: str, values: object) -> list[str]:
    """Returns an argument as a non-empty list of texts; raises TypeError or ValueError.

    For their types see `value_of`.
    """
    if getattr(values, "ndim", 1) != 1:  # iterating over a pandas table yields its column names
        raise TypeError(f"{name} must be a list of texts. Received: {reprlib.repr(values)}")
    texts = as_list(name, values, "texts")
    for index, text in enumerate(texts):
        if type(text) is str:
            continue
        try:
            texts[index] = found = value_of(text)
        except UnicodeDecodeError as error:
            raise UserError(f"{name}[{index}] is not valid UTF-8: {error}") from error
        if not isinstance(found, str):
            raise TypeError(
                f"{name} must be a list of texts. Received: {name}[{index}] is {reprlib.repr(text)}"
            )
        texts[index] = str(found)
    return texts


def value_of(value: Any) -> Any:
    """Returns the Python value of an element of a list, an array or a column.

    Members of enumerations, values of NumPy, TensorFlow and Arrow, and bytes in UTF-8 are
    converted; other values are unchanged.
    """
    if isinstance(value, Enum):
        value = value.value
    for method in ("as_py", "numpy", "item"):
        if hasattr(value, method) and not getattr(value, "ndim", 0):
            value = getattr(value, method)()
    return value.decode() if isinstance(value, bytes) else value


def as_labels(
    labels: Any, name: str = "labels", missing: str | None = None
) -> tuple[str, ...] | None:
    """Returns an argument with labels, of which `None` and an empty list have a meaning.

    It can be a list, an array, a column of a table or an enumeration. Labels may be integers or
    Booleans, and `None` if it is replaced by `missing`. Raises TypeError or ValueError.
    """
    if labels is None:
        return None
    is_list = isinstance(labels, list | tuple) or hasattr(labels, "__array__")
    if is_list and not len(labels):
        return ()
    if getattr(labels, "ndim", 1) == 1:
        labels = [value_of(label) for label in as_list(name, labels, "texts")]
        labels = [str(label) if isinstance(label, int) else label for label in labels]
        labels = [missing if label is None else label for label in labels]
    return tuple(as_texts(name, labels))


def as_list(name: str, values: object, what: str) -> list:
    """Returns an argument as a non-empty list. Errors call the elements `what`."""
    # Sets are rejected because they have no order.
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {what}. Received: {reprlib.repr(values)}")
    found = list(values)
    if not found:
        raise UserError(f"{name} must be a non-empty list of {what}. Received: {found}")
    return found


def texts_and_pairs(texts: object, text_pairs: object) -> tuple[list[str], list[str] | None]:
    """Returns the arguments `texts` and `text_pairs` as lists of equal length."""
    first = as_texts("texts", texts)
    if text_pairs is None:
        return first, None
    second = as_texts("text_pairs", text_pairs)
    check_same_length("text_pairs", second, "texts", first)
    return first, second


def check_same_length(name: str, values: Sized, other: str, others: Sized) -> None:
    """Raises ValueError if two arguments differ in length."""
    if len(values) != len(others):
        raise UserError(
            f"{name} must have as many entries as {other}, {len(others)}. Received: {len(values)}"
        )


def check_single(name: str, other: str, value: object) -> None:
    """Raises TypeError if an argument is one text, but the value of another one is not."""
    if value is not None and not isinstance(value, str):
        raise TypeError(
            f"{name} is one text, so that {other} must be one text. Received: {reprlib.repr(value)}"
        )


def check_whole_number(name: str, value: object, at_least: int | None = None) -> None:
    """Raises TypeError or ValueError if an argument is not a whole number >= `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number. Received: {value!r}")
    if at_least is not None and value < at_least:
        raise UserError(f"{name} must be at least {at_least}. Received: {value}")


def check_choice(name: str, value: object) -> None:
    """Raises TypeError if an argument is not True, False or None."""
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{name} must be True, False or None. Received: {value!r}")


def as_path(name: str, value: object, what: str = "path or the name of a model") -> str:
    """Returns a path as text; raises TypeError or ValueError if it is not a path, or empty."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise TypeError(f"{name} must be the {what}. Received: {reprlib.repr(value)}")
    if not path:
        raise UserError(f"{name} must be the {what}. Received: {value!r}")
    return path
