"""Runs code when another package is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Execute = Callable[[ModuleType], None]


def wrap_import(name: str, run: Callable[[Execute, ModuleType], None]) -> None:
    """Calls `run` when a package is imported for the first time.

    `run` gets the function that executes the package, which it must call once, and the module.
    """
    sys.meta_path.insert(0, _Finder(name, run))


class _Finder:
    """Entry of `sys.meta_path` that wraps the loader of one package."""

    def __init__(self, name: str, run: Callable[[Execute, ModuleType], None]) -> None:
        self.name = name
        self.run = run

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        spec = PathFinder.find_spec(name, path, target) if name == self.name else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self.run(  # type: ignore[method-assign]
                execute, module
            )
        return spec
