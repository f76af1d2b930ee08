"""Imports on first use: the public names, and the classes in Keras's registry."""

import ast
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_KERAS_MODULES = tuple(
    f"albert_tf.{name}"
    for name in ("modeling.encoder", "modeling.losses", "modeling.models", "training.optimization")
)


def stub_imports(init_file: str) -> dict[str, str]:
    """Returns the modules of the names that the stub file of a package imports."""
    stub = ast.parse(Path(init_file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def wrap_import(name: str, run: Callable[[Callable[[ModuleType], None], ModuleType], None]) -> None:
    """Calls `run` when a package is imported for the first time.

    The arguments of `run` are a function that executes the package, and the module to pass to it.
    `run` must call this function once.
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


class _LazyClass:
    """Entry in Keras's registry that imports a class when a saved model contains the class."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Imports the class, which replaces this entry of the registry, and creates an object."""
        return getattr(importlib.import_module(self.module), self.name).from_config(config)


def register_keras_classes(modules: Mapping[str, str]) -> None:
    """Registers classes without importing them, when Keras is imported.

    `keras.models.load_model` only finds registered classes. `modules` maps names to modules.
    """

    def register(keras: ModuleType) -> None:
        registry = keras.saving.get_custom_objects()
        for name, module in {**modules, "HeadLoss": "albert_tf.modeling.losses"}.items():
            if module in _KERAS_MODULES:
                registry[f"albert_tf>{name}"] = _LazyClass(module, name)

    def import_keras(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        register(module)

    if "keras" in sys.modules:
        register(sys.modules["keras"])
    else:
        wrap_import("keras", import_keras)
