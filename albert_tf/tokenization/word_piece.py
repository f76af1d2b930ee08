"""WordPiece, as the Chinese ALBERT models and BERT vocabularies use it: words, then pieces."""

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

from albert_tf.tokenization.base import Encoding, FilledTable, Tokenizer

_ASCII_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ASCII_WORD = re.compile(f"[0-9A-Za-z]+|[{re.escape(string.punctuation)}]")
_WORD = re.compile(r"\S+")

# Blocks of CJK ideographs; kana and hangul are not among them, they are written with words.
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


def _cleaned(code: int) -> str:
    """Controls dropped, blanks made equal, ideographs set apart."""
    character = chr(code)
    category = unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    if category in ("Cc", "Cf") or code == 0xFFFD:
        return ""
    return f" {character} " if any(code in block for block in _IDEOGRAPHS) else character


def _split_punctuation(code: int) -> str:
    character = chr(code)
    is_mark = character in string.punctuation or unicodedata.category(character)[0] == "P"
    return f" {character} " if is_mark else character


# For `str.translate`.
_CLEAN: FilledTable[int, str] = FilledTable(_cleaned)
_SPLIT_PUNCTUATION: FilledTable[int, str] = FilledTable(_split_punctuation)
_STRIP_AND_SPLIT: FilledTable[int, str] = FilledTable(
    lambda code: "" if unicodedata.category(chr(code)) == "Mn" else _split_punctuation(code)
)


def split_words(text: str, do_lower_case: bool) -> list[str]:
    """Splits a text at blanks, punctuation and ideographs.

    Control characters (categories Cc and Cf, U+FFFD) are dropped. With `do_lower_case` the text is
    lower-cased and its accents (category Mn after NFD) are dropped as well.

    Source: `BasicTokenizer` of the original's tokenization module.
    """
    if text.isascii():
        if not text.isprintable():
            text = _ASCII_CONTROL.sub("", text)
        return _ASCII_WORD.findall(text.lower() if do_lower_case else text)
    return spread_words(text, do_lower_case).split()


def spread_words(text: str, do_lower_case: bool) -> str:
    """Sets the words of a text apart by blanks, without splitting it yet."""
    text = text.translate(_CLEAN)
    if do_lower_case:
        return unicodedata.normalize("NFD", text.lower()).translate(_STRIP_AND_SPLIT)
    return text.translate(_SPLIT_PUNCTUATION)


def is_dropped(character: str) -> bool:
    """Whether a character is none that a text can show: a control character, say."""
    return not _CLEAN[ord(character)]


class AlignedWord(NamedTuple):
    """A word and the raw character that each of its characters comes from, int [len(text)]."""

    text: str
    positions: list[int]


def align_words(text: str, do_lower_case: bool) -> list[AlignedWord]:
    """Does what `split_words` does and keeps the positions."""
    text, positions = _translate(text, list(range(len(text))), _CLEAN)
    if do_lower_case:
        # As a whole, because a final sigma depends on its neighbours; only the length of U+0130
        # changes.
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
    """NFD with positions: decompose each character, then order each run of combining ones."""
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

# Blanks, punctuation and ideographs end a word wherever they stand; these are the frequent ones.
_STRETCH = re.compile("[ !-/:-@\\[-`{-~\u4e00-\u9fff，。]|[^ !-/:-@\\[-`{-~\u4e00-\u9fff，。]+")


def wordpiece_starts_word(token: str) -> bool:
    """Says whether a WordPiece token opens a new word: unless it begins with "##".

    Source: `is_start_piece` of the original's create_pretraining_data.
    """
    return not token.startswith(CONTINUATION)


class WordPieceTokenizer(Tokenizer):
    """Splits into words, then each word into the longest pieces of the vocabulary.

    A word that cannot be covered, or is longer than 200 characters, becomes the unknown token.

    Source: `FullTokenizer` of the original's tokenization module.
    """

    def __init__(
        self, tokens: Sequence[str], do_lower_case: bool = True, files: Sequence[str] = ()
    ) -> None:
        """Takes a vocabulary in id order, without repetition; no special token must be missing."""
        super().__init__(tokens, do_lower_case, files)
        self._longest = max(map(len, self.tokens))
        self._word_ids = lru_cache(_CACHED_WORDS)(self._match_pieces)
        self._stretch_pieces = lru_cache(_CACHED_WORDS)(self._locate_pieces)

    def __reduce__(self) -> tuple[type, tuple]:
        """Pickles as the vocabulary, without the caches."""
        return type(self), (self.tokens, self.do_lower_case, self.files)

    def clean(self, text: str) -> str:
        """Strips the ends; all other clean-up is part of the splitting into words."""
        return text.strip()

    def tokenize(self, text: str) -> list[str]:
        """Gives the pieces of a raw text."""
        return [self.tokens[i] for i in self.encode(text)]

    def encode(self, text: str) -> list[int]:
        """Gives the ids of a raw text, special tokens not added."""
        words = split_words(text, self.do_lower_case)
        return list(chain.from_iterable(map(self._word_ids, words)))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Gives the ids of each raw text; words seen before come from a cache."""
        return [self.encode(text) for text in texts]

    def encode_with_offsets(self, text: str) -> Encoding:
        """Gives the ids of a raw text and the characters each of them comes from."""
        encoding, begin = Encoding([], [], []), 0
        # Most stretches come again and again. How a sigma is lower-cased depends on the whole text.
        for stretch in [text] if "Σ" in text else _STRETCH.findall(text):
            for i, start, end in self._stretch_pieces(stretch):
                encoding.ids.append(i)
                encoding.starts.append(begin + start)
                encoding.ends.append(begin + end)
            begin += len(stretch)
        return encoding

    def _join(self, tokens: list[str]) -> str:
        return " ".join(tokens).replace(f" {CONTINUATION}", "")

    _starts_word = staticmethod(wordpiece_starts_word)

    def _locate_pieces(self, text: str) -> list[tuple[int, int, int]]:
        """Gives id, first and one past the last character of each piece."""
        located = []
        for word in align_words(text, self.do_lower_case):
            end = 0
            for i in self._word_ids(word.text):
                start, end = end, end + self._covered(i, word.text, end)
                positions = word.positions[start:end]
                located.append((i, min(positions), max(positions) + 1))
        return located

    def _covered(self, token_id: int, word: str, start: int) -> int:
        """How many characters of a word the piece that begins at `start` covers."""
        if token_id == self.unk_id:
            return len(word)
        return len(self.tokens[token_id]) - (len(CONTINUATION) if start else 0)

    def _match_pieces(self, word: str) -> tuple[int, ...]:
        """Takes the longest piece of the vocabulary again and again."""
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
