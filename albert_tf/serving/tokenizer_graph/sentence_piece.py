"""The SentencePiece tokenizer as a graph: normalization, pieces, digit-comma rule, ranges."""

from __future__ import annotations

import hashlib
import unicodedata
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.serving.tokenizer_graph.characters import (
    BLANK,
    NOTHING,
    OTHER_BLANK,
    Characters,
    CharacterTable,
    Located,
    SigmaLowering,
    constant,
    decode,
    encode,
    first_from,
    limit_words,
    ragged,
    segment_ids,
    utf8_positions,
)
from albert_tf.tokenization.sentence_piece import WORD_START, SentencePieceTokenizer, clean_text

_NO_CHARACTER = "\0"  # padding of the table; its results are not used
_ASCII = r"[\x00-\x7f]*"
# ASCII white space of `str.split`, except a single blank.
_ASCII_GAP = r"[\t-\r\x1c-\x1f][\t-\r\x1c-\x20]*|\x20[\t-\r\x1c-\x20]+"


class CommaRule(tf.Module):
    """ALBERT's rule that splits pieces such as "9,". Other pieces have one part."""

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        super().__init__()
        parts = tokenizer.digit_comma_parts
        of_pieces = [parts.get(i, [(i, "")]) for i in range(tokenizer.vocab_size)]
        counts = np.array([len(row) for row in of_pieces])
        self._part_ids = constant([part_id for row in of_pieces for part_id, _ in row])
        self._ends = constant(np.cumsum(counts))
        self._starts = constant(np.cumsum(counts) - counts)
        # The range of each part in the characters of its piece.
        ends = (accumulate((len(text) for _, text in row), initial=0) for row in of_pieces)
        self._bounds = constant([*chain.from_iterable(map(pairwise, ends))])
        # Row of each split piece in the table of characters, `_codes`; 0 for other pieces.
        rows = np.zeros(tokenizer.vocab_size)
        rows[[*parts]] = range(1, len(parts) + 1)
        self._rows = constant(rows)
        texts = ["".join(text for _, text in row) for row in parts.values()]
        self._longest = max(map(len, texts), default=0)
        padded = [text.ljust(self._longest, _NO_CHARACTER) for text in ["", *texts]]
        self._codes = constant([[ord(c) for c in text] for text in padded])

    def apply(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """Splits pieces, int32 [B, (tokens)]."""
        ids, splits, _, _ = self._parts(pieces.values, tf.cast(pieces.row_splits, tf.int32))
        return ragged(ids, splits)

    def locate(self, pieces: Located, codes: tf.Tensor) -> Located:
        """Splits pieces and returns the range of each part in the normalized characters."""
        ids, splits, places, sources = self._parts(pieces.ids, pieces.splits)
        starts, ends = tf.gather(pieces.starts, sources), tf.gather(pieces.ends, sources)
        located = Located(ids, splits, starts, ends)
        if not self._longest:
            return located
        rows = tf.gather(self._rows, tf.gather(pieces.ids, sources))
        return tf.cond(
            tf.reduce_any(rows > 0),
            lambda: self._locate_parts(located, rows, places, codes),
            lambda: located,
        )

    def _parts(self, ids: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns part ids, their splits, and the indices of their rows and of their pieces."""
        first, after = tf.gather(self._starts, ids), tf.gather(self._ends, ids)
        places = tf.ragged.range(first, after, row_splits_dtype=tf.int32)
        sources = segment_ids(places.row_splits, tf.size(places.values))
        part_ids = tf.gather(self._part_ids, places.values)
        return part_ids, tf.gather(places.row_splits, splits), places.values, sources

    def _locate_parts(
        self, located: Located, rows: tf.Tensor, places: tf.Tensor, codes: tf.Tensor
    ) -> Located:
        """Replaces the ranges of whole pieces by the ranges of their parts."""
        is_part = tf.where(rows > 0)
        columns = (rows, places, located.starts, located.ends)
        rows, places, starts, ends = (tf.gather_nd(column, is_part) for column in columns)
        positions = self._follow(rows, starts, ends, codes)
        bounds = tf.gather(positions, tf.gather(self._bounds, places), batch_dims=1)
        begins, ends = tf.unstack(starts[:, None] + bounds, axis=1)
        return located._replace(
            starts=tf.tensor_scatter_nd_update(located.starts, is_part, begins),
            ends=tf.tensor_scatter_nd_update(located.ends, is_part, ends),
        )

    def _follow(
        self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, codes: tf.Tensor
    ) -> tf.Tensor:
        """Finds the characters of P pieces in the text.

        Entry [p, k] of the result, int32 [P, longest + 1], is the end of the first k characters of
        piece p, relative to `starts[p]`. Characters that are missing in the text, such as a "▁"
        without a blank, are skipped.
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


def _sentencepiece_model(proto: bytes) -> Any:
    """Returns a tokenizer of tensorflow-text that works after `tf.random.set_seed`.

    That function deletes eager kernels, and with them all resources without a shared name.
    """
    import tensorflow_text  # slow to import
    from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer

    model = tensorflow_text.SentencepieceTokenizer(proto)
    model._model_resource._resource_handle = gen_sentencepiece_tokenizer.sentencepiece_op(
        model=proto, shared_name=f"sentencepiece_{hashlib.sha256(proto).hexdigest()}"
    )
    return model


class SentencePieceGraph(tf.Module):
    """`SentencePieceTokenizer` in TensorFlow."""

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        super().__init__()
        self._lowers = tokenizer.do_lower_case
        replace = _replace_kept if tokenizer.keep_accents else _replace
        self._characters = CharacterTable(replace, tokenizer.do_lower_case)
        self._sigmas = SigmaLowering()
        self._model = _sentencepiece_model(tokenizer.model_proto)
        self._comma_rule = CommaRule(tokenizer)
        self._mark_id = tokenizer.convert_tokens_to_ids([WORD_START])[0]
        is_split = tokenizer.digit_comma_parts
        has_mark = [token.startswith(WORD_START) for token in tokenizer.tokens]
        self._has_mark = constant(has_mark)
        self._needs_blank = constant([m and i not in is_split for i, m in enumerate(has_mark)])

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each text, int32 [B, (tokens)]."""
        pieces = self._model.tokenize(limit_words(self.clean(texts)))
        return self._comma_rule.apply(pieces)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Located:
        """Returns ids and ranges, in bytes of the raw texts."""
        raw = decode(texts)
        gaps = _Gaps.find(raw, self._characters.entries(raw.codes))
        clean = self._replace(raw, gaps)
        pieces = self._locate(clean)
        pieces = self._comma_rule.locate(pieces, clean.codes)
        starts, ends = _raw_ranges(pieces, clean)
        return self._with_leading_blanks(pieces._replace(starts=starts, ends=ends), raw, gaps)

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes texts, string [B]. Regular expressions are faster for ASCII texts."""
        is_ascii = tf.strings.regex_full_match(texts, _ASCII)
        simple = tf.strings.regex_replace(tf.where(is_ascii, texts, ""), _ASCII_GAP, " ")
        simple = tf.strings.strip(simple)
        if self._lowers:
            simple = tf.strings.lower(simple)
        others = tf.where(~is_ascii)
        raw = decode(tf.gather_nd(texts, others))
        clean = self._replace(raw, _Gaps.find(raw, self._characters.entries(raw.codes)))
        return tf.tensor_scatter_nd_update(simple, others, encode(clean.codes, clean.splits))

    def _replace(self, raw: Characters, gaps: _Gaps) -> Characters:
        clean, _ = self._characters.replace(raw, gaps.entries, gaps.starts, gaps.ends)
        return self._sigmas(clean) if self._lowers else clean

    def _locate(self, clean: Characters) -> Located:
        """Returns the pieces of normalized texts and their ranges, in normalized characters."""
        ids, starts, ends = self._model.tokenize_with_offsets(
            limit_words(encode(clean.codes, clean.splits))
        )
        splits, size = tf.cast(ids.row_splits, tf.int32), tf.size(ids.values)
        first_bytes, characters = utf8_positions(clean.codes)
        rows = segment_ids(splits, size)
        bases = tf.gather(tf.gather(first_bytes, clean.splits), rows)
        start = tf.gather(characters, bases + tf.cast(starts.values, tf.int32))
        end = tf.gather(characters, bases + tf.cast(ends.values, tf.int32))
        # A character that becomes several pieces belongs to the last one in SentencePiece.
        visible = tf.concat([[0], tf.cumsum(tf.cast(clean.codes != ord(" "), tf.int32))], 0)
        is_whole = tf.gather(visible, end) > tf.gather(visible, start)
        is_whole |= ids.values == self._mark_id
        is_whole |= tf.gather(splits, rows + 1) == tf.range(1, size + 1)  # the last of a text
        end = tf.gather(end, first_from(is_whole))
        return self._limit_blanks(Located(ids.values, splits, start, end), clean.codes)

    def _limit_blanks(self, pieces: Located, codes: tf.Tensor) -> Located:
        """Limits the "▁" of a piece to one blank, as the Python tokenizer does."""
        next_blank = tf.concat([first_from(codes == ord(" ")), [tf.size(codes)]], 0)
        blank = tf.gather(next_blank, pieces.starts)
        has_blank = (tf.gather(self._needs_blank, pieces.ids) > 0) & (blank < pieces.ends)
        starts = tf.where(has_blank, blank, pieces.starts)
        is_mark = has_blank & (pieces.ids == self._mark_id)
        ends = tf.where(is_mark, blank + 1, pieces.ends)
        return pieces._replace(starts=starts, ends=ends)

    def _with_leading_blanks(self, pieces: Located, raw: Characters, gaps: _Gaps) -> Located:
        """Adds leading white space of a text to the range of the first piece if it has a "▁"."""
        has_pieces = pieces.splits[1:] > pieces.splits[:-1]
        rows = tf.where(has_pieces)[:, 0]
        first, begin = tf.gather(pieces.splits, rows), tf.gather(raw.splits, rows)
        is_led = tf.gather(gaps.is_white, begin)
        is_led &= tf.gather(self._has_mark, tf.gather(pieces.ids, first)) > 0
        first, begin = tf.boolean_mask(first, is_led), tf.boolean_mask(begin, is_led)
        starts, ends = tf.gather(pieces.starts, first), tf.gather(pieces.ends, first)
        ends = tf.where(starts == ends, tf.gather(gaps.ends, begin), ends)
        return pieces._replace(
            starts=tf.tensor_scatter_nd_update(
                pieces.starts, first[:, None], tf.gather(gaps.starts, begin)
            ),
            ends=tf.tensor_scatter_nd_update(pieces.ends, first[:, None], ends),
        )


class _Gaps(NamedTuple):
    """The replacement of white space, for N characters."""

    is_white: tf.Tensor  # bool [N]
    entries: tf.Tensor  # int32 [N]; of the character table, `NOTHING` for removed blanks
    # First raw byte of each character, and the byte after its last, int32 [N]. The first character
    # of a gap has the range of the first blank in the gap or, without a blank, of the whole gap.
    starts: tf.Tensor
    ends: tf.Tensor

    @classmethod
    def find(cls, raw: Characters, entries: tf.Tensor) -> _Gaps:
        """Replaces each gap between words by one blank, and removes gaps around texts."""
        is_white = (entries == BLANK) | (entries == OTHER_BLANK)
        begins = raw.starts_run(is_white)
        word = tf.minimum(first_from(~is_white), raw.row_ends())
        is_kept = begins & ~raw.starts_row() & (word < raw.row_ends())
        blank = first_from(entries == BLANK)
        has_blank = blank < word
        blank, last = tf.minimum(blank, tf.size(entries) - 1), tf.maximum(word - 1, 0)
        starts = tf.where(has_blank, tf.gather(raw.starts, blank), raw.starts)
        ends = tf.gather(raw.ends, tf.where(has_blank, blank, last))
        return cls(
            is_white,
            tf.where(is_white & ~is_kept, NOTHING, entries),
            tf.where(begins, starts, raw.starts),
            tf.where(begins, ends, raw.ends),
        )


def _raw_ranges(pieces: Located, clean: Characters) -> tuple[tf.Tensor, tf.Tensor]:
    rows = segment_ids(pieces.splits, tf.size(pieces.ids))
    is_empty = pieces.starts == pieces.ends
    at_end = pieces.starts == tf.gather(clean.splits, rows + 1)
    last = tf.maximum(tf.where(is_empty, pieces.starts, pieces.ends) - 1, 0)
    last_end = tf.gather(clean.ends, last)
    starts = tf.concat([clean.starts, [0]], 0)
    start = tf.where(is_empty & at_end, last_end, tf.gather(starts, pieces.starts))
    return start, tf.where(is_empty, start, last_end)


def _replace(do_lower_case: bool, character: str, keep_accents: bool = False) -> str | int:
    if character.isspace():
        is_blank = unicodedata.normalize("NFKD", character) == " "
        return BLANK if is_blank else OTHER_BLANK
    clean = clean_text(character, False, collapse_blanks=False, keep_accents=keep_accents)
    if not do_lower_case:
        return clean
    # Sigmas are lower-cased by `SigmaLowering`.
    return "Σ".join(part.lower() for part in clean.split("Σ"))


_replace_kept = partial(_replace, keep_accents=True)
