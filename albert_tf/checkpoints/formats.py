"""The formats of a model, in one table: which one lies at a path, and reading it.

A format is a module of this package, whose public functions are those of `FormatModule`. Modules
are imported when a path may be theirs: none of them costs anything to who does not use it.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from typing import Protocol, cast

import tensorflow as tf

from albert_tf.checkpoints.archives import is_indirect, local_directory
from albert_tf.checkpoints.model_contents import ModelContents, StoredModel, WeightsReader
from albert_tf.checkpoints.model_directory import LOWER_CASE_KEY
from albert_tf.checkpoints.trained_task import TOKENS, UNNAMED, TrainedTask

ORIGINAL = "original"


class FormatModule(Protocol):
    """What a module has that reads and writes one format.

    It may have a `compute(directory, batch)` as well, for the outputs that a model which carries
    its own graphs gives by them; see `convert.py`.
    """

    def is_here(self, path: str) -> bool:
        """Whether a directory looks like this format, going by names of files or a little more."""

    def read(self, path: str) -> StoredModel:
        """Returns the model in a directory; errors are of class LoadError and name `path`."""

    def open_weights(self, checkpoint: str) -> WeightsReader:
        """Returns a reader of `StoredModel.checkpoint`."""

    def unsupported_weights(self, contents: ModelContents) -> list[str]:
        """Returns names of the weights that the format cannot hold; warns of what changes else.

        Raises:
            ValueError: the format cannot hold such a model at all.
        """

    def write(self, directory: str, contents: ModelContents) -> None:
        """Writes a model into an empty directory, without what the format cannot hold.

        Raises:
            ValueError: see `unsupported_weights`; nothing is written.
        """


@dataclasses.dataclass(frozen=True)
class _Format:
    """Where a format's module is, and how the path of its weights ends."""

    module: str
    weights: str

    def load(self) -> FormatModule:
        return cast(FormatModule, importlib.import_module(f"albert_tf.checkpoints.{self.module}"))


_SAVED_MODEL_VARIABLES = r"(^|/)variables/variables$"

# In the order in which a directory is tried. The original's is the fallback, and comes first where
# a directory has a checkpoint in its format beside other files.
_FORMATS = {
    ORIGINAL: _Format("original.directory", r"$^"),
    "keras_hub": _Format("keras_hub", r"(^|/)(model|task)\.weights\.(h5|json)$"),
    "huggingface": _Format("huggingface", r"(\.safetensors|pytorch_model\.bin)(\.index\.json)?$"),
    "tf2_hub": _Format("tf2_hub", _SAVED_MODEL_VARIABLES),
    "tf1_hub": _Format("tf1_hub", _SAVED_MODEL_VARIABLES),
}

FORMAT_NAMES = tuple(_FORMATS)


def format_module(name: str) -> FormatModule:
    """Returns the module of a format by the name that `convert_checkpoint.py --format` has."""
    return _FORMATS[name].load()


def recognise(path: str) -> StoredModel:
    """Finds out what kind of model lies at a path, and where its parts are.

    Args:
        path: a directory of any format, a checkpoint or a file of weights, a released tar file, or
            the URL of a TF-Hub module or archive, or the name of a model.

    Raises:
        LoadError: there is no model, half of one, or one of another architecture.
    """
    name, directory, weights = _locate(path)
    stored = format_module(name).read(directory)
    lower_case = stored.do_lower_case
    if lower_case is None and stored.config is not None:
        lower_case = stored.config.extra.get(LOWER_CASE_KEY)
    return dataclasses.replace(
        stored,
        checkpoint=weights or stored.checkpoint,
        do_lower_case=lower_case,
        given=path,
    )


def find_weights(path: str) -> str:
    """Returns what `load_weights` and `open_checkpoint` take for a path; see `recognise`."""
    name, directory, weights = _locate(path)
    if name == ORIGINAL:  # whatever lies beside a checkpoint is no matter here
        from albert_tf.checkpoints.original.files import find_checkpoint

        return find_checkpoint(directory)
    return weights or format_module(name).read(directory).checkpoint


def trained_task(checkpoint: str, name: str = "") -> TrainedTask | None:
    """Reads what a model was trained for: its `labels.json`, or the configuration of its format.

    The task's `name`, unless it is of tokens, is taken where the format says labels but no name.
    ValueError where what is said cannot be read, or `labels.json` contradicts the configuration.
    """
    format_name = format_of_weights(checkpoint)
    if format_name == ORIGINAL:
        return TrainedTask.read(os.path.dirname(checkpoint))
    task = format_module(format_name).read(_directory_of(checkpoint)).task
    if task and task.name == UNNAMED and name not in ("", TOKENS):
        return dataclasses.replace(task, name=name)
    return task


def _locate(path: str) -> tuple[str, str, str | None]:
    """Format, directory (of the original's: or prefix) and file of weights if one is named."""
    if is_indirect(path):
        path = local_directory(path)
    if not tf.io.gfile.isdir(path):
        name = format_of_weights(path)
        if name == ORIGINAL:
            return name, path, None
        # It may be all weights of a model; of shards, the directory's index knows all.
        is_whole = tf.io.gfile.exists(path) and "-of-" not in path
        return name, _directory_of(path), path if is_whole else None
    for name, entry in _FORMATS.items():
        if entry.load().is_here(path):
            return name, path, None
    return ORIGINAL, path, None


def format_of_weights(checkpoint: str) -> str:
    """Returns the name of the format of a `StoredModel.checkpoint`."""
    for name, entry in _FORMATS.items():
        if re.search(entry.weights, checkpoint) and entry.load().is_here(_directory_of(checkpoint)):
            return name
    return ORIGINAL


def _directory_of(checkpoint: str) -> str:
    """The directory of the model whose weights these are."""
    folder = os.path.dirname(checkpoint)
    return os.path.dirname(folder) if re.search(_SAVED_MODEL_VARIABLES, checkpoint) else folder
