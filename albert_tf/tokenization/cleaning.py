"""The text clean-up that goes before SentencePiece, with and without character positions."""

import re
import unicodedata
from typing import NamedTuple

_WORD = re.compile(r"\S+")


class _CombiningDropper(dict[int, int | None]):
    """A `str.translate` table that drops combining characters, filled as characters are met."""

    def __missing__(self, code: int) -> int | None:
        kept = None if unicodedata.combining(chr(code)) else code
        self[code] = kept
        return kept


_DROP_COMBINING = _CombiningDropper()


def clean_text(text: str, do_lower_case: bool, collapse_blanks: bool = True) -> str:
    """Prepares a text for SentencePiece.

    Runs of white space become one blank and the ends are stripped; then NFKD, combining
    characters (non-zero combining class) are dropped, and the rest is lower-cased if asked.
    Blanks that NFKD itself makes (from U+00B4, say) stay as they are.

    Args:
        text: any text.
        do_lower_case: whether to lower-case.
        collapse_blanks: False leaves all white space alone.

    Returns:
        The clean text.

    Source: `preprocess_text` of the original's tokenization module.
    """
    if collapse_blanks:
        text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).translate(_DROP_COMBINING)
    return text.lower() if do_lower_case else text


class AlignedText(NamedTuple):
    """A clean text and the raw characters each of its characters comes from.

    Attributes:
        text: the clean text, n characters.
        starts: int [n]; first raw character of each clean one.
        ends: int [n]; one past the last raw character of each clean one.
        raw_length: number of characters of the raw text.
    """

    text: str
    starts: list[int]
    ends: list[int]
    raw_length: int
