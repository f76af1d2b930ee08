"""WordPiece, used by the Chinese ALBERT models and by BERT: splits text into words, then pieces."""

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

from albert_tf.data.filled_table import FilledTable
from albert_tf.tokenization.base import Encoding, Tokenizer

_ASCII_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ASCII_WORD = re.compile(f"[0-9A-Za-z]+|[{re.escape(string.punctuation)}]")
_WORD = re.compile(r"\S+")

# Blocks of CJK ideographs, without kana and hangul.
_IDEOGRAPHS = (
    range(0x3400, 0x4DC0),
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0x2F800, 0x2FA20),
)


def clean_character(code: int) -> str:
    """Removes a control character, replaces white space with " ", and isolates an ideograph."""
    character = chr(code)
    category = unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    if category in ("Cc", "Cf") or code == 0xFFFD:
        return ""
    return f" {character} " if any(code in block for block in _IDEOGRAPHS) else character


def split_punctuation(code: int) -> str:
    """Isolates a punctuation character."""
    character = chr(code)
    is_mark = character in string.punctuation or unicodedata.category(character)[0] == "P"
    return f" {character} " if is_mark else character


def word_character(character: str) -> str:
    """Returns what `split_words` makes of a character: nothing, itself, or a separate word."""
    cleaned = clean_character(ord(character))
    return split_punctuation(ord(character)) if cleaned == character else cleaned


# For `str.translate`.
_CLEAN: FilledTable[int, str] = FilledTable(clean_character)
_SPLIT_PUNCTUATION: FilledTable[int, str] = FilledTable(split_punctuation)
_STRIP_AND_SPLIT: FilledTable[int, str] = FilledTable(
    lambda code: "" if unicodedata.category(chr(code)) == "Mn" else split_punctuation(code)
)


def split_words(text: str, do_lower_case: bool) -> list[str]:
    """Splits a text at blanks, punctuation and ideographs.

    Removes control characters (categories Cc and Cf, U+FFFD). With `do_lower_case`, lower-cases the
    text and removes accents (category Mn after NFD).

    Source: `BasicTokenizer` of the original's tokenization module.
    """
    if text.isascii():
        if not text.isprintable():
            text = _ASCII_CONTROL.sub("", text)
        return _ASCII_WORD.findall(text.lower() if do_lower_case else text)
    return spread_words(text, do_lower_case).split()


def spread_words(text: str, do_lower_case: bool) -> str:
    """Returns the text with blanks between its words."""
    text = text.translate(_CLEAN)
    if do_lower_case:
        return unicodedata.normalize("NFD", text.lower()).translate(_STRIP_AND_SPLIT)
    return text.translate(_SPLIT_PUNCTUATION)


def is_dropped(character: str) -> bool:
    """Returns whether `split_words` removes a character before it lower-cases the text."""
    return not _CLEAN[ord(character)]


class AlignedWord(NamedTuple):
    """A word, and the position in the raw text of each of its characters."""

    text: str
    positions: list[int]


def align_words(text: str, do_lower_case: bool) -> list[AlignedWord]:
    """Returns the result of `split_words` with positions."""
    text, positions = _translate(text, list(range(len(text))), _CLEAN)
    if do_lower_case:
        # The text is lower-cased as a whole, because the lower case of a sigma depends on its
        # neighbors. Characters that get longer (only U+0130) repeat their position.
        positions = [p for c, p in zip(text, positions, strict=True) for _ in c.lower()]
        text, positions = _decompose(text.lower(), positions)
        text, positions = _translate(text, positions, _STRIP_AND_SPLIT)
    else:
        text, positions = _translate(text, positions, _SPLIT_PUNCTUATION)
    words = (match.span() for match in _WORD.finditer(text))
    return [AlignedWord(text[start:end], positions[start:end]) for start, end in words]


def _translate(text: str, positions: list[int], table: dict[int, str]) -> tuple[str, list[int]]:
    moved = [p for c, p in zip(text, positions, strict=True) for _ in table[ord(c)]]
    return text.translate(table), moved


