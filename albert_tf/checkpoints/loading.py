"""Builds models from stored models of any format."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.heads import CLASSIFIER, Shapes, head_in, head_of, heads_in
from albert_tf.checkpoints.load_weights import HUB_SCOPE, load_weights, read_global_step
from albert_tf.checkpoints.model_contents import ModelContents, StoredModel
from albert_tf.checkpoints.model_source import (
    ModelSettings,
    ModelSource,
    resolve_model,
    stored_model,
)
from albert_tf.checkpoints.original import read_variables
from albert_tf.checkpoints.report import LoadError, LoadReport
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.config import AlbertConfig
from albert_tf.data.arguments import as_path, check_choice
from albert_tf.data.errors import UserError
from albert_tf.modeling.encoder import ConfiguredModel
from albert_tf.modeling.original_names import PRETRAINING_HEADS, SLOT_NAMES, original_names
from albert_tf.modeling.parameter_sharing import ENCODER_PREFIX
from albert_tf.tokenization.base import Tokenizer

M = TypeVar("M", bound=ConfiguredModel)


def load(path: str | os.PathLike, *, albert_config_file: str | None = None) -> keras.Model:
    """Loads a model of any format.

    Args:
        path: a directory of any format that `convert_checkpoint.py` supports, a checkpoint, a
            `.keras` file, a released tar file, the URL of a TF-Hub module, the name of a released
            model, such as "base_v2" or "albert/albert-base-v2", or "mini", the model bundled with
            this package.
        albert_config_file: the configuration, if the path does not contain one.

    Returns:
        The model of the head in the weights: an `AlbertForQuestionAnsweringWithBeamSearch`,
        `AlbertForQuestionAnswering`, `AlbertForClassification`, `AlbertForTokenClassification`,
        `AlbertForMultipleChoice` or `AlbertForPretraining`, or an `AlbertEncoder` without a head.
        If the task is not stored, a classifier is loaded as a text classifier, and a single score
        per text as a regression.

    Raises:
        ValueError: there is no model, it is incomplete or of another architecture, or the
            configuration contradicts the weights.
    """
    settings = ModelSettings(albert_config_file=albert_config_file)
    model, _ = build(_find(as_path("path", path), settings))
    return model


def load_class(
    model_class: type[M],
    path: str | os.PathLike,
    albert_config_file: str | None,
    allow_partial: bool,
    settings: dict[str, Any],
) -> M:
    """Loads a model of a given class; see `ConfiguredModel.load`."""
    found = _find(as_path("path", path), ModelSettings(albert_config_file=albert_config_file))
    return load_found(model_class, found, settings, allow_partial)


def load_found(
    model_class: type[M],
    found: FoundModel,
    settings: Mapping[str, Any],
    allow_partial: bool = False,
) -> M:
    """Loads a found model as a given class; see `ConfiguredModel.load`.

    Raises `ValueError` if the stored head has other labels, unless `settings` contain `new_head` or
    `rename_labels`.
    """
    source, stored, path, settings = found.source, found.stored, found.path, dict(settings)
    new_head, rename = settings.pop("new_head", False), settings.pop("rename_labels", False)
    task, shapes = stored.task, without_scope(stored.weights[1])
    is_other = new_head or _is_other_head(model_class, settings, shapes, task)
    known = {} if is_other else head_of(model_class).settings(source.config, shapes, task)
    if not (is_other or rename):
        _check_labels(path, known, settings)
    num_labels = known.get("num_labels")
    if settings.get("num_labels", num_labels) != num_labels:
        known = {}
    elif "labels" in settings:
        known = {name: known[name] for name in known.keys() - {"labels", "num_labels"}}
    model = model_class(source.config, **{**known, **settings})
    if rename and num_labels != getattr(model, "num_labels", None):
        raise UserError(
            f"rename_labels=True needs {num_labels} names, one for each class of {path!r}. "
            f"Received: labels={settings.get('labels')}"
        )
    of_head = [name for name in original_names(model) if not name.startswith(ENCODER_PREFIX)]
    report = load_weights(
        model,
        stored,
        allow_partial=allow_partial,
        skip=dict.fromkeys(of_head if is_other else (), "of another task"),
    )
    new = {*report.missing, *report.skipped, *(name for name, _, _ in report.mismatched)}
    if {_head_scope(name) for name in new} & {_head_scope(name) for name in report.mapped} - {None}:
        _check_heads(report)
    if needed := sorted(new.difference(report.unused)):
        logging.warning(
            "%s.load(%r): new weights, random until they are trained: %s",
            model_class.__name__,
            path,
            ", ".join(needed),
        )
    model.tokenizer = source.tokenizer
    model.has_new_head = is_other or not report.mapped.keys() & {*of_head}
    if task and not model.has_new_head:
        if rename and (names := settings.get("labels")):
            labels = dataclasses.replace(task.labels, names=tuple(names))
            task = dataclasses.replace(task, labels=labels)
        model.trained_task = task
    return model


def _is_other_head(
    model_class: type[ConfiguredModel],
    settings: Mapping[str, Any],
    shapes: Shapes,
    task: TrainedTask | None,
) -> bool:
    """Returns whether the stored head is of another kind than the model class."""
    if task is None or CLASSIFIER not in model_class.head_weights:
        return False  # the variables of other heads have unique names
    several = task.labels.multi_label
    is_kind = head_of(model_class) is head_in(shapes, task)
    return not is_kind or settings.get("multi_label", several) != several


def _check_labels(path: str, known: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Rejects labels that differ from the labels of the stored head."""
    names, labels = known.get("labels"), settings.get("labels")
    number = settings.get("num_labels", len(labels) if labels else None)
    has_other_names = names and labels is not None and tuple(labels) != tuple(names)
    has_other_number = number is not None and number != known.get("num_labels", number)
    if has_other_names or has_other_number:
        stored = f"the labels {list(names)}" if names else f"{known['num_labels']} outputs"
        asked = f"labels={list(labels)}" if labels is not None else f"num_labels={number}"
        raise UserError(
            f"{path!r} contains a trained head with {stored}. Received: {asked}. Pass "
            "new_head=True to replace the head, or rename_labels=True to rename its classes."
        )


