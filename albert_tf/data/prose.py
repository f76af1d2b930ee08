"""Plain English sentences out of marked-up documentation: docstrings and reStructuredText."""

import inspect
import re
from collections.abc import Iterable, Iterator

MIN_WORDS = 4
MAX_WORDS = 120
MIN_SHARE_OF_PLAIN_WORDS = 0.9

_UNDERLINE = re.compile(r"\s*([-=~^*#+.\"'_])\1{2,}\s*")
_DOCTEST = re.compile(r"\s*>>>")
_BULLET = re.compile(r"^\s*(?:[*+o•-]|\(?(?:\d+|[a-z])[.)])\s+(?=\S)")
_DIRECTIVE = re.compile(r"\s*(?:\.\. |:[\w ]+:|@\w+|\|)")

# Each mark-up pattern and the text that stays of it, in the order they are applied.
_MARKUP = [
    (re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`"), r"\1"),  # :class:`~module.Name`
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`']+)[`']_{0,2}"), r"\1"),
    (re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(\w(?:[^*]*\w)?)\*(?![\w*])"), r"\1"),
    (re.compile(r'"(\S+)"'), r"\1"),  # how text made from the manual writes literals
    (re.compile(r"\s*\[(?:\d+|#\w*)\]_?"), ""),  # footnotes
    (re.compile(r"\s+"), " "),
    (re.compile(r"(?<=[a-z]-) (?=[a-z])"), ""),  # a word wrapped at its hyphen
    (re.compile(r"::$"), ":"),
]
_TYPOGRAPHY = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-"})

_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+(?=[\"'(\[]*[A-Z])")
_NO_SENTENCE_END = re.compile(  # an abbreviation or an initial
    r"(?:^|[\s(\[\"'])(?:e\.g|i\.e|cf|vs|viz|resp|approx|incl|esp|Nos?|Fig|Sec|Mrs?|Dr|Prof|St|[A-Z])"
    r"\.\s+$"
)
_CLAUSE_END = re.compile(r"(?<=[,;:]) ")
_SENTENCE = re.compile(r"[\"'(\[]*[A-Z].*[.!?:][\"')\]]*")
_PLAIN_WORD = re.compile(r"[\"'(\[]*[A-Za-z]+(?:['-][A-Za-z]+)*[\"')\]]*[.,;:!?]*[\"')\]]*")
_FUNCTION_WORD = re.compile(
    r"\b(?:an?|and|are|as|at|be|been|but|by|can|for|from|has|have|if|in|is|its?|not|of|on|or|that"
    r"|the|their|then|there|these|they|this|to|was|when|which|will|with|you)\b",
    re.IGNORECASE,
)


def prose_sentences(text: str) -> list[str]:
    """Takes the sentences of running English out of a documentation text.

    Headings, code, examples, tables, signatures and lists of single words fall away; wrapped
    lines are joined and mark-up is removed.

    Args:
        text: a docstring or a text in reStructuredText, as written.

    Returns:
        The sentences in order, each on one line: it begins with a capital, ends in `.`, `!`, `?`
        or `:`, has between MIN_WORDS and MAX_WORDS words and consists mostly of plain words.
    """
    return [
        sentence
        for paragraph in _paragraphs(inspect.cleandoc(text).splitlines())
        for sentence in _split_sentences(_strip_markup(paragraph))
        if _is_prose(sentence)
    ]


def clauses(sentence: str) -> list[str]:
    """Splits a sentence after commas, semicolons and colons.

    Args:
        sentence: words with single blanks between them.

    Returns:
        The parts in order; joined with blanks they are the sentence. No part is shorter than
        MIN_WORDS words, unless the sentence is.
    """
    parts: list[str] = []
    for part in _CLAUSE_END.split(sentence):
        if parts and min(len(parts[-1].split()), len(part.split())) < MIN_WORDS:
            parts[-1] += " " + part
        else:
            parts.append(part)
    return parts


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yields each paragraph and each list item as one line of text."""
    gathered: list[str] = []
    in_example = False
    for line in lines:
        starts_example = bool(_DOCTEST.match(line))
        if gathered and (starts_example or _ends_paragraph(line)):
            if not _UNDERLINE.fullmatch(line):  # else what was gathered is a heading
                yield " ".join(gathered)
            gathered = []
        in_example = bool(line.strip()) and (in_example or starts_example)
        if not in_example and not _is_noise(line):
            gathered.append(_BULLET.sub("", line, count=1).strip())
    if gathered:
        yield " ".join(gathered)


def _ends_paragraph(line: str) -> bool:
    return _is_noise(line) or bool(_BULLET.match(line))


def _is_noise(line: str) -> bool:
    return not line.strip() or bool(_UNDERLINE.fullmatch(line) or _DIRECTIVE.match(line))


def _strip_markup(paragraph: str) -> str:
    for pattern, kept in _MARKUP:
        paragraph = pattern.sub(kept, paragraph)
    return paragraph.translate(_TYPOGRAPHY).strip()


def _split_sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for match in _SENTENCE_END.finditer(paragraph):
        if not _NO_SENTENCE_END.search(paragraph, start, match.end()):
            yield paragraph[start : match.end()].rstrip()
            start = match.end()
    yield paragraph[start:]


def _is_prose(sentence: str) -> bool:
    words = sentence.split()
    if not MIN_WORDS <= len(words) <= MAX_WORDS or not _SENTENCE.fullmatch(sentence):
        return False
    plain = sum(1 for word in words if _PLAIN_WORD.fullmatch(word))
    if plain < MIN_SHARE_OF_PLAIN_WORDS * len(words):
        return False
    return bool(_FUNCTION_WORD.search(sentence))
