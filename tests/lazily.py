"""Modules that are imported when a test uses them, because every process collects all tests."""

from importlib import import_module
from typing import Any


class Lazily:
    """A module that is imported when an attribute is read first."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
