"""Whole models from any format: `load(path)` is a Keras model with the weights that lie there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.formats import trained_task
from albert_tf.checkpoints.heads import CLASSIFIER, Shapes, head_in, head_of
from albert_tf.checkpoints.load_weights import (
    HUB_SCOPE,
    load_weights,
    open_checkpoint,
    read_global_step,
)
from albert_tf.checkpoints.model_contents import ModelContents, WeightsReader
from albert_tf.checkpoints.model_source import (
    ModelSettings,
    ModelSource,
    resolve_model,
    stored_model,
)
from albert_tf.checkpoints.original.files import read_variables
from albert_tf.checkpoints.report import LoadError, LoadReport
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.config import AlbertConfig
from albert_tf.data.arguments import as_path
from albert_tf.modeling.encoder import ConfiguredModel
from albert_tf.modeling.original_names import (
    ENCODER_PREFIX,
    PRETRAINING_HEADS,
    SLOT_NAMES,
    original_names,
)

M = TypeVar("M", bound=ConfiguredModel)


def load(path: str | os.PathLike, *, albert_config_file: str | None = None) -> keras.Model:
    """Makes the model that lies at a path, whatever its format.

    Args:
        path: a directory of any format that `convert_checkpoint.py` knows, a checkpoint, a released
            tar file, the URL of a TF-Hub module, or a name: of a released model, such as "base_v2"
            or "albert/albert-base-v2", or "mini", the model that comes with this package.
        albert_config_file: its configuration, where the path has none.

    Returns:
        The model of the heads that the weights have:
        `AlbertForQuestionAnsweringWithBeamSearch`, `AlbertForQuestionAnswering`,
        `AlbertForClassification`, `AlbertForTokenClassification`, `AlbertForMultipleChoice`,
        `AlbertForPretraining`, or, where they have none of those, `AlbertEncoder`. A classifier is
        one of texts, and one score for a text a regression, unless the model says that it was
        trained on tokens or to choose among options.

    Raises:
        ValueError: there is no model, half of one, one of another architecture, or a configuration
            that contradicts the weights.
    """
    settings = ModelSettings(albert_config_file=albert_config_file)
    source, checkpoint = find_source(as_path("path", path), settings)
    model, _, task = _loaded(source.config, checkpoint)
    model.trained_task = task
    model.tokenizer = source.tokenizer
    return model


def load_class(
    model_class: type[M],
    path: str | os.PathLike,
    albert_config_file: str | None,
    allow_partial: bool,
    settings: dict[str, Any],
) -> M:
    """Makes a model of one class, see `ConfiguredModel.load`."""
    settings_of_model = ModelSettings(albert_config_file=albert_config_file)
    source, checkpoint = find_source(as_path("path", path), settings_of_model)
    task = trained_task(checkpoint)
    shapes = without_scope(open_checkpoint(checkpoint)[1])
    is_other = task is not None and _has_other_head(model_class, settings, shapes, task)
    stored = {} if is_other else head_of(model_class).settings(source.config, shapes, task)
    num_labels = stored.get("num_labels")
    if settings.get("num_labels", num_labels) != num_labels:
        stored = {}
    elif "labels" in settings:
        stored = {name: stored[name] for name in stored.keys() - {"labels", "num_labels"}}
    model = model_class(source.config, **{**stored, **settings})
    of_head = [name for name in original_names(model) if not name.startswith(ENCODER_PREFIX)]
    report = load_weights(
        model,
        checkpoint,
        allow_partial=allow_partial,
        skip=dict.fromkeys(of_head if is_other else (), "of another task"),
    )
    new = {*report.missing, *report.skipped, *(name for name, _, _ in report.mismatched)}
    if {_head_of(name) for name in new} & {_head_of(name) for name in report.mapped} - {None}:
        _check_heads(report)
    if needed := sorted(new.difference(report.unused)):
        logging.warning(
            "%s.load(%r): new weights, random until they are trained: %s",
            model_class.__name__,
            path,
            ", ".join(needed),
        )
    model.tokenizer = source.tokenizer
    model.trained_task = task if not is_other and report.mapped.keys() & {*of_head} else None
    return model


# The class of a model cannot import this module, which is in a higher layer.
ConfiguredModel.load_class = load_class


def _has_other_head(
    model_class: type[ConfiguredModel],
    settings: Mapping[str, Any],
    shapes: Shapes,
    task: TrainedTask,
) -> bool:
    """Whether the head of a trained model answers something else than is wanted."""
    head = head_of(model_class)
    if CLASSIFIER not in head.weights:
        return False  # other heads have variables of their own
    labels, several = settings.get("labels"), task.labels.multi_label
    return (
        head is not head_in(shapes, task)
        or (labels is not None and task.labels.names != (*labels,))
        or settings.get("multi_label", several) != several
    )


def _head_of(name: str) -> str | None:
    """The head that a variable belongs to: its scope; None for the encoder."""
    if name.startswith(ENCODER_PREFIX):
        return None
    return next((head for head in PRETRAINING_HEADS if name.startswith(head)), "")


def without_scope(shapes: Shapes) -> dict[str, Sequence[int]]:
    """Returns shapes, of a TF-Hub module by the names that the original has outside of it."""
    return {name.removeprefix(HUB_SCOPE): shape for name, shape in shapes.items()}


def read_contents(
    path: str, *, with_optimizer: bool = False, **parts: Any
) -> tuple[ModelContents, LoadReport]:
    """Reads a whole model into memory.

    Args:
        path: see `load`.
        with_optimizer: whether to read the optimizer's moments too, where there are any.
        **parts: of `ModelSettings`, which count before what lies at the path:
            `albert_config_file`, `spm_model_file`, `vocab_file`, `do_lower_case`.

    Returns:
        The model, with the weights of the encoder and of the heads that the model of its class has,
        and what became of each weight that lies at the path.

    Raises:
        ValueError: see `load`.
    """
    source, checkpoint = find_source(path, ModelSettings(**parts))
    model, report, task = _loaded(source.config, checkpoint)
    weights = {name: np.asarray(v, np.float32) for name, v in original_names(model).items()}
    del model  # it is as large as they are
    if with_optimizer:
        weights.update(_slots(report, *open_checkpoint(checkpoint)))
    step = read_global_step(checkpoint)
    contents = ModelContents(
        source.config, weights, source.tokenizer, source.do_lower_case, step, task
    )
    return contents, report


def find_source(path: str, settings: ModelSettings) -> tuple[ModelSource, str]:
    """Returns a model's parts and where its weights lie; see `read_contents`."""
    model = stored_model(path)
    if model is None or not model.checkpoint:
        raise ValueError("No model is named. Pass its path or name.")
    return resolve_model(settings, model), model.checkpoint


