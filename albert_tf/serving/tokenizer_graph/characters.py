"""Text as arrays of code points in a graph: decoding, and replacing characters.

Replacements are looked up in tables, which contain the results of the Python tokenizers. Therefore,
graphs return the same results as Python and do not depend on the Unicode version of TensorFlow.
"""

import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# The first entries of every character table.
ITSELF, NOTHING, BLANK, OTHER_BLANK = range(4)

# SentencePiece needs quadratic time for characters that are not in its vocabulary.
MAX_WORD_CHARACTERS = 50_000
_BLANKS = r"[\x1c-\x1f\x{85}\p{Z}]"  # white space at which `tf.strings.split` does not split

_SELF = "\uffff"  # represents the replaced character in a replacement
_NO_CODE = -1
_RESERVED = (_SELF, "", " ", " ")
_CODES = sys.maxunicode + 1
_PAGE_BITS = 7
_PAGE = 1 << _PAGE_BITS

_FINAL_SIGMA, _SIGMA, _CAPITAL_SIGMA = 0x3C2, 0x3C3, 0x3A3

_CASED, _IGNORABLE = 1, 2

Replacement = Callable[[bool, str], "str | int"]


class Characters(NamedTuple):
    """The characters of B texts in flat arrays."""

    codes: tf.Tensor  # int32 [N]; code points
    rows: tf.Tensor  # int32 [N]; text that contains each character
    splits: tf.Tensor  # int32 [B + 1]; start of each text in the arrays, and N
    starts: tf.Tensor  # int32 [N]; first byte of each character in the raw text in UTF-8
    ends: tf.Tensor  # int32 [N]; end of the bytes, exclusive

    def row_starts(self) -> tf.Tensor:
        """Returns the index at which the text of each character starts, int32 [N]."""
        return tf.gather(self.splits, self.rows)

    def row_ends(self) -> tf.Tensor:
        """Returns the index at which the text of each character ends, int32 [N]."""
        return tf.gather(self.splits, self.rows + 1)

    def starts_row(self) -> tf.Tensor:
        """Returns whether each character is the first character of a text, bool [N]."""
        return self.row_starts() == tf.range(tf.size(self.rows))

    def starts_run(self, mask: tf.Tensor) -> tf.Tensor:
        """Returns whether each character starts a run in `mask`, bool [N].

        Runs do not continue in the next text.
        """
        continues = tf.concat([[False], mask[:-1]], 0)[: tf.size(mask)]
        return mask & (self.starts_row() | ~continues)


class Located(NamedTuple):
    """P tokens of B texts and their ranges, in flat arrays."""

    ids: tf.Tensor  # int32 [P]
    splits: tf.Tensor  # int32 [B + 1]; first token of each text, and P
    starts: tf.Tensor  # int32 [P]
    ends: tf.Tensor  # int32 [P], exclusive


def ragged(values: tf.Tensor, splits: tf.Tensor) -> tf.RaggedTensor:
    """Returns rows of values, [N], which are split at `splits`, int32 [B + 1]."""
    return tf.RaggedTensor.from_row_splits(values, tf.cast(splits, tf.int64), validate=False)


