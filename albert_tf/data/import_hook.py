"""Runs code when another package is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Execute = Callable[[ModuleType], None]


def wrap_import(name: str, run: Callable[[Execute, ModuleType], None]) -> None:
    """Calls `run` when a package is imported for the first time.

    `run` receives the function that executes the package, which it must call once, and the module.
    """

    class Finder(MetaPathFinder):
        def find_spec(
            self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            spec = PathFinder.find_spec(fullname, path, target) if fullname == name else None
            if spec is not None and spec.loader is not None:
                execute = spec.loader.exec_module
                spec.loader.exec_module = lambda module: run(  # type: ignore[method-assign]
                    execute, module
                )
            return spec

    sys.meta_path.insert(0, Finder())
