"""SavedModels of question-answering models, which take token ids or texts.

`GraphAnswerer` implements `squad.features` and `squad.answers` in a graph. In shapes, Q is the
number of questions, N the number of windows and T the number of possible spans.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.checkpoints.signatures import DEFAULT_SIGNATURE, TOKENS_SIGNATURE
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.serving.saved_model import (
    Outputs,
    Sequences,
    float32_copy,
    joined,
    row_parts,
    tokens_function,
    write_saved_model,
    write_text_model,
)
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.serving.tokenizer_graph.characters import CodeMap, code_table
from albert_tf.squad.answers import OUTPUTS, AnswerSettings
from albert_tf.squad.words import character_bits, word_limits
from albert_tf.tokenization.base import Tokenizer

FOLDER = "saved_model"  # as in the original

# The original calls the logits log probabilities.
_ORIGINAL_OUTPUTS = {"start_logits": "start_log_prob", "end_logits": "end_log_prob"}
_TOKENS_AT_ONCE = 8192  # limits memory: a long context has many windows
_SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]

# Characters that Python's `str.strip` removes.
_BLANKS = (
    r"[\x{9}-\x{D}\x{1C}-\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}]+"
)


def export_spans(
    model: AlbertForQuestionAnswering | AlbertForQuestionAnsweringWithBeamSearch, export_dir: str
) -> str:
    """Writes a SavedModel for token ids to a new subdirectory of `export_dir`/saved_model.

    It computes in float32 without dropout. Its signatures take `input_ids`, `input_mask` (1 = real
    token, 0 = padding) and `segment_ids` (1 = the context and the [SEP] after it), int32 [B, S]
    each. `tokens` returns `OUTPUTS`. For SQuAD 1.1 these are unmasked logits. For SQuAD 2.0 these
    are the beams of `SpanBeamHead.call`, and `cls_logits`, above 0 if an answer is unlikely.
    Missing starts and ends have log probabilities of about -1e30. `serving_default` returns the
    same values, with the original's names of the logits, `start_log_prob` and `end_log_prob`.

    Returns:
        Path of the subdirectory, which is named after the time in seconds.

    Source: run_squad_v1.py of the original release, main.
    Differs: the original accepts one sequence of a fixed length, and does not export SQuAD 2.0.
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
    """Writes a SavedModel for texts to a new subdirectory of `export_dir`/text.

    The SavedModel answers like `QuestionAnswerer`, and needs the operations of TensorFlow Text. Its
    signature `serving_default` takes `questions` and `contexts`, UTF-8 string [B] each;
    docs/exporting.md lists the outputs. Returns the path of the subdirectory.
    """
    copy = float32_copy(model)
    graph = GraphTokenizer(tokenizer)
    answers = GraphAnswerer(graph, lambda inputs: copy(inputs, training=False), settings)
    return write_text_model(copy, answers, answers, {"questions": 1, "contexts": 1}, export_dir)


class GraphAnswerer(tf.Module):
    """Answers questions in a graph. `model` returns the outputs `squad.answers.OUTPUTS`."""

    def __init__(
        self, tokenizer: Any, model: Callable[[Outputs], Outputs], settings: AnswerSettings
    ) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._model = model
        self._settings = settings
        self._bits = CodeMap(code_table(character_bits, missing=1))

    def __call__(self, texts: Outputs) -> Outputs:
        """Answers `questions` about `contexts`; docs/exporting.md lists the outputs."""
        settings, tokenizer = self._settings, self._tokenizer
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts["contexts"])
        contexts = _contexts(texts["contexts"], starts, ends, self._bits)
        questions = tokenizer.tokenize(texts["questions"])
        windows = _windows(questions, ids, tokenizer, **settings.lengths)
        spans, odds = self._all_spans(windows, contexts)
        found = _best_answers(spans, contexts, settings.n_best_size)
        best = {name.removeprefix("n_best_"): values[:, 0] for name, values in found.items()}
        is_answered = best["start"] >= 0
        if settings.version == 2:
            count = tf.shape(contexts.texts)[0]
            odds = tf.math.unsorted_segment_min(odds, windows.questions, count)
            if settings.threshold is not None:
                is_answered &= odds < settings.threshold
            found |= {"null_odds": odds, "is_answered": is_answered}
        missing = {tf.string: "", tf.float32: 0.0, tf.int32: -1}
        return found | {
            name: tf.where(is_answered, values, tf.constant(missing[values.dtype], values.dtype))
            for name, values in best.items()
        }

    def _all_spans(self, windows: _Windows, contexts: _Contexts) -> tuple[_Spans, tf.Tensor]:
        """Returns the spans of all windows, and the null odds, float32 [N], 0 for SQuAD 1.1."""
        # Sorted by length, because batches of similar lengths have little padding.
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
        return _Spans(*spans), tf.gather(odds, tf.argsort(rows))

    def _spans(
        self, windows: _Windows, rows: tf.Tensor, contexts: _Contexts
    ) -> tuple[tf.Tensor, ...]:
        """Returns the columns of `_Spans` for the windows `rows`, and the null odds."""
        settings = self._settings
        inputs = windows.sequences.rows(rows).padded()
        outputs = self._model(inputs)
        if settings.version == 1:  # K and M of `_Beams` are both `n_best_size`
            mask, count = inputs["input_mask"], settings.n_best_size
            starts, start_scores = _best(outputs["start_logits"], mask, count)
            ends, end_scores = _best(outputs["end_logits"], mask, count)
            beams = _Beams(starts, start_scores, ends[:, None], end_scores[:, None])
            odds = tf.zeros_like(rows, tf.float32)
        else:  # see `SpanBeamHead.call`
            starts, start_scores = outputs["start_top_index"], outputs["start_top_log_probs"]
            shape = tf.concat([tf.shape(starts), [-1]], axis=0)
            names = ("end_top_index", "end_top_log_probs")
            ends = (tf.reshape(outputs[name], shape) for name in names)
            beams, odds = _Beams(starts, start_scores, *ends), outputs["cls_logits"]
        return (*_possible_spans(beams, windows, rows, contexts, settings.max_answer_length), odds)


