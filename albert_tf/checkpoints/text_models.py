"""Finds and checks the models of the classes that take texts."""

from __future__ import annotations

import dataclasses
from typing import Any

from albert_tf.checkpoints.heads import head_in, heads_in
from albert_tf.checkpoints.loading import M, build, build_class, find_source, without_scope
from albert_tf.checkpoints.model_contents import StoredModel
from albert_tf.checkpoints.model_source import ModelSettings, ModelSource
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.data.arguments import as_path, check_choice
from albert_tf.data.errors import UserError
from albert_tf.tokenization.base import Tokenizer

_NAME = "path"  # the argument


@dataclasses.dataclass(frozen=True)
class FoundModel:
    """A model that was found; the values of its weights have not been read.

    Attributes:
        path: the path or name that was given.
        source: configuration and tokenizer.
        stored: weights and task.
        tokenizer: the tokenizer of `source`.
    """

    path: str
    source: ModelSource
    stored: StoredModel
    tokenizer: Tokenizer

    @property
    def task(self) -> TrainedTask | None:
        """Task that the model was trained for. `None` if unknown."""
        return self.stored.task

    def load(
        self, kinds: type | tuple[type, ...], wanted: str, task: TrainedTask | None = None
    ) -> Any:
        """Returns the model of the stored head with its weights.

        Args:
            kinds: accepted classes.
            wanted: description of these classes, for messages.
            task: task of the model if none is stored.

        Raises:
            ValueError: the model is of another class, or incomplete.
        """
        shapes = without_scope(self.stored.weights[1])
        if not issubclass(head_in(shapes, self.task or task).model_class, kinds):
            heads = ", ".join(heads_in(shapes)) or "none"
            of_task = f" and was trained for the task {self.task.name!r}" if self.task else ""
            raise UserError(
                f"{_NAME} must be {wanted}. Received: {self.path!r}, which has the heads: "
                f"{heads}{of_task}"
            )
        model, report = build(self.source, self.stored, task)
        report.check_complete()
        return model


def load_found(model_class: type[M], found: FoundModel, settings: dict[str, Any]) -> M:
    """Returns a found model as a class, with a new head if it has none; see `load_class`."""
    return build_class(model_class, found.source, found.stored, found.path, False, settings)


def find_model(
    path: object,
    name: str = _NAME,
    *,
    do_lower_case: bool | None = None,
) -> FoundModel:
    """Finds the model at a path or of a name.

    Args:
        path: see `albert_tf.load`.
        name: the argument that contains it, for messages.
        do_lower_case: see `ModelSettings`.

    Raises:
        TypeError: `path` is not a path or name.
        ValueError: there is no model, or it is incomplete or has no tokenizer.
    """
    given = as_path(name, path)
    check_choice("do_lower_case", do_lower_case)
    source, stored = find_source(given, ModelSettings(do_lower_case=do_lower_case))
    if source.tokenizer is None:
        raise UserError(f"{name} must contain a tokenizer. Received: {given!r}, which has none")
    return FoundModel(given, source, stored, source.tokenizer)


def check_model(model: Any, kinds: Any, tokenizer: object) -> Tokenizer:
    """Checks the arguments `model` and `tokenizer`; returns the tokenizer.

    Args:
        model: an instance of `kinds`.
        kinds: accepted classes.
        tokenizer: a tokenizer. If `None`, `model.tokenizer` is used.

    Raises:
        TypeError: the model is of another class, or the tokenizer is not a tokenizer.
        ValueError: the tokenizer has another vocabulary than the model.
    """
    if not isinstance(model, kinds):
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        raise TypeError(f"model must be {' or '.join(names)}. Received: {type(model).__name__}")
    own = model.tokenizer
    tokenizer = own if tokenizer is None else tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            "tokenizer must be created by albert_tf.load_tokenizer, or be None if the model was "
            "loaded with a tokenizer. Received: "
            f"{type(tokenizer).__name__}"
        )
    if tokenizer.vocab_size != model.config.vocab_size:
        raise UserError(
            f"tokenizer must have the vocab_size of the model, {model.config.vocab_size}. "
            f"Received: a tokenizer of {tokenizer.vocab_size} tokens"
        )
    if own is not None and own.tokens != tokenizer.tokens:
        raise UserError(
            "tokenizer must have the vocabulary of model.tokenizer: its tokens have other ids. "
            "If the model was trained with the new tokenizer, set model.tokenizer. Received: "
            f"{type(tokenizer).__name__}({', '.join(tokenizer.files)})"
        )
    return tokenizer
