"""The table of model formats: detects the format of a path and opens the model."""

import dataclasses
import importlib
import os
import re
from functools import cache, partial
from typing import Protocol, cast

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.archives import is_indirect, local_directory
from albert_tf.checkpoints.downloads import check_cached_file
from albert_tf.checkpoints.facts import Meeting, settle
from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.model_directory import CONFIG_FILE, stored_rules
from albert_tf.checkpoints.stored_model import StoredModel, Weights
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.errors import UserError, without_secrets
from albert_tf.data.files import existing_path, folder_names

ORIGINAL = "original"


class FormatModule(Protocol):
    """A module that reads and writes one format; see docs/adding_a_format.md.

    If the format contains graphs, the module also has `compute(directory, batch)`, which runs them.
    If another library tokenizes texts with the files, the module has `library_ids(directory,
    texts)`, which returns the ids of the texts, or why they cannot be compared.
    """

    def is_here(self, path: str) -> bool:
        """Returns whether a directory appears to have this format, mostly by file names."""

    def read(self, path: str) -> StoredModel:
        """Returns the model in a directory. Raises `LoadError` with `path` in the message."""

    def open_weights(self, checkpoint: str) -> Weights:
        """Opens `StoredModel.checkpoint`. Raises `LoadError` if it cannot be read."""

    def unsupported_weights(self, stored: StoredModel) -> list[str]:
        """Returns the names of unsupported weights; warns of, or rejects, unsupported models."""

    def write(self, directory: str, stored: StoredModel) -> None:
        """Writes a model, except unsupported weights, into an empty directory."""


_SAVED_MODEL_VARIABLES = r"(^|/)variables/variables$"
_KERAS_FILE = r"\.keras$"

# Regular expressions for the paths of weights, in the order of detection. The original's format has
# priority.
_FORMATS = {
    ORIGINAL: r"$^",
    "keras_hub": r"(^|/)(model|task)\.weights\.(h5|json)$",
    "huggingface": r"(\.safetensors|pytorch_model\.bin|tf_model\.h5)(\.index\.json)?$",
    "tf2_hub": _SAVED_MODEL_VARIABLES,
    "tf1_hub": _SAVED_MODEL_VARIABLES,
    "keras": _KERAS_FILE,
}

# Directory formats, which can be written.
FORMAT_NAMES = tuple(_FORMATS)[:-1]


def format_module(name: str) -> FormatModule:
    """Returns the module of a format."""
    module = "keras_file" if name == "keras" else name
    return cast(FormatModule, importlib.import_module(f"albert_tf.checkpoints.formats.{module}"))


def writer_of(format_name: str) -> FormatModule:
    """Returns the module of a directory format. Raises `ValueError` for other names."""
    if format_name not in FORMAT_NAMES:
        raise UserError(
            f"`format` must be one of {', '.join(FORMAT_NAMES)}. Received: {format_name!r}"
        )
    return format_module(format_name)


def _locate(path: str) -> tuple[str, str, str | None]:
    """Returns the format of a model, its path, and the file of weights if `path` names one.

    The returned path is a directory, a `.keras` file, or the prefix of an original checkpoint.
    """
    found = existing_path(path)
    if found != path:
        logging.warning("%s is used: a process was killed while it replaced %s", found, path)
    found = local_directory(found) if is_indirect(found) else found
    directory = found if os.path.isdir(found) else os.path.dirname(found)
    for name in folder_names(directory) if os.path.isdir(directory) else ():
        check_cached_file(os.path.join(directory, name))
    if tf.io.gfile.isdir(found):
        name = next((name for name in _FORMATS if format_module(name).is_here(found)), ORIGINAL)
        return name, found, None
    name = _format_of_file(found)
    if name in (ORIGINAL, "keras"):
        return name, found, None
    # A shard is not the whole model; the index in the directory lists all shards.
    is_whole = tf.io.gfile.exists(found) and "-of-" not in found
    return name, _directory_of(found), found if is_whole else None


def open_model(path: str) -> StoredModel:
    """Opens a model, see `load` for paths and names. Raises `LoadError` if it is damaged."""
    name, directory, weights = _locate(path)
    module = format_module(name)
    stored = module.read(directory)
    if name in (ORIGINAL, "huggingface") and stored.config_file:
        _compare_configs(os.path.dirname(stored.config_file))
    of_config = {stored.config_file or path: stored_rules(stored.config)}
    rules = settle({f"other files of {path}": stored.rules, **of_config}, Meeting.FORMAT)
    checkpoint, open_reader = weights or stored.checkpoint, stored.open_weights
    if checkpoint != stored.checkpoint or open_reader is None:
        open_reader = partial(module.open_weights, checkpoint)
    return dataclasses.replace(
        stored,
        path=without_secrets(path),
        format=name,
        checkpoint=checkpoint,
        open_weights=cache(open_reader),
        **rules,
    )


def _compare_configs(directory: str) -> None:
    """Rejects a directory whose files of the original and of transformers describe two models."""
    paths = [os.path.join(directory, name) for name in (CONFIG_FILE, huggingface.CONFIG_FILE)]
    if all(map(tf.io.gfile.exists, paths)):
        settle({path: huggingface.stated_config(path) for path in paths}, Meeting.LOAD)


def open_weights(path: str) -> Weights:
    """Opens the weights of a model, see `load`. Other files are only read if necessary."""
    name, directory, weights = _locate(path)
    if name == ORIGINAL:
        from albert_tf.checkpoints.formats.original import find_checkpoint

        weights = find_checkpoint(directory)
    return (
        open_model(path).weights if weights is None else format_module(name).open_weights(weights)
    )


def stored_task(path: str, name: str = "") -> StoredTask | None:
    """Reads the task of a model; see `StoredTask.named` for `name`."""
    task = open_model(path).task
    return task and task.named(name)


def _format_of_file(path: str) -> str:
    """Returns the format of a file of weights, or of the prefix of TensorFlow's files."""
    directory = _directory_of(path)
    for name, weights in _FORMATS.items():
        if re.search(weights, path) and format_module(name).is_here(directory):
            return name
    return ORIGINAL


def _directory_of(path: str) -> str:
    if re.search(_KERAS_FILE, path):
        return path  # the file contains everything
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if re.search(_SAVED_MODEL_VARIABLES, path) else folder
