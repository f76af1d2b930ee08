"""Dictionaries that compute missing values."""

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FilledTable(dict[K, V]):
    """A dictionary that computes and stores missing values."""

    def __init__(self, compute: Callable[[K], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: K) -> V:
        self[key] = self._compute(key)
        return self[key]
