"""Directories of Hugging Face's transformers: `config.json`, weights and tokenizer, both ways.

    config.json, model.safetensors (or shards, or pytorch_model.bin), spiece.model or vocab.txt

Neither transformers nor PyTorch is needed, but for reading `pytorch_model.bin`.
"""

from __future__ import annotations

import json
import os

from albert_tf.checkpoints.huggingface.configuration import (
    architecture_of,
    check_can_be_written,
    read_albert_config,
    read_content,
    read_trained_task,
    write_config,
)
from albert_tf.checkpoints.huggingface.tokenizer_files import (
    find_lower_case,
    find_tokenizer_file,
    write_tokenizer,
)
from albert_tf.checkpoints.huggingface.weights import (
    FOREIGN_FILES,
    SAFETENSORS,
    WEIGHTS_FILES,
    HuggingFaceWeights,
    names_without_place,
    open_tensors,
    write_weights,
)
from albert_tf.checkpoints.model_contents import ModelContents, StoredModel, WeightsReader
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.data.files import file_exists, write_then_rename

__all__ = ["FORMAT", "is_here", "open_weights", "read", "write"]
FORMAT = "huggingface"
CONFIG_FILE = "config.json"
_KEYS_OF_CONFIG = ("model_type", "architectures", "transformers_version", "num_hidden_groups")


def is_here(path: str) -> bool:
    """Whether a directory has a `config.json` of transformers, or weights under its names.

    Other libraries have a `config.json` as well, so the keys in it decide.
    """
    config_file = os.path.join(path, CONFIG_FILE)
    if not file_exists(config_file):
        return any(file_exists(os.path.join(path, name)) for name in WEIGHTS_FILES)
    try:
        values = read_content(config_file).value
    except LoadError:
        return any(file_exists(os.path.join(path, name)) for name in WEIGHTS_FILES)
    return any(key in values for key in _KEYS_OF_CONFIG)


def read(path: str, flag: str) -> StoredModel:
    """Finds configuration, weights, tokenizer and task of a model.

    Args:
        path: a directory, see `is_here`.
        flag: the flag the path came from, for messages.

    Raises:
        LoadError: half a model, one of another architecture, or one that computes something else
            than the original's can.
        DamagedError: a file is damaged.
    """
    try:
        return _read(path, flag)
    except LoadError as error:
        if flag in str(error):
            raise
        raise type(error)(f"{flag}={path}: {error}") from error


def _read(path: str, flag: str) -> StoredModel:
    config_file = os.path.join(path, CONFIG_FILE)
    where = f"{flag}={path}: {CONFIG_FILE}"
    values = read_content(config_file).value if file_exists(config_file) else None
    config = read_albert_config(values, where) if values is not None else None
    checkpoint = _find_weights(path, flag)
    open_tensors(checkpoint)  # what is cut off or no such file is known before anything is done
    return StoredModel(
        path=path,
        format=FORMAT,
        checkpoint=checkpoint,
        config=config,
        config_file=config_file if config else None,
        tokenizer_file=find_tokenizer_file(path, flag),
        do_lower_case=find_lower_case(path),
        task=TrainedTask.read(path) or (read_trained_task(values, where) if values else None),
    )


def open_weights(checkpoint: str) -> WeightsReader:
    """Returns a reader of a file of weights, or of an index of such files.

    The `config.json` beside it tells a classifier of tokens from one of texts.

    Raises:
        LoadError: it cannot be read, or is of a model that the original cannot be.
        DamagedError: it is damaged.
    """
    config_file = os.path.join(os.path.dirname(checkpoint), CONFIG_FILE)
    values = read_content(config_file).value if file_exists(config_file) else {}
    return HuggingFaceWeights(checkpoint, architecture_of(values))


def unsupported_weights(contents: ModelContents) -> list[str]:
    """Returns the names of the weights that are left out: SQuAD 2.0's head, an optimizer's slots.

    Args:
        contents: the model.

    Raises:
        ValueError: see `write`.
    """
    check_can_be_written(contents.config)
    return names_without_place(contents.weights)


def write(directory: str, contents: ModelContents) -> None:
    """Writes a directory that `from_pretrained` of transformers loads, models and tokenizers.

    All heads that transformers has a name for are stored, whatever class `config.json` names. What
    a model was trained for is kept in a `labels.json` as well, which transformers leaves alone.

    Args:
        directory: an empty one.
        contents: the model.

    Raises:
        ValueError: the format cannot hold the model; nothing is written.
    """
    check_can_be_written(contents.config)
    with write_then_rename(os.path.join(directory, CONFIG_FILE)) as file:
        file.write((json.dumps(write_config(contents), indent=2) + "\n").encode())
    if contents.tokenizer is not None:
        write_tokenizer(directory, contents.tokenizer, contents.config)
    if contents.task is not None:
        contents.task.write(directory)
    write_weights(os.path.join(directory, SAFETENSORS), contents.weights)


def _find_weights(path: str, flag: str) -> str:
    """The path of the weights; of several forms, of that which needs the least."""
    for name in WEIGHTS_FILES:
        if file_exists(os.path.join(path, name)):
            return os.path.join(path, name)
    found = [name for name in FOREIGN_FILES if file_exists(os.path.join(path, name))]
    there = f" {' and '.join(found)} exists but is not read." if found else ""
    raise LoadError(
        f"{flag}={path} is an incomplete model: {CONFIG_FILE}, but no weights.{there} Expected "
        f"one of {', '.join(WEIGHTS_FILES)}."
    )
