"""Reads `.keras` files, which `model.save` of Keras writes; stores tokenizer and labels in them."""

import os
from functools import partial

import keras
import numpy as np

from albert_tf.checkpoints.heads import head_of
from albert_tf.checkpoints.model_contents import LoadedWeights, StoredModel
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    LOWER_CASE_KEY,
    ModelDirectory,
    find_tokenizer_files,
)
from albert_tf.checkpoints.names import store_tokenizer
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.config import AlbertConfig
from albert_tf.data.files import read_file, reason_of
from albert_tf.modeling.encoder import ConfiguredModel
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.loading import load_tokenizer


def save_assets(model: ConfiguredModel, directory: str) -> None:
    """Writes tokenizer and `labels.json` into a directory."""
    if model.tokenizer is not None:
        extra = {**model.config.extra, LOWER_CASE_KEY: model.tokenizer.do_lower_case}
        ModelDirectory(directory, model.config.replace(extra=extra), model.tokenizer).write()
    if (task := head_of(type(model)).task_of(model)) is not None:
        task.write(directory)


def load_assets(model: ConfiguredModel, directory: str) -> None:
    """Reads tokenizer and `labels.json`; the directory can be deleted afterwards."""
    model.trained_task = TrainedTask.read(directory)
    if files := find_tokenizer_files(directory):
        path = store_tokenizer(os.path.basename(files[0]), read_file(files[0]))
        config = AlbertConfig.from_json_file(os.path.join(directory, CONFIG_FILE))
        lower_case = bool(config.extra.get(LOWER_CASE_KEY, True))
        model.tokenizer = load_tokenizer(vocab_file=path, do_lower_case=lower_case)


def is_here(path: str) -> bool:
    """Returns whether a path is a `.keras` file."""
    return path.endswith(".keras")


def read(path: str) -> StoredModel:
    """Reads a model; see `FormatModule`."""
    model = _load(path)
    tokenizer = model.tokenizer
    return StoredModel(
        path=path,
        checkpoint=path,
        config=model.config,
        config_file=path,
        tokenizer_files=tokenizer.files[:1] if tokenizer else (),
        do_lower_case=tokenizer.do_lower_case if tokenizer else None,
        task=head_of(type(model)).task_of(model),
        open_reader=partial(_weights, model),
    )


def open_weights(checkpoint: str) -> LoadedWeights:
    """Reads the weights of a file."""
    return _weights(_load(checkpoint))


def _weights(model: ConfiguredModel) -> LoadedWeights:
    return LoadedWeights({name: np.asarray(v) for name, v in original_names(model).items()})


def _load(path: str) -> ConfiguredModel:
    try:
        model = keras.models.load_model(path, compile=False)
    except Exception as error:  # of many classes
        raise LoadError(f"{path} cannot be read by Keras: {reason_of(error)}") from error
    if not isinstance(model, ConfiguredModel):
        raise LoadError(
            f"{path} contains a {type(model).__name__}. Expected an AlbertEncoder or AlbertFor... "
            "model. Load other models with keras.models.load_model."
        )
    return model
