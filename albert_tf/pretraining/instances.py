"""Cuts documents into instances, masks them and serializes them as records.

An instance is a pair of segments or a single segment. The result depends only on the documents, the
settings and the seed.
"""

import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from typing import NamedTuple

import numpy as np

from albert_tf.data.errors import UserError
from albert_tf.data.tfrecord import FeatureSpec, encode_examples
from albert_tf.pretraining.masking import TOKEN_BOUNDARY, MaskingSettings, Vocabulary, mask_batch
from albert_tf.tokenization.base import Tokenizer

# Sentence-order prediction, next-sentence prediction, or masked tokens only.
SENTENCE_LOSSES = SOP, NSP, NONE = "sop", "nsp", "none"

# How pairs for "sop" are created: as in the original, or only from adjacent segments.
SENTENCE_PAIRS = ORIGINAL, ADJACENT = "original", "adjacent"

# Rules by which tokens start a word.
WORD_STARTS = ORIGINAL, UNICODE = "original", "unicode"

NO_RECORD = (
    f"`input_file` contains no token or, with `sentence_pairs`={ADJACENT}, no document with "
    "at least two lines."
)

# Features of masked records only. The last feature is 0 in unused slots.
PREDICTION_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")

_FEWEST_LABELS = 10
_SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]
_SHORTEST_TARGET = 2  # minimum number of tokens of shortened sequences
_TRIES_FOR_ANOTHER_DOCUMENT = 10
_BATCH = 512  # number of instances that are masked together, which affects the records


def pretraining_feature_specs(
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int | None = None,
    type_vocab_size: int = 2,
) -> tuple[FeatureSpec, ...]:
    """Returns the features of a masked record, named as in the original release.

    A reader rejects token ids of at least `vocab_size`, and segment ids of at least
    `type_vocab_size`. If `vocab_size` is `None`, token ids are not limited.
    """
    S, P, V = max_seq_length, max_predictions_per_seq, vocab_size
    length, slots = "max_seq_length", "max_predictions_per_seq"
    vocabulary = "vocab_size of the model's configuration"
    types = f"type_{vocabulary}"
    return (
        FeatureSpec("input_ids", "int64", S, V, length, vocabulary),
        FeatureSpec("input_mask", "int64", S, 2, length),
        FeatureSpec("segment_ids", "int64", S, type_vocab_size, length, types),
        FeatureSpec(TOKEN_BOUNDARY, "int64", S, 2, length),
        FeatureSpec("masked_lm_positions", "int64", P, S, slots, length),
        FeatureSpec("masked_lm_ids", "int64", P, V, slots, vocabulary),
        FeatureSpec("masked_lm_weights", "float32", P, None, slots),
        FeatureSpec("next_sentence_labels", "int64", 1, 2),
    )


