"""The WordPiece tokenizer of the Chinese ALBERT models and of BERT vocabularies."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

from albert_tf.tokenization.base import Encoding, Tokenizer
from albert_tf.tokenization.splitting import align_words, split_words

CONTINUATION = "##"
MAX_WORD_LENGTH = 200
_CACHED_WORDS = 1 << 17


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
        """Takes a vocabulary.

        Args:
            tokens: the vocabulary in id order, without repetition.
            do_lower_case: whether to lower-case and strip accents.
            files: path of the vocabulary file.

        Raises:
            ValueError: a special token is missing.
        """
        super().__init__(tokens, do_lower_case, files)
        self._longest = max(map(len, self.tokens))
        self._word_ids = lru_cache(_CACHED_WORDS)(self._match_pieces)

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
        encoding = Encoding([], [], [])
        for word in align_words(text, self.do_lower_case):
            end = 0
            for i in self._word_ids(word.text):
                start, end = end, end + self._covered(i, word.text, end)
                positions = word.positions[start:end]
                encoding.ids.append(i)
                encoding.starts.append(min(positions))
                encoding.ends.append(max(positions) + 1)
        return encoding

    def decode(self, ids: Iterable[int]) -> str:
        """Joins pieces to words and words by blanks, without [CLS], [SEP] and padding."""
        return " ".join(self._readable_tokens(ids)).replace(f" {CONTINUATION}", "")

    _starts_word = staticmethod(wordpiece_starts_word)

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
