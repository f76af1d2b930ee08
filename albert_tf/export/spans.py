"""A model that finds answers as a SavedModel that needs nothing but TensorFlow to run."""

from __future__ import annotations

import os

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
from albert_tf.prediction.squad_answers import OUTPUTS
from albert_tf.span_models import AlbertForSpanBeams, AlbertForSpans

# Where the original puts it: a file of another format finds room beside it.
FOLDER = "saved_model"
# What the original calls the logits, which are no log-probabilities.
_ORIGINAL_OUTPUTS = {"start_logits": "start_log_prob", "end_logits": "end_log_prob"}


def export_spans(model: AlbertForSpans | AlbertForSpanBeams, export_dir: str) -> str:
    """Writes a SavedModel into a new subfolder of `export_dir`/saved_model, complete or not at all.

    It computes in float32 without dropout, whatever the precision of `model`, and holds the
    weights alone. Its signatures take `input_ids`, `input_mask` (1 = real token, 0 = padding) and
    `segment_ids` (1 = the context and the [SEP] after it), int32 [B, S] each, B being the number
    of sequences and S any length up to the model's `max_position_embeddings`.

    * `tokens` of SQuAD 1.1 gives `start_logits` and `end_logits`, float32 [B, S]. Nothing is
      masked: what may be an answer is for the caller to tell. `serving_default` gives the same
      under the names it has in the original, `start_log_prob` and `end_log_prob`.
    * `tokens` and `serving_default` of SQuAD 2.0 give what `SpanBeamHead.call` finds: the K best
      starts, `start_top_log_probs` float32 and `start_top_index` int32 [B, K]; the M best ends of
      each, `end_top_log_probs` and `end_top_index` [B, K * M], those of start i from i * M on;
      and `cls_logits` float32 [B], above 0 where an answer is unlikely. Where less than K or M
      positions can be chosen, log-probabilities of about -1e30 mark what is none.

    Args:
        model: is left as it is.
        export_dir: created if need be; the subfolder is named after the time, in seconds.

    Returns:
        Path of the subfolder.

    Raises:
        ValueError: nothing can be written there.

    Source: run_squad_v1.py of the original release, main.
    Differs: the original takes one sequence of one length, and does not export SQuAD 2.0.
    """
    copy = float32_copy(model)
    has_beams = isinstance(model, AlbertForSpanBeams)
    names = OUTPUTS[2 if has_beams else 1]

    def outputs(inputs: dict[str, tf.Tensor]) -> Outputs:
        values = copy(inputs, training=False)
        return {name: values[name] for name in names}

    def named_as_original(inputs: dict[str, tf.Tensor]) -> Outputs:
        return {_ORIGINAL_OUTPUTS[name]: values for name, values in outputs(inputs).items()}

    signatures = {
        DEFAULT_SIGNATURE: tokens_function(outputs if has_beams else named_as_original),
        TOKENS_SIGNATURE: tokens_function(outputs),
    }
    path = write_saved_model(copy, signatures, os.path.join(export_dir, FOLDER))
    logging.info("Exported the model to %s", path)
    return path
