"""ALBERT on TensorFlow 2, equal to the original release.

The public names are loaded when they are first used, so that `import albert_tf` costs nothing and
processes that only prepare data never load TensorFlow.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from albert_tf.data.import_hook import wrap_import
from albert_tf.version import __version__

if TYPE_CHECKING:
    from albert_tf.checkpoints.load_tokenizer import load_tokenizer
    from albert_tf.checkpoints.load_weights import load_weights
    from albert_tf.checkpoints.loading import load
    from albert_tf.checkpoints.original import write_checkpoint
    from albert_tf.checkpoints.save import save
    from albert_tf.classification.predict_texts import TextPrediction
    from albert_tf.classification.run import ClassificationSettings, run_classification
    from albert_tf.classification.text_classifier import TextClassifier
    from albert_tf.config import PRESETS, AlbertConfig
    from albert_tf.finetuning.texts import TextEncoder
    from albert_tf.modeling.encoder import AlbertEncoder
    from albert_tf.modeling.models import (
        AlbertForClassification,
        AlbertForMultipleChoice,
        AlbertForPretraining,
        AlbertForQuestionAnswering,
        AlbertForQuestionAnsweringWithBeamSearch,
        AlbertForTokenClassification,
    )
    from albert_tf.modeling.original_names import original_names
    from albert_tf.multiple_choice.choose import ChosenOption, MultipleChoice
    from albert_tf.multiple_choice.run import MultipleChoiceSettings, run_multiple_choice
    from albert_tf.pretraining.create_data import (
        PretrainingDataSettings,
        create_pretraining_data,
    )
    from albert_tf.pretraining.fill_mask import FillMask
    from albert_tf.pretraining.run import PretrainingSettings, run_pretraining
    from albert_tf.pretraining.vocabulary import train_sentencepiece
    from albert_tf.squad.ask import QuestionAnswer, QuestionAnswerer
    from albert_tf.squad.run import SquadSettings, run_squad
    from albert_tf.token_classification.run import (
        TokenClassificationSettings,
        run_token_classification,
    )
    from albert_tf.token_classification.tag import TaggedEntity, TaggedText, TaggedWord
    from albert_tf.token_classification.token_classifier import TokenClassifier
    from albert_tf.tools.exports import (
        convert,
        estimate_memory,
        export_hub_module,
        export_litert,
        export_saved_model,
        inspect,
    )
    from albert_tf.training.optimization import AdamWeightDecay, Lamb, WarmupPolynomialDecay
    from albert_tf.training.settings import JobResult


__all__ = [
    "PRESETS",
    "AdamWeightDecay",
    "AlbertConfig",
    "AlbertEncoder",
    "AlbertForClassification",
    "AlbertForMultipleChoice",
    "AlbertForPretraining",
    "AlbertForQuestionAnswering",
    "AlbertForQuestionAnsweringWithBeamSearch",
    "AlbertForTokenClassification",
    "ChosenOption",
    "ClassificationSettings",
    "FillMask",
    "JobResult",
    "Lamb",
    "MultipleChoice",
    "MultipleChoiceSettings",
    "PretrainingDataSettings",
    "PretrainingSettings",
    "QuestionAnswer",
    "QuestionAnswerer",
    "SquadSettings",
    "TaggedEntity",
    "TaggedText",
    "TaggedWord",
    "TextClassifier",
    "TextEncoder",
    "TextPrediction",
    "TokenClassificationSettings",
    "TokenClassifier",
    "WarmupPolynomialDecay",
    "__version__",
    "convert",
    "create_pretraining_data",
    "estimate_memory",
    "export_hub_module",
    "export_litert",
    "export_saved_model",
    "inspect",
    "load",
    "load_tokenizer",
    "load_weights",
    "original_names",
    "run_classification",
    "run_multiple_choice",
    "run_pretraining",
    "run_squad",
    "run_token_classification",
    "save",
    "train_sentencepiece",
    "write_checkpoint",
]

_NAMES = {
    "checkpoints.load_tokenizer": ("load_tokenizer",),
    "checkpoints.load_weights": ("load_weights",),
    "checkpoints.loading": ("load",),
    "checkpoints.original": ("write_checkpoint",),
    "checkpoints.save": ("save",),
    "classification.predict_texts": ("TextPrediction",),
    "classification.run": ("ClassificationSettings", "run_classification"),
    "classification.text_classifier": ("TextClassifier",),
    "config": ("AlbertConfig", "PRESETS"),
    "finetuning.texts": ("TextEncoder",),
    "modeling.encoder": ("AlbertEncoder",),
    "modeling.models": (
        "AlbertForClassification",
        "AlbertForMultipleChoice",
        "AlbertForPretraining",
        "AlbertForQuestionAnswering",
        "AlbertForQuestionAnsweringWithBeamSearch",
        "AlbertForTokenClassification",
    ),
    "modeling.original_names": ("original_names",),
    "multiple_choice.choose": ("ChosenOption", "MultipleChoice"),
    "multiple_choice.run": ("MultipleChoiceSettings", "run_multiple_choice"),
    "pretraining.create_data": ("PretrainingDataSettings", "create_pretraining_data"),
    "pretraining.fill_mask": ("FillMask",),
    "pretraining.run": ("PretrainingSettings", "run_pretraining"),
    "pretraining.vocabulary": ("train_sentencepiece",),
    "squad.ask": ("QuestionAnswer", "QuestionAnswerer"),
    "squad.run": ("SquadSettings", "run_squad"),
    "token_classification.run": ("TokenClassificationSettings", "run_token_classification"),
    "token_classification.tag": ("TaggedEntity", "TaggedText", "TaggedWord"),
    "token_classification.token_classifier": ("TokenClassifier",),
    "tools.exports": (
        "convert",
        "estimate_memory",
        "export_hub_module",
        "export_litert",
        "export_saved_model",
        "inspect",
    ),
    "training.optimization": ("AdamWeightDecay", "Lamb", "WarmupPolynomialDecay"),
    "training.settings": ("JobResult",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
# Former names.
_MODULES |= dict.fromkeys(("AlbertForSpanBeams", "AlbertForSpans"), "modeling.models")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(f"albert_tf.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _LazyClass:
    """Represents a class in Keras's registry until a saved model contains it."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Imports the class, which replaces this object in the registry, and creates an object."""
        module = importlib.import_module(f"albert_tf.{self.module}")
        return getattr(module, self.name).from_config(config)


def _register_classes(keras: ModuleType) -> None:
    names = [name for name in _MODULES if name.startswith("Albert") and name != "AlbertConfig"]
    names += ["AdamWeightDecay", "Lamb", "WarmupPolynomialDecay"]
    classes = {**{name: _MODULES[name] for name in names}, "HeadLoss": "modeling.losses"}
    registry = keras.saving.get_custom_objects()
    for name, module in classes.items():
        registry[f"albert_tf>{name}"] = _LazyClass(module, name)


def _import_keras(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    execute(module)
    _register_classes(module)


# `keras.models.load_model` finds registered classes only. Importing the classes here would import
# TensorFlow, which processes that only prepare data do not need.
if "keras" in sys.modules:
    _register_classes(sys.modules["keras"])
else:
    wrap_import("keras", _import_keras)
