"""A fine-tuned classifier as a SavedModel that takes texts."""

from __future__ import annotations

import json
import os
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.text_examples import Labels
from albert_tf.data.text_features import check_room
from albert_tf.export.classification import (
    LABELS_FILE,
    check_labels,
    class_outputs,
    with_names,
)
from albert_tf.export.graph_tokenizer import GraphTokenizer
from albert_tf.export.saved_model import (
    DEFAULT_SIGNATURE,
    TEXT_FOLDER,
    Outputs,
    float32_copy,
    texts_function,
    write_saved_model,
)
from albert_tf.export.text_packing import SpecialIds, cut_pairs, empty_rows, joined
from albert_tf.models import AlbertForClassification
from albert_tf.tokenization import Tokenizer

ONE_TEXT = ("texts",)
TWO_TEXTS = ("texts_a", "texts_b")


def export_text_classifier(
    model: AlbertForClassification,
    labels: Labels,
    tokenizer: Tokenizer,
    export_dir: str,
    max_seq_length: int,
    is_pair: bool,
    threshold: float | None = None,
) -> str:
    """Writes a SavedModel into a new subfolder of `export_dir`/text, complete or not at all.

    It needs TensorFlow and the operations of TensorFlow Text, computes in float32 without dropout,
    and tokenizes and cuts texts as `data.text_features.text_sequences` does. Its signature
    `serving_default` takes `texts`, string [B], UTF-8, or of a classifier of pairs `texts_a` and
    `texts_b`, and gives `probabilities`, float32 [B, K], `predictions`, int32 [B], the likeliest
    class, and `predicted_labels`, string [B]; of a regression the number alone, as
    `probabilities`, float32 [B, 1], and `predictions`, float32 [B]. With a threshold there is
    `threshold`, float32 [B]. The names of all classes stand in `assets.extra/labels.json`.

    Args:
        model: the classifier; is left as it is.
        labels: what its outputs mean.
        tokenizer: the one it was trained with.
        export_dir: created if need be; the subfolder is named after the time, in seconds.
        max_seq_length: longer texts are cut, as in training.
        is_pair: whether two texts belong together.
        threshold: a number for the program that serves the model; None or NaN leaves it out.

    Returns:
        Path of the subfolder.

    Raises:
        ValueError: the labels are not the model's, `max_seq_length` leaves no room or exceeds its
            positions, the tokenizer has no counterpart in a graph, or nothing can be written there.

    Differs: the original cannot export it.
    """
    check_labels(model, labels)
    check_room(is_pair, max_seq_length)
    model.config.check_sequence_length(max_seq_length, "--max_seq_length")
    copy = float32_copy(model)
    graph_tokenizer = GraphTokenizer(tokenizer)

    def classify(texts: Outputs) -> Outputs:
        inputs = text_inputs(graph_tokenizer, texts, max_seq_length)
        outputs = with_names(class_outputs(copy, labels, threshold, inputs), labels)
        if "threshold" in outputs:
            # Servers that answer example by example need one for each.
            count = tf.shape(outputs["predictions"])
            outputs["threshold"] = tf.fill(count, outputs["threshold"])
        return outputs

    names = TWO_TEXTS if is_pair else ONE_TEXT
    path = write_saved_model(
        copy,
        {DEFAULT_SIGNATURE: texts_function(classify, dict.fromkeys(names, 1))},
        os.path.join(export_dir, TEXT_FOLDER),
        {LABELS_FILE: json.dumps(labels.names, ensure_ascii=False, indent=1)},
        tokenizer=graph_tokenizer,
    )
    logging.info("Exported the classifier of texts to %s", path)
    return path


def text_inputs(tokenizer: Any, texts: Outputs, max_seq_length: int) -> Outputs:
    """Makes a batch of token ids, as long as its longest sequence.

    Args:
        tokenizer: a `GraphTokenizer`, or what has its methods and ids.
        texts: string [B], one or two of them, by the names of `ONE_TEXT` or `TWO_TEXTS`.
        max_seq_length: tokens of a sequence at most.
    """
    ids = [tokenizer.tokenize(texts[name]) for name in (*ONE_TEXT, *TWO_TEXTS) if name in texts]
    first, second = ids if len(ids) == len(TWO_TEXTS) else (ids[0], empty_rows(ids[0]))
    first, second = cut_pairs(first, second, max_seq_length)
    return joined(first, second, SpecialIds(tokenizer.cls_id, tokenizer.sep_id)).padded()
