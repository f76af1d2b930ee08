"""ALBERT on TensorFlow 2, with the same results as the original release.

Public names are imported on first use, so `import albert_tf` is fast, and processes that only
prepare data never import TensorFlow.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from albert_tf.version import __version__ as __version__

if TYPE_CHECKING:
    # `as` marks a name as public for type checkers.
    from albert_tf.checkpoints.convert import convert as convert
    from albert_tf.checkpoints.load_tokenizer import load_tokenizer as load_tokenizer
    from albert_tf.checkpoints.loading import load as load
    from albert_tf.checkpoints.loading import load_weights as load_weights
    from albert_tf.checkpoints.original import write_checkpoint as write_checkpoint
    from albert_tf.checkpoints.save import save as save
    from albert_tf.classification.predict_texts import TextPrediction as TextPrediction
    from albert_tf.classification.run import ClassificationSettings as ClassificationSettings
    from albert_tf.classification.run import run_classification as run_classification
    from albert_tf.classification.text_classifier import TextClassifier as TextClassifier
    from albert_tf.config import PRESETS as PRESETS
    from albert_tf.config import AlbertConfig as AlbertConfig
    from albert_tf.finetuning.texts import TextEncoder as TextEncoder
    from albert_tf.modeling.encoder import AlbertEncoder as AlbertEncoder
    from albert_tf.modeling.models import AlbertForClassification as AlbertForClassification
    from albert_tf.modeling.models import AlbertForMultipleChoice as AlbertForMultipleChoice
    from albert_tf.modeling.models import AlbertForPretraining as AlbertForPretraining
    from albert_tf.modeling.models import AlbertForQuestionAnswering as AlbertForQuestionAnswering
    from albert_tf.modeling.models import (
        AlbertForQuestionAnsweringWithBeamSearch as AlbertForQuestionAnsweringWithBeamSearch,
    )
    from albert_tf.modeling.models import (
        AlbertForTokenClassification as AlbertForTokenClassification,
    )
    from albert_tf.modeling.original_names import original_names as original_names
    from albert_tf.multiple_choice.choose import ChosenOption as ChosenOption
    from albert_tf.multiple_choice.choose import MultipleChoice as MultipleChoice
    from albert_tf.multiple_choice.run import MultipleChoiceSettings as MultipleChoiceSettings
    from albert_tf.multiple_choice.run import run_multiple_choice as run_multiple_choice
    from albert_tf.pretraining.create_data import PretrainingDataSettings as PretrainingDataSettings
    from albert_tf.pretraining.create_data import create_pretraining_data as create_pretraining_data
    from albert_tf.pretraining.fill_mask import FillMask as FillMask
    from albert_tf.pretraining.run import PretrainingSettings as PretrainingSettings
    from albert_tf.pretraining.run import run_pretraining as run_pretraining
    from albert_tf.pretraining.vocabulary import train_sentencepiece as train_sentencepiece
    from albert_tf.serving.hub import export_hub_module as export_hub_module
    from albert_tf.squad.ask import QuestionAnswer as QuestionAnswer
    from albert_tf.squad.ask import QuestionAnswerer as QuestionAnswerer
    from albert_tf.squad.run import SquadSettings as SquadSettings
    from albert_tf.squad.run import run_squad as run_squad
    from albert_tf.token_classification.run import (
        TokenClassificationSettings as TokenClassificationSettings,
    )
    from albert_tf.token_classification.run import (
        run_token_classification as run_token_classification,
    )
    from albert_tf.token_classification.tag import TaggedEntity as TaggedEntity
    from albert_tf.token_classification.tag import TaggedText as TaggedText
    from albert_tf.token_classification.tag import TaggedWord as TaggedWord
    from albert_tf.token_classification.token_classifier import TokenClassifier as TokenClassifier
    from albert_tf.tools.exports import export_litert as export_litert
    from albert_tf.tools.exports import export_saved_model as export_saved_model
    from albert_tf.tools.exports import inspect as inspect
    from albert_tf.training.optimization import AdamWeightDecay as AdamWeightDecay
    from albert_tf.training.optimization import Lamb as Lamb
    from albert_tf.training.optimization import WarmupPolynomialDecay as WarmupPolynomialDecay
    from albert_tf.training.settings import JobResult as JobResult

_NAMES = {
    "checkpoints.convert": ("convert",),
    "checkpoints.load_tokenizer": ("load_tokenizer",),
    "checkpoints.loading": ("load", "load_weights"),
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
    "serving.hub": ("export_hub_module",),
    "squad.ask": ("QuestionAnswer", "QuestionAnswerer"),
    "squad.run": ("SquadSettings", "run_squad"),
    "token_classification.run": ("TokenClassificationSettings", "run_token_classification"),
    "token_classification.tag": ("TaggedEntity", "TaggedText", "TaggedWord"),
    "token_classification.token_classifier": ("TokenClassifier",),
    "tools.exports": ("export_litert", "export_saved_model", "inspect"),
    "training.optimization": ("AdamWeightDecay", "Lamb", "WarmupPolynomialDecay"),
    "training.settings": ("JobResult",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'albert_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(f"albert_tf.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


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
        module = importlib.import_module(f"albert_tf.{self.module}")
        return getattr(module, self.name).from_config(config)


def _register_classes(keras: ModuleType) -> None:
    modules = ("modeling.encoder", "modeling.losses", "modeling.models", "training.optimization")
    registry = keras.saving.get_custom_objects()
    for name, module in {**_MODULES, "HeadLoss": "modeling.losses"}.items():
        if module in modules:
            registry[f"albert_tf>{name}"] = _LazyClass(module, name)


def _import_keras(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    execute(module)
    _register_classes(module)


# `keras.models.load_model` only finds registered classes. `_LazyClass` defers their imports.
if "keras" in sys.modules:
    _register_classes(sys.modules["keras"])
else:
    wrap_import("keras", _import_keras)
