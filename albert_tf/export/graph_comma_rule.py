"""ALBERT's rule for pieces like "9,", as a part of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

import numpy as np
import tensorflow as tf

from albert_tf.export.graph_characters import Located, constant, segment_ids
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_NO_CHARACTER = "\0"  # stands where a text is over; whatever it finds is not asked for


class CommaRule(tf.Module):
    """ALBERT's rule for pieces like "9,": the parts of every piece, most of which have one."""

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        super().__init__()
        parts = tokenizer.digit_comma_parts
        of_pieces = [parts.get(i, [(i, "")]) for i in range(tokenizer.vocab_size)]
        counts = np.array([len(row) for row in of_pieces])
        self._part_ids = constant([part_id for row in of_pieces for part_id, _ in row])
        self._ends = constant(np.cumsum(counts))
        self._starts = constant(np.cumsum(counts) - counts)
        self._bounds = constant([bound for row in of_pieces for bound in _bounds(row)])
        texts = ["".join(text for _, text in parts[i]) for i in sorted(parts)]
        self._rows = constant(_rows(tokenizer.vocab_size, parts))
        self._longest = max(map(len, texts), default=0)
        padded = [text.ljust(self._longest, _NO_CHARACTER) for text in ["", *texts]]
        self._codes = constant([[ord(c) for c in text] for text in padded])

    def apply(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """Takes pieces apart, int32 [B, (tokens)] to int32 [B, (tokens)]."""
        ids, splits, _, _ = self._parts(pieces.values, tf.cast(pieces.row_splits, tf.int32))
        splits = tf.cast(splits, tf.int64)
        return tf.RaggedTensor.from_row_splits(ids, splits, validate=False)

    def locate(self, pieces: Located, codes: tf.Tensor) -> Located:
        """Takes pieces apart that cover clean characters, and finds where each part lies."""
        ids, splits, places, sources = self._parts(pieces.ids, pieces.splits)
        starts, ends = tf.gather(pieces.starts, sources), tf.gather(pieces.ends, sources)
        located = Located(ids, splits, starts, ends)
        if not self._longest:
            return located
        is_part = tf.gather(self._rows, tf.gather(pieces.ids, sources)) > 0
        return tf.cond(
            tf.reduce_any(is_part),
            lambda: self._locate_parts(located, pieces, places, sources, codes),
            lambda: located,
        )

    def _parts(self, ids: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Gives part ids, their splits, places in the tables, and the piece each came from."""
        first, after = tf.gather(self._starts, ids), tf.gather(self._ends, ids)
        places = tf.ragged.range(first, after, row_splits_dtype=tf.int32)
        sources = segment_ids(places.row_splits, tf.size(places.values))
        part_ids = tf.gather(self._part_ids, places.values)
        return part_ids, tf.gather(places.row_splits, splits), places.values, sources

    def _locate_parts(
        self,
        located: Located,
        pieces: Located,
        places: tf.Tensor,
        sources: tf.Tensor,
        codes: tf.Tensor,
    ) -> Located:
        rows = tf.gather(self._rows, pieces.ids)
        taken = tf.where(rows > 0)[:, 0]
        starts, ends = tf.gather(pieces.starts, taken), tf.gather(pieces.ends, taken)
        marks = self._follow(tf.gather(rows, taken), starts, ends, codes)
        taken_of_piece = tf.cumsum(tf.cast(rows > 0, tf.int32)) - 1
        row = tf.gather(taken_of_piece, sources)
        is_part = tf.gather(rows, sources) > 0
        row = tf.where(is_part, row, 0)
        bounds = tf.gather(self._bounds, places)
        begin = tf.gather_nd(marks, tf.stack([row, bounds[:, 0]], 1))
        end = tf.gather_nd(marks, tf.stack([row, bounds[:, 1]], 1))
        return located._replace(
            starts=tf.where(is_part, located.starts + begin, located.starts),
            ends=tf.where(is_part, located.starts + end, located.ends),
        )

    def _follow(
        self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, codes: tf.Tensor
    ) -> tf.Tensor:
        """Finds the characters of pieces, one after the other, in the text that they cover.

        Returns:
            For each piece the place after each number of its characters, int32 [A, longest + 1];
            a character that is not there, such as a mark where there is no blank, moves nothing.
        """
        columns = tf.range(tf.reduce_max(ends - starts))
        places = starts[:, None] + columns
        window = tf.gather(codes, tf.minimum(places, tf.size(codes) - 1))
        window = tf.where(places < ends[:, None], window, -1)
        place = tf.zeros_like(starts)
        found = [place]
        wanted = tf.gather(self._codes, rows)
        for column in range(self._longest):
            hits = (window == wanted[:, column, None]) & (columns >= place[:, None])
            position = tf.argmax(hits, 1, tf.int32)
            place = tf.where(tf.reduce_any(hits, 1), position + 1, place)
            found.append(place)
        return tf.stack(found, 1)


def _bounds(parts: list[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Between which of its piece's characters each part lies."""
    return pairwise(accumulate((len(text) for _, text in parts), initial=0))


def _rows(vocab_size: int, taken_apart: Iterable[int]) -> np.ndarray:
    """Counts the pieces that are taken apart, from 1; 0 for all others, int32 [V]."""
    rows = np.zeros(vocab_size, np.int32)
    for row, piece in enumerate(sorted(taken_apart), 1):
        rows[piece] = row
    return rows
