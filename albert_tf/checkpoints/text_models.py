"""Models with their tokenizer and task, for the classes that take texts: found, and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.formats import trained_task
from albert_tf.checkpoints.load_weights import load_weights, open_checkpoint
from albert_tf.checkpoints.loading import empty_model, find_source, without_scope
from albert_tf.checkpoints.model_source import ModelSettings
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.checkpoints.training_directory import TrainingDirectory, choose_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.data.arguments import as_path, check_choice
from albert_tf.tokenization.base import Tokenizer

_NAME = "where"  # the argument
_HEADS = {
    "cls/predictions/output_bias": "masked LM",
    "cls/seq_relationship/output_weights": "sentence order",
    "cls/squad/output_weights": "answer spans (SQuAD 1.1)",
    "answer_class/dense_1/kernel": "answer spans or none (SQuAD 2.0)",
}


def heads_in(shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Returns what the heads are for that weights of these names and shapes have."""
    own = without_scope(shapes)
    found = [head for name, head in _HEADS.items() if name in own]
    if "output_weights" in own:
        outputs = own["output_weights"][0]
        found.append(
            "one score for a text, or for an option" if outputs == 1 else f"{outputs} classes"
        )
    return found


@dataclasses.dataclass(frozen=True)
class FoundModel:
    """What lies where a user says; its weights are not read yet.

    Attributes:
        where: as the user gave it.
        checkpoint: the weights, see `StoredModel`.
        config: the configuration.
        tokenizer: that of the model.
    """

    where: str
    checkpoint: str
    config: AlbertConfig
    tokenizer: Tokenizer

    @cached_property
    def task(self) -> TrainedTask | None:
        """What it was trained for; None where nothing says it."""
        return trained_task(self.checkpoint)

    def load(
        self, kinds: type | tuple[type, ...], wanted: str, task: TrainedTask | None = None
    ) -> Any:
        """Returns the model of the heads that the weights have, filled with them.

        Args:
            kinds: classes that it may be of.
            wanted: what they are, for the error.
            task: what it was trained for, where nothing says it.

        Raises:
            ValueError: it is of another class, or incomplete.
        """
        _, shapes = open_checkpoint(self.checkpoint)
        model = empty_model(self.config, without_scope(shapes), self.task or task)
        if not isinstance(model, kinds):
            heads = ", ".join(heads_in(shapes)) or "none"
            of_task = f" and was trained for the task {self.task.name!r}" if self.task else ""
            raise ValueError(
                f"{_NAME} must be {wanted}. Received: {self.where!r}, which has the heads: "
                f"{heads}{of_task}"
            )
        load_weights(model, self.checkpoint).check_complete()
        model.tokenizer, model.trained_task = self.tokenizer, self.task or task
        return model


def find_model(
    where: object,
    name: str = _NAME,
    *,
    prefers_best: bool = True,
    do_lower_case: bool | None = None,
) -> FoundModel:
    """Finds the model that a path or a name means.

    Args:
        where: what `albert_tf.load` takes.
        name: the argument that contains it, for messages.
        prefers_best: whether the directory of a training means its best checkpoint, else the
            newest, as in commands that apply a model; else what `albert_tf.load` takes.
        do_lower_case: see `ModelSettings`.

    Raises:
        TypeError: `where` is no path or name.
        ValueError: there is no model, half of one, or one without a tokenizer.
    """
    path = chosen = as_path(name, where)
    check_choice("do_lower_case", do_lower_case)
    if prefers_best and not is_indirect(path) and tf.io.gfile.isdir(path):
        training = TrainingDirectory(path)
        if training.best() or training.newest():
            chosen = choose_checkpoint(training, None, name=name)
    source, checkpoint = find_source(chosen, ModelSettings(do_lower_case=do_lower_case))
    if source.tokenizer is None:
        raise ValueError(f"{name} must hold a tokenizer. Received: {path!r}, which has none")
    return FoundModel(path, checkpoint, source.config, source.tokenizer)


def check_model(model: Any, kinds: Any, tokenizer: object) -> Tokenizer:
    """Checks the arguments `model` and `tokenizer`; returns the latter, or that of the model.

    Raises:
        TypeError: the model is of another class, or the tokenizer is none.
        ValueError: the tokenizer has another vocabulary than the model.
    """
    if not isinstance(model, kinds):
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        raise TypeError(f"model must be {' or '.join(names)}. Received: {type(model).__name__}")
    own = model.tokenizer
    tokenizer = own if tokenizer is None else tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            "tokenizer must be what albert_tf.load_tokenizer returns, or None where the model was "
            "loaded with one. Received: "
            f"{type(tokenizer).__name__}"
        )
    if tokenizer.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"tokenizer must be that of the model, whose vocab_size is "
            f"{model.config.vocab_size}. "
            f"Received: a tokenizer of {tokenizer.vocab_size} tokens"
        )
    if own is not None and own.tokens != tokenizer.tokens:
        raise ValueError(
            "tokenizer must be that of the model: the tokens of model.tokenizer have other ids. "
            "If the model was trained with the new tokenizer, set model.tokenizer. Received: "
            f"{type(tokenizer).__name__}({', '.join(tokenizer.files)})"
        )
    return tokenizer
