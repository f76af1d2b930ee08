"""SavedModels of classifiers that take token ids or texts."""

import math
import re
from functools import partial
from typing import Any

import tensorflow as tf

from albert_tf.checkpoints.signatures import DEFAULT_SIGNATURE, TOKENS_SIGNATURE
from albert_tf.checkpoints.stored_task import LABELS_FILE
from albert_tf.data.sequences import check_room
from albert_tf.labels import LABEL_SEPARATOR, Labels
from albert_tf.modeling.heads import class_outputs
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.serving.saved_model import (
    INPUTS,
    Outputs,
    check_labels,
    cut_pairs,
    float32_copy,
    joined,
    labels_json,
    tokens_function,
    write_saved_model,
    write_text_model,
)
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.tokenization.base import Tokenizer

_ONE_TEXT, _TWO_TEXTS = ("texts",), ("texts_a", "texts_b")  # inputs


def export_classifier(
    model: AlbertForClassification,
    labels: Labels,
    export_dir: str,
    max_seq_length: int,
    threshold: float | None = None,
) -> str:
    """Writes a SavedModel for token ids to a new subdirectory of `export_dir`.

    The model computes in float32. The signature `serving_default` takes `input`, string [B]:
    serialized `tf.train.Example`s with `input_ids`, `input_mask` and `segment_ids`, int64
    [max_seq_length] each. The signature `tokens` takes these inputs as int32 [B, S]. Both return:

    * `probabilities`, float32 [B, K]; for regression the number, float32 [B, 1].
    * `predictions`, int32 [B], the most probable class; for multi-label models int32 [B, K], 1 for
      predicted labels; for regression the number, float32 [B].
    * `threshold`, a float32 scalar, unless `threshold` is `None` or NaN.
    * `predicted_labels`, string [B], only in `tokens` of classifiers. Labels of multi-label models
      are separated by "|".

    Returns:
        Path of the subdirectory, which is named after the time in seconds.

    Raises:
        ValueError: the labels do not match the model, `max_seq_length` exceeds its positions, or
            the directory cannot be written.

    Source: run_classifier.py of the original release, _serving_input_receiver_fn.
    Differs: the original cannot export a regression, and has no `tokens`.
    """
    check_labels(model, labels)
    model.config.check_sequence_length(max_seq_length)
    copy = float32_copy(model)
    outputs = partial(_outputs, copy, labels, threshold)

    def from_examples(serialized: tf.Tensor) -> Outputs:
        row = tf.io.FixedLenFeature([max_seq_length], tf.int64)
        features = tf.io.parse_example(serialized, dict.fromkeys(INPUTS, row))
        return outputs({name: tf.cast(ids, tf.int32) for name, ids in features.items()})

    spec = [tf.TensorSpec([None], tf.string, "input")]
    signatures = {
        DEFAULT_SIGNATURE: tf.function(from_examples, spec, autograph=False),
        TOKENS_SIGNATURE: tokens_function(lambda inputs: _with_names(outputs(inputs), labels)),
    }
    return write_saved_model(copy, signatures, export_dir, {LABELS_FILE: labels_json(labels)})


def _outputs(
    model: AlbertForClassification, labels: Labels, threshold: float | None, inputs: Outputs
) -> Outputs:
    logits = model(inputs, training=False)["logits"]
    outputs = class_outputs(logits, labels.threshold if labels.multi_label else None)
    if threshold is not None and not math.isnan(threshold):
        outputs["threshold"] = tf.constant(threshold, tf.float32)
    return outputs


def _with_names(outputs: Outputs, labels: Labels) -> Outputs:
    """Adds `predicted_labels` to the outputs of a classifier."""
    if labels.is_regression:
        return outputs
    names, predicted = tf.constant(labels.names), outputs["predictions"]
    if labels.multi_label:
        parts = tf.where(tf.cast(predicted, tf.bool), names + LABEL_SEPARATOR, "")
        last_separator = re.escape(LABEL_SEPARATOR) + "$"  # names contain no separator
        found = tf.strings.regex_replace(tf.strings.reduce_join(parts, axis=1), last_separator, "")
    else:
        found = tf.gather(names, predicted)
    return {**outputs, "predicted_labels": found}


def export_text_classifier(
    model: AlbertForClassification,
    labels: Labels,
    tokenizer: Tokenizer,
    export_dir: str,
    max_seq_length: int,
    is_pair: bool,
    threshold: float | None = None,
) -> str:
    """Writes a SavedModel for texts to a new subdirectory of `export_dir`/text.

    The model needs the operations of TensorFlow Text. The signature `serving_default` takes
    `texts`, UTF-8 string [B], or `texts_a` and `texts_b` for pairs. It returns the outputs of the
    signature `tokens` of `export_classifier`, but `threshold` is float32 [B].

    Raises:
        ValueError: the labels or `max_seq_length` do not match the model, or the directory cannot
            be written.
    """
    check_labels(model, labels)
    check_room(is_pair, max_seq_length)
    model.config.check_sequence_length(max_seq_length)
    copy = float32_copy(model)
    graph_tokenizer = GraphTokenizer(tokenizer)

    def classify(texts: Outputs) -> Outputs:
        inputs = text_inputs(graph_tokenizer, texts, max_seq_length)
        outputs = _with_names(_outputs(copy, labels, threshold, inputs), labels)
        if "threshold" in outputs:
            # Servers that split batches need one value per example.
            count = tf.shape(outputs["predictions"])[:1]
            outputs["threshold"] = tf.fill(count, outputs["threshold"])
        return outputs

    ranks = dict.fromkeys(_TWO_TEXTS if is_pair else _ONE_TEXT, 1)
    files = {LABELS_FILE: labels_json(labels)}
    return write_text_model(copy, graph_tokenizer, classify, ranks, export_dir, files)


def text_inputs(tokenizer: Any, texts: Outputs, max_seq_length: int) -> Outputs:
    """Returns the padded token ids of `texts`, or of `texts_a` and `texts_b`, string [B]."""
    names = _ONE_TEXT if "texts" in texts else _TWO_TEXTS
    first, *others = (tokenizer.tokenize(texts[name]) for name in names)
    first, second = cut_pairs(first, others[0] if others else first[:, :0], max_seq_length)
    return joined(first, second, tokenizer).padded()
