"""Extends answers to whole words."""

import unicodedata
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import Any

import numpy as np

from albert_tf.squad.locate_answers import UNSPACED

# Bits of characters. Blanks lack `_ANY`, and letters of scripts without blanks lack `_WORD`.
_ANY, _WORD, _DIGIT, _EMOJI, _HANGUL, _APOSTROPHE, _S = (1 << bit for bit in range(7))
_JOINS, _LINKS = 2**8, 2**16  # factors of bits: joins the character before; links both neighbors
_SIGNS = {
    **dict.fromkeys("'’", _APOSTROPHE | _WORD * _LINKS),
    **dict.fromkeys(".·", _WORD * _LINKS),
    **dict.fromkeys("\u00ad\u200c\u200d", (_WORD | _EMOJI) * _LINKS),
    ",": _DIGIT * _LINKS,
}


@lru_cache(2**16)
def character_bits(code: int) -> int:
    """Returns the bits of a character for `word_limits`."""
    text, kind = chr(code), unicodedata.category(chr(code))
    if kind[0] == "M" or (kind == "Sk" and code > 0xFFFF) or 0x1160 <= code < 0x1200:
        return _ANY * (1 + _JOINS) | _EMOJI | _WORD * (not 0xFE00 <= code < 0xFE10)
    if kind[0] in "LN" and not UNSPACED.match(text):
        hangul = 0x1100 <= code < 0x1160 or 0xAC00 <= code < 0xD7A4
        special = _DIGIT * (kind == "Nd") | _S * (text in "sS") | _HANGUL * hangul
        return _ANY | _WORD * (1 + _JOINS) | special
    return _ANY * (not text.isspace()) | _EMOJI * (kind == "So") | _SIGNS.get(text, 0)


def word_limits(bits: Any) -> tuple[Any, Any]:
    """Returns whether answers may start before, and may end before, each character and the end.

    Apostrophes and periods inside words, and commas inside numbers, belong to the words. Answers
    may end before "'s" and, because of suffixes, before Korean syllables. `bits` is an array or a
    tensor, with two zeros before and three zeros after the characters.
    """
    a, b, c, d, e = (bits[i : i - 4 or None] for i in range(5))
    is_start = (b & 255 & (c // _JOINS) | a & c & (b // _LINKS) | b & d & (c // _LINKS)) == 0
    is_possessive = (c & _APOSTROPHE > 0) & (d & _S > 0) & (e & _WORD == 0)
    return is_start, is_start | is_possessive | (c & _HANGUL > 0)


@lru_cache(512)
def _places(text: str) -> list[list[int]]:
    bits = np.array([0, 0, *map(character_bits, map(ord, text)), 0, 0, 0])
    return [np.flatnonzero(limits).tolist() for limits in word_limits(bits)]


def whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the smallest range of whole words that contains a range of characters."""
    starts, ends = _places(text)
    return starts[bisect_right(starts, start) - 1], ends[bisect_left(ends, end)]
