"""SentencePiece, used by the English ALBERT models: normalization, tokenizer, training."""

import io
import os
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_pb2 import SentencePieceText

from albert_tf.data.errors import UserError
from albert_tf.data.files import write_files
from albert_tf.data.filled_table import FilledTable
from albert_tf.tokenization.base import WORD_START, Encoding, Tokenizer

_WORD = re.compile(r"\S+")
_DROP_COMBINING: FilledTable[int, int | None] = FilledTable(
    lambda code: None if unicodedata.combining(chr(code)) else code
)
# Normalizing each character separately has the same result as normalizing the whole text: across
# characters, NFKD only reorders combining characters, which are removed.
_CLEAN_CHARACTERS: FilledTable[str, str] = FilledTable(
    lambda character: unicodedata.normalize("NFKD", character).translate(_DROP_COMBINING)
)


# Characters that lose something: NFKC, which SentencePiece applies later, does not restore them.
_IS_CHANGED: FilledTable[str, bool] = FilledTable(
    lambda character: (
        unicodedata.combining(character) > 0
        or unicodedata.normalize("NFKC", _CLEAN_CHARACTERS[character])
        != unicodedata.normalize("NFKC", character)
    )
)


def clean_text(
    text: str, do_lower_case: bool, collapse_blanks: bool = True, keep_accents: bool = False
) -> str:
    """Normalizes a text for SentencePiece.

    Collapses and strips white space (if `collapse_blanks`), applies NFKD and removes combining
    characters (unless `keep_accents`), and lower-cases the text (if `do_lower_case`).

    Source: `preprocess_text` of the original's tokenization module and of transformers.
    """
    if collapse_blanks:
        text = " ".join(text.split())
    if not (keep_accents or text.isascii()):
        text = unicodedata.normalize("NFKD", text).translate(_DROP_COMBINING)
    return text.lower() if do_lower_case else text


def align_clean_text(
    text: str, do_lower_case: bool, keep_accents: bool = False
) -> tuple[str, list[tuple[int, int]] | None]:
    """Returns the result of `clean_text`, and for each of its characters the range in `text`.

    Ranges are half-open. They are `None` if every character has the same position in both texts.
    See `blank_range` for blanks.
    """
    characters = FilledTable(str) if keep_accents else _CLEAN_CHARACTERS
    if keep_accents and do_lower_case:
        characters["İ"] = "İ".lower()  # the only character whose lower case is longer
    is_collapsed = text == " ".join(text.split())
    if is_collapsed and all(len(characters[character]) == 1 for character in set(text)):
        return clean_text(text, do_lower_case, keep_accents=keep_accents), None
    parts: list[str] = []
    ranges: list[tuple[int, int]] = []
    gap = 0
    for word in _WORD.finditer(text):
        if parts:
            parts.append(" ")
            ranges.append(blank_range(text, gap, word.start()))
        gap = word.end()
        for position, character in enumerate(word.group(), word.start()):
            kept = characters[character]
            parts.append(kept)
            ranges.extend([(position, position + 1)] * len(kept))
    clean = "".join(parts)
    # Lower-casing does not change the length of these characters.
    return clean.lower() if do_lower_case else clean, ranges


