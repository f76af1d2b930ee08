"""Reads and writes directories and checkpoints of the original release.

Checkpoints are called model.ckpt-best or model.ckpt-<step>; the file `checkpoint` contains the name
of the newest checkpoint. They are name-based: `tf.train.Checkpoint` would silently restore nothing.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.downloads import suggestion
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    LOWER_CASE_KEY,
    SENTENCEPIECE_LIST_FILE,
    ModelDirectory,
    find_tokenizer_files,
    read_config,
)
from albert_tf.checkpoints.report import next_step
from albert_tf.checkpoints.stored_model import (
    GLOBAL_STEP,
    READ_ERRORS,
    StoredModel,
    StoredTokenizer,
    Weights,
    kind_of_error,
)
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.files import (
    existing_path,
    file_exists,
    finish,
    folder_names,
    is_pattern_to_tensorflow,
    reason_of,
    temporary_folder,
    write_file,
)
from albert_tf.modeling.original_names import is_slot, original_names
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, piece_list

CHECKPOINT = "model.ckpt"  # step checkpoints are called model.ckpt-<step>
BEST = "model.ckpt-best"  # name of the checkpoint with the best scores
BEST_FILE = "best_trial.txt"  # written after each evaluation

DATA_SUFFIX = ".data-00000-of-00001"

_HUB_SCOPE = "module/"  # scope of the encoder if the original trains a TF-Hub module


def best_prefix(directory: str) -> str:
    """Returns the prefix of the best checkpoint, also if a process was killed while it replaced it.

    Without `best_trial.txt`, the former checkpoint belongs to a run whose files were deleted.
    """
    prefix = os.path.join(directory, BEST)
    is_of_run = file_exists(os.path.join(directory, BEST_FILE))
    return existing_path(prefix, ".index") if is_of_run else prefix


def find_checkpoint(path: str) -> str:
    """Returns the prefix of a checkpoint, given a prefix, one of its files, or a directory.

    In a directory this is `model.ckpt-best`, otherwise the newest checkpoint according to the file
    `checkpoint`, otherwise the only checkpoint. Raises `LoadError` if there is no such checkpoint.
    """
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if os.path.basename(prefix) == BEST:
        prefix = best_prefix(os.path.dirname(prefix))
    if tf.io.gfile.exists(prefix + ".index"):
        return prefix
    if not tf.io.gfile.isdir(path):
        raise LoadError(
            f"There is no checkpoint {path!r}: no file {prefix + '.index'!r}. "
            f"{next_step(path) if tf.io.gfile.exists(path) else suggestion(path)}"
        )
    for there in (best_prefix(path), os.path.join(path, named_checkpoint(path) or BEST)):
        if tf.io.gfile.exists(f"{there}.index"):
            return there
    found = prefixes_in(path)
    if not found:
        names = folder_names(path)
        some = ", ".join(names[:8]) + (", ..." if names[8:] else "")
        raise LoadError(
            f"There is no model in the directory {path!r}: no checkpoint (model.ckpt-*.index and "
            ".data-*), no saved_model.pb, model.safetensors, pytorch_model.bin or "
            f"model.weights.h5. It contains: {some or 'nothing'}. {next_step(path)}"
        )
    if len(found) != 1:
        raise LoadError(
            f"Expected one checkpoint in the directory {path!r}, found {len(found)}: "
            f"{', '.join(found)}. Pass the prefix of a checkpoint."
        )
    return found[0]


def named_checkpoint(directory: str) -> str | None:
    """Returns the name of the newest checkpoint in the file `checkpoint`, or `None`."""
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError as error:  # empty or not UTF-8; TensorFlow logs other damage
        logging.warning(
            "%s is damaged (%s) and ignored: the newest checkpoint is determined by the file names",
            os.path.join(directory, "checkpoint"),
            error,
        )
        return None
    # The directory may have been moved.
    return os.path.basename(state.model_checkpoint_path) if state else None


def prefixes_in(directory: str) -> list[str]:
    """Returns the prefixes of all checkpoints in a directory, sorted."""
    # A glob pattern would fail for a path with brackets, such as "runs [old]".
    return sorted(
        os.path.join(directory, name.removesuffix(".index"))
        for name in folder_names(directory)
        if name.endswith(".index") and not name.startswith(".")
    )


def open_weights(checkpoint: str) -> Weights:
    """Opens a checkpoint, given its prefix.

    Raises `DamagedError` if the files are damaged, `LoadError` if they cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        shapes = reader.get_variable_to_shape_map()  # fails if names are not text
    except READ_ERRORS as error:
        if is_pattern_to_tensorflow(checkpoint) and tf.io.gfile.exists(f"{checkpoint}.index"):
            raise LoadError(
                f"{checkpoint!r} cannot be read: TensorFlow interprets the '[', ']' or backslash "
                "in its path as a pattern. Rename the directory."
            ) from error
        raise kind_of_error(error)(
            f"{checkpoint!r} cannot be read as a checkpoint: {reason_of(error)}"
        ) from error
    # TensorFlow 1 names averages, and the slots of all optimizers, after their variables.
    if others := [n for n in shapes if os.path.dirname(n) in shapes and not is_slot(n)]:
        logging.info("%s: %d averages or slots are ignored: %s", checkpoint, len(others), others[0])
        shapes = {name: shape for name, shape in shapes.items() if name not in others}
    stored = {name.removeprefix(_HUB_SCOPE): name for name in shapes}
    stored |= {name: name for name in shapes if not name.startswith(_HUB_SCOPE)}
    return Weights(
        checkpoint,
        {name: shapes[there] for name, there in stored.items()},
        lambda name: reader.get_tensor(stored[name]),
    )


