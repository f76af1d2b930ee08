"""Saves models in memory as directories: `save(model, directory)`."""

import dataclasses
import os

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.convert import check_target, new_directory
from albert_tf.checkpoints.formats.choose import writer_of
from albert_tf.checkpoints.loading import check_model
from albert_tf.checkpoints.model_directory import LOWER_CASE_KEY
from albert_tf.checkpoints.stored_heads import head_of
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.arguments import as_path, check_choice, check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.data.files import existing_path, random_name, real_name
from albert_tf.data.sequences import check_room
from albert_tf.modeling.base import ConfiguredModel
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.base import Tokenizer


def save(
    model: keras.Model,
    directory: str | os.PathLike,
    *,
    tokenizer: Tokenizer | None = None,
    max_seq_length: int | None = None,
    pairs: bool | None = None,
    format: str = "original",
    overwrite: bool = False,
) -> None:
    """Writes a directory that `load`, all commands and `convert_checkpoint.py` can read.

    In the format "original" the directory contains the weights by the original's names
    (`model.ckpt-best`), the configuration, the tokenizer and, if the model is fine-tuned,
    `labels.json`. It can be used as `output_dir` of the command of its task. The optimizer is not
    saved; use `model.save` of Keras to save it in a `.keras` file.

    Args:
        model: an `AlbertEncoder` or any `AlbertFor...`.
        directory: a new or empty directory, or with `overwrite` any directory. If saving fails,
            the directory is left unchanged.
        tokenizer: tokenizer of the model. If `None`, `model.tokenizer` is used.
        max_seq_length: number of tokens to which texts are truncated. If `None`, the value used in
            training is kept. If that value is unknown, the number of positions of the model is
            used.
        pairs: whether a classifier takes pairs of texts. If `None`, the value used in training
            is kept. If that value is unknown, pairs and single texts are accepted.
        format: "original", "huggingface", "keras_hub", "tf2_hub" or "tf1_hub". Weights that a
            format does not support are omitted with a warning. Use `albert_tf.convert` to verify
            the result.
        overwrite: whether to replace an existing local directory and its content.

    Raises:
        TypeError: the model is not a model of this package, or another argument has a wrong type.
        ValueError: the directory is not empty, or an argument does not fit the model.
        WriteError: the directory cannot be written.
    """
    directory = as_path("directory", directory, "path of a directory")
    if not isinstance(model, ConfiguredModel):
        raise TypeError(
            "model must be an AlbertEncoder or AlbertFor... model. Received: "
            f"{type(model).__name__}"
        )
    config = model.config
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        logging.warning(
            "save: no tokenizer is written, because `tokenizer` and `model.tokenizer` are None"
        )
    else:
        check_model(model, ConfiguredModel, tokenizer)
    check_choice("pairs", pairs)
    if max_seq_length is not None:
        check_whole_number("max_seq_length", max_seq_length)
        config.check_sequence_length(max_seq_length)
        check_room(bool(pairs), max_seq_length)
        max_seq_length = int(max_seq_length)  # JSON does not support NumPy's numbers
    task = _task_to_store(model, max_seq_length, pairs)
    writer = writer_of(format)
    is_replaced = overwrite and os.path.isdir(existing_path(directory))
    if is_replaced and real_name(directory) == os.getcwd():
        raise UserError("`overwrite` cannot replace the current directory. Change to another one.")
    new = random_name(real_name(directory)) if is_replaced else directory
    check_target(new, advice=", or pass overwrite=True")
    lower_case = bool(config.extra.get(LOWER_CASE_KEY, True))
    stored = StoredModel.in_memory(
        config,
        {name: np.asarray(value, np.float32) for name, value in original_names(model).items()},
        tokenizer,
        do_lower_case=tokenizer.do_lower_case if tokenizer else lower_case,
        task=task,
    )
    if omitted := writer.unsupported_weights(stored):
        logging.warning("%s does not support %s", format, ", ".join(omitted))
    with new_directory(directory, overwrite=overwrite) as made:
        writer.write(made, stored)


def _task_to_store(
    model: ConfiguredModel, max_seq_length: int | None, pairs: bool | None
) -> StoredTask | None:
    """Returns the task of a model with the given settings, or `None` if it is unknown."""
    task = head_of(type(model)).task_of(model)
    if task is None:
        if isinstance(model, AlbertForClassification):
            logging.warning("save: no labels.json is written, because the labels have no names")
        return None
    length = max_seq_length or task.max_seq_length or model.config.max_position_embeddings
    is_pair = task.is_pair if pairs is None else pairs
    return dataclasses.replace(task, max_seq_length=length, is_pair=is_pair)
