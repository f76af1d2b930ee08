"""From documents to pairs of segments, or single runs: which tokens an instance has, its label.

Nothing is copied: tokens lie in one flat array, and each part of a pair is a range of it.
"""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import IO, NamedTuple

import numpy as np

from albert_tf.data.errors import UserError

SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]
SHORTEST_TARGET = 2  # tokens of a sequence of a document that is cut into shorter ones

# What is learnt from two segments beside masked tokens: their order, whether the second follows in
# the text at all, or nothing.
SENTENCE_LOSSES = SOP, NSP, NONE = "sop", "nsp", "none"

# How the pairs of "sop" are made: as the original makes them, or of neighbours alone.
SENTENCE_PAIRS = ORIGINAL, ADJACENT = "original", "adjacent"
NO_RECORD = (
    f"`input_file` contains no token or, with `sentence_pairs`={ADJACENT}, no document of two "
    "lines."
)

_TRIES_FOR_ANOTHER_DOCUMENT = 10


@dataclass(frozen=True)
class SegmentSettings:
    """How documents are cut into instances.

    Attributes:
        max_seq_length: S, positions of a sequence, special tokens included; at least 5.
        short_seq_prob: share of documents that are cut into shorter sequences, in [0, 1].
        sentence_loss: "sop" swaps the parts of every second pair (sentence-order prediction); "nsp"
            takes every second B from another document (next-sentence prediction); "none" makes no
            pairs, but one run of text an instance.
        sentence_pairs: "original" takes the second part of a chunk of one segment from another
            document and gives the label away by the lengths; "adjacent" makes all pairs of
            neighbours, whose lengths say nothing of the label. Not for "nsp".
    """

    max_seq_length: int = 512
    short_seq_prob: float = 0.1
    sentence_loss: str = SOP
    sentence_pairs: str = ORIGINAL

    def __post_init__(self) -> None:
        if self.max_seq_length < SPECIAL_TOKENS + 2:
            raise UserError(
                f"`max_seq_length` must be at least {SPECIAL_TOKENS + 2} ([CLS] A [SEP] B [SEP] "
                f"with a token in each part): {self.max_seq_length}"
            )
        if not 0 <= self.short_seq_prob <= 1:
            raise UserError(f"`short_seq_prob` must lie in [0, 1]: {self.short_seq_prob}")
        check_sentence_loss(self.sentence_loss)
        if self.sentence_pairs not in SENTENCE_PAIRS:
            raise UserError(
                f"`sentence_pairs` must be one of {', '.join(SENTENCE_PAIRS)}. "
                f"Received: {self.sentence_pairs!r}"
            )
        if self.sentence_pairs == ADJACENT and self.sentence_loss == NSP:
            raise UserError(
                f"`sentence_pairs`={ADJACENT} contradicts `sentence_loss`={NSP}, which takes "
                f"second segments from other documents. Use `sentence_loss`={SOP} or "
                f"`sentence_pairs`={ORIGINAL}."
            )

    @property
    def max_tokens(self) -> int:
        """Positions that are no special tokens; single runs have one [SEP] less."""
        return self.max_seq_length - SPECIAL_TOKENS + (self.sentence_loss == NONE)


def check_sentence_loss(sentence_loss: str) -> None:
    """Refuses, naming the flag, what is not in `SENTENCE_LOSSES`."""
    if sentence_loss not in SENTENCE_LOSSES:
        raise UserError(
            f"`sentence_loss` must be one of {', '.join(SENTENCE_LOSSES)}. Received: "
            f"{sentence_loss!r}"
        )


@dataclass(frozen=True)
class Documents:
    """Documents as ids.

    Attributes:
        ids: int32 [T]; the tokens of all documents, one after the other.
        segment_starts: where each segment (line) begins in `ids`, and the end; no segment is empty.
        document_starts: where each document begins in the segments, and the end.
    """

    ids: np.ndarray
    segment_starts: Sequence[int]
    document_starts: Sequence[int]

    @classmethod
    def from_segments(
        cls, segments: Sequence[Sequence[int]], document_starts: Sequence[int]
    ) -> "Documents":
        """Packs segments given as lists of ids."""
        segment_starts = list(accumulate(map(len, segments), initial=0))
        ids = np.fromiter(chain.from_iterable(segments), np.int32, segment_starts[-1])
        return cls(ids, segment_starts, document_starts)

    @classmethod
    def load(cls, path: str) -> "Documents":
        """Reads what `save` wrote."""
        with np.load(path) as arrays:
            return cls(
                arrays["ids"], arrays["segment_starts"].tolist(), arrays["document_starts"].tolist()
            )

    def save(self, file: IO[bytes]) -> None:
        """Writes the documents to an open file."""
        np.savez(
            file,
            ids=self.ids,
            segment_starts=self.segment_starts,
            document_starts=self.document_starts,
        )

    @property
    def count(self) -> int:
        """Number of documents."""
        return len(self.document_starts) - 1


class Pair(NamedTuple):
    """One instance before masking; ranges are half-open and count in `Documents.ids`.

    Attributes:
        a_start, a_end, b_start, b_end: the parts as they are shown; a single run has an empty B.
        label: 1 = the parts were swapped, or B is from elsewhere; 0 = as in the text.
        random_document: the document that a random B comes from; -1 if B is no random part.
        tokens_cut: tokens lost to make the pair fit.
    """

    a_start: int
    a_end: int
    b_start: int
    b_end: int
    label: int
    random_document: int
    tokens_cut: int


