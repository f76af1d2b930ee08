"""The SentencePiece tokenizer of the English ALBERT models."""

import string
from collections.abc import Iterable, Sequence

import sentencepiece

from albert_tf.tokenization.base import Encoding, Tokenizer
from albert_tf.tokenization.cleaning import clean_text

WORD_START = "▁"
_JOINABLE = frozenset(string.ascii_letters + string.punctuation) - frozenset("'<=>")


def sentencepiece_starts_word(token: str) -> bool:
    """Says whether a SentencePiece piece opens a new word.

    It does if it begins with the word-start mark or "<", is a single punctuation character
    (apostrophe, "<", "=" and ">" do not count as punctuation), or has a character that is
    neither an ASCII letter nor punctuation.

    Source: `is_start_piece` of the original's create_pretraining_data.
    """
    if token.startswith((WORD_START, "<")):
        return True
    if len(token) == 1 and not token.isalpha() and token in _JOINABLE:
        return True
    return any(character not in _JOINABLE for character in token)


class SentencePieceTokenizer(Tokenizer):
    """Clean-up, SentencePiece, then ALBERT's rule for pieces like "9,".

    A piece that ends in a comma after a digit is taken apart: what is before the comma is encoded
    as a text of its own, and the comma follows as a piece. A text of its own begins with the
    word-start mark, so "9," inside a word becomes "▁9" and ",": the released weights were
    trained with this.

    Source: `encode_pieces` of the original's tokenization module.
    Differs: ids come from SentencePiece itself, so that unknown text that happens to spell
        "[MASK]" stays unknown.
    """

    def __init__(
        self,
        model_proto: bytes,
        do_lower_case: bool = True,
        files: Sequence[str] = (),
        strip_digit_marker: bool = False,
    ) -> None:
        """Loads a serialized SentencePiece model.

        Args:
            model_proto: content of a SentencePiece .model file.
            do_lower_case: whether the clean-up lower-cases.
            files: paths of the .model and, where there is one, its .vocab.
            strip_digit_marker: True removes the extra word-start mark of pieces like "9,"
                inside a word, as some other ports of ALBERT do.

        Raises:
            ValueError: not a SentencePiece model, or a special token is missing.
        """
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
        except RuntimeError as error:
            name = files[0] if files else "The data"
            raise ValueError(f"{name} is not a SentencePiece model: {error}") from error
        size = self._processor.get_piece_size()
        super().__init__(
            [self._processor.id_to_piece(i) for i in range(size)], do_lower_case, files
        )
        self.model_proto = model_proto
        self.strip_digit_marker = strip_digit_marker
        self._parts = self._digit_comma_parts()
        self._part_ids = {
            self._ids[piece]: self.convert_tokens_to_ids(parts)
            for piece, parts in self._parts.items()
        }
        self._taken_apart = frozenset(self._part_ids)

    def __reduce__(self) -> tuple[type, tuple]:
        """Pickles as the model file: worker processes build their own processor from it."""
        arguments = (self.model_proto, self.do_lower_case, self.files, self.strip_digit_marker)
        return type(self), arguments

    def clean(self, text: str) -> str:
        """Collapses blanks, normalizes (NFKD), drops accents, lower-cases if so set."""
        return clean_text(text, self.do_lower_case)

    def tokenize(self, text: str) -> list[str]:
        """Gives the pieces of a raw text; an unknown piece is shown as the text it covers."""
        return self.tokenize_clean(self.clean(text))

    def tokenize_clean(self, text: str) -> list[str]:
        """Gives the pieces of a text as it stands, without the clean-up."""
        pieces = self._processor.encode(text, out_type=str)
        if self._parts.keys().isdisjoint(pieces):
            return pieces
        return [part for piece in pieces for part in self._parts.get(piece, (piece,))]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Gives the ids of each raw text, in one call to SentencePiece and one thread."""
        cleaned = [clean_text(text, self.do_lower_case) for text in texts]
        encoded = self._processor.encode(cleaned, out_type=int, num_threads=1)
        has_none = self._taken_apart.isdisjoint
        return [ids if has_none(ids) else self._take_apart(ids) for ids in encoded]

    def encode_with_offsets(self, text: str) -> Encoding:
        """Gives the ids of a raw text and the characters each of them comes from."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """Joins pieces to text, without [CLS], [SEP] and padding."""
        return "".join(self._readable_tokens(ids)).replace(WORD_START, " ").strip()

    _starts_word = staticmethod(sentencepiece_starts_word)

    def _take_apart(self, ids: list[int]) -> list[int]:
        parts = self._part_ids
        return [part for i in ids for part in parts.get(i, (i,))]

    def _digit_comma_parts(self) -> dict[str, list[str]]:
        """What each piece that ends in a comma after a digit is replaced by."""
        pieces = [p for p in self.tokens if len(p) > 1 and p[-1] == "," and p[-2].isdigit()]
        texts = [piece[:-1].replace(WORD_START, "") for piece in pieces]
        parts = self._processor.encode(texts, out_type=str, num_threads=1)
        if self.strip_digit_marker:
            parts = [
                _without_marker(part) if not piece.startswith(WORD_START) else part
                for piece, part in zip(pieces, parts, strict=True)
            ]
        return {piece: [*part, ","] for piece, part in zip(pieces, parts, strict=True)}


def _without_marker(pieces: list[str]) -> list[str]:
    first = pieces[0].removeprefix(WORD_START)
    return [first, *pieces[1:]] if first else pieces[1:]