def _decompose(text: str, positions: list[int]) -> tuple[str, list[int]]:
    """Applies NFD: decomposes characters, and sorts each run of combining characters."""
    pairs = [
        (part, position)
        for character, position in zip(text, positions, strict=True)
        for part in unicodedata.normalize("NFD", character)
    ]
    ordered: list[tuple[str, int]] = []
    for _, run in groupby(pairs, key=lambda pair: unicodedata.combining(pair[0]) > 0):
        ordered.extend(sorted(run, key=lambda pair: unicodedata.combining(pair[0])))
    return "".join(part for part, _ in ordered), [position for _, position in ordered]


CONTINUATION = "##"
MAX_WORD_LENGTH = 200
_CACHED_WORDS = 1 << 17

# Matches a blank, a punctuation character or a common ideograph, or a run of other characters.
_STRETCH = re.compile("[ !-/:-@\\[-`{-~\u4e00-\u9fff，。]|[^ !-/:-@\\[-`{-~\u4e00-\u9fff，。]+")


def wordpiece_starts_word(token: str) -> bool:
    """Returns whether a WordPiece token starts a word. Other tokens begin with "##"."""
    return not token.startswith(CONTINUATION)


class WordPieceTokenizer(Tokenizer):
    """Splits a text into words, and each word into the longest matching tokens.

    Words that do not match and words of more than 200 characters become the unknown token.

    Source: `FullTokenizer` of the original's tokenization module.
    """

    word_start = ""

    def __init__(
        self, tokens: Sequence[str], do_lower_case: bool = True, files: Sequence[str] = ()
    ) -> None:
        super().__init__(tokens, do_lower_case, files)
        self._longest = max(map(len, self.tokens))
        self._word_ids = lru_cache(_CACHED_WORDS)(self._match_pieces)
        self._stretch_pieces = lru_cache(_CACHED_WORDS)(self._locate_pieces)

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), (self.tokens, self.do_lower_case, self.files)

    def clean(self, text: str) -> str:
        """Returns the text without surrounding white space."""
        return text.strip()

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a raw text, without special tokens."""
        words = split_words(text, self.do_lower_case)
        return list(chain.from_iterable(map(self._word_ids, words)))

    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of a raw text and the ranges of characters of the tokens."""
        encoding, begin = Encoding([], [], []), 0
        # Results of frequent stretches are cached, but the lower case of a sigma depends on the
        # whole text.
        for stretch in [text] if "Σ" in text else _STRETCH.findall(text):
            for i, start, end in self._stretch_pieces(stretch):
                encoding.ids.append(i)
                encoding.starts.append(begin + start)
                encoding.ends.append(begin + end)
            begin += len(stretch)
        return encoding

    def _join(self, tokens: list[str]) -> str:
        return " ".join(tokens).replace(f" {CONTINUATION}", "")

    def _starts_word(self, token: str) -> bool:
        return wordpiece_starts_word(token)

    def _locate_pieces(self, text: str) -> list[tuple[int, int, int]]:
        located = []
        for word in align_words(text, self.do_lower_case):
            end = 0
            for i in self._word_ids(word.text):
                start, prefix = end, CONTINUATION if end else ""
                end += len(word.text) if i == self.unk_id else len(self.tokens[i]) - len(prefix)
                positions = word.positions[start:end]
                located.append((i, min(positions), max(positions) + 1))
        return located

    def _match_pieces(self, word: str) -> tuple[int, ...]:
        """Returns the ids of a word, which are found by matching the longest token repeatedly."""
        if len(word) > MAX_WORD_LENGTH:
            return (self.unk_id,)
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = CONTINUATION if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                token_id = self._ids.get(prefix + word[start:end])
                if token_id is not None:
                    break
            else:
                return (self.unk_id,)
            found.append(token_id)
            start = end
        return tuple(found)