def blank_range(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the range in `text` of the blank that replaces the white space `text[start:end]`.

    The range contains the first character that NFKD maps to U+0020 or, if there is none, all white
    space.
    """
    for position in range(start, end):
        if unicodedata.normalize("NFKD", text[position]) == " ":
            return position, position + 1
    return start, end


_MIN_BATCH = 16  # texts; SentencePiece starts a thread for every batch
_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")  # pieces of SentencePiece's byte fallback
_JOINABLE = frozenset(string.ascii_letters + string.punctuation) - frozenset("'<=>")


def sentencepiece_starts_word(token: str) -> bool:
    """Returns whether a SentencePiece piece starts a word.

    True if the piece begins with "▁" or "<", is a single punctuation character, or contains "'",
    "<", "=", ">" or a character that is neither an ASCII letter nor punctuation.

    Source: `is_start_piece` of the original's create_pretraining_data.
    """
    if token.startswith((WORD_START, "<")):
        return True
    if len(token) == 1 and not token.isalpha() and token in _JOINABLE:
        return True
    return any(character not in _JOINABLE for character in token)


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece with ALBERT's normalization and its rule for pieces such as "9,".

    A piece that ends with a digit and a comma is split. The part before the comma is encoded as a
    new text, which begins with "▁", so "9," inside a word becomes "▁9" and ",". The released models
    were trained with this rule. With `keep_accents`, as in transformers, the "9" of this example
    does not begin with "▁".

    Source: `encode_pieces` of the original's tokenization module.
    Differs: "[MASK]" in a text does not become the special token.
    """

    def __init__(
        self,
        model_proto: bytes,
        do_lower_case: bool = True,
        files: Sequence[str] = (),
        keep_accents: bool = False,
    ) -> None:
        """Loads the content of a SentencePiece .model file; `files` begins with its path."""
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
            size = self._processor.get_piece_size()
            pieces = [self._processor.id_to_piece(i) for i in range(size)]
        except (RuntimeError, UnicodeDecodeError) as error:
            name = files[0] if files else "The data"
            raise UserError(
                f"{name} is neither a SentencePiece model nor a vocabulary in UTF-8 text "
                f"({error}). Check `spm_model_file` and `vocab_file`."
            ) from error
        super().__init__(pieces, do_lower_case, files)
        self.keep_accents = keep_accents
        self.model_proto = model_proto
        self.byte_ids = frozenset(filter(self._processor.is_byte, range(size)))
        self._parts = self._digit_comma_parts()
        self._part_ids = {
            self._ids[piece]: self.convert_tokens_to_ids(parts)
            for piece, parts in self._parts.items()
        }
        self._texts = [_text_of_piece(token) for token in self.tokens]
        self._texts[self.unk_id] = ""  # it can cover any text
        self._lengths = [[len(text)] for text in self._texts]  # of the parts of each piece
        for i in self._part_ids:
            places = _places_of_parts(self._parts[self.tokens[i]], self._texts[i])
            self._lengths[i] = [end - start for start, end in places]

    def __reduce__(self) -> tuple[type, tuple]:
        """Pickles the arguments of the constructor."""
        return type(self), (self.model_proto, self.do_lower_case, self.files, self.keep_accents)

    @property
    def digit_comma_parts(self) -> dict[int, list[tuple[int, str]]]:
        """Ids and texts of the parts of each piece that is split, by the id of the piece."""
        found = zip(self._part_ids.items(), self._parts.values(), strict=True)
        return {
            piece: list(zip(ids, map(_text_of_piece, parts), strict=True))
            for (piece, ids), parts in found
        }

    def clean(self, text: str) -> str:
        """Returns the text after `clean_text`."""
        return clean_text(text, self.do_lower_case, keep_accents=self.keep_accents)

    def count_changed(self, text: str) -> int:
        """Returns the number of characters that are removed or changed unless `keep_accents`."""
        if self.keep_accents or text.isascii():
            return 0
        numbers = np.bincount(np.frombuffer(text.encode("utf-32-le"), np.uint32))
        return sum(int(numbers[code]) for code in np.flatnonzero(numbers) if _IS_CHANGED[chr(code)])

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a raw text; an unknown piece is the text that it covers."""
        return self.tokenize_clean(self.clean(text))

    def tokenize_clean(self, text: str) -> list[str]:
        """Returns the pieces of a normalized text."""
        pieces = self._encode_clean(text, out_type=str)
        if self._parts.keys().isdisjoint(pieces):
            return pieces
        return [part for piece in pieces for part in self._parts.get(piece, (piece,))]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a raw text, without special tokens."""
        return self._split_pieces(self._encode_clean(self.clean(text), out_type=int))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each raw text. Large batches use only one call of SentencePiece."""
        if len(texts) < _MIN_BATCH:
            return [self.encode(text) for text in texts]
        cleaned = list(map(self.clean, texts))
        encoded = self._encode_clean(cleaned, out_type=int, num_threads=1)
        return list(map(self._split_pieces, encoded))

    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of a raw text and the ranges of characters of the tokens."""
        clean, ranges = align_clean_text(text, self.do_lower_case, self.keep_accents)
        ids, starts, ends = self._locate(clean)
        if ranges is not None and ids:
            is_empty = [start == end for start, end in zip(starts, ends, strict=True)]
            begins = [start for start, _ in ranges] + [ranges[-1][1]]
            starts = [begins[start] for start in starts]
            ends = [
                start if empty else ranges[end - 1][1]
                for start, end, empty in zip(starts, ends, is_empty, strict=True)
            ]
            if text[0].isspace() and self.tokens[ids[0]].startswith(WORD_START):
                starts[0], after = blank_range(text, 0, len(text) - len(text.lstrip()))
                ends[0] = after if is_empty[0] else ends[0]
        return Encoding(ids, starts, ends)

    def _join(self, tokens: list[str]) -> str:
        text = "".join(tokens).replace(WORD_START, " ").strip()
        if not self.byte_ids:
            return text
        return _BYTES.sub(
            lambda b: bytes.fromhex(b[0][3:-1].replace("><0x", "")).decode(errors="replace"), text
        )

    def _starts_word(self, token: str) -> bool:
        return sentencepiece_starts_word(token)

    def _encode_clean(self, texts: str | list[str], **settings: Any) -> Any:
        try:
            return self._processor.encode(texts, **settings)
        except (RuntimeError, TypeError, UnicodeEncodeError) as error:
            for text in [texts] if isinstance(texts, str) else texts:
                if lone := _SURROGATE.search(text):
                    raise UserError(
                        f"A text contains {lone.group()!a}, a lone surrogate, which is not a "
                        f"character: {text[max(0, lone.start() - 20) : lone.end() + 20]!a}. "
                        "Correct the data file."
                    ) from error
            raise

    def _locate(self, text: str) -> Encoding:
        ids = self._encode_clean(text, out_type=int)
        if "".join(map(self._texts.__getitem__, ids)) != f" {text}":
            located = list(self._locate_in_proto(text))
            return Encoding(*([row[column] for row in located] for column in range(3)))
        # The joined pieces equal the text with one more blank in front, at the position -1.
        lengths = chain.from_iterable(map(self._lengths.__getitem__, ids))
        starts = list(accumulate(lengths, initial=-1))
        starts[0], ends = 0, starts[1:]
        return Encoding(self._split_pieces(ids), starts[:-1], ends)

    def _locate_in_proto(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yields id, start and end of each token of any normalized text."""
        serialized = self._encode_clean(text, out_type="serialized_proto")
        characters = _characters_of_bytes(text)
        pieces = SentencePieceText.FromString(serialized).pieces
        starts = [characters[piece.begin] for piece in pieces]
        ends = [characters[piece.end] for piece in pieces]
        for i in reversed(range(len(pieces) - 1)):
            # A character that becomes several pieces belongs to the last one in SentencePiece.
            if pieces[i].piece != WORD_START and not text[starts[i] : ends[i]].strip(" "):
                ends[i] = ends[i + 1]
        for piece, start, end in zip(pieces, starts, ends, strict=True):
            if piece.id not in self._part_ids:
                yield piece.id, *_limit_blanks(piece.piece, text, start, end)
                continue
            parts = self._parts[piece.piece]
            places = _places_of_parts(parts, text[start:end])
            for part_id, (first, last) in zip(self._part_ids[piece.id], places, strict=True):
                yield part_id, start + first, start + last

    def _split_pieces(self, ids: list[int]) -> list[int]:
        parts = self._part_ids
        if parts.keys().isdisjoint(ids):
            return ids
        return [part for i in ids for part in parts.get(i, (i,))]

    def _digit_comma_parts(self) -> dict[str, list[str]]:
        pieces = [p for p in self.tokens if len(p) > 1 and p[-1] == "," and p[-2].isdigit()]
        texts = [piece[:-1].replace(WORD_START, "") for piece in pieces]
        parts = self._processor.encode(texts, out_type=str, num_threads=1)
        found = {}
        for piece, part in zip(pieces, parts, strict=True):
            if self.keep_accents and not piece.startswith(WORD_START):
                part[0] = part[0].removeprefix(WORD_START)
            found[piece] = [*filter(None, part), ","]
        return found


def _text_of_piece(piece: str) -> str:
    return piece.replace(WORD_START, " ")


def _characters_of_bytes(text: str) -> Sequence[int]:
    """Returns the number of characters before each byte of the UTF-8 text, and before its end."""
    if text.isascii():
        return range(len(text) + 1)
    places = [i for i, character in enumerate(text) for _ in character.encode()]
    return [*places, len(text)]


def _limit_blanks(piece: str, text: str, start: int, end: int) -> tuple[int, int]:
    """Limits the range of a "▁" to one blank."""
    # SentencePiece also replaces other characters, such as U+200E, with blanks and collapses them.
    blank = text.find(" ", start, end)
    if blank < 0 or not piece.startswith(WORD_START):
        return start, end
    return blank, blank + 1 if piece == WORD_START else end


def _places_of_parts(parts: Sequence[str], text: str) -> Iterator[tuple[int, int]]:
    """Yields the range of each part of a piece in its text; empty for a "▁" without a blank."""
    end = 0
    for part in parts:
        start = end
        for character in _text_of_piece(part):
            end = max(end, text.find(character, end) + 1)
        yield start, end


def train_sentence_piece(
    sentences: Iterable[str], model_prefix: str | os.PathLike, vocab_size: int, **options: Any
) -> None:
    """Trains a unigram vocabulary and writes `<model_prefix>.model` and `<model_prefix>.vocab`.

    `vocab_size` includes the special tokens, which come first: <pad>, <unk>, [CLS], [SEP] and
    [MASK]. `options` are further options of SentencePiece. Raises ValueError if there is no text,
    or if `vocab_size` does not fit the text.

    Source: the training command in the README of the original release.
    """
    sentences = iter(sentences)
    first = next(sentences, None)
    if first is None:
        raise UserError("There is nothing to train on: `input_file` has no line of text.")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain([first], sentences),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="unigram",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            shuffle_input_sentence=True,
            minloglevel=1,
            **options,
        )
    except RuntimeError as error:
        raise UserError(
            f"Cannot train a vocabulary with `vocab_size`={vocab_size}: {error}"
        ) from error
    model_file, list_file = model_files(model_prefix)
    write_files({model_file: model.getvalue(), list_file: piece_list(model.getvalue())})


def model_files(model_prefix: str | os.PathLike) -> tuple[str, str]:
    """Returns the paths of a model and of the list of its pieces."""
    return f"{model_prefix}.model", f"{model_prefix}.vocab"


def piece_list(model_proto: bytes) -> str:
    """Returns the content of a .vocab file: a piece and its score per line."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    rows = ((processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor)))
    return "".join(f"{piece}\t{score:g}\n" for piece, score in rows)
