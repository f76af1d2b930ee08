"""How well a vocabulary fits texts: the share of unknown pieces, and pieces per word."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakSet

from absl import logging

from albert_tf.data.strict_json import listed
from albert_tf.tokenization.base import Tokenizer

_LIMIT = 0.01  # larger shares of unknown or unreachable pieces are reported as warnings
_LIMIT_OF_TRAINING = 0.005  # for the text of a vocabulary or of pretraining
_TEXTS_SEARCHED = 1000  # per call of `add`, for unknown characters
_COUNTED, _NAMED = 100, 8  # most frequent unknown characters
_CHARACTER = "unknown_piece "  # prefix of the counts of unknown characters

# Scripts without blanks: Thai, Lao, Myanmar, Khmer, kana, ideographs.
_NO_BLANKS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
)
_WORD = re.compile(f"[{_NO_BLANKS}]|[^\\s{_NO_BLANKS}]+")


class PieceCounts(Counter[str]):
    """The numbers of `pieces`, `unknown_pieces` and `words`, and of each unknown character.

    Words are separated by white space. In scripts without blanks, such as Chinese, Japanese and
    Thai, every character is a word. Unknown characters are only counted where more than 1% of the
    pieces are unknown, because this requires tokenizing the texts again.
    """

    def add(self, tokenizer: Tokenizer, texts: Sequence[str], ids: Sequence[list[int]]) -> None:
        """Adds the counts of texts, given the ids of their pieces."""
        unknown = [row.count(tokenizer.unk_id) for row in ids]
        words = sum(len(t.split() if t.isascii() else _WORD.findall(t)) for t in texts)
        part = PieceCounts(pieces=sum(map(len, ids)), unknown_pieces=sum(unknown), words=words)
        self.update(part)
        if part.is_poor:
            found = [text for text, number in zip(texts, unknown, strict=True) if number]
            characters = _unknown_characters(tokenizer, found[:_TEXTS_SEARCHED])
            frequent = characters.most_common(_COUNTED)
            self.update({f"{_CHARACTER}{name}": number for name, number in frequent})

    @property
    def is_poor(self) -> bool:
        """Whether more than 1% of the pieces are unknown."""
        return self["unknown_pieces"] > _LIMIT * self["pieces"]

    def describe(self) -> str:
        """Returns the share of unknown pieces and the number of pieces per word."""
        share = self["unknown_pieces"] / max(self["pieces"], 1)
        rate = self["pieces"] / max(self["words"], 1)
        changed = f" changed_characters={self._share_changed:.2%}" * ("characters" in self)
        return f"unknown_pieces={share:.2%} pieces_per_word={rate:.2f}{changed}"

    @property
    def _share_changed(self) -> float:
        return self["changed_characters"] / max(self["characters"], 1)

    def warnings(self, vocabulary: str, *, is_new: bool = False) -> Iterator[str]:
        """Yields warnings if the vocabulary or the normalization does not suit the text.

        `is_new` is whether the vocabulary was trained on the text.
        """
        if self._share_changed > _LIMIT_OF_TRAINING:
            yield (
                f"Normalization removes or changes {self._share_changed:.2%} of the characters, "
                "such as accents and vowel signs. Pass `keep_accents` to train_sentencepiece and "
                "create_pretraining_data, unless the model needs the original normalization."
            )
        if self.is_poor and not is_new:
            yield self.warning(vocabulary)
        elif self["unknown_pieces"] > _LIMIT_OF_TRAINING * self["pieces"]:
            yield (
                f"{self['unknown_pieces']:,} of {self['pieces']:,} pieces are unknown to the "
                f"vocabulary {vocabulary}. Train it with a larger `character_coverage` or with "
                "`byte_fallback`."
            )

    def warning(self, vocabulary: str) -> str:
        """Returns a warning that names the most frequent unknown characters."""
        names = [name for name in self if name.startswith(_CHARACTER)]
        names = sorted(names, key=lambda name: (-self[name], name))[:_NAMED]
        number, total = self["unknown_pieces"], self["pieces"]
        return (
            f"{number:,} of {total:,} pieces ({number / total:.1%}) are unknown to the vocabulary "
            f"{vocabulary}, most often {listed(n[len(_CHARACTER) :] for n in names)}. A model "
            "cannot distinguish unknown pieces. Use a model or vocabulary for such texts "
            "(train_sentencepiece trains a vocabulary), or correct the encoding of the text."
        )


_TOTALS: WeakKeyDictionary[Tokenizer, PieceCounts] = WeakKeyDictionary()  # texts without a source
_REPORTED: WeakSet[Tokenizer] = WeakSet()  # tokenizers whose unknown pieces were reported


@contextmanager
def counting(tokenizer: Tokenizer, source: str | None = None) -> Iterator[PieceCounts]:
    """Context manager that yields counts of pieces, to which texts are added.

    At the end, it logs the counts of `source`. If `source` is `None`, it warns once per tokenizer.
    """
    counts = PieceCounts() if source else _TOTALS.setdefault(tokenizer, PieceCounts())
    yield counts
    if source:
        logging.debug("%s: pieces=%d %s", source, counts["pieces"], counts.describe())
    if counts.is_poor and (source or tokenizer not in _REPORTED):
        _REPORTED.add(tokenizer)
        logging.warning("%s%s", f"{source}: " if source else "", counts.warning(tokenizer.source))


def _unknown_characters(tokenizer: Tokenizer, texts: Sequence[str]) -> Counter[str]:
    """Counts the unknown characters of texts or, if there are none, the unknown words.

    A word of WordPiece can be unknown although all of its characters are known.
    """
    words: Counter[str] = Counter()
    for text in (unicodedata.normalize("NFC", text) for text in texts):
        encoding = zip(*tokenizer.encode_with_offsets(text), strict=True)
        words.update(text[start:end] for i, start, end in encoding if i == tokenizer.unk_id)
    characters = Counter(character for word in words.elements() for character in word)
    unknown = {c: n for c, n in characters.items() if tokenizer.unk_id in tokenizer.encode(c)}
    return Counter(unknown) or words


def warn_of_unreachable_pieces(tokenizer: Tokenizer) -> None:
    """Logs a warning if lower-casing makes more than 1% of the vocabulary unreachable."""
    found = [token for token in tokenizer.tokens if token != token.lower() and token[0] not in "[<"]
    if tokenizer.do_lower_case and len(found) > _LIMIT * tokenizer.vocab_size:
        logging.warning(
            "%s: %d of %d pieces, such as %r, are never used, because they contain capital letters "
            "but texts are lower-cased. Pass `do_lower_case`=False to use them",
            *(tokenizer.source, len(found), tokenizer.vocab_size, found[0]),
        )
