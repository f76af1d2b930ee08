"""Token ids of texts as batches of a model, in a graph: what `data.sequences` does with arrays.

Texts are rows of a `tf.RaggedTensor`, int32 [N, (tokens)]. Whoever calls has made sure that the
lengths leave room for the special tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.serving.saved_model import INPUTS, Outputs


class Sequences(NamedTuple):
    """N sequences of one or two segments, as `TokenSequences` has them.

    Attributes:
        ids: int32 [N, (tokens)], special tokens included.
        first_lengths: int32 [N]; tokens of segment 0.
    """

    ids: tf.RaggedTensor
    first_lengths: tf.Tensor

    def rows(self, rows: tf.Tensor) -> Sequences:
        """Returns some of them, int [n]."""
        return Sequences(tf.gather(self.ids, rows), tf.gather(self.first_lengths, rows))

    def padded(self) -> Outputs:
        """Returns a batch as long as its longest sequence; see `TokenSequences.padded`.

        Without any sequence it is 1 long: models refuse batches [0, 0].
        """
        ids = self.ids.to_tensor()
        ids = tf.pad(ids, [[0, 0], [0, tf.cast(tf.shape(ids)[1] == 0, tf.int32)]])
        lengths = tf.cast(self.ids.row_lengths(), tf.int32)
        positions = tf.range(tf.shape(ids)[1])
        is_real = positions < lengths[:, None]
        is_second = is_real & (positions >= self.first_lengths[:, None])
        columns = (ids, tf.cast(is_real, tf.int32), tf.cast(is_second, tf.int32))
        return dict(zip(INPUTS, columns, strict=True))


def row_parts(
    rows: tf.RaggedTensor, starts: tf.Tensor, lengths: tf.Tensor, owners: tf.Tensor
) -> tf.RaggedTensor:
    """Takes parts of rows, which are not copied for it.

    Args:
        rows: [N, (tokens)].
        starts: integer [n]; first token of each part, counted within its row.
        lengths: integer [n]; tokens of each part.
        owners: integer [n]; the row of each part.
    """
    begins = tf.gather(rows.row_starts(), owners) + tf.cast(starts, tf.int64)
    places = tf.ragged.range(begins, begins + tf.cast(lengths, tf.int64))
    return places.with_flat_values(tf.gather(rows.flat_values, places.flat_values))


def first_tokens(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Takes as many tokens from the front of every row, or all it has.

    Args:
        rows: [N, (tokens)].
        lengths: int64 [N].
    """
    begins = rows.row_starts()
    places = tf.ragged.range(begins, begins + tf.minimum(rows.row_lengths(), lengths))
    return places.with_flat_values(tf.gather(rows.flat_values, places.flat_values))


def cut_pairs(
    first: tf.RaggedTensor, second: tf.RaggedTensor, max_seq_length: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts texts as `classification.features.text_sequences` does: the longer of two loses its end.

    Args:
        first: N texts.
        second: N texts, empty where there is none.
        max_seq_length: tokens of a sequence at most, special ones included.
    """
    lengths, others = first.row_lengths(), second.row_lengths()
    is_pair = others > 0
    room = tf.where(is_pair, max_seq_length - 3, max_seq_length - 2)
    room = tf.cast(room, tf.int64)
    half = tf.where(is_pair, room // 2, 0)
    return (
        first_tokens(first, tf.maximum(room - others, room - half)),
        first_tokens(second, tf.maximum(room - lengths, half)),
    )


def joined(
    first: tf.RaggedTensor, second: tf.RaggedTensor, tokenizer: Any, *, ends_empty: bool = False
) -> Sequences:
    """Lays texts out as [CLS] a [SEP], or [CLS] a [SEP] b [SEP] where b is not empty.

    Args:
        first: a of N sequences.
        second: b.
        tokenizer: has the ids of [CLS] and [SEP].
        ends_empty: whether the second [SEP] follows an empty b as well.
    """
    rows = tf.ones([first.nrows(), 1], tf.int32)
    begins, ends = (
        tf.RaggedTensor.from_tensor(rows * i) for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    is_ended = tf.ones_like(rows[:, 0], tf.bool) if ends_empty else second.row_lengths() > 0
    lasts = tf.ragged.boolean_mask(ends, is_ended[:, None])
    ids = tf.concat([begins, first, ends, second, lasts], axis=1)
    return Sequences(ids, tf.cast(first.row_lengths() + 2, tf.int32))
