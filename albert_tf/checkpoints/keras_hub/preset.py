"""What lies in the directory of a preset: the files, and how they belong together."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.keras_hub import descriptions
from albert_tf.checkpoints.keras_hub.layout import (
    Entry,
    backbone_entries,
    classifier_entries,
    masked_lm_entries,
)
from albert_tf.checkpoints.keras_hub.weights import PresetWeights
from albert_tf.checkpoints.report import LoadError
from albert_tf.config import AlbertConfig
from albert_tf.data.files import open_binary

CONFIG_FILE = "config.json"
METADATA_FILE = "metadata.json"
TASK_FILE = "task.json"
PREPROCESSOR_FILE = "preprocessor.json"
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS_FILE = "model.weights.h5"
SHARDS_FILE = "model.weights.json"  # says which file holds what, where there are several
TASK_WEIGHTS_FILE = "task.weights.h5"
VOCABULARY_FILE = os.path.join("assets", "tokenizer", "vocabulary.spm")
WORDPIECE_FILE = os.path.join("assets", "tokenizer", "vocab.txt")  # ours: KerasHub has none
WEIGHTS_FILES = (WEIGHTS_FILE, SHARDS_FILE)


@dataclasses.dataclass(frozen=True)
class Preset:
    """What lies in a preset's directory.

    Attributes:
        path: the directory.
        config: of the backbone.
        weights_file: `WEIGHTS_FILE` or `SHARDS_FILE`.
        head: what `TASK_WEIGHTS_FILE` is to hold.
        metadata: content of `METADATA_FILE`.
    """

    path: str
    config: AlbertConfig
    weights_file: str
    head: list[Entry]
    metadata: dict[str, Any]

    def open_weights(self) -> PresetWeights:
        """Opens the weights, those of the head included, and checks what they are.

        Raises:
            LoadError: they are not those of the configuration.
        """
        files = [(self._weights_files(), backbone_entries(self.config))]
        if self.head:
            files.append(([os.path.join(self.path, TASK_WEIGHTS_FILE)], self.head))
        weights = PresetWeights(files)
        if not self.config.projects_embeddings:
            weights.drop_identity()
        return weights

    def _weights_files(self) -> list[str]:
        path = os.path.join(self.path, self.weights_file)
        if self.weights_file == WEIGHTS_FILE:
            return [path]
        places = _read_json(path).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise LoadError(f"{path!r} does not say which file holds what ('weight_map').")
        names = [name for place in places.values() for name in np.atleast_1d(place)]
        paths = [
            os.path.join(self.path, os.path.basename(str(name))) for name in dict.fromkeys(names)
        ]
        missing = [path for path in paths if not tf.io.gfile.exists(path)]
        if missing:
            raise LoadError(f"{path!r} names files that are missing: {', '.join(missing)}.")
        return paths


def directory_of(path: str) -> str:
    """The preset of a path that may name a file of weights in it."""
    is_file = os.path.basename(path) in (*WEIGHTS_FILES, TASK_WEIGHTS_FILE)
    return os.path.dirname(path) if is_file else path


def read_preset(path: str) -> Preset:
    """Reads all of a preset but its weights and its tokenizer.

    Raises:
        LoadError: it is half of one, of another model, or contradicts itself.
    """
    config_file = os.path.join(path, CONFIG_FILE)
    backbone = _read_json(config_file)
    try:
        config = descriptions.config_from(backbone)
    except ValueError as error:
        raise LoadError(f"{config_file!r}: {error}.") from error
    weights_file = next((name for name in WEIGHTS_FILES if _exists(path, name)), None)
    if weights_file is None:
        raise LoadError(f"There is neither {' nor '.join(WEIGHTS_FILES)} in {path!r}.")
    metadata = _read_json(os.path.join(path, METADATA_FILE)) if _exists(path, METADATA_FILE) else {}
    _check_version(metadata, path)
    head = _read_head(path, config)
    config = descriptions.with_our_values(config, metadata)
    return Preset(path, config, weights_file, head, metadata)


def _check_version(metadata: dict[str, Any], path: str) -> None:
    """Refuses what a KerasHub of another generation wrote."""
    version = str(metadata.get("keras_hub_version", "0"))
    if version.split(".")[0] != "0":
        raise LoadError(
            f"{os.path.join(path, METADATA_FILE)!r} says it was written by KerasHub {version}. The "
            f"layout of versions below 1 is known here ({descriptions.KERAS_HUB_VERSION} is the "
            "one that was compared)."
        )


def _read_head(path: str, config: AlbertConfig) -> list[Entry]:
    """What the weights of the preset's task are; none where it has none."""
    has_task, has_weights = _exists(path, TASK_FILE), _exists(path, TASK_WEIGHTS_FILE)
    if has_task != has_weights:
        pair = (TASK_FILE, TASK_WEIGHTS_FILE)
        there, lacking = pair if has_task else reversed(pair)
        raise LoadError(
            f"{path!r} has {there} and no {lacking}, so half of its head. Restore it, or take the "
            "other half away to read the encoder alone."
        )
    if not has_task:
        return []
    file = os.path.join(path, TASK_FILE)
    description = _read_json(file)
    try:
        values = descriptions.values_of(
            description, descriptions.MASKED_LM, descriptions.CLASSIFIER
        )
        if descriptions.config_from(values.get("backbone")) != config:
            raise ValueError(f"its backbone is another one than that of {CONFIG_FILE}")
        if descriptions.class_of(description)[1] == descriptions.MASKED_LM:
            return masked_lm_entries(config)
        return classifier_entries(config, descriptions.num_classes_of(values))
    except ValueError as error:
        raise LoadError(f"{file!r}: {error}.") from error


def find_tokenizer(path: str) -> str | None:
    """Returns the path of a preset's vocabulary, None where it has none.

    Raises:
        LoadError: its tokenizer is of another kind, or half of it is missing.
    """
    names = [name for name in (VOCABULARY_FILE, WORDPIECE_FILE) if _exists(path, name)]
    found = os.path.join(path, names[0]) if names else None
    file = os.path.join(path, TOKENIZER_FILE)
    if not tf.io.gfile.exists(file):
        return found
    tokenizer = _read_json(file)
    try:
        descriptions.check_tokenizer(tokenizer)
    except ValueError as error:
        raise LoadError(f"{file!r}: {error}.") from error
    if found is None:
        raise LoadError(f"There is {file!r}, and no {os.path.join(path, VOCABULARY_FILE)!r}.")
    return found


def _exists(directory: str, name: str) -> bool:
    return tf.io.gfile.exists(os.path.join(directory, name))


def _read_json(path: str) -> dict[str, Any]:
    if not tf.io.gfile.exists(path):
        raise LoadError(f"There is no file {path!r}.")
    try:
        with open_binary(path, "rb") as file:
            content = json.loads(file.read())
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise LoadError(f"{path!r} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path!r} holds no JSON object.")
    return content
