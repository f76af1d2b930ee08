"""Small models on disk with a tokenizer, and checks of rejected calls."""

import os

import pytest

from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.modeling.original_names import original_names
from tests.small_model import ONE_BLOCK, small_config

CONFIG = small_config(vocab_size=1000, max_position_embeddings=24, **ONE_BLOCK)


def write_model(path, model, tokenizer, task=None, checkpoint="model.ckpt-best") -> str:
    """Writes a model in the form of a training directory."""
    ModelDirectory(str(path), model.config, tokenizer).write()
    write_checkpoint(os.path.join(path, checkpoint), original_names(model), global_step=1)
    if task is not None:
        task.write(str(path))
    return str(path)


def assert_rejected(cases) -> None:
    """Checks that each call raises an error of a type with a matching message."""
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
