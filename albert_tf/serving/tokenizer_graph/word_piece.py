"""The WordPiece tokenizer as a graph: clean-up, splitting into words, pieces, ranges."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

import tensorflow as tf

from albert_tf.serving.tokenizer_graph.characters import (
    BLANK,
    Characters,
    CharacterTable,
    CodeMap,
    Located,
    SigmaLowering,
    code_table,
    decode,
    encode,
    ragged,
    segment_ids,
    utf8_positions,
)
from albert_tf.tokenization.word_piece import (
    CONTINUATION,
    MAX_WORD_LENGTH,
    WordPieceTokenizer,
    is_dropped,
    spread_words,
)

_NO_WORD = "\0"  # matches no token, because vocabulary files cannot contain it

_CLASSES = 256  # canonical combining classes


class WordPieceGraph(tf.Module):
    """`WordPieceTokenizer` in TensorFlow."""

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        import tensorflow_text  # slow to import

        super().__init__()
        self._lowers = tokenizer.do_lower_case
        self._characters = CharacterTable(_replace, tokenizer.do_lower_case)
        self._sigmas = SigmaLowering(is_dropped)
        self._marks = _MarkOrder()
        self._model = tensorflow_text.FastWordpieceTokenizer(
            tokenizer.tokens,
            suffix_indicator=CONTINUATION,
            max_bytes_per_word=1 << 30,  # `_Words` limits the number of characters
            token_out_type=tf.int32,
            unknown_token=tokenizer.tokens[tokenizer.unk_id],
            no_pretokenization=True,
        )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each text, int32 [B, (tokens)]."""
        words = self._split(texts)
        pieces = self._model.tokenize(words.strings())
        return ragged(pieces.values, tf.gather(pieces.row_splits, words.of_texts))

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Located:
        """Returns ids and ranges, in bytes of the raw texts."""
        words = self._split(texts)
        ids, starts, _ = self._model.tokenize_with_offsets(words.strings())
        word = segment_ids(tf.cast(ids.row_splits, tf.int32), tf.size(ids.values))
        first_bytes, characters = utf8_positions(words.codes)
        base = tf.gather(first_bytes, tf.gather(words.splits, word))
        # The starts define the ranges, because pieces cover all characters.
        start = tf.gather(characters, base + tf.cast(starts.values, tf.int32))
        piece = segment_ids(tf.concat([start, [tf.size(words.codes)]], 0), tf.size(words.codes))
        # Minimum and maximum, because combining marks may have been reordered.
        return Located(
            ids.values,
            tf.cast(tf.gather(ids.row_splits, words.of_texts), tf.int32),
            tf.math.segment_min(words.starts, piece),
            tf.math.segment_max(words.ends, piece),
        )

    def _split(self, texts: tf.Tensor) -> _Words:
        raw = decode(texts)
        if self._lowers:
            raw = self._sigmas(raw)
        entries = self._characters.entries(raw.codes)
        text, sources = self._characters.replace(raw, entries, raw.starts, raw.ends)
        if self._lowers:
            text = self._marks(text, raw, sources)
        return _Words.find(text)


class _Words(NamedTuple):
    """The words of B texts in flat arrays of N characters."""

    codes: tf.Tensor  # int32 [N]; code points
    splits: tf.Tensor  # int32 [W + 1]; start of each word, and N
    of_texts: tf.Tensor  # int32 [B + 1]; first word of each text, and W
    starts: tf.Tensor  # int32 [N]; first raw byte of each character
    ends: tf.Tensor  # int32 [N]; end of its raw bytes, exclusive

    @classmethod
    def find(cls, text: Characters) -> _Words:
        """Splits at blanks and at the ends of texts."""
        is_solid = text.codes != ord(" ")
        begins = text.starts_run(is_solid)
        words_before = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int32))], 0)
        codes, starts, ends = (
            tf.boolean_mask(values, is_solid) for values in (text.codes, text.starts, text.ends)
        )
        first = tf.cast(tf.where(tf.boolean_mask(begins, is_solid))[:, 0], tf.int32)
        splits = tf.concat([first, [tf.size(codes)]], 0)
        return cls(codes, splits, tf.gather(words_before, text.splits), starts, ends)

    def strings(self) -> tf.Tensor:
        """Returns the words in UTF-8, string [W]; words that are too long become `_NO_WORD`."""
        is_short = self.splits[1:] - self.splits[:-1] <= MAX_WORD_LENGTH
        return tf.where(is_short, encode(self.codes, self.splits), _NO_WORD)


class _MarkOrder(tf.Module):
    """Sorts combining marks into canonical order, except accents, which are already removed."""

    def __init__(self) -> None:
        super().__init__()
        self._orders = CodeMap(code_table(_order))
        self._begins = CodeMap(code_table(_begins, missing=1))

    def __call__(self, text: Characters, raw: Characters, sources: tf.Tensor) -> Characters:
        orders = self._orders(text.codes)

        def sort() -> tuple[tf.Tensor, ...]:
            begins = tf.where(raw.starts_row(), 1, self._begins(raw.codes))
            runs = tf.gather(tf.cumsum(begins), sources)
            keys = tf.cast(runs, tf.int64) * _CLASSES + tf.cast(orders, tf.int64)
            places = tf.argsort(keys, stable=True)
            return tuple(tf.gather(v, places) for v in (text.codes, text.starts, text.ends))

        codes, starts, ends = tf.cond(
            tf.reduce_any(orders > 0), sort, lambda: (text.codes, text.starts, text.ends)
        )
        return text._replace(codes=codes, starts=starts, ends=ends)


def _order(code: int) -> int:
    """Returns the combining class of a mark that is kept."""
    return unicodedata.combining(chr(code)) * (unicodedata.category(chr(code)) != "Mn")


def _begins(code: int) -> int:
    """Returns whether a character separates runs of marks."""
    first = unicodedata.normalize("NFD", chr(code))[0]
    return not (unicodedata.combining(first) or is_dropped(chr(code)))


def _replace(do_lower_case: bool, character: str) -> str | int:
    if do_lower_case and character == "Σ":
        return character  # lower-cased by `SigmaLowering`
    spread = spread_words(character, do_lower_case)
    return BLANK if spread.isspace() else spread
