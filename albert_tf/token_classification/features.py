"""Splits sentences into overlapping windows, and assigns each word to one window."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from albert_tf.data.sequences import TokenSequences, starts_of
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import PieceCounts

SPECIAL_TOKENS = 2  # [CLS] and [SEP]
_SENTENCES_AT_ONCE = 2048
_WORDS_REMEMBERED = 1 << 17


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """The windows of sentences: [CLS] pieces of words [SEP]."""

    sequences: TokenSequences  # N windows; each predicts at least one word
    word_starts: np.ndarray  # int64 [N + 1]; the first word that each window predicts, and W
    positions: np.ndarray  # int32 [W]; position of each word's first piece in its window
    label_ids: np.ndarray | None  # int32 [W]; -1 for words without a label. `None` without labels
    sentence_starts: np.ndarray  # int64 [M + 1]; the first word of each sentence, and W

    def words_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns two int arrays [m] for the words that the windows `rows`, [n], predict.

        They contain the index of each word, and the index in `rows` of the window that predicts it.
        """
        counts = np.diff(self.word_starts)[rows]
        owners = np.repeat(np.arange(len(rows)), counts)
        first = self.word_starts[rows] - (np.cumsum(counts) - counts)
        return np.arange(len(owners)) + first[owners], owners

    def token_labels(self) -> np.ndarray:
        """Returns the label ids of all tokens, int32 [T]; -1 for tokens without a label."""
        assert self.label_ids is not None, "training sentences have labels"
        found = np.full(len(self.sequences.tokens), -1, np.int32)
        rows = np.repeat(np.arange(len(self.sequences)), np.diff(self.word_starts))
        found[self.sequences.starts[rows] + self.positions] = self.label_ids
        return found


class WordTokenizer:
    """Tokenizes words, with a cache. Words without pieces, such as "", become the unknown token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        self.counts = PieceCounts()

    def __call__(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of the pieces of each word, at least one."""
        if len(self._known) > _WORDS_REMEMBERED:
            self._known.clear()
        known = self._known
        new = [word for word in dict.fromkeys(words) if word not in known]
        unknown = [self.tokenizer.unk_id]
        for word, ids in zip(new, self.tokenizer.encode_batch(new), strict=True):
            known[word] = ids or unknown
        found = [known[word] for word in words]
        self.counts.add(self.tokenizer, words, found)
        return found


def token_features(
    sentences: Iterable[tuple[Sequence[str], Sequence[int] | None]],
    tokenize: WordTokenizer,
    max_seq_length: int,
) -> TokenFeatures:
    """Splits words into pieces and sentences into windows.

    Windows of long sentences overlap by half, and the last window ends with the sentence. A word is
    predicted by the window whose middle is nearest to its first piece. Ties go to the first window.
    Windows that predict no word are dropped.

    `sentences` are the words of each sentence and their label ids, which may be `None` for all.
    `max_seq_length` is the maximum number of tokens of a window, at least 3.
    """
    room = max_seq_length - SPECIAL_TOKENS
    sequences, columns = [], []
    rest = iter(sentences)
    while part := list(islice(rest, _SENTENCES_AT_ONCE)):
        pieces = tokenize(list(chain.from_iterable(words for words, _ in part)))
        counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
        tokens = np.fromiter(chain.from_iterable(pieces), np.int32, int(counts.sum()))
        lengths = np.array([len(words) for words, _ in part])
        begins, sizes, answered, positions = _windows(counts, lengths, room)
        places = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        sequences.append(
            TokenSequences.from_segments(
                tokens[places],
                np.stack([sizes, np.zeros_like(sizes)], axis=1),
                cls_id=tokenize.tokenizer.cls_id,
                sep_id=tokenize.tokenizer.sep_id,
            )
        )
        labels = np.fromiter(chain.from_iterable(ids or () for _, ids in part), np.int32)
        columns.append((answered, positions, labels, lengths))
    answered, positions, labels, lengths = (
        np.concatenate([np.zeros(0, np.int32), *(column[index] for column in columns)])
        for index in range(4)
    )
    return TokenFeatures(
        TokenSequences.concatenate(sequences),
        starts_of(answered),
        positions,
        labels if len(labels) == len(positions) else None,
        starts_of(lengths),
    )


def _windows(counts: np.ndarray, lengths: np.ndarray, room: int) -> tuple[np.ndarray, ...]:
    """Returns three arrays with an element per window, and one array with an element per word.

    For each window: its first piece, its number of pieces, and the number of words that it
    predicts. For each word: the position of its first piece in its window.
    """
    step = (room + 1) // 2
    ends = starts_of(counts)
    bounds = ends[starts_of(lengths)]  # bounds of sentences, in pieces
    sizes = np.diff(bounds)
    rests = np.maximum(sizes - room, 0)  # start of the last window
    last = -(-rests // step)  # index of the last window
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    pieces = ends[:-1] - bounds[sentences]  # first piece of each word, within the sentence
    # The next window is used if its middle is nearer: 2 * piece >= start + next start + room.
    numbers = np.clip(
        (2 * pieces - room + step) // (2 * step), 0, np.maximum(last - 1, 0)[sentences]
    )
    is_last = 2 * pieces >= (np.maximum(last - 1, 0) * step + rests + room)[sentences]
    numbers = np.where(is_last, last[sentences], numbers)
    starts = np.minimum(numbers * step, rests[sentences])
    is_new = np.ones(len(pieces), bool)
    is_new[1:] = (np.diff(sentences) > 0) | (np.diff(numbers) > 0)
    first = np.flatnonzero(is_new)
    return (
        (bounds[sentences] + starts)[first],
        np.minimum(sizes, room)[sentences[first]],
        np.diff(np.append(first, len(pieces))),
        (1 + pieces - starts).astype(np.int32),
    )