def slot_variables(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> dict[str, keras.Variable]:
    """Returns the moments of a built optimizer, `<variable>/adam_m` and `<variable>/adam_v`."""
    return {
        f"{name}/{slot}": moment
        for name, variable in original_names(model).items()
        if variable.trainable  # the original has no moments for other variables
        for slot, moment in optimizer.slots(variable).items()
    }


def write_checkpoint(prefix: str, variables: Mapping[str, Any], global_step: int | None) -> None:
    """Writes a name-based checkpoint atomically.

    Args:
        prefix: prefix of the new files.
        variables: values (variables, tensors or arrays) by the original's names.
        global_step: the training step, stored as int64. If `None`, no step is stored.

    Raises:
        WriteError: the files cannot be written.
    """
    values = {name: tf.convert_to_tensor(value) for name, value in variables.items()}
    if global_step is not None:
        values[GLOBAL_STEP] = tf.constant(np.int64(global_step))
    with new_checkpoint(prefix) as temporary:
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=list(values.values()),
        )


@contextmanager
def new_checkpoint(prefix: str) -> Iterator[str]:
    """Context manager for a temporary prefix whose files are renamed to `prefix` at the end."""
    with temporary_folder(prefix) as folder:
        temporary = os.path.join(folder, os.path.basename(prefix))
        yield temporary
        # Without an index, readers ignore a data file.
        finish(temporary, prefix, (DATA_SUFFIX, ".index"), overwrite=True)


def name_newest(directory: str, names: list[str]) -> None:
    """Writes the file `checkpoint`, a text protocol buffer; the last name is the newest."""
    lines = [f"model_checkpoint_path: {json.dumps(names[-1])}"]
    lines += [f"all_model_checkpoint_paths: {json.dumps(name)}" for name in names]
    write_file(os.path.join(directory, "checkpoint"), "".join(f"{line}\n" for line in lines))


def is_here(path: str) -> bool:
    """Returns whether a directory contains a checkpoint."""
    return bool(prefixes_in(path))


def read(path: str) -> StoredModel:
    """Finds a checkpoint and the files next to it; see `find_checkpoint`."""
    checkpoint = find_checkpoint(path)
    directory = os.path.dirname(checkpoint)
    config_file = os.path.join(directory, CONFIG_FILE)
    config = read_config(config_file) if tf.io.gfile.exists(config_file) else None
    return StoredModel(
        checkpoint=checkpoint,
        config=config,
        config_file=config_file if config else None,
        stored_tokenizer=StoredTokenizer(find_tokenizer_files(directory)),
        task=StoredTask.read(directory),
    )


def unsupported_weights(stored: StoredModel) -> list[str]:
    """Returns an empty list: this format supports all models."""
    return []


def write(directory: str, stored: StoredModel) -> None:
    """Writes a release directory. With optimizer slots, training can resume in it."""
    config, tokenizer = stored.required_config, stored.tokenizer
    config = config.replace(extra={**config.extra, LOWER_CASE_KEY: stored.do_lower_case})
    ModelDirectory(directory, config, tokenizer).write()
    path = os.path.join(directory, SENTENCEPIECE_LIST_FILE)
    if isinstance(tokenizer, SentencePieceTokenizer) and not tf.io.gfile.exists(path):
        # The original's exporter needs the list of pieces, which other formats omit.
        write_file(path, piece_list(tokenizer.model_proto))
    name = BEST
    if any(map(is_slot, stored.weights)):
        name = f"{CHECKPOINT}-{stored.global_step}"
        name_newest(directory, [name])
    write_checkpoint(os.path.join(directory, name), stored.weights, stored.global_step)
    if stored.task is not None:
        stored.task.write(directory)
