"""Finds answers in contexts if their positions are missing or incorrect."""

import re
import unicodedata
from collections.abc import Callable

Span = tuple[int, int]  # first character, and one past the last

# What other tools count instead of code points.
_UNITS: dict[str, Callable[[str], int]] = {
    "characters": len,
    "bytes": lambda text: len(text.encode()),
    "UTF-16 units": lambda text: len(text.encode("utf-16-le")) // 2,
    "NFC characters": lambda text: len(unicodedata.normalize("NFC", text)),
    "NFD characters": lambda text: len(unicodedata.normalize("NFD", text)),
    "characters without carriage returns": lambda text: len(text.replace("\r\n", "\n")),
}
_SIMILAR = ("'‘’‚‛′`´", '"“”„‟″«»', "-‐‑‒–—―−")
# Thai to Burmese, Khmer, kana and Chinese: scripts without blanks between words.
UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_DECIMAL = re.compile(r"\d[.,]\d")


def locate_answer(context: str, text: str, start: int) -> tuple[Span, list[str]] | None:
    """Returns the span of an answer, and what is unusual about it; `None` if it does not occur.

    `start` is the given index of its first character, negative if unknown. Whole words are
    preferred to parts of words, and equal texts to texts that differ in case, Unicode
    normalization, quotation marks, dashes or blanks.
    """
    if start >= 0 and context.startswith(text, start):
        return (start, start + len(text)), []
    text = text.strip()
    spans = _spans(context, re.escape(text))
    if not any(all(_word_limits(context, span)) for span in spans):
        similar = "".join(map(_similar, unicodedata.normalize("NFC", " ".join(text.split()))))
        spans += _spans(context, f"(?i:{similar})")
    if not spans:
        return None
    ranks = {s: (_word_limits(context, s), context[slice(*s)] == text) for s in spans}
    best = max(ranks.values())
    span, remark = _select(context, [s for s in sorted(ranks) if ranks[s] == best], start)
    remarks = [remark] if span[0] != start else []
    if not best[1]:
        remarks.append("an answer that differs in case or form from the context, corrected")
    if not all(best[0]):
        remarks.append("an answer that only occurs as a part of a longer word or number")
    return span, remarks


def _spans(context: str, pattern: str) -> list[Span]:
    """Returns the spans of all matches, including overlapping matches."""
    return [match.span(1) for match in re.finditer(f"(?=({pattern}))", context)]


def _similar(character: str) -> str:
    """Returns a pattern for a character and its variants."""
    if character.isspace():
        return r"\s+"
    forms = [*next((marks for marks in _SIMILAR if character in marks), character)]
    forms += [unicodedata.normalize(form, character) for form in ("NFD", "NFKC")]
    if "!" <= character <= "~":
        forms.append(chr(ord(character) + 0xFEE0))  # full-width
    # Repeated alternatives would take exponential time.
    return f"(?:{'|'.join(map(re.escape, dict.fromkeys(forms)))})[\u00ad\u200b-\u200f\u2060]*"


def _word_limits(context: str, span: Span) -> tuple[bool, ...]:
    """Returns whether a span starts and ends between words.

    The start comes first, because languages such as Korean add suffixes to words.
    """
    return tuple(not _is_in_word(context, index) for index in span)


def _is_in_word(context: str, index: int) -> bool:
    """Returns whether the characters before and after an index belong to one word or number."""
    if not 0 < index < len(context):
        return False
    if _DECIMAL.match(context, index - 1) or _DECIMAL.match(context, max(index - 2, 0), index + 1):
        return True
    before, after = (unicodedata.category(c)[0] for c in context[index - 1 : index + 1])
    is_spaced = not UNSPACED.search(context, index - 1, index + 1)
    return after == "M" or (is_spaced and before in "LMN" and after in "LN")


def _select(context: str, spans: list[Span], start: int) -> tuple[Span, str]:
    """Returns the span that a given index most likely refers to, and a remark about the index."""
    if start < 0 and len(spans) == 1:
        return spans[0], "no answer_start; using the only occurrence"
    if start < 0:
        return spans[0], "no answer_start and several occurrences: ambiguous, using the first"
    for unit, count in _UNITS.items():
        for span in spans:
            if count(context[: span[0]]) == start:
                return span, f"an answer_start that counts {unit}, converted"
    nearest = min(spans, key=lambda span: abs(span[0] - start))
    if len(spans) == 1 or abs(nearest[0] - start) <= nearest[1] - nearest[0]:
        return nearest, "an incorrect answer_start, corrected"
    remark = "an incorrect answer_start and several occurrences: ambiguous, using the nearest"
    return nearest, remark
