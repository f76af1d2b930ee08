"""A model of multiple choice as a SavedModel that takes texts."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.choice_features import check_lengths
from albert_tf.data.choices import BLANK
from albert_tf.export.choice import choice_outputs
from albert_tf.export.graph_tokenizer import GraphTokenizer
from albert_tf.export.saved_model import (
    DEFAULT_SIGNATURE,
    TEXT_FOLDER,
    Outputs,
    float32_copy,
    texts_function,
    write_saved_model,
)
from albert_tf.export.text_packing import SpecialIds, first_tokens, joined, last_tokens
from albert_tf.models import AlbertForMultipleChoice
from albert_tf.tokenization import Tokenizer

_SPECIAL_TOKENS = 3  # [CLS] context [SEP] ending [SEP]


def export_text_choice(
    model: AlbertForMultipleChoice,
    tokenizer: Tokenizer,
    export_dir: str,
    max_seq_length: int,
    max_qa_length: int,
) -> str:
    """Writes a SavedModel into a new subfolder of `export_dir`/text, complete or not at all.

    It needs TensorFlow and the operations of TensorFlow Text, computes in float32 without dropout,
    and tokenizes and cuts texts as `data.choice_features.choice_features` does. Its signature
    `serving_default` takes `contexts` and `questions`, string [B], and `options`, string [B, C],
    all UTF-8. Where a question has fewer than C options, the missing ones are "" (an option that
    is there and has no text is " ").

    It gives `probabilities`, float32 [B, C], 0 for missing options; `predictions`, int32 [B], the
    likeliest option, counted from 0; `predicted_options`, string [B], its text.

    Args:
        model: is left as it is.
        tokenizer: the one it was trained with.
        export_dir: created if need be; the subfolder is named after the time, in seconds.
        max_seq_length: tokens of a sequence at most.
        max_qa_length: tokens of question and option at most.

    Returns:
        Path of the subfolder.

    Raises:
        ValueError: a length is too small, or exceeds the model's positions, the tokenizer has no
            counterpart in a graph, or nothing can be written there.

    Differs: the original does not export models of multiple choice.
    """
    check_lengths(max_seq_length, max_qa_length)
    model.config.check_sequence_length(max_seq_length, "--max_seq_length")
    copy = float32_copy(model)
    graph_tokenizer = GraphTokenizer(tokenizer)

    def choose(texts: Outputs) -> Outputs:
        inputs = choice_inputs(
            graph_tokenizer,
            texts,
            max_seq_length=max_seq_length,
            max_qa_length=max_qa_length,
        )
        outputs = choice_outputs(copy, inputs)
        chosen = tf.gather(texts["options"], outputs["predictions"], batch_dims=1)
        return {**outputs, "predicted_options": chosen}

    path = write_saved_model(
        copy,
        {DEFAULT_SIGNATURE: texts_function(choose, {"contexts": 1, "questions": 1, "options": 2})},
        os.path.join(export_dir, TEXT_FOLDER),
        tokenizer=graph_tokenizer,
    )
    logging.info("Exported the model for texts to %s", path)
    return path


def choice_inputs(
    tokenizer: Any, texts: Outputs, *, max_seq_length: int, max_qa_length: int
) -> Outputs:
    """Makes a batch of token ids, int32 [B, C, S]; the mask of a missing option is all zeros.

    Args:
        tokenizer: a `GraphTokenizer`, or what has its methods and ids.
        texts: `contexts` and `questions`, string [B]; `options`, string [B, C].
        max_seq_length: tokens of a sequence at most.
        max_qa_length: tokens of question and option at most.
    """
    shape = tf.shape(texts["options"])
    owners = tf.repeat(tf.range(shape[0]), shape[1])
    room = max_seq_length - _SPECIAL_TOKENS
    flat = tf.reshape(texts["options"], [-1])
    is_there = tf.strings.length(flat) > 0
    endings = tokenizer.tokenize(_endings(tokenizer, texts["questions"], flat, owners))
    endings = last_tokens(endings, min(max_qa_length, room))
    contexts = tf.gather(first_tokens(tokenizer.tokenize(texts["contexts"]), room), owners)
    contexts = first_tokens(contexts, room - endings.row_lengths())
    special = SpecialIds(tokenizer.cls_id, tokenizer.sep_id)
    inputs = joined(contexts, endings, special, ends_empty=True).padded()
    return {
        name: tf.reshape(
            values * tf.cast(is_there, tf.int32)[:, None],
            tf.concat([shape, tf.shape(values)[1:]], axis=0),
        )
        for name, values in inputs.items()
    }


def _endings(
    tokenizer: Any, questions: tf.Tensor, options: tf.Tensor, owners: tf.Tensor
) -> tf.Tensor:
    """Puts every option into its question; see `ChoiceExample.endings`."""
    questions, options = tokenizer.clean(questions), tokenizer.clean(options)
    parts = tf.gather(tf.strings.split(questions, BLANK), owners)
    # In the place of each mark, before every part but the first, stands the option.
    is_first = tf.equal(tf.ragged.range(parts.row_lengths()).flat_values, 0)
    between = tf.where(is_first, "", tf.gather(options, parts.value_rowids()))
    joined_parts = tf.strings.join([between, parts.flat_values])
    filled = tf.strings.reduce_join(parts.with_flat_values(joined_parts), axis=1)
    appended = tf.strings.join([tf.gather(questions, owners), options], separator=" ")
    return tf.where(parts.row_lengths() > 1, filled, appended)