def _head_scope(name: str) -> str | None:
    if name.startswith(ENCODER_PREFIX):
        return None
    return next((head for head in PRETRAINING_HEADS if name.startswith(head)), "")


def without_scope(shapes: Shapes) -> dict[str, Sequence[int]]:
    """Removes the scope that the original adds to the names of a TF-Hub module."""
    return {name.removeprefix(HUB_SCOPE): shape for name, shape in shapes.items()}


def read_contents(
    path: str, *, with_optimizer: bool = False, **parts: Any
) -> tuple[ModelContents, LoadReport]:
    """Reads a complete model, see `load`, into memory; also returns a report on the weights.

    `parts` are fields of `ModelSettings` that replace parts of the model.
    """
    source, stored = found = _find(path, ModelSettings(**parts))
    model, report = build(found)
    weights = {name: np.asarray(v, np.float32) for name, v in original_names(model).items()}
    del model  # frees as much memory as the weights need
    if with_optimizer:
        weights.update(_read_slots(report, stored))
    step = read_global_step(stored.checkpoint, stored.weights)
    contents = ModelContents(
        source.config, weights, source.tokenizer, source.do_lower_case, step, stored.task
    )
    return contents, report


def _find(path: str, settings: ModelSettings) -> FoundModel:
    stored = stored_model(path)
    return FoundModel(resolve_model(settings, stored), stored)


def build(found: FoundModel, task: TrainedTask | None = None) -> tuple[ConfiguredModel, LoadReport]:
    """Builds the Keras model of the stored head and fills it with the stored weights.

    If no task is stored, `task` is used. Raises `LoadError` if the weights are incomplete or do not
    fit the configuration.
    """
    source, task = found.source, found.task or task
    model = empty_model(source.config, without_scope(found.stored.weights[1]), task)
    report = load_weights(model, found.stored)
    _check_heads(report)
    # Only a pooler that no head uses can be missing. Its new values are the same in each run.
    random, variables = np.random.default_rng(0), original_names(model)
    for name in report.missing:
        shape = tuple(variables[name].shape)
        values = random.standard_normal(shape) * source.config.initializer_range
        values = values if len(shape) > 1 else np.zeros(shape)
        variables[name].assign(values.astype(np.float32))
    model.tokenizer, model.trained_task = source.tokenizer, task
    return model, report


