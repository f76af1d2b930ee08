"""Word starts in any language, for whole-word masking: `word_starts` "unicode"."""

import re
import unicodedata
from dataclasses import replace
from operator import itemgetter

import numpy as np

from albert_tf.pretraining.instances import Documents
from albert_tf.tokenization.base import SCRIPTS_WITHOUT_BLANKS, Tokenizer
from albert_tf.tokenization.word_piece import CONTINUATION, clean_character

_OTHER, _MARK, _UNSPACED = range(3)  # classes of characters
_WITHOUT_BLANKS = re.compile(f"[{SCRIPTS_WITHOUT_BLANKS}]")
_TWO_UNITS = re.compile("[\U00010000-\U0010ffff]")
_UNKNOWN = "\ufffd"  # represents unknown pieces in the text for ICU


class WordStarts:
    """Finds the tokens that start a word, from the ids of whole lines.

    "▁" starts a word, and so does a WordPiece token without "##". Punctuation characters and
    symbols are words. In scripts without blanks, words are found by ICU if `has_icu`, otherwise
    every token is a word. A separate "▁" belongs to the word that follows.
    """

    def __init__(self, tokenizer: Tokenizer, has_icu: bool) -> None:
        self._size, self._unk_id, self._has_icu = tokenizer.vocab_size, tokenizer.unk_id, has_icu
        if mark := tokenizer.word_start:
            texts = [piece.replace(mark, " ") for piece in tokenizer.tokens]
            for i in {tokenizer.unk_id, *tokenizer.byte_ids}:
                texts[i] = _UNKNOWN
        else:
            texts = list(map(_wordpiece_text, tokenizer.tokens))
        bare = [text.strip() for text in texts]
        # ICU counts characters of two UTF-16 units twice.
        self._texts = [_TWO_UNITS.sub(_UNKNOWN, text) for text in texts]
        self._lengths = np.array([*map(len, texts)])
        self._bare_lengths = np.array([*map(len, bare)])
        self._begins = self._lengths > self._bare_lengths
        self._first = np.array([_class_of(text[:1]) for text in bare])
        self._last = np.array([_class_of(text[-1:]) for text in bare])

    def mark(self, documents: Documents) -> Documents:
        """Adds V + 1 to the ids of tokens that continue a word, see `Documents`."""
        lines = np.array(documents.segment_starts[:-1], np.int64)
        ids = np.where(documents.ids == self._size, self._unk_id, documents.ids)
        first, last = self._first[ids], self._last[ids][:-1]
        is_open = first == _UNSPACED
        is_open[1:] |= last == _UNSPACED
        starts = first == _MARK
        starts[1:] |= last == _MARK
        starts |= self._at_boundaries(ids, lines, is_open) if self._has_icu else is_open
        starts[1:] &= self._bare_lengths[ids][:-1] > 0
        starts |= self._begins[ids]
        starts[lines] = True
        marked = np.where(starts, ids, ids + self._size + 1).astype(np.int32)
        unspaced = 0 if self._has_icu else int(np.count_nonzero(first == _UNSPACED))
        counts = {**documents.counts, "unspaced_words": unspaced}
        return replace(documents, ids=marked, counts=counts)

    def _at_boundaries(self, ids: np.ndarray, lines: np.ndarray, is_open: np.ndarray) -> np.ndarray:
        """Returns whether ICU finds a word start at each token in `is_open`, bool [T]."""
        if not is_open.any():
            return is_open
        from icu4py.breakers import WordBreaker

        # Lines in other scripts are not segmented.
        line = np.zeros(len(ids), np.int64)
        line[lines[1:]] = 1
        line = line.cumsum()
        chosen = np.flatnonzero(np.logical_or.reduceat(is_open, lines)[line])
        chosen_ids, first = ids[chosen], np.flatnonzero(np.diff(line[chosen], prepend=-1))
        lengths = self._lengths[chosen_ids]
        lengths[first] += 1
        texts = list(map(self._texts.__getitem__, chosen_ids.tolist()))
        for k in first.tolist():
            texts[k] = f"\n{texts[k]}"
        # The dictionaries of ICU do not depend on the locale.
        words = WordBreaker("".join(texts), "en").segments()
        is_start = np.zeros(lengths.sum() + 1, bool)
        is_start[np.fromiter(map(itemgetter(0), words), np.int64)] = True
        found = is_open.copy()
        found[chosen] &= is_start[lengths.cumsum() - self._bare_lengths[chosen_ids]]
        return found


def _wordpiece_text(token: str) -> str:
    """Returns the text of a WordPiece token, after a blank if it cannot continue a word."""
    is_ideograph = len(token) == 1 and clean_character(ord(token)) == f" {token} "
    is_inside = is_ideograph or token.startswith(CONTINUATION)
    return token.removeprefix(CONTINUATION) if is_inside else f" {token}"


def _class_of(character: str) -> int:
    if character and character != _UNKNOWN and unicodedata.category(character)[0] in "PS":
        return _MARK
    return _UNSPACED if _WITHOUT_BLANKS.match(character) else _OTHER
