"""SavedModels of multiple-choice models, which take token ids or texts."""

from typing import Any

import tensorflow as tf

from albert_tf.checkpoints.signatures import DEFAULT_SIGNATURE, TOKENS_SIGNATURE
from albert_tf.modeling.heads import class_outputs
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import BLANK, BLANKS_OF_RE2
from albert_tf.multiple_choice.task import SPECIAL_TOKENS, check_lengths
from albert_tf.serving.saved_model import (
    Outputs,
    first_tokens,
    float32_copy,
    joined,
    tokens_function,
    write_saved_model,
    write_text_model,
)
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.tokenization.base import Tokenizer


def export_choice(model: AlbertForMultipleChoice, export_dir: str) -> str:
    """Writes a SavedModel in float32 into a new subdirectory of `export_dir`.

    Its signature, called `tokens` and `serving_default`, takes `input_ids`, `input_mask` (1 = real
    token, 0 = padding) and `segment_ids`, int32 [B, C, S] each, for B questions with C options.
    Missing options must be last; their masks are all zeros. Outputs: `probabilities`, float32
    [B, C], 0 for missing options, and `predictions`, int32 [B], the index of the most probable
    option.

    Returns:
        Path of the subdirectory, which is named after the time in seconds.
    """
    copy = float32_copy(model)
    function = tokens_function(
        lambda inputs: class_outputs(copy(inputs, training=False)["logits"]), rank=3
    )
    signatures = {DEFAULT_SIGNATURE: function, TOKENS_SIGNATURE: function}
    return write_saved_model(copy, signatures, export_dir)


def export_text_choice(
    model: AlbertForMultipleChoice,
    tokenizer: Tokenizer,
    export_dir: str,
    max_seq_length: int,
    max_qa_length: int,
) -> str:
    """Writes a SavedModel for texts to a new subdirectory of `export_dir`/text.

    It needs the operations of TensorFlow Text. Its signature `serving_default` takes `contexts` and
    `questions`, string [B], and `options`, string [B, C], UTF-8. Missing options are "" (an
    existing option without text is " "). In addition to the outputs of `export_choice`, it returns
    `predicted_options`, string [B], the most probable options. Returns the path of the
    subdirectory. Raises ValueError if a length is too small.
    """
    check_lengths(max_seq_length, max_qa_length)
    copy = float32_copy(model)
    graph_tokenizer = GraphTokenizer(tokenizer)

    def choose(texts: Outputs) -> Outputs:
        inputs = choice_inputs(
            graph_tokenizer, texts, max_seq_length=max_seq_length, max_qa_length=max_qa_length
        )
        outputs = class_outputs(copy(inputs, training=False)["logits"])
        chosen = tf.gather(texts["options"], outputs["predictions"], batch_dims=1)
        return {**outputs, "predicted_options": chosen}

    ranks = {"contexts": 1, "questions": 1, "options": 2}
    return write_text_model(copy, graph_tokenizer, choose, ranks, export_dir)


def choice_inputs(
    tokenizer: Any, texts: Outputs, *, max_seq_length: int, max_qa_length: int
) -> Outputs:
    """Converts the inputs of `export_text_choice` to token ids, int32 [B, C, S]."""
    shape = tf.shape(texts["options"])
    owners = tf.repeat(tf.range(shape[0]), shape[1])
    room = max_seq_length - SPECIAL_TOKENS
    flat = tf.reshape(texts["options"], [-1])
    is_there = tf.strings.length(flat) > 0
    endings = tokenizer.tokenize(_endings(tokenizer, texts["questions"], flat, owners))
    endings = endings[:, -min(max_qa_length, room) :]
    contexts = tf.gather(tokenizer.tokenize(texts["contexts"])[:, :room], owners)
    contexts = first_tokens(contexts, room - endings.row_lengths())
    inputs = joined(contexts, endings, tokenizer, ends_empty=True).padded()
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
    """See `ChoiceExample.endings`."""
    questions, options = tokenizer.clean(questions), tokenizer.clean(options)
    blanked = questions
    for pattern, replacement in BLANKS_OF_RE2.items():
        blanked = tf.strings.regex_replace(blanked, pattern, replacement)
    parts = tf.gather(tf.strings.split(blanked, BLANK), owners)
    # The option precedes every part except the first.
    is_first = tf.equal(tf.ragged.range(parts.row_lengths()).flat_values, 0)
    between = tf.where(is_first, "", tf.gather(options, parts.value_rowids()))
    joined_parts = tf.strings.join([between, parts.flat_values])
    filled = tf.strings.reduce_join(parts.with_flat_values(joined_parts), axis=1)
    appended = tf.strings.join([tf.gather(questions, owners), options], separator=" ")
    return tf.where(parts.row_lengths() > 1, filled, appended)
