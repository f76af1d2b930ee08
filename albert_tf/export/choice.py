"""A model of multiple choice as a SavedModel that needs nothing but TensorFlow to run."""

from __future__ import annotations

from functools import partial

import tensorflow as tf
from absl import logging

from albert_tf.export.saved_model import (
    DEFAULT_SIGNATURE,
    TOKENS_SIGNATURE,
    Outputs,
    float32_copy,
    tokens_function,
    write_saved_model,
)
from albert_tf.models import AlbertForMultipleChoice


def export_choice(model: AlbertForMultipleChoice, export_dir: str) -> str:
    """Writes a SavedModel into a new subfolder of `export_dir`, complete or not at all.

    It computes in float32 without dropout, whatever the precision of `model`, and holds the
    weights alone. Its signature, called `tokens` and `serving_default`, takes `input_ids`,
    `input_mask` (1 = real token, 0 = padding) and `segment_ids`, int32 [B, C, S] each: B questions,
    C options of each, S any length up to the model's `max_position_embeddings`. Where a question
    has fewer options, the masks of the missing ones, which come last, are all zeros.

    It gives `probabilities`, float32 [B, C], 0 for missing options, and `predictions`, int32 [B],
    the likeliest option, counted from 0.

    Args:
        model: is left as it is.
        export_dir: created if need be; the subfolder is named after the time, in seconds.

    Returns:
        Path of the subfolder.

    Raises:
        ValueError: nothing can be written there.

    Differs: the original does not export models of multiple choice.
    """
    copy = float32_copy(model)
    function = tokens_function(partial(choice_outputs, copy), rank=3)
    signatures = {DEFAULT_SIGNATURE: function, TOKENS_SIGNATURE: function}
    path = write_saved_model(copy, signatures, export_dir)
    logging.info("Exported the model to %s", path)
    return path


def choice_outputs(model: AlbertForMultipleChoice, inputs: Outputs) -> Outputs:
    """Returns `probabilities` and `predictions` of options, see `export_choice`."""
    logits = model(inputs, training=False)["logits"]
    return {
        "probabilities": tf.nn.softmax(logits),
        "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),
    }
