"""SavedModels that answer questions, which take token ids or texts and need only TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.checkpoints.tf2_hub.writing import DEFAULT_SIGNATURE, TOKENS_SIGNATURE
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.serving.saved_model import (
    Outputs,
    float32_copy,
    tokens_function,
    write_saved_model,
    write_text_model,
)
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.squad.answers import OUTPUTS, AnswerSettings, check_sizes
from albert_tf.squad.features import check_lengths
from albert_tf.squad.graph_windows import (
    Contexts,
    Spans,
    SpanWindows,
    best_answers,
    found_beams,
    logit_beams,
    possible_spans,
    span_windows,
)
from albert_tf.tokenization.base import Tokenizer

# As in the original, which writes other formats next to it.
FOLDER = "saved_model"

# The original's names of the logits, although they are not log probabilities.
_ORIGINAL_OUTPUTS = {"start_logits": "start_log_prob", "end_logits": "end_log_prob"}
_TOKENS_AT_ONCE = 8192  # a long context has more windows than the memory for one batch


def export_spans(
    model: AlbertForQuestionAnswering | AlbertForQuestionAnsweringWithBeamSearch, export_dir: str
) -> str:
    """Writes a SavedModel atomically into a new subdirectory of `export_dir`/saved_model.

    It computes in float32 without dropout, whatever the precision of `model`, and contains only the
    weights. Its signatures take `input_ids`, `input_mask` (1 = real token, 0 = padding) and
    `segment_ids` (1 = the context and the [SEP] after it), int32 [B, S] each: B sequences, S any
    length up to `max_position_embeddings`.

    * SQuAD 1.1: `tokens` returns `start_logits` and `end_logits`, float32 [B, S], without any mask.
      `serving_default` returns the same by the names of the original, `start_log_prob` and
      `end_log_prob`.
    * SQuAD 2.0: `tokens` and `serving_default` return the outputs of `SpanBeamHead.call`: the K
      best starts, `start_top_log_probs` float32 and `start_top_index` int32 [B, K]; the M best ends
      of each, `end_top_log_probs` and `end_top_index` [B, K * M], those of start i from i * M; and
      `cls_logits` float32 [B], above 0 if an answer is unlikely. Missing starts and ends have log
      probabilities of about -1e30.

    Returns:
        Path of the subdirectory, which is named after the time in seconds.

    Raises:
        ValueError: the directory cannot be written.

    Source: run_squad_v1.py of the original release, main.
    Differs: the original takes one sequence of one length, and does not export SQuAD 2.0.
    """
    copy = float32_copy(model)
    has_beams = isinstance(model, AlbertForQuestionAnsweringWithBeamSearch)
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
    return write_saved_model(copy, signatures, os.path.join(export_dir, FOLDER))


def export_text_spans(
    model: AlbertForQuestionAnswering | AlbertForQuestionAnsweringWithBeamSearch,
    tokenizer: Tokenizer,
    settings: AnswerSettings,
    export_dir: str,
) -> str:
    """Writes a SavedModel that takes texts into a new subdirectory of `export_dir`/text.

    It needs TensorFlow and the operations of TensorFlow Text, and answers like
    `squad.ask.QuestionAnswerer`. Its signature `serving_default` takes `questions` and `contexts`,
    string [B] each, UTF-8. Outputs, N being `n_best_size`:

    * `answers` string [B], "" if unanswered; `probabilities` float32 [B], among the candidates of
      the question; `start` and `end` int32 [B], so that context[start:end] is the answer in
      characters (Unicode code points); `start_byte` and `end_byte`, in bytes. 0 and -1 if
      unanswered.
    * for SQuAD 2.0, `is_answered` bool [B], and `null_odds` float32 [B], higher if an answer is
      less likely.
    * all candidates, best first, [B, N]: `n_best_answers`, `n_best_probabilities`, `n_best_start`,
      `n_best_end`, `n_best_start_byte`, `n_best_end_byte`; filled with "", 0 and -1.

    Returns:
        Path of the subdirectory.

    Raises:
        ValueError: a setting is out of range, the tokenizer is not supported in a graph, or the
            directory cannot be written.

    Differs: the original cannot export it.
    """
    check_lengths(settings.max_seq_length, settings.doc_stride, settings.max_query_length)
    check_sizes(settings.n_best_size, settings.max_answer_length)
    copy = float32_copy(model)
    graph_tokenizer = GraphTokenizer(tokenizer)
    answers = GraphAnswerer(graph_tokenizer, lambda inputs: copy(inputs, training=False), settings)
    ranks = {"questions": 1, "contexts": 1}
    return write_text_model(copy, graph_tokenizer, answers, ranks, export_dir)


class GraphAnswerer:
    """Answers questions in a graph; see `export_text_spans`.

    `tokenizer` has the methods and ids of `GraphTokenizer`; `model` maps a batch of token ids to
    the outputs `squad.answers.OUTPUTS`.
    """

    def __init__(
        self, tokenizer: Any, model: Callable[[Outputs], Outputs], settings: AnswerSettings
    ) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._settings = settings

    def __call__(self, texts: Outputs) -> Outputs:
        """Answers `questions` about `contexts`; see `export_text_spans`."""
        settings, tokenizer = self._settings, self._tokenizer
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts["contexts"])
        contexts = Contexts(texts["contexts"], tf.cast(starts, tf.int32), tf.cast(ends, tf.int32))
        windows = span_windows(
            tokenizer.tokenize(texts["questions"]),
            ids,
            tokenizer,
            max_seq_length=settings.max_seq_length,
            doc_stride=settings.doc_stride,
            max_query_length=settings.max_query_length,
        )
        spans, odds = self._portion_by_portion(windows, contexts)
        found = best_answers(spans, contexts, settings.n_best_size)
        best = {name.removeprefix("n_best_"): values[:, 0] for name, values in found.items()}
        is_answered = best["start"] >= 0
        if settings.version == 2:
            # Every question has a window.
            count = tf.shape(contexts.texts)[0]
            odds = tf.math.unsorted_segment_min(odds, windows.questions, count)
            if settings.threshold is not None:
                is_answered &= odds < settings.threshold
            found |= {"null_odds": odds, "is_answered": is_answered}
        return found | _only(best, is_answered)

    def _portion_by_portion(
        self, windows: SpanWindows, contexts: Contexts
    ) -> tuple[Spans, tf.Tensor]:
        """Returns the spans of all windows, and null odds, float32 [N], 0 for SQuAD 1.1."""
        # Windows of similar lengths share a batch, which reduces padding.
        rows = tf.argsort(windows.sequences.ids.row_lengths(), direction="DESCENDING")
        size = max(1, _TOKENS_AT_ONCE // self._settings.max_seq_length)
        dtypes = [tf.int32, tf.int32, tf.float64, tf.int32, tf.string, tf.float32]
        columns = tf.map_fn(
            lambda begin: self._spans(windows, rows[begin : begin + size], contexts),
            tf.range(0, tf.shape(rows)[0], size),
            fn_output_signature=tuple(tf.RaggedTensorSpec([None], dtype) for dtype in dtypes),
            parallel_iterations=1,
        )
        *spans, odds = (column.values for column in columns)
        return Spans(*spans), tf.gather(odds, tf.argsort(rows))

    def _spans(
        self, windows: SpanWindows, rows: tf.Tensor, contexts: Contexts
    ) -> tuple[tf.Tensor, ...]:
        """Returns the columns of the spans of windows, and the null odds of the windows."""
        inputs = windows.sequences.rows(rows).padded()
        outputs = self._model(inputs)
        if self._settings.version == 1:
            beams = logit_beams(outputs, inputs["input_mask"], self._settings.n_best_size)
            odds = tf.zeros_like(rows, tf.float32)
        else:
            beams, odds = found_beams(outputs), outputs["cls_logits"]
        length = self._settings.max_answer_length
        return (*possible_spans(beams, windows, rows, contexts, length), odds)


def _only(best: Outputs, is_answered: tf.Tensor) -> Outputs:
    """Returns the best answers, and the values of missing ones."""
    missing = {tf.string: "", tf.float32: 0.0, tf.int32: -1}
    return {
        name: tf.where(is_answered, values, tf.constant(missing[values.dtype], values.dtype))
        for name, values in best.items()
    }
