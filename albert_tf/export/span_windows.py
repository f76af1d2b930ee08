"""Questions and long contexts as windows, in a graph: what `data.squad_features` does with arrays.

Q is the number of questions, N that of all windows.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from albert_tf.export.text_packing import Sequences, SpecialIds, first_tokens, joined, row_parts

_SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]


class SpanWindows(NamedTuple):
    """The windows of all questions, those of one question one after the other.

    Attributes:
        sequences: N windows, [CLS] question [SEP] part of the context [SEP].
        questions: int32 [N]; whose they are, never decreasing.
        starts: int32 [N]; first token, counted within the context.
        lengths: int32 [N]; context tokens.
        most_overlaps: how far apart two windows of a question can be that share a token.
    """

    sequences: Sequences
    questions: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor
    most_overlaps: int

    @property
    def before_context(self) -> tf.Tensor:
        """int32 [N]; tokens of the sequence before the context."""
        return self.sequences.first_lengths

    def context_tokens(self, rows: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Turns places in windows into places among the tokens of their contexts.

        Args:
            rows: int32 [n]; which windows.
            positions: int32 [n, ...]; places in these sequences.
        """
        shifts = tf.gather(self.starts - self.before_context, rows)
        return positions + tf.reshape(shifts, [-1] + [1] * (positions.shape.rank - 1))

    def is_max_context(self, rows: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Whether no other window shows a token with more context around it.

        Args:
            rows: int32 [n]; which windows.
            positions: int32 [n, m]; places in these sequences.

        Returns:
            bool [n, m]; see `SquadFeatures.is_max_context`.
        """
        tokens = self.context_tokens(rows, positions)[:, :, None]
        own = self._context_scores(rows[:, None, None], tokens)
        distances = [step for step in range(-self.most_overlaps, self.most_overlaps + 1) if step]
        if not distances:
            return own[:, :, 0] >= 0
        steps = tf.constant(distances)
        others = rows[:, None] + steps
        inside = tf.clip_by_value(others, 0, tf.shape(self.questions)[0] - 1)
        is_other = tf.equal(others, inside) & tf.equal(
            tf.gather(self.questions, inside), tf.gather(self.questions, rows)[:, None]
        )
        scores = self._context_scores(inside[:, None, :], tokens)
        is_better = tf.where(steps < 0, scores >= own, scores > own) & (scores >= 0)
        return (own[:, :, 0] >= 0) & ~tf.reduce_any(is_better & is_other[:, None, :], axis=2)

    def _context_scores(self, rows: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Context of tokens, counted in their context, in a window; negative if not in it."""
        lengths = tf.gather(self.lengths, rows)
        before = tokens - tf.gather(self.starts, rows)
        least = tf.minimum(before, lengths - 1 - before)
        scores = tf.cast(least, tf.float64) + 0.01 * tf.cast(lengths, tf.float64)
        return tf.where(least < 0, tf.constant(-1.0, tf.float64), scores)


def span_windows(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    special: SpecialIds,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> SpanWindows:
    """Cuts every context into windows, at least one, up to the first that reaches its end.

    Args:
        questions: int32 [Q, (tokens)].
        contexts: int32 [Q, (tokens)].
        special: ids of [CLS] and [SEP].
        max_seq_length: see `data.squad_features.squad_features`.
        doc_stride: likewise.
        max_query_length: likewise.
    """
    questions = first_tokens(questions, max_query_length)
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
    sequences = joined(
        tf.gather(questions, owners),
        row_parts(contexts, starts, lengths, owners),
        special,
    )
    longest_room = max_seq_length - _SPECIAL_TOKENS
    overlaps = max(-(-longest_room // doc_stride) - 1, 0)
    return SpanWindows(sequences, owners, starts, lengths, overlaps)
