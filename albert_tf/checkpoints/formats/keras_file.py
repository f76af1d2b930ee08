"""Reads `.keras` files, which `model.save` of Keras writes; stores tokenizer and labels in them."""

import os
import sys
import zipfile
from functools import partial

import keras
import numpy as np

from albert_tf.checkpoints.downloads import store_tokenizer
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.facts import Meeting, config_facts, settle, stated
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    ModelDirectory,
    check_vocabulary,
    find_tokenizer_files,
    stored_rules,
    with_rules,
    with_vocabulary,
)
from albert_tf.checkpoints.report import check_parameters, check_version
from albert_tf.checkpoints.stored_heads import head_of
from albert_tf.checkpoints.stored_model import StoredModel, StoredTokenizer, Weights
from albert_tf.checkpoints.stored_task import LABELS_FILE, StoredTask
from albert_tf.config import AlbertConfig, require_keys
from albert_tf.data.errors import visible
from albert_tf.data.files import file_size, open_binary, read_file, reason_of
from albert_tf.data.strict_json import JsonValue, parse_json
from albert_tf.modeling.base import ConfiguredModel
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.library import name_files
from albert_tf.tokenization.loading import tokenizer_from_files

_DESCRIPTION = "config.json"
_MAX_DESCRIPTION = 16 << 20  # bytes


def save_assets(model: ConfiguredModel, directory: str) -> None:
    """Writes tokenizer and `labels.json` into a directory."""
    if model.tokenizer is not None:
        config = with_rules(model.config, model.tokenizer.rules)
        ModelDirectory(directory, config, model.tokenizer).write()
    if (task := head_of(type(model)).task_of(model)) is not None:
        task.write(directory)


def load_assets(model: ConfiguredModel, directory: str) -> None:
    """Reads tokenizer and `labels.json`; the directory can be deleted afterwards."""
    task, tokenizer = StoredTask.read(directory), None
    if task and (names := getattr(model, "labels", None)):
        labels = {LABELS_FILE: task.labels.names, _DESCRIPTION: tuple(names)}
        settle(stated("labels", labels), Meeting.LOAD)
    if files := find_tokenizer_files(directory):
        contents = {
            os.path.basename(file): read_file(file) for file in (files[0], *name_files(files[0]))
        }
        name, *others = contents
        path = store_tokenizer(name, contents[name], {n: contents[n] for n in others})
        config = AlbertConfig.from_json_file(os.path.join(directory, CONFIG_FILE))
        own = config_facts(model.config)
        settle({CONFIG_FILE: config_facts(config), _DESCRIPTION: own}, Meeting.LOAD)
        rules = {key: v for key, v in stored_rules(config).items() if v is not None}
        tokenizer = tokenizer_from_files(vocab_file=path, **rules)
        check_vocabulary(config, tokenizer)
    model.set_origin(tokenizer, task)


def is_here(path: str) -> bool:
    """Returns whether a path is a `.keras` file."""
    return path.endswith(".keras")


def read(path: str) -> StoredModel:
    """Reads a model; see `FormatModule`."""
    model = _load(path)
    tokenizer = model.tokenizer
    return StoredModel(
        checkpoint=path,
        config=with_vocabulary(model.config, None),
        config_file=path,
        stored_tokenizer=StoredTokenizer(tokenizer.files[:1] if tokenizer else ()),
        task=head_of(type(model)).task_of(model),
        open_weights=partial(_weights, model, path),
        **(tokenizer.rules if tokenizer else {}),
    )


def open_weights(checkpoint: str) -> Weights:
    """Reads the weights of a file."""
    return _weights(_load(checkpoint), checkpoint)


def _weights(model: ConfiguredModel, path: str) -> Weights:
    values = {name: np.asarray(variable) for name, variable in original_names(model).items()}
    return Weights.in_memory(values, path)


def _load(path: str) -> ConfiguredModel:
    check_version(keras, "3.9", path)
    try:
        with open_binary(path, "rb") as file, zipfile.ZipFile(file) as archive:
            description = archive.open(_DESCRIPTION).read(_MAX_DESCRIPTION)
        check_description(description, path, file_size(path))
        model = keras.models.load_model(path, compile=False)
    except LoadError:
        raise
    except Exception as error:  # of many classes
        raise LoadError(f"{path} cannot be read by Keras: {reason_of(error)}") from error
    assert isinstance(model, ConfiguredModel)
    return model


def check_description(data: bytes, path: str, size: int) -> None:
    """Checks the `config.json` in a file of `size` bytes before Keras builds the model.

    Raises `ValueError` if the model has another class, or more parameters than the file can store.
    """
    content = JsonValue(parse_json(data, f"{path}: {_DESCRIPTION}"), f"{path}: {_DESCRIPTION}")
    name = content["class_name"].text()
    # Keras would import the module of a class that is not registered.
    found = keras.saving.get_registered_object(str(content["registered_name"].value))
    found = found or getattr(sys.modules.get(content["module"].text()), name, None)
    if not (isinstance(found, type) and issubclass(found, ConfiguredModel)):
        raise LoadError(
            f"{path} contains a {visible(name)}. Expected an AlbertEncoder or AlbertFor... model. "
            "Load other models with keras.models.load_model."
        )
    dtype = content["config"].get("dtype")  # Keras would also create an object of another class
    if dtype and isinstance(dtype.value, dict) and dtype["class_name"].value != "DTypePolicy":
        raise dtype["class_name"].error("'DTypePolicy'")
    values = content["config"]["config"]
    try:
        require_keys(values.members())
        config = AlbertConfig.from_dict(values.value)
    except ValueError as error:
        raise LoadError(f"{path}: {_DESCRIPTION}: {error}") from error
    labels = content["config"].get("num_labels")
    # Keras stores at least a byte per parameter.
    check_parameters(path, config, size, labels.whole_number(0) if labels else 0)
