"""The interface of all tokenizers."""

import abc
import hashlib
import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from albert_tf.data.arguments import check_whole_number, texts_and_pairs
from albert_tf.data.errors import UserError
from albert_tf.data.sequences import TokenSequences, check_room

Batch = dict[str, np.ndarray]
# Blocks of Thai, Lao, Burmese, Khmer, Japanese and Chinese, for classes of regular expressions
SCRIPTS_WITHOUT_BLANKS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
WORD_START = "▁"  # first character of SentencePiece pieces that start a word

# The usual names of the special tokens by their role.
SPECIAL_TOKENS: Mapping[str, Sequence[str]] = {
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]",),
}


def vocabulary_fingerprint(tokens: Sequence[str]) -> str:
    """Returns 64 hexadecimal digits that depend only on the tokens and their order."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


class Encoding(NamedTuple):
    """The token ids of a text and the range of characters of each token.

    Token i covers `text[starts[i]:ends[i]]`; `starts` never decreases.

    * In SentencePiece, the white space before a word belongs to the first token of the word. The
      range of this token starts at the first blank (U+0020, or a character that NFKD maps to it),
      or at the first white space if there is no blank. A separate "▁" covers only this blank, or
      all white space if there is no blank.
    * A character that normalization removes is covered only if it is between two characters of the
      same token.
    * If normalization replaces a character with several characters ("½" by "1⁄2"), each token of
      the replacement covers the original character.
    * A token that covers no characters, such as a "▁" at the start of a text, has an empty range at
      the start of the next token.

    Differs: the original release extends empty ranges to their neighbors.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]


