"""ALBERT on TensorFlow 2, with the same results as the original release.

Public names are imported on first use, so `import albert_tf` is fast, and processes that only
prepare data never import TensorFlow. `__init__.pyi` lists the names.
"""

import importlib
from typing import Any

from albert_tf.data.streams import import_tensorflow
from albert_tf.lazy_imports import register_keras_classes, stub_imports, wrap_import

_MODULES = stub_imports(__file__)
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


wrap_import("tensorflow", import_tensorflow)
register_keras_classes(_MODULES)