def _check_heads(report: LoadReport) -> None:
    missing = [name for name in report.missing if name not in report.unused]
    other = [
        f"{name} is {list(there)} instead of {list(wanted)}"
        for name, there, wanted in report.mismatched
    ]
    if missing or other:
        raise LoadError(
            f"{report.source} contains an incomplete head. Missing: "
            f"{', '.join(missing) or 'nothing'}; of another shape: "
            f"{'; '.join(other) or 'nothing'}. A head must be complete or absent."
        )


def empty_model(
    config: AlbertConfig, shapes: Shapes, task: TrainedTask | None = None
) -> ConfiguredModel:
    """Creates a model with random weights; `shapes` and `task` determine the heads."""
    head = head_in(shapes, task)
    return head.model_class(config, **head.settings(config, shapes, task))


def build_model(contents: ModelContents) -> keras.Model:
    """Creates the Keras model of complete contents."""
    shapes = {name: value.shape for name, value in contents.weights.items()}
    model = empty_model(contents.config, shapes, contents.task)
    for name, variable in original_names(model).items():
        variable.assign(contents.weights[name])
    return model


def _read_slots(report: LoadReport, stored: StoredModel) -> dict[str, np.ndarray]:
    """Reads the optimizer's moments of the weights that were loaded."""
    reader, shapes = stored.weights
    names = {
        f"{name}/{slot}": f"{there}/{slot}"
        for name, there in report.mapped.items()
        for slot in SLOT_NAMES
        if f"{there}/{slot}" in shapes
    }
    values = read_variables(reader, report.source, names.values())
    return {name: values[there] for name, there in names.items()}


class FoundModel(NamedTuple):
    """A model whose weights have not been read yet."""

    source: ModelSource  # configuration and tokenizer
    stored: StoredModel  # weights and task

    @property
    def path(self) -> str:
        """The path or name that was given."""
        return self.stored.given

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises `ValueError` if there is none."""
        return self.source.required_tokenizer

    @property
    def task(self) -> TrainedTask | None:
        """The task that the model was trained for. `None` if unknown."""
        return self.stored.task

    def load(
        self, kinds: type | tuple[type, ...], wanted: str, task: TrainedTask | None = None
    ) -> Any:
        """Returns the model of the stored head with its weights.

        Raises `ValueError` if its class is not in `kinds`, which `wanted` describes. If no task is
        stored, `task` is used.
        """
        shapes = without_scope(self.stored.weights[1])
        if not issubclass(head_in(shapes, self.task or task).model_class, kinds):
            heads = ", ".join(heads_in(shapes)) or "none"
            of_task = f" and was trained for the task {self.task.name!r}" if self.task else ""
            raise UserError(
                f"path must be {wanted}. Received: {self.path!r}, which has the heads: "
                f"{heads}{of_task}"
            )
        model, report = build(self, task)
        report.check_complete()
        return model


def find_model(
    path: object, name: str = "path", *, do_lower_case: bool | None = None
) -> FoundModel:
    """Finds a model with a tokenizer, given its path or name. Errors call the argument `name`.

    Raises:
        TypeError: `path` is not a path or name.
        ValueError: there is no model, or it is incomplete or has no tokenizer.
    """
    check_choice("do_lower_case", do_lower_case)
    found = _find(as_path(name, path), ModelSettings(do_lower_case=do_lower_case))
    if found.source.tokenizer is None:
        raise UserError(
            f"{name} must contain a tokenizer. Received: {found.path!r}, which has no tokenizer"
        )
    return found


def check_model(model: Any, kinds: Any, tokenizer: object) -> Tokenizer:
    """Checks the arguments `model` and `tokenizer`; returns the tokenizer or `model.tokenizer`.

    Raises:
        TypeError: the model is not an instance of `kinds`, or there is no tokenizer.
        ValueError: the tokenizer has another vocabulary than the model.
    """
    if not isinstance(model, kinds):
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        raise TypeError(f"model must be {' or '.join(names)}. Received: {type(model).__name__}")
    own = model.tokenizer
    tokenizer = own if tokenizer is None else tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            "tokenizer must be created by albert_tf.load_tokenizer, or be None if the model has "
            f"a tokenizer. Received: {type(tokenizer).__name__}"
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