class Tokenizer(abc.ABC):
    """Converts text to ids of a vocabulary, which must contain the special tokens.

    Attributes:
        tokens: the vocabulary, V different texts, in the order of the ids.
        vocab_size: V, the number of tokens.
        pad_token, unk_token, cls_token, sep_token, mask_token: the special tokens.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
        starts_word: bool [V]; whether a token starts a word, for whole-word masking.
        do_lower_case: whether text is lower-cased.
        keep_accents: whether accents and other marks are kept, for SentencePiece.
        files: paths of the tokenizer files, which are stored with a model.
        source: the file for messages. It differs from the first file if that is in the cache.
        word_start: first character of tokens that start a word. "" if tokens that continue a word
            have a prefix instead, such as "##".
        byte_ids: ids of the pieces of SentencePiece's byte fallback.
    """

    word_start = WORD_START
    byte_ids: frozenset[int] = frozenset()

    def __init__(self, tokens: Sequence[str], do_lower_case: bool, files: Sequence[str]) -> None:
        self.tokens = list(tokens)
        self.vocab_size = len(self.tokens)
        self.do_lower_case = do_lower_case
        self.keep_accents = False
        self.files = list(files)
        self.source = self.files[0] if self.files else "The vocabulary"
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        special = tuple(map(self._special_id, SPECIAL_TOKENS))
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = special
        self._special_tokens = [self.tokens[i] for i in special]
        self.pad_token, self.unk_token, self.cls_token, self.sep_token, self.mask_token = (
            self._special_tokens
        )
        self.starts_word = np.array([self._starts_word(token) for token in self.tokens], bool)

    def __call__(
        self,
        texts: str | Iterable[str],
        text_pairs: str | Iterable[str] | None = None,
        max_length: int | None = None,
        padding: Literal["longest", "max_length", True] = "longest",
        offsets: bool = False,
        *,
        truncation: bool = True,
        split_special_tokens: bool = True,
    ) -> Batch:
        """Encodes texts as model inputs: [CLS] a [SEP], or [CLS] a [SEP] b [SEP].

        Args:
            texts: B texts, at least one. A single text is a batch of one.
            text_pairs: B second texts.
            max_length: maximum number of tokens of a sequence, including special tokens. If `None`,
                the length is not limited.
            padding: "longest" or `True` pads to the longest sequence of the batch, "max_length" to
                `max_length`.
            offsets: whether to return the position of each token in its text, see `Encoding`. This
                takes several times as long.
            truncation: whether longer sequences are truncated, see `TokenSequences.from_segments`.
                If `False`, they are rejected.
            split_special_tokens: whether special tokens in the texts, such as "[MASK]", are treated
                as ordinary text. If `False`, they get their ids.

        Returns:
            `input_ids` (`pad_id` for padding), `input_mask` (1 = real token) and `segment_ids`
            (1 = second text), int32 [B, S] each. With `offsets` also `offsets`, int32 [B, S, 2]:
            start and end of each token in characters; 0, 0 for special tokens and padding.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the arguments contradict each other, there is no text, `max_length` is too
                small, or a sequence is too long and `truncation` is `False`.
        """
        texts = [texts] if isinstance(texts, str) else texts
        text_pairs = [text_pairs] if isinstance(text_pairs, str) else text_pairs
        first, second = texts_and_pairs(texts, text_pairs)
        if offsets and not split_special_tokens:
            raise UserError("offsets=True needs split_special_tokens=True.")
        parts = [first] if second is None else [first, second]
        _check_lengths(padding, max_length, len(parts) > 1)
        ordered = list(chain.from_iterable(zip(*parts, strict=True)))
        ids, *ranges = self._encode_texts(ordered, offsets, split_special_tokens)
        lengths = np.zeros([len(first), 2], np.int64)
        lengths[:, : len(parts)] = np.reshape([*map(len, ids)], [-1, len(parts)])
        longest = int(lengths.sum(axis=1).max()) + len(parts) + 1
        if not truncation and max_length is not None and longest > max_length:
            raise UserError(
                f"A sequence has {longest} tokens, more than max_length={max_length}. Pass "
                "truncation=True, or shorter texts."
            )
        pad = partial(_pad, lengths, max_length, padding == "max_length")
        batch = pad(ids, self.cls_id, self.sep_id)
        batch["input_ids"][batch["input_mask"] == 0] = self.pad_id
        if offsets:
            # Offsets are padded like ids, with zeros for special tokens.
            limits = [pad(values, 0, 0)["input_ids"] for values in ranges]
            batch["offsets"] = np.stack(limits, axis=-1)
        return batch

    def _encode_texts(
        self, texts: Sequence[str], offsets: bool, split_special_tokens: bool
    ) -> Sequence[Sequence[list[int]]]:
        """Returns the ids of each text; with `offsets`, also starts and ends."""
        if offsets:
            return [*zip(*map(self.encode_with_offsets, texts), strict=True)]
        if split_special_tokens:
            return [self.encode_batch(texts)]
        return [[*map(self.encode_special, texts)]]

    def count_changed(self, text: str) -> int:
        """Returns the number of accents and other marks that the tokenizer removes."""
        return 0

    @property
    def rules(self) -> dict[str, Any]:
        """The settings of the tokenizer that are stored with a model."""
        return {"do_lower_case": self.do_lower_case, "keep_accents": self.keep_accents}

    @cached_property
    def fingerprint(self) -> str:
        """64 hexadecimal digits that depend only on the tokens and their order."""
        return vocabulary_fingerprint(self.tokens)

    def is_same_as(self, other: "Tokenizer") -> bool:
        """Returns whether another tokenizer has the same kind and tokens, except `rules`."""
        return type(self) is type(other) and self.tokens == other.tokens

    def __len__(self) -> int:
        return self.vocab_size

    @abc.abstractmethod
    def clean(self, text: str) -> str:
        """Returns the normalized text."""

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of a raw text."""
        return [self.tokens[i] for i in self.encode(text)]

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of a raw text, without special tokens."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each raw text, without special tokens."""
        return [self.encode(text) for text in texts]

    @abc.abstractmethod
    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of a raw text and the ranges of characters of the tokens."""

    def encode_special(self, text: str, special_tokens: Sequence[str] | None = None) -> list[int]:
        """Returns the ids of a text, including special tokens that it contains.

        `special_tokens` lists the special tokens to recognize. If `None`, all are recognized.
        """
        names = self._special_tokens if special_tokens is None else special_tokens
        first, *rest = re.split(f"({'|'.join(map(re.escape, names))})", text)
        ids = self.encode(first)
        for token, part in zip(rest[::2], rest[1::2], strict=True):
            part_ids = self.encode(part)
            # SentencePiece adds a word start, but "." in "[MASK]." does not start a word.
            if part_ids and part[:1].strip() and self.tokens[part_ids[0]] == WORD_START:
                del part_ids[0]
            ids += [self._ids[token], *part_ids]
        return ids

    def decode(self, ids: Iterable[Any], skip_special_tokens: bool = True) -> Any:
        """Returns the text of token ids, or a list of texts for a batch [B, S].

        If `skip_special_tokens` is `True`, [CLS], [SEP] and padding are omitted.
        """
        # Scalars of a tensor are `Iterable`, scalars of an array are not.
        rows = list(np.asarray(ids) if hasattr(ids, "__array__") else ids)
        if rows and isinstance(rows[0], Iterable):
            return [self.decode(row, skip_special_tokens) for row in rows]
        hidden = {self.pad_id, self.cls_id, self.sep_id} if skip_special_tokens else set()
        return self._join(self.convert_ids_to_tokens(int(i) for i in rows if int(i) not in hidden))

    @abc.abstractmethod
    def _join(self, tokens: list[str]) -> str:
        """Joins tokens to text."""

    @abc.abstractmethod
    def _starts_word(self, token: str) -> bool:
        """Returns whether a token starts a word."""

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the ids of tokens; unknown tokens become `unk_id`."""
        ids, unk_id = self._ids, self.unk_id
        return [ids.get(token, unk_id) for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the tokens of ids; IndexError if an id is not in [0, V)."""
        tokens = []
        for i in ids:
            if not 0 <= i < self.vocab_size:
                raise IndexError(f"The vocabulary has the ids 0 to {self.vocab_size - 1}, not {i}.")
            tokens.append(self.tokens[i])
        return tokens

    def _special_id(self, role: str) -> int:
        names = SPECIAL_TOKENS[role]
        for name in names:
            if name in self._ids:
                return self._ids[name]
        raise UserError(
            f"{self.source} has no {' or '.join(names)} among its {self.vocab_size} tokens, which "
            f"begin with {reprlib.repr(self.tokens)}. An ALBERT vocabulary has [CLS], [SEP], "
            "[MASK], <pad> or [PAD], and <unk> or [UNK]. Check `spm_model_file` and `vocab_file`."
        )


def _pad(
    lengths: np.ndarray,
    max_length: int | None,
    is_fixed: bool,
    values: Iterable[Sequence[int]],
    cls_id: int,
    sep_id: int,
) -> Batch:
    """Joins the parts of each sequence, int64 [B, 2]; pads to `max_length` or the longest."""
    tokens = np.fromiter(chain.from_iterable(values), np.int32, int(lengths.sum()))
    sequences = TokenSequences.from_segments(
        tokens, lengths, cls_id=cls_id, sep_id=sep_id, max_length=max_length
    )
    length = max_length if is_fixed and max_length else int(sequences.lengths.max())
    return sequences.padded(np.arange(len(sequences)), length)


def _check_lengths(padding: object, max_length: int | None, is_pair: bool) -> None:
    """Checks arguments of `Tokenizer.__call__`."""
    if padding not in ("longest", "max_length", True):
        raise UserError(f"padding must be 'longest', True or 'max_length'. Received: {padding!r}")
    if max_length is not None:
        check_whole_number("max_length", max_length)
        check_room(is_pair, max_length, "max_length")
    elif padding == "max_length":
        raise UserError("padding='max_length' needs max_length. Received: max_length=None")
