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


class _CharacterCleaner(dict[str, str]):
    """What NFKD makes of each character, combining ones dropped; filled as they are met."""

    def __missing__(self, character: str) -> str:
        kept = unicodedata.normalize("NFKD", character).translate(_DROP_COMBINING)
        self[character] = kept
        return kept


# One by one gives the same as a text as a whole: NFKD reorders combining characters only.
_CLEAN_CHARACTERS = _CharacterCleaner()


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
    """A clean text and the raw characters that each of its characters comes from.

    Attributes:
        text: the clean text, n characters.
        ranges: n half-open ranges of raw characters, in order; None where each clean character
            stands where its raw one did.
    """

    text: str
    ranges: list[tuple[int, int]] | None

    def raw_range(self, start: int, end: int) -> tuple[int, int]:
        """Turns a half-open range of clean characters into one of raw characters.

        An empty range stays empty, at the place where the next clean character begins.
        """
        if self.ranges is None:
            return start, end
        if start < end:
            return self.ranges[start][0], self.ranges[end - 1][1]
        place = self.ranges[start][0] if start < len(self.ranges) else self.ranges[-1][1]
        return place, place


def align_clean_text(text: str, do_lower_case: bool) -> AlignedText:
    """Does what `clean_text` does and keeps the positions.

    Each clean character covers the raw character it was made from, a blank what `blank_range`
    says; dropped characters are covered by none.

    Args:
        text: any text.
        do_lower_case: whether to lower-case.

    Returns:
        The clean text with positions; `.text` equals `clean_text(text, do_lower_case)`.
    """
    is_collapsed = text == " ".join(text.split())
    if is_collapsed and all(len(_CLEAN_CHARACTERS[character]) == 1 for character in set(text)):
        return AlignedText(clean_text(text, do_lower_case), None)
    parts: list[str] = []
    ranges: list[tuple[int, int]] = []
    gap = 0
    for word in _WORD.finditer(text):
        if parts:
            parts.append(" ")
            ranges.append(blank_range(text, gap, word.start()))
        gap = word.end()
        _align_word(word.group(), word.start(), parts, ranges)
    clean = "".join(parts)
    # After NFKD no character changes its length when it is lower-cased.
    return AlignedText(clean.lower() if do_lower_case else clean, ranges)


def blank_range(text: str, start: int, end: int) -> tuple[int, int]:
    """Which characters of the white space `text[start:end]` the one blank it becomes covers.

    The first that is a blank proper (NFKD makes it U+0020); all if there are only other ones, such
    as line ends.
    """
    for position in range(start, end):
        if unicodedata.normalize("NFKD", text[position]) == " ":
            return position, position + 1
    return start, end


def _align_word(word: str, start: int, parts: list[str], ranges: list[tuple[int, int]]) -> None:
    """Appends a word after NFKD, combining characters dropped, and its positions."""
    if word.isascii():
        parts.append(word)
        end = start + len(word)
        ranges.extend(zip(range(start, end), range(start + 1, end + 1), strict=True))
        return
    for position, character in enumerate(word, start):
        kept = _CLEAN_CHARACTERS[character]
        parts.append(kept)
        ranges.extend([(position, position + 1)] * len(kept))