def pair_segments(
    documents: Documents, index: int, settings: SegmentSettings, rng: random.Random
) -> Iterator[Pair]:
    """Cuts document `index` into pairs, or into single runs of text.

    Segments are gathered up to a target length and cut in two at a random segment. With "original"
    pairs a single segment always takes its B from another document, with "sop" too; with "adjacent"
    ones it takes a neighbour along, and a document of one segment makes no pair.

    Args:
        documents: all documents that random parts may come from.
        index: the document to cut.
        settings: lengths and kind of instances.
        rng: decides everything that is random; consumed draw by draw as in the original.

    Source: `create_instances_from_document` of the original.
    """
    target = settings.max_tokens
    if rng.random() < settings.short_seq_prob:
        target = rng.randint(SHORTEST_TARGET, target)
    starts = documents.segment_starts
    begin, last = documents.document_starts[index : index + 2]
    max_tokens = settings.max_tokens
    if settings.sentence_loss == NONE:
        yield from _single_runs(starts[begin : last + 1], target, max_tokens)
        return
    if settings.sentence_pairs == ADJACENT:
        for low, high in _chunks(starts, begin, last, target, rng):
            cut = rng.randint(low + 1, high - 1)
            yield _adjacent_pair(starts[low], starts[cut], starts[high], max_tokens, rng)
        return
    use_random_parts = settings.sentence_loss == NSP
    while begin < last:
        end = bisect_left(starts, starts[begin] + target, begin + 1, last)
        cut = begin + (rng.randint(1, end - begin - 1) if end - begin > 1 else 1)
        first, rest = (starts[begin], starts[cut]), (starts[cut], starts[end])
        label, origin = 0, -1
        if end - begin == 1 or (use_random_parts and rng.random() < 0.5):
            label = 1
            origin, rest = _random_part(documents, index, target - (first[1] - first[0]), rng)
            end = cut  # what A leaves of the chunk is used again
        elif not use_random_parts and rng.random() < 0.5:
            label = 1
            first, rest = rest, first
        excess = max(0, first[1] - first[0] + rest[1] - rest[0] - max_tokens)
        yield Pair(*_truncate(*first, *rest, excess, rng), label, origin, excess)
        begin = end


def _chunks(
    starts: Sequence[int], begin: int, last: int, target: int, rng: random.Random
) -> Iterator[tuple[int, int]]:
    """Runs of two segments or more, with at least `target` tokens where the document has so many.

    The segment that completes a chunk is longer than most, and the last chunk is what is left over.
    So a coin decides at which end of the document to begin: nothing then tells the first part of a
    chunk from the second. A segment that is left alone takes its neighbour along once more.
    """
    if last - begin < 2:
        return
    if rng.random() < 0.5:
        while begin < last:
            low = min(begin, last - 2)
            begin = bisect_left(starts, starts[low] + target, low + 2, last)
            yield low, begin
    else:
        while begin < last:
            high = max(last, begin + 2)
            last = max(begin, bisect_right(starts, starts[high] - target, begin, high - 1) - 1)
            yield last, high


def _adjacent_pair(begin: int, cut: int, end: int, max_tokens: int, rng: random.Random) -> Pair:
    """The tokens before `cut` and those from there on, in a random order.

    Then the longer part, in the end both, loses tokens at its end: by the lengths in the order
    shown alone, so that nothing of the label shows in what is left.
    """
    label = int(rng.random() < 0.5)
    parts = (begin, cut), (cut, end)
    (a_start, a_end), (b_start, b_end) = reversed(parts) if label else parts
    half = max_tokens - max_tokens // 2
    a_length = min(a_end - a_start, max(max_tokens - (b_end - b_start), half))
    b_length = min(b_end - b_start, max_tokens - a_length)
    excess = end - begin - a_length - b_length
    return Pair(a_start, a_start + a_length, b_start, b_start + b_length, label, -1, excess)


def _single_runs(starts: Sequence[int], target: int, max_tokens: int) -> Iterator[Pair]:
    """Runs of whole segments of at least `target` tokens; what is too long begins the next run."""
    begin, last = starts[0], len(starts) - 1
    while begin < starts[last]:
        end = min(starts[bisect_left(starts, begin + target, 1, last)], begin + max_tokens)
        yield Pair(begin, end, end, end, label=0, random_document=-1, tokens_cut=0)
        begin = end


def _random_part(
    documents: Documents, index: int, target: int, rng: random.Random
) -> tuple[int, tuple[int, int]]:
    """A random document, another than `index` if ten draws find one, and a range of its tokens."""
    for _ in range(_TRIES_FOR_ANOTHER_DOCUMENT):
        chosen = rng.randint(0, documents.count - 1)
        if chosen != index:
            break
    starts = documents.segment_starts
    begin, last = documents.document_starts[chosen : chosen + 2]
    begin += rng.randint(0, last - begin - 1)
    end = bisect_left(starts, starts[begin] + target, begin + 1, last)
    return chosen, (starts[begin], starts[end])


def _truncate(
    a_start: int, a_end: int, b_start: int, b_end: int, excess: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Takes `excess` tokens off, each from a random end of the longer part (of B if equal)."""
    for _ in range(excess):
        from_front = rng.random() < 0.5
        if a_end - a_start > b_end - b_start:
            a_start, a_end = (a_start + 1, a_end) if from_front else (a_start, a_end - 1)
        else:
            b_start, b_end = (b_start + 1, b_end) if from_front else (b_start, b_end - 1)
    return a_start, a_end, b_start, b_end