class _Windows(NamedTuple):
    """The windows of all questions, grouped by question."""

    sequences: Sequences  # N windows, [CLS] question [SEP] part of the context [SEP]
    questions: tf.Tensor  # int32 [N]; index of the question, never decreasing
    starts: tf.Tensor  # int32 [N]; index of the first token in the context
    lengths: tf.Tensor  # int32 [N]; number of context tokens
    most_overlaps: int  # maximum distance of the rows of two windows that share a token

    def context_tokens(self, rows: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Converts positions, int32 [n, ...], in windows [n] to token indices in contexts."""
        shifts = tf.gather(self.starts - self.sequences.first_lengths, rows)
        return positions + tf.reshape(shifts, [-1] + [1] * (positions.shape.rank - 1))

    def is_max_context(self, rows: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """See `SquadFeatures.is_max_context`; returns bool [n, m] for positions [n, m]."""
        tokens = self.context_tokens(rows, positions)[:, :, None]
        own = self._context_scores(rows[:, None, None], tokens)
        distances = [step for step in range(-self.most_overlaps, self.most_overlaps + 1) if step]
        steps = tf.constant(distances, tf.int32)
        others = rows[:, None] + steps
        inside = tf.clip_by_value(others, 0, tf.shape(self.questions)[0] - 1)
        is_other = tf.equal(others, inside) & tf.equal(
            tf.gather(self.questions, inside), tf.gather(self.questions, rows)[:, None]
        )
        scores = self._context_scores(inside[:, None, :], tokens)
        is_better = tf.where(steps < 0, scores >= own, scores > own) & (scores >= 0)
        return (own[:, :, 0] >= 0) & ~tf.reduce_any(is_better & is_other[:, None, :], axis=2)

    def _context_scores(self, rows: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Returns how much context surrounds tokens; negative outside of the window."""
        lengths = tf.gather(self.lengths, rows)
        before = tokens - tf.gather(self.starts, rows)
        least = tf.minimum(before, lengths - 1 - before)
        scores = tf.cast(least, tf.float64) + 0.01 * tf.cast(lengths, tf.float64)
        return tf.where(least < 0, tf.constant(-1.0, tf.float64), scores)


def _windows(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    tokenizer: Any,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> _Windows:
    """Splits contexts into windows like `squad_features`; token ids are int32 [Q, (tokens)]."""
    questions = questions[:, :max_query_length]
    context_lengths = tf.cast(contexts.row_lengths(), tf.int32)
    rooms = max_seq_length - _SPECIAL_TOKENS - tf.cast(questions.row_lengths(), tf.int32)
    steps = tf.minimum(rooms, doc_stride)
    rest = tf.maximum(context_lengths - rooms, 0)
    numbers = tf.ragged.range((rest + steps - 1) // steps + 1)
    owners = tf.cast(numbers.value_rowids(), tf.int32)
    starts = numbers.flat_values * tf.gather(steps, owners)
    lengths = tf.minimum(
        tf.gather(rooms, owners), tf.maximum(tf.gather(context_lengths, owners) - starts, 0)
    )
    parts = row_parts(contexts, starts, lengths, owners)
    sequences = joined(tf.gather(questions, owners), parts, tokenizer)
    longest_room = max_seq_length - _SPECIAL_TOKENS
    most_overlaps = max(-(-longest_room // doc_stride) - 1, 0)
    return _Windows(sequences, owners, starts, lengths, most_overlaps)


class _Contexts(NamedTuple):
    texts: tf.Tensor  # string [Q], UTF-8
    starts: tf.RaggedTensor  # int32 [Q, (tokens)]; first byte of each token
    ends: tf.RaggedTensor  # int32 [Q, (tokens)]; one past the last byte
    offsets: tf.Tensor  # int32 [Q]; first byte of each text in all texts
    word_starts: tf.Tensor  # int32; bytes in all texts at which answers may start
    word_ends: tf.Tensor  # int32; bytes in all texts at which answers may end


def _contexts(texts: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, bits: CodeMap) -> _Contexts:
    separator = " " * 3  # more than the distance at which characters affect `word_limits`
    text = tf.strings.reduce_join(texts, separator=separator)
    codes, places = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
    places = tf.concat([tf.cast(places, tf.int32), [tf.strings.length(text)]], 0)
    limits = word_limits(tf.pad(bits(codes), [[2, 3]]))
    offsets = tf.cumsum(tf.strings.length(texts) + len(separator), exclusive=True)
    masked = (tf.boolean_mask(places, is_limit) for is_limit in limits)
    return _Contexts(texts, tf.cast(starts, tf.int32), tf.cast(ends, tf.int32), offsets, *masked)


class _Spans(NamedTuple):
    """Parts of contexts that may be answers, [T] each."""

    windows: tf.Tensor  # int32
    questions: tf.Tensor  # int32
    scores: tf.Tensor  # float64; sum of the scores of start and end
    starts: tf.Tensor  # int32; first byte after leading blanks
    texts: tf.Tensor  # string; stripped

    def rows(self, rows: tf.Tensor) -> _Spans:
        return _Spans(*(tf.gather(column, rows) for column in self))


class _Beams(NamedTuple):
    """Candidate starts and ends of n windows, best first."""

    starts: tf.Tensor  # int32 [n, K]; positions in the sequence; -1 if missing
    start_scores: tf.Tensor  # float32 [n, K]
    ends: tf.Tensor  # int32 [n, K, M], or [n, 1, M] for all starts; -1 if missing
    end_scores: tf.Tensor  # float32, the same shape


def _best(logits: tf.Tensor, mask: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    logits = tf.where(mask > 0, logits, -float("inf"))
    missing = tf.maximum(0, count - tf.shape(logits)[1])
    logits = tf.pad(logits, [[0, 0], [0, missing]], constant_values=-float("inf"))
    scores, places = tf.math.top_k(logits, count)
    return tf.where(tf.math.is_finite(scores), places, -1), scores


def _possible_spans(
    beams: _Beams, windows: _Windows, rows: tf.Tensor, contexts: _Contexts, max_answer_length: int
) -> _Spans:
    """Returns the possible answers in the windows `rows`, int32 [n]; see `AnswerSelector`."""
    starts, ends = beams.starts[:, :, None], beams.ends
    context_ends = tf.gather(windows.sequences.first_lengths + windows.lengths, rows)
    is_span = (
        windows.is_max_context(rows, beams.starts)[:, :, None]
        & (ends >= starts)
        & (ends < context_ends[:, None, None])
        & (ends - starts < max_answer_length)
    )
    places = tf.where(is_span)
    owners, start_places = places[:, 0], places[:, :2]
    # In SQuAD 1.1, all starts share the same ends.
    beam = tf.minimum(places[:, 1], tf.shape(ends, tf.int64)[1] - 1)
    end_places = tf.stack([owners, beam, places[:, 2]], axis=1)
    chosen = tf.gather(rows, owners)
    start_scores = tf.cast(tf.gather_nd(beams.start_scores, start_places), tf.float64)
    end_scores = tf.cast(tf.gather_nd(beams.end_scores, end_places), tf.float64)
    first = windows.context_tokens(chosen, tf.gather_nd(beams.starts, start_places))
    last = windows.context_tokens(chosen, tf.gather_nd(beams.ends, end_places))
    questions = tf.gather(windows.questions, rows)
    starts, texts = _cut_out(contexts, questions, owners, first, last)
    return _Spans(chosen, tf.gather(questions, owners), start_scores + end_scores, starts, texts)


def _cut_out(
    contexts: _Contexts, questions: tf.Tensor, owners: tf.Tensor, first: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns first bytes and texts of the whole words of spans [T] in the windows `owners`."""
    texts = tf.gather(contexts.texts, questions)
    # Contexts may be very long, so only parts of them are copied for every span.
    offsets = tf.gather(tf.gather(contexts.starts.row_starts(), questions), owners)
    starts = tf.gather(contexts.starts.flat_values, offsets + tf.cast(first, tf.int64))
    ends = tf.gather(contexts.ends.flat_values, offsets + tf.cast(last, tf.int64))
    # As in the original, a span whose last token has no characters ends before this token. At the
    # start of the context, it ends after the first character.
    lengths = tf.strings.length(tf.strings.substr(texts, 0, 1, unit="UTF8_CHAR"))
    ends = tf.where(ends == 0, tf.gather(lengths, owners), ends)
    shifts = tf.gather(tf.gather(contexts.offsets, questions), owners)
    first = tf.searchsorted(contexts.word_starts, starts + shifts, side="right") - 1
    last = tf.searchsorted(contexts.word_ends, ends + shifts)
    starts = tf.gather(contexts.word_starts, first) - shifts
    ends = tf.gather(contexts.word_ends, last) - shifts
    count = tf.shape(questions)[0]
    base = tf.math.unsorted_segment_min(starts, owners, count)
    limit = tf.math.unsorted_segment_max(tf.maximum(starts, ends), owners, count)
    base = tf.minimum(base, tf.strings.length(texts))  # without spans, the minimum is very large
    parts = tf.strings.substr(texts, base, tf.maximum(limit, base) - base)
    pieces = tf.strings.substr(
        tf.gather(parts, owners), starts - tf.gather(base, owners), tf.maximum(ends - starts, 0)
    )
    begun = tf.strings.regex_replace(pieces, f"^{_BLANKS}", "")
    stripped = tf.strings.regex_replace(begun, f"{_BLANKS}$", "")
    is_text = tf.strings.length(stripped) > 0
    blanks = tf.strings.length(pieces) - tf.strings.length(begun)
    return tf.where(is_text, starts + blanks, starts), stripped


def _best_answers(spans: _Spans, contexts: _Contexts, n_best_size: int) -> Outputs:
    """Returns the outputs for the `n_best_size` best distinct answers to every question."""
    # Equal scores keep the order of windows, starts and ends.
    spans = spans.rows(_stable_order(-spans.windows))
    spans = spans.rows(_stable_order(spans.scores))
    spans = spans.rows(_stable_order(-spans.questions))
    keys = tf.strings.join([tf.strings.as_string(spans.questions), spans.texts], separator=" ")
    keys, groups = tf.unique(keys)
    places = tf.range(tf.shape(groups)[0])
    spans = spans.rows(tf.math.unsorted_segment_min(places, groups, tf.shape(keys)[0]))
    count = tf.shape(contexts.texts, tf.int64)[0]

    def by_question(column: tf.Tensor, missing: object) -> tf.Tensor:
        owners = tf.cast(spans.questions, tf.int64)
        rows = tf.RaggedTensor.from_value_rowids(column, owners, count, validate=False)
        return rows.to_tensor(missing, shape=[None, n_best_size])

    texts = by_question(spans.texts, "")
    starts = by_question(spans.starts, -1)
    ends = tf.where(starts < 0, -1, starts + tf.strings.length(texts))
    probabilities = tf.nn.softmax(by_question(spans.scores, tf.float64.min / 2))
    return {
        "n_best_answers": texts,
        "n_best_probabilities": tf.where(starts < 0, 0.0, tf.cast(probabilities, tf.float32)),
        "n_best_start": _characters(contexts.texts, starts),
        "n_best_end": _characters(contexts.texts, ends),
        "n_best_start_byte": starts,
        "n_best_end_byte": ends,
    }


def _stable_order(values: tf.Tensor) -> tf.Tensor:
    """Returns the indices of values [T] in descending order; equal values keep their order."""
    return tf.math.top_k(values, tf.shape(values)[0]).indices


def _characters(texts: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Converts byte indices [Q, N] in UTF-8 texts [Q] to character indices; -1 is kept."""
    count = tf.shape(places)[1]
    copies = tf.repeat(texts[:, None], count, axis=1)
    before = tf.strings.substr(copies, tf.zeros_like(places), tf.maximum(places, 0))
    return tf.where(places < 0, -1, tf.strings.length(before, unit="UTF8_CHAR"))
