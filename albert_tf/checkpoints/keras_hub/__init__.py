"""Presets of KerasHub: `AlbertBackbone`, with the head of a masked LM or of a text classifier.

A preset is a directory of JSON files, each of which names a class of KerasHub's, and of HDF5 files.
KerasHub itself is not needed. Its text classifier is our classifier, its masked LM ours but for the
epsilon of one layer norm, 1e-5 in place of 1e-12, which no file of a preset says.
"""

from __future__ import annotations

import os

import tensorflow as tf

from albert_tf.checkpoints.keras_hub import descriptions
from albert_tf.checkpoints.keras_hub.preset import (
    CONFIG_FILE,
    WEIGHTS_FILES,
    directory_of,
    find_tokenizer,
    read_preset,
)
from albert_tf.checkpoints.keras_hub.writing import left_out, write
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.stored_model import StoredModel, WeightsReader
from albert_tf.data.files import open_binary

__all__ = ["FORMAT", "is_here", "left_out", "open_weights", "read", "write"]

FORMAT = "keras_hub"


def is_here(path: str) -> bool:
    """Whether a path is a preset of KerasHub's, of whatever model, or weights in one."""
    directory = directory_of(path)
    if directory != path:
        return tf.io.gfile.exists(path)
    if any(tf.io.gfile.exists(os.path.join(path, name)) for name in WEIGHTS_FILES):
        return True
    config_file = os.path.join(path, CONFIG_FILE)
    if not tf.io.gfile.exists(config_file):
        return False
    with open_binary(config_file, "rb") as file:
        return b'"registered_name"' in file.read()


def read(path: str, flag: str) -> StoredModel:
    """Reads what a preset holds, and checks that its weights are those of its configuration.

    Args:
        path: the preset's directory, or its `WEIGHTS_FILE`.
        flag: the flag it came from, for messages.

    Raises:
        LoadError: it is a preset of another architecture, half of one, or one that contradicts
            itself.
    """
    try:
        preset = read_preset(directory_of(path))
        preset.open_weights()
        tokenizer_file = find_tokenizer(preset.path)
    except LoadError as error:
        raise type(error)(f"{flag}={path} is no usable KerasHub preset of ALBERT. {error}") from (
            error
        )
    return StoredModel(
        path=preset.path,
        format=FORMAT,
        checkpoint=os.path.join(preset.path, preset.weights_file),
        config=preset.config,
        config_file=os.path.join(preset.path, CONFIG_FILE),
        tokenizer_file=tokenizer_file,
        do_lower_case=descriptions.lower_case_of(preset.metadata),
    )


def open_weights(checkpoint: str) -> WeightsReader:
    """Opens the weights of a preset, those of its head included.

    Args:
        checkpoint: `WEIGHTS_FILE` or `SHARDS_FILE` of a preset.

    Raises:
        LoadError: see `read`.
    """
    return read_preset(directory_of(checkpoint)).open_weights()