def encode(codes: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Returns texts in UTF-8, string [B], from code points; see `ragged`."""
    return tf.strings.unicode_encode(ragged(codes, splits), "UTF-8")


def limit_words(texts: tf.Tensor) -> tf.Tensor:
    """Returns the texts, or raises an error if a word exceeds `MAX_WORD_CHARACTERS`."""

    def checked() -> tf.Tensor:
        words = tf.strings.split(tf.strings.regex_replace(texts, _BLANKS, " ")).flat_values
        longest = tf.reduce_max(tf.strings.length(words, "UTF8_CHAR"))
        message = (
            f"A text contains a word of more than {MAX_WORD_CHARACTERS:,} characters without white "
            "space. Split or shorten it. Characters of the longest word:"
        )
        within_limit = tf.debugging.Assert(longest <= MAX_WORD_CHARACTERS, [message, longest])
        with tf.control_dependencies([within_limit]):
            return tf.identity(texts)

    # Shorter texts cannot contain such a word.
    is_long = tf.reduce_any(tf.strings.length(texts) > MAX_WORD_CHARACTERS)
    return tf.cond(is_long, checked, lambda: texts)


def decode(texts: tf.Tensor) -> Characters:
    """Splits texts, string [B], into characters; see `limit_words` for errors."""
    texts = limit_words(texts)
    decoded, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
    codes, splits = decoded.values, tf.cast(decoded.row_splits, tf.int32)
    size = tf.size(codes)
    rows = segment_ids(splits, size)
    starts = tf.cast(offsets.values, tf.int32)
    is_last = tf.gather(splits, rows + 1) == tf.range(1, size + 1)
    lengths = tf.gather(tf.strings.length(texts), rows)
    ends = tf.where(is_last, lengths, tf.concat([starts[1:], starts[:1]], 0))
    return Characters(codes, rows, splits, starts, ends)


def segment_ids(splits: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the row that contains each of `size` positions, int32 [size]."""
    ends = tf.minimum(splits[1:], size)[:, None]
    passed = tf.scatter_nd(ends, tf.ones_like(ends[:, 0]), [size + 1])
    return tf.cumsum(passed)[:size]


def utf8_positions(codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the UTF-8 start of each character, int32 [N + 1], and the character of each byte."""
    lengths = 1 + sum(tf.cast(codes >= bound, tf.int32) for bound in (0x80, 0x800, 0x10000))
    starts = tf.concat([[0], tf.cumsum(lengths)], 0)
    return starts, segment_ids(starts, starts[-1] + 1)


def first_from(mask: tf.Tensor) -> tf.Tensor:
    """Returns the index of the first True at or after each of N positions; N if there is none."""
    size = tf.size(mask)
    places = tf.cast(tf.where(mask)[:, 0], tf.int32)
    return tf.gather(tf.concat([places, [size]], 0), tf.cumsum(tf.cast(mask, tf.int32), 0, True))


def last_before(mask: tf.Tensor) -> tf.Tensor:
    """Returns the index of the last True before each of N positions; -1 if there is none."""
    places = tf.cast(tf.where(mask)[:, 0], tf.int32)
    return tf.gather(tf.concat([[-1], places], 0), tf.cumsum(tf.cast(mask, tf.int32), 0, True))


class CodeMap(tf.Module):
    """A table of numbers for all code points, int [0x110000]. Equal pages are stored once."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        rows = values.astype(np.int32).reshape(-1, _PAGE)
        places: dict[bytes, int] = {}
        pages = [places.setdefault(row.tobytes(), len(places)) * _PAGE for row in rows]
        self.pages = constant(pages)
        self.values = constant(np.frombuffer(b"".join(places), np.int32))

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of code points, int32 [N]."""
        page = tf.gather(self.pages, tf.bitwise.right_shift(codes, _PAGE_BITS))
        return tf.gather(self.values, page + tf.bitwise.bitwise_and(codes, _PAGE - 1))


class CharacterTable(tf.Module):
    """A table of replacements of characters by texts."""

    def __init__(self, replace: Replacement, do_lower_case: bool) -> None:
        """Stores the results of `replace`, texts or reserved entries, for all characters."""
        super().__init__()
        entries, texts = _replacements(replace, do_lower_case)
        lengths = list(map(len, texts))
        self.entries = CodeMap(entries)
        self._ends = constant(np.cumsum(lengths))
        self._starts = constant(np.cumsum(lengths) - lengths)
        codes = np.array([ord(c) for text in texts for c in text])
        self._codes = constant(np.where(codes == ord(_SELF), _NO_CODE, codes))

    def replace(
        self, text: Characters, entries: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tuple[Characters, tf.Tensor]:
        """Replaces N characters by the texts of `entries`, int32 [N].

        `starts` and `ends`, int32 [N], are the byte ranges of the characters in the raw text.
        Returns M new characters, and for each of them the index of the old character, int32 [M].
        """
        first, after = tf.gather(self._starts, entries), tf.gather(self._ends, entries)
        places = tf.ragged.range(first, after, row_splits_dtype=tf.int32)
        codes = tf.gather(self._codes, places.values)
        sources = segment_ids(places.row_splits, tf.size(codes))
        codes = tf.where(codes == _NO_CODE, tf.gather(text.codes, sources), codes)
        new = Characters(
            codes,
            tf.gather(text.rows, sources),
            tf.gather(places.row_splits, text.splits),
            tf.gather(starts, sources),
            tf.gather(ends, sources),
        )
        return new, sources


class SigmaLowering(tf.Module):
    """Lower-cases capital sigmas, whose lower case depends on the characters around them."""

    def __init__(self, is_dropped: Callable[[str], bool] | None = None) -> None:
        """Creates the table; characters with `is_dropped` are ignored, as if they were removed."""
        super().__init__()
        classes = code_table(_case_class)
        if is_dropped:
            dropped = [code for code in possible_codes() if is_dropped(chr(code))]
            classes = classes.copy()
            classes[dropped] = _IGNORABLE
        self._classes = CodeMap(classes)

    def __call__(self, text: Characters) -> Characters:
        """Lower-cases every capital sigma; other letters may have any case."""
        is_sigma = text.codes == _CAPITAL_SIGMA
        codes = tf.cond(
            tf.reduce_any(is_sigma), lambda: self._lower(text, is_sigma), lambda: text.codes
        )
        return text._replace(codes=codes)

    def _lower(self, text: Characters, is_sigma: tf.Tensor) -> tf.Tensor:
        classes = self._classes(text.codes)
        counts = classes != _IGNORABLE
        is_cased = tf.concat([classes == _CASED, [False]], 0)  # False for the index N
        before = last_before(counts)
        # A capital sigma is cased itself, so the search begins after it.
        after = tf.concat([first_from(counts)[1:], [tf.size(counts)]], 0)
        follows = (before >= text.row_starts()) & tf.gather(is_cased, tf.maximum(before, 0))
        ends = (after >= text.row_ends()) | ~tf.gather(is_cased, after)
        lower = tf.where(follows & ends, _FINAL_SIGMA, _SIGMA)
        return tf.where(is_sigma, lower, text.codes)


def constant(values: Any) -> tf.Tensor:
    """Returns an int32 constant on the CPU, where string operations run."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(np.asarray(values, np.int32))


@cache
def possible_codes() -> tuple[int, ...]:
    """Returns the code points that text can contain."""
    # Includes unassigned codes in the planes of letters and ideographs, but no surrogates.
    letters = (*range(0xD800), *range(0xE000, 0x30000))
    others = (*range(0x30000, 0x40000), *range(0xE0000, 0xF0000))
    return (*letters, *(code for code in others if unicodedata.category(chr(code)) != "Cn"))


@cache
def code_table(number: Callable[[int], int], missing: int = 0) -> np.ndarray:
    """Returns `number` of each code point, int32 [0x110000]; `missing` if it cannot be in text."""
    numbers = np.full(_CODES, missing, np.int32)
    numbers[list(possible_codes())] = [*map(number, possible_codes())]
    return numbers


@cache
def _replacements(replace: Replacement, do_lower_case: bool) -> tuple[np.ndarray, list[str]]:
    """Returns the entries of all code points, int32 [0x110000], and the texts of the entries."""
    entries = np.zeros(_CODES, np.int32)
    places: dict[str, int] = {}
    for code in possible_codes():
        character = chr(code)
        new = replace(do_lower_case, character)
        if isinstance(new, int):
            entries[code] = new
        elif new != character:
            new = new.replace(character, _SELF)
            entries[code] = places.setdefault(new, len(_RESERVED) + len(places))
    return entries, [*_RESERVED, *places]


def _case_class(code: int) -> int:
    """Returns the effect of a character on a sigma next to it."""
    # Python skips ignorable characters, and then checks whether the next character is cased.
    if f"AΣ{chr(code)}".lower()[1] != "ς":
        return _CASED
    return _IGNORABLE if f"AΣ{chr(code)}A".lower()[1] != "ς" else 0
