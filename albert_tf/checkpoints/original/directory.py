"""Directories of the original release and of training runs.

Files: albert_config.json, 30k-clean.model and 30k-clean.vocab or vocab.txt (vocab_chinese.txt for
Chinese models), model.ckpt-best.*
"""

from __future__ import annotations

import os

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.model_contents import ModelContents, StoredModel
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    LOWER_CASE_KEY,
    SENTENCEPIECE_FILE,
    SENTENCEPIECE_LIST_FILE,
    ModelDirectory,
    find_tokenizer_files,
)
from albert_tf.checkpoints.original.files import (
    BEST,
    find_checkpoint,
    open_tensorflow_checkpoint,
    prefixes_in,
    write_checkpoint,
)
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.checkpoints.training_directory import CHECKPOINT, name_newest
from albert_tf.config import AlbertConfig
from albert_tf.data.files import write_then_rename
from albert_tf.modeling.original_names import is_slot
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, piece_list

FORMAT = "original"
open_weights = open_tensorflow_checkpoint


def is_here(path: str) -> bool:
    """Returns whether a directory contains a checkpoint."""
    return bool(prefixes_in(path))


def read(path: str) -> StoredModel:
    """Finds a checkpoint, see `find_checkpoint`, and the files next to it.

    Raises:
        LoadError: there is no checkpoint, or several and none is preferred.
        ValueError: the configuration or `labels.json` is invalid.
    """
    checkpoint = find_checkpoint(path)
    directory = os.path.dirname(checkpoint)
    config_file = os.path.join(directory, CONFIG_FILE)
    config = AlbertConfig.from_json_file(config_file) if tf.io.gfile.exists(config_file) else None
    tokenizer_files = find_tokenizer_files(directory)
    list_file = os.path.join(directory, SENTENCEPIECE_LIST_FILE)
    if not tokenizer_files and tf.io.gfile.exists(list_file):
        logging.warning(
            "%s exists, but %s, which the tokenizer needs, does not: copy it too, or pass "
            "--spm_model_file",
            list_file,
            SENTENCEPIECE_FILE,
        )
    return StoredModel(
        path=directory,
        format=FORMAT,
        checkpoint=checkpoint,
        config=config,
        config_file=config_file if config else None,
        tokenizer_files=tokenizer_files,
        task=TrainedTask.read(directory),
    )


def unsupported_weights(contents: ModelContents) -> list[str]:
    """Returns an empty list: this format supports all models."""
    return []


def write(directory: str, contents: ModelContents) -> None:
    """Writes a release directory, with `labels.json` if the model was trained for a task.

    With optimizer slots the directory can be used as output directory to resume a training.
    """
    config = contents.config.replace(
        extra={**contents.config.extra, LOWER_CASE_KEY: contents.do_lower_case}
    )
    # The directory is empty, so that no other tokenizer is found next to `config_file`.
    config_file = os.path.join(directory, CONFIG_FILE)
    ModelDirectory(directory, config, config_file, contents.tokenizer).write()
    path = os.path.join(directory, SENTENCEPIECE_LIST_FILE)
    if isinstance(contents.tokenizer, SentencePieceTokenizer) and not tf.io.gfile.exists(path):
        # The original's exporter needs the list, which other formats omit.
        with write_then_rename(path) as file:
            file.write(piece_list(contents.tokenizer.model_proto).encode())
    name = BEST
    if any(map(is_slot, contents.weights)):
        name = f"{CHECKPOINT}-{contents.global_step}"
        name_newest(directory, [name])
    write_checkpoint(os.path.join(directory, name), contents.weights, contents.global_step)
    if contents.task is not None:
        contents.task.write(directory)