def _loaded(
    config: AlbertConfig, checkpoint: str
) -> tuple[ConfiguredModel, LoadReport, TrainedTask | None]:
    """Makes the model of the heads that the weights have, and fills it with them."""
    task = trained_task(checkpoint)
    _, shapes = open_checkpoint(checkpoint)
    model = empty_model(config, without_scope(shapes), task)
    report = load_weights(model, checkpoint)
    _check_heads(report)
    # A pooler without a head on it is all that can be missing: it gets the same values in each run.
    random, variables = np.random.default_rng(0), original_names(model)
    for name in report.missing:
        shape = tuple(variables[name].shape)
        values = random.standard_normal(shape) * config.initializer_range
        values = values if len(shape) > 1 else np.zeros(shape)
        variables[name].assign(values.astype(np.float32))
    return model, report, task


def _check_heads(report: LoadReport) -> None:
    """Refuses half a head: what lacks of it would have values that mean nothing."""
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
    """Makes the model that weights belong to, with random ones.

    Args:
        config: of the model.
        shapes: of its weights, by the original's names; the heads are known by them.
        task: what it was trained for, if that is known.
    """
    head = head_in(shapes, task)
    return head.model_class(config, **head.settings(config, shapes, task))


def build_model(contents: ModelContents) -> keras.Model:
    """Makes the Keras model of contents with all weights of a model's encoder and heads.

    Raises:
        LoadError: a weight is missing or has another shape.
    """
    weights = contents.weights
    shapes = {name: value.shape for name, value in weights.items()}
    model = empty_model(contents.config, shapes, contents.task)
    for name, variable in original_names(model).items():
        if name not in weights or tuple(shapes[name]) != tuple(variable.shape):
            raise LoadError(
                f"The weight {name!r} should be of shape {list(variable.shape)}, but is "
                f"{list(shapes[name]) if name in weights else 'missing'}."
            )
        variable.assign(weights[name])
    return model


def _slots(report: LoadReport, reader: WeightsReader, shapes: Shapes) -> dict[str, np.ndarray]:
    """The optimizer's moments of the weights that were read."""
    stored = {
        f"{name}/{slot}": f"{there}/{slot}"
        for name, there in report.mapped.items()
        for slot in SLOT_NAMES
        if f"{there}/{slot}" in shapes
    }
    values = read_variables(reader, report.source, stored.values())
    return {name: values[there] for name, there in stored.items()}
