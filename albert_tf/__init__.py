"""ALBERT on TensorFlow 2, equal to the original release.

The public names are loaded when they are first used, so that `import albert_tf` costs nothing and
processes that only prepare data never load TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from albert_tf.version import __version__

if TYPE_CHECKING:
    from albert_tf.checkpoints.original import load_weights, original_names, write_checkpoint
    from albert_tf.config import PRESETS, AlbertConfig
    from albert_tf.encoder import AlbertEncoder
    from albert_tf.loading import load
    from albert_tf.model_files.tokenizer import load_tokenizer
    from albert_tf.models import (
        AlbertForClassification,
        AlbertForMultipleChoice,
        AlbertForPretraining,
    )
    from albert_tf.optimization import AdamWeightDecay, Lamb, WarmupPolynomialDecay
    from albert_tf.span_models import AlbertForSpanBeams, AlbertForSpans

__all__ = [
    "PRESETS",
    "AdamWeightDecay",
    "AlbertConfig",
    "AlbertEncoder",
    "AlbertForClassification",
    "AlbertForMultipleChoice",
    "AlbertForPretraining",
    "AlbertForSpanBeams",
    "AlbertForSpans",
    "Lamb",
    "WarmupPolynomialDecay",
    "__version__",
    "load",
    "load_tokenizer",
    "load_weights",
    "original_names",
    "write_checkpoint",
]

_MODULES = {
    "PRESETS": "config",
    "AlbertConfig": "config",
    "AlbertEncoder": "encoder",
    "AlbertForClassification": "models",
    "AlbertForMultipleChoice": "models",
    "AlbertForPretraining": "models",
    "AlbertForSpanBeams": "span_models",
    "AlbertForSpans": "span_models",
    "AdamWeightDecay": "optimization",
    "Lamb": "optimization",
    "WarmupPolynomialDecay": "optimization",
    "load": "loading",
    "load_tokenizer": "model_files.tokenizer",
    "load_weights": "checkpoints.original",
    "original_names": "checkpoints.original",
    "write_checkpoint": "checkpoints.original",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(f"albert_tf.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