def plain_feature_specs(specs: Sequence[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """Returns the features of a record that is not masked."""
    return tuple(spec for spec in specs if spec.name not in PREDICTION_FEATURES)


def same_labels_warning(num_ones: int, total: int, what: str) -> Iterator[str]:
    """Yields a warning if all sentence labels are the same. Few labels can be so by chance."""
    if total >= _FEWEST_LABELS and num_ones in (0, total):
        yield (
            f"The sentence labels of {what} are all the same, so a model learns nothing from them. "
            "Write one sentence per line, with empty lines only between documents, increase "
            f"`max_seq_length`, or use `sentence_loss`={NONE}."
        )


@dataclass(frozen=True)
class SegmentSettings:
    """How documents are cut into instances.

    Attributes:
        max_seq_length: S, length of a sequence, including special tokens; at least 5.
        short_seq_prob: fraction of documents that are cut into shorter sequences, in [0, 1].
        sentence_loss: "sop": half of the pairs are swapped (sentence-order prediction). "nsp": in
            half of the pairs, B is from another document (next-sentence prediction). "none": single
            segments instead of pairs.
        sentence_pairs: "original": if a chunk has only one segment, B is from another document, so
            a model can often infer the label from lengths. "adjacent": only pairs of adjacent
            segments, whose lengths do not depend on the label; not supported with "nsp".

    Raises:
        ValueError: a number is out of range, or "adjacent" is combined with "nsp".
    """

    max_seq_length: int = 512
    short_seq_prob: float = 0.1
    sentence_loss: str = SOP
    sentence_pairs: str = ORIGINAL

    def __post_init__(self) -> None:
        if self.max_seq_length < _SPECIAL_TOKENS + 2:
            raise UserError(
                f"`max_seq_length` must be at least {_SPECIAL_TOKENS + 2} ([CLS] A [SEP] B [SEP] "
                f"with a token in each part). Received: {self.max_seq_length}"
            )
        if self.sentence_pairs == ADJACENT and self.sentence_loss == NSP:
            raise UserError(
                f"`sentence_pairs`={ADJACENT} contradicts `sentence_loss`={NSP}, which needs "
                f"segments from other documents. Use `sentence_loss`={SOP} or "
                f"`sentence_pairs`={ORIGINAL}."
            )

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens without special tokens."""
        # A single segment has only one [SEP].
        return self.max_seq_length - _SPECIAL_TOKENS + (self.sentence_loss == NONE)


@dataclass(frozen=True)
class InstanceSettings:
    """All settings of the instances.

    `dupe_factor` is the number of passes over the documents, each with different random choices.
    `random_seed` may be any integer. `word_starts` is "original" for the rule of the original
    release, or "unicode" for `WordStarts`; `has_icu` is whether it uses ICU.
    """

    segments: SegmentSettings = field(default_factory=SegmentSettings)
    masking: MaskingSettings = field(default_factory=MaskingSettings)
    dupe_factor: int = 40
    random_seed: int = 12345
    word_starts: str = ORIGINAL
    has_icu: bool = False

    @property
    def feature_specs(self) -> tuple[FeatureSpec, ...]:
        """Features of the records. Without masking, the prediction features are omitted."""
        specs = pretraining_feature_specs(
            self.segments.max_seq_length, self.masking.prediction_slots
        )
        return specs if self.masking.masked_lm_prob else plain_feature_specs(specs)


@dataclass(frozen=True)
class Documents:
    """Tokenized documents. Documents and segments (lines) are not empty."""

    # int32 [T]; the concatenated tokens of all documents. V is an unknown piece inside a word. With
    # `word_starts`="unicode", ids above V are tokens that continue a word, plus V + 1.
    ids: np.ndarray
    segment_starts: Sequence[int]  # start of each segment in `ids`, then T
    document_starts: Sequence[int]  # first segment of each document, then the number of segments
    counts: Mapping[str, int] = field(default_factory=dict)  # of the text

    @classmethod
    def from_segments(
        cls, segments: Sequence[Sequence[int]], document_starts: Sequence[int]
    ) -> "Documents":
        """Creates documents from segments, which are sequences of ids."""
        segment_starts = list(accumulate(map(len, segments), initial=0))
        ids = np.fromiter(chain.from_iterable(segments), np.int32, segment_starts[-1])
        return cls(ids, segment_starts, document_starts)

    @property
    def count(self) -> int:
        """Number of documents."""
        return len(self.document_starts) - 1


class Pair(NamedTuple):
    """An instance before masking. A and B are half-open ranges of `Documents.ids`."""

    a_start: int
    a_end: int
    b_start: int  # B of a single segment is empty
    b_end: int
    label: int  # 0 if B follows A in the text; 1 if the parts were swapped or B is random
    random_document: int  # the document of a random B, otherwise -1
    tokens_cut: int  # number of truncated tokens


def pair_segments(
    documents: Documents, index: int, settings: SegmentSettings, rng: random.Random
) -> Iterator[Pair]:
    """Cuts document `index` into pairs, or into single segments.

    Segments are joined until they reach a target length, and divided into two parts at a random
    segment start. Random numbers are drawn in the same order as in the original.

    Source: `create_instances_from_document` of the original.
    """
    target = settings.max_tokens
    if rng.random() < settings.short_seq_prob:
        target = rng.randint(_SHORTEST_TARGET, target)
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
            end = cut  # the rest of the chunk starts the next pair
        elif not use_random_parts and rng.random() < 0.5:
            label = 1
            first, rest = rest, first
        excess = max(0, first[1] - first[0] + rest[1] - rest[0] - max_tokens)
        yield Pair(*_truncate(*first, *rest, excess, rng), label, origin, excess)
        begin = end


def _chunks(
    starts: Sequence[int], begin: int, last: int, target: int, rng: random.Random
) -> Iterator[tuple[int, int]]:
    """Yields ranges of at least two segments and, if possible, at least `target` tokens."""
    if last - begin < 2:
        return
    # On average, the segment that completes a chunk is longer than other segments, and the last
    # chunk is shorter. So that lengths do not reveal the order, chunks are cut either from the
    # start or from the end of the document, at random. A single remaining segment is joined with
    # its neighbor, which then occurs twice.
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
    """Returns the tokens before and after `cut`, in random order."""
    label = int(rng.random() < 0.5)
    parts = (begin, cut), (cut, end)
    (a_start, a_end), (b_start, b_end) = reversed(parts) if label else parts
    # Truncation depends only on the lengths in the final order, which do not reveal the label.
    half = max_tokens - max_tokens // 2
    a_length = min(a_end - a_start, max(max_tokens - (b_end - b_start), half))
    b_length = min(b_end - b_start, max_tokens - a_length)
    excess = end - begin - a_length - b_length
    return Pair(a_start, a_start + a_length, b_start, b_start + b_length, label, -1, excess)


def _single_runs(starts: Sequence[int], target: int, max_tokens: int) -> Iterator[Pair]:
    """Yields joined segments of about `target` tokens. Excess tokens start the next sequence."""
    begin, last = starts[0], len(starts) - 1
    while begin < starts[last]:
        end = min(starts[bisect_left(starts, begin + target, 1, last)], begin + max_tokens)
        yield Pair(begin, end, end, end, label=0, random_document=-1, tokens_cut=0)
        begin = end


def _random_part(
    documents: Documents, index: int, target: int, rng: random.Random
) -> tuple[int, tuple[int, int]]:
    """Returns a random document, preferably another than `index`, and a range of its tokens."""
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
    """Removes `excess` tokens, each at a random end of the longer part (B if both are equal)."""
    for _ in range(excess):
        from_front = rng.random() < 0.5
        if a_end - a_start > b_end - b_start:
            a_start, a_end = (a_start + 1, a_end) if from_front else (a_start, a_end - 1)
        else:
            b_start, b_end = (b_start + 1, b_end) if from_front else (b_start, b_end - 1)
    return a_start, a_end, b_start, b_end


def make_examples(
    documents: Documents, settings: InstanceSettings, vocabulary: Vocabulary, seed: Sequence[int]
) -> Iterator[tuple[list[bytes], Counter[str]]]:
    """Creates the instances of one pass over documents.

    Yields serialized `tf.train.Example`s and their counts, see `count_instances`. All random
    choices depend on the integers of `seed`, such as (random_seed, pass, block). `dupe_factor` and
    `random_seed` of the settings are ignored.
    """
    python_state, *numpy_state = mix_seed(seed)
    rng = random.Random(python_state)
    generator = np.random.Generator(np.random.SFC64(numpy_state))
    pairs = chain.from_iterable(
        pair_segments(documents, index, settings.segments, rng) for index in range(documents.count)
    )
    while batch := list(islice(pairs, _BATCH)):
        columns, ngrams = make_features(documents.ids, batch, settings, vocabulary, generator)
        counts = count_instances(columns, batch, documents)
        counts.update({f"ngram_{length}": int(n) for length, n in enumerate(ngrams) if n})
        yield encode_examples(columns, settings.feature_specs), counts


def mix_seed(numbers: Sequence[int]) -> list[int]:
    """Returns five well-mixed integers below 2**64 from any integers."""
    entropy = [len(numbers), *(number % 2**64 for number in numbers)]
    return np.random.SeedSequence(entropy).generate_state(5, np.uint64).tolist()


def masking_vocabulary(tokenizer: Tokenizer, word_starts: str = ORIGINAL) -> Vocabulary:
    """Returns the properties of a tokenizer that masking depends on."""
    size = tokenizer.vocab_size
    is_original = word_starts == ORIGINAL
    return Vocabulary(
        size,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
        np.append(tokenizer.starts_word, False) if is_original else np.arange(2 * size + 1) < size,
        splits_words=not is_original,
    )


def make_features(
    ids: np.ndarray,
    pairs: Sequence[Pair],
    settings: InstanceSettings,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Creates and masks the sequences [CLS] A [SEP] B [SEP], or [CLS] A [SEP] if B is empty.

    `ids`, int32 [T], are the tokens of the documents. Returns the features by name, each
    [B, length], and the number of masked n-grams of each length.
    """
    S = settings.segments.max_seq_length
    input_ids = np.zeros((len(pairs), S), np.int32)
    for row, pair in zip(input_ids, pairs, strict=True):
        sep = 1 + pair.a_end - pair.a_start
        end = sep + 1 + pair.b_end - pair.b_start
        row[1:sep] = ids[pair.a_start : pair.a_end]
        row[sep + 1 : end] = ids[pair.b_start : pair.b_end]
    sep_a = np.array([[1 + pair.a_end - pair.a_start] for pair in pairs])
    lengths_b = np.array([[pair.b_end - pair.b_start] for pair in pairs])
    sep_b = sep_a + lengths_b + (lengths_b > 0)  # without B, the [SEP] of A is the last token
    columns = np.arange(S)
    input_mask = columns <= sep_b
    is_text = input_mask & (columns > 0)
    for position, special_id in (
        (np.zeros_like(sep_a), vocabulary.cls_id),
        (sep_a, vocabulary.sep_id),
        (sep_b, vocabulary.sep_id),
    ):
        np.put_along_axis(input_ids, position, special_id, axis=1)
        np.put_along_axis(is_text, position, False, axis=1)
    lengths = sep_b[:, 0] + 1
    masked = mask_batch(input_ids, is_text, lengths, vocabulary, settings.masking, rng)
    slots = np.arange(settings.masking.prediction_slots)
    for stored in (masked.input_ids, masked.labels):
        stored[stored == vocabulary.size] = vocabulary.unk_id
        stored[stored > vocabulary.size] -= vocabulary.size + 1
    features = {
        "input_ids": masked.input_ids,
        "input_mask": input_mask,
        "segment_ids": input_mask & (columns > sep_a),
        TOKEN_BOUNDARY: input_mask & (vocabulary.starts_word[input_ids] | ~is_text),
        "masked_lm_positions": masked.positions,
        "masked_lm_ids": masked.labels,
        "masked_lm_weights": (slots < masked.counts[:, None]).astype(np.float32),
        "next_sentence_labels": np.array([[pair.label] for pair in pairs]),
    }
    return features, masked.ngrams


def count_instances(
    columns: dict[str, np.ndarray], pairs: Sequence[Pair], documents: Documents
) -> Counter[str]:
    """Counts instances, tokens and labels of a batch.

    "positions" includes padding. "swapped" is the number of pairs with swapped parts.
    "random_parts" is the number of pairs with a random B; "random_parts_of_only_document" is the
    same number if there is only one document, otherwise 0.
    """
    random_parts = sum(pair.random_document >= 0 for pair in pairs)
    return Counter(
        instances=len(pairs),
        positions=columns["input_mask"].size,
        tokens=int(np.count_nonzero(columns["input_mask"])),
        predictions=int(np.count_nonzero(columns["masked_lm_weights"])),
        swapped=sum(pair.label for pair in pairs) - random_parts,
        random_parts=random_parts,
        random_parts_of_only_document=random_parts if documents.count == 1 else 0,
        tokens_cut=sum(pair.tokens_cut for pair in pairs),
    )
