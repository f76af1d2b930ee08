"""N-gram masking of whole words, in records or during training.

The rules are the same as in the original. Words are visited in random order, and each word starts
an n-gram of random length. An n-gram that exceeds the budget is shortened. An n-gram that overlaps
a masked word is skipped. `OnlineMasking` draws random numbers with SplitMix64 from the seed and the
number of each example.

Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

# Feature with the word starts of a record. The model does not use it.
TOKEN_BOUNDARY = "token_boundary"
_INPUTS = ("input_ids", "input_mask", "segment_ids", TOKEN_BOUNDARY)
_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, made odd
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


class Words(NamedTuple):
    """The words of each sequence. W is the maximum number of words."""

    counts: np.ndarray  # int64 [B]; number of words
    of_position: np.ndarray  # int64 [B, S]; index of the word at each text position
    begin: np.ndarray  # int64 [B, W + 1]; number of text tokens before each word, then the total


def find_words(
    is_text: np.ndarray, starts_word: np.ndarray | None, longest: np.ndarray | None = None
) -> Words:
    """Groups tokens into words. Each token of a word with more than `longest` [B] is a word.

    `is_text`, bool [B, S], is False for special tokens and padding. If `starts_word`, bool [B, S],
    is False for a token, it belongs to the previous word, even across [SEP]. The first text token
    always starts a word. If `starts_word` is `None`, every text token is a word.

    Source: `create_masked_lm_predictions` of the original.
    """
    opens = is_text.copy() if starts_word is None else is_text & starts_word
    rows = np.flatnonzero(is_text.any(axis=1))
    opens[rows, is_text[rows].argmax(axis=1)] = True
    of_position = opens.cumsum(axis=1) - 1
    counts = of_position[:, -1] + 1
    tokens_before = is_text.cumsum(axis=1) - is_text
    totals = np.count_nonzero(is_text, axis=1)
    begin = np.repeat(totals[:, None], int(counts.max(initial=0)) + 1, axis=1)
    row, position = np.nonzero(opens)
    begin[row, of_position[row, position]] = tokens_before[row, position]
    if longest is not None and (is_long := np.diff(begin) > longest[:, None]).any():
        of_long = np.take_along_axis(is_long, np.maximum(of_position, 0), axis=1)
        return find_words(is_text, opens | of_long)
    return Words(counts, of_position, begin)


@dataclass(frozen=True)
class MaskingSettings:
    """How tokens are selected for prediction.

    Attributes:
        masked_lm_prob: fraction of the tokens of a sequence to predict, in [0, 1); 0 masks nothing.
        max_predictions_per_seq: maximum number of predictions per sequence.
        ngram: maximum length of an n-gram in words; at least 1.
        favor_shorter_ngram: whether length n has a probability proportional to 1/n. If False, the
            probabilities are reversed.
        do_whole_word_mask: whether whole words are masked. If False, every token is a word.
        do_permutation: whether to also permute other tokens and predict them. Permuted and masked
            tokens have the same maximum number.
    """

    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int = 20
    ngram: int = 3
    favor_shorter_ngram: bool = True
    do_whole_word_mask: bool = True
    do_permutation: bool = False

    @property
    def prediction_slots(self) -> int:
        """Length of the prediction features. Permutation doubles it."""
        return self.max_predictions_per_seq * (2 if self.do_permutation else 1)


class Vocabulary(NamedTuple):
    """The properties of a tokenizer that masking depends on."""

    size: int  # V
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    starts_word: np.ndarray  # bool, by the ids of `Documents`
    splits_words: bool = False  # whether words that exceed the predictions are masked by token


class NgramDraws(NamedTuple):
    """Random numbers that select n-grams."""

    order: np.ndarray  # int64 [B, W]; the words in the order of the visits
    lengths: np.ndarray  # int64 [B, W]; length of the n-gram at each word, in words


class MaskingDraws(NamedTuple):
    """All random numbers for masking. P is `max_predictions_per_seq`."""

    masked: NgramDraws
    replacement_draw: np.ndarray  # float [B, P]; < 0.8: [MASK]; < 0.9: unchanged; else random
    random_ids: np.ndarray  # int64 [B, P]; the random tokens
    permuted: NgramDraws | None = None  # `None` without permutation
    permutation_keys: np.ndarray | None = None  # float [B, P]; sort keys of the permuted tokens


class MaskedBatch(NamedTuple):
    """Masked sequences."""

    input_ids: np.ndarray  # int32 [B, S]; with masked, random and permuted tokens
    positions: np.ndarray  # int64 [B, slots]; predicted positions, ascending, padded with 0
    labels: np.ndarray  # int32 [B, slots]; the original tokens at these positions, padded with 0
    counts: np.ndarray  # int64 [B]; number of predictions
    ngrams: np.ndarray  # int64 [n]; number of masked n-grams by length


def prediction_budget(lengths: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Returns the number of tokens to mask, int64 [B], in sequences of `lengths` [B] tokens."""
    if settings.masked_lm_prob == 0:
        return np.zeros(len(lengths), np.int64)
    wanted = np.rint(lengths * settings.masked_lm_prob).astype(np.int64)
    return np.minimum(settings.max_predictions_per_seq, np.maximum(1, wanted))


def masking_limit_warning(length: int, masking: MaskingSettings) -> str | None:
    """Returns a warning if `max_predictions_per_seq` is too small for sequences of `length`."""
    limit, fraction = masking.max_predictions_per_seq, masking.masked_lm_prob
    wanted = round(length * fraction)
    if wanted <= limit:
        return None
    return (
        f"`masked_lm_prob`={fraction:g} asks for {wanted} predictions in {length} tokens, but "
        f"`max_predictions_per_seq`={limit} allows only {limit}, so {limit / length:.1%} of the "
        "tokens will be masked. To mask the requested fraction, pass "
        f"`max_predictions_per_seq`={wanted}."
    )


def _draw_ngrams(
    counts: np.ndarray, settings: MaskingSettings, rng: np.random.Generator
) -> NgramDraws:
    """Draws the order of visits and the n-gram lengths for sequences of `counts` [B] words."""
    columns = np.arange(int(counts.max(initial=0)))
    shape = len(counts), len(columns)
    # The low bits contain the index of the word. Sorting the integers is faster than argsort.
    bits = len(columns).bit_length()
    keys = rng.integers(0, 2**63, shape, dtype=np.uint64) >> np.uint64(bits) << np.uint64(bits)
    keys |= columns.astype(np.uint64)
    keys[columns >= counts[:, None]] |= np.uint64(2**63)
    keys.sort(axis=1)
    order = (keys & np.uint64(2**bits - 1)).astype(np.int64)
    return NgramDraws(order, _ngram_lengths(rng.random(shape, np.float32), counts, settings))


def _ngram_lengths(point: np.ndarray, counts: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Converts random numbers [B, W] in [0, 1) to lengths of n-grams that fit in the sequence."""
    bounds = ngram_probabilities(settings).cumsum()[:-1]
    lengths = 1 + np.searchsorted(bounds, point, side="right")
    return np.minimum(lengths, np.maximum(counts[:, None] - np.arange(point.shape[1]), 1))


def ngram_probabilities(settings: MaskingSettings) -> np.ndarray:
    """Returns the probability of each n-gram length 1..ngram, float64 [ngram]."""
    weights = 1 / np.arange(1, settings.ngram + 1)
    weights = weights if settings.favor_shorter_ngram else weights[::-1]
    return weights / weights.sum()


def choose_ngrams(
    words: Words, draws: NgramDraws, budget: np.ndarray, taken: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Selects n-grams until the budget of tokens, int64 [B], is used up.

    Words in `taken`, bool [B, W], are not selected. Returns the selected words, bool [B, W], and
    the number of n-grams by length, int64 [n].
    """
    B, W = draws.order.shape
    longest = int(draws.lengths.max(initial=1))
    steps = np.arange(longest)
    busy = np.zeros((B, W + longest), bool)
    if taken is not None:
        busy[:, :W] = taken
    remaining = budget.copy()
    ngrams = np.zeros(longest + 1, np.int64)
    rows = np.arange(B)
    for visit in range(W):
        rows = rows[(remaining[rows] > 0) & (visit < words.counts[rows])]
        if not rows.size:
            break
        word = draws.order[rows, visit]
        length, start = draws.lengths[rows, word], words.begin[rows, word]
        size = words.begin[rows, word + length] - start
        while (is_long := (size > remaining[rows]) & (length > 1)).any():
            length = length - is_long
            size = words.begin[rows, word + length] - start
        inside = steps < length[:, None]
        span = word[:, None] + steps
        free = (size <= remaining[rows]) & ~(busy[rows[:, None], span] & inside).any(axis=1)
        inside &= free[:, None]
        busy[np.broadcast_to(rows[:, None], span.shape)[inside], span[inside]] = True
        remaining[rows] -= size * free
        ngrams += np.bincount(length[free], minlength=longest + 1)
    chosen = busy[:, :W]
    return (chosen if taken is None else chosen & ~taken), ngrams


def mask_batch(
    input_ids: np.ndarray,
    is_text: np.ndarray,
    lengths: np.ndarray,
    vocabulary: Vocabulary,
    settings: MaskingSettings,
    rng: np.random.Generator,
) -> MaskedBatch:
    """Masks a batch of sequences, `input_ids` int32 [B, S], at random.

    `is_text`, bool [B, S], is False for special tokens and padding. `lengths`, int [B], include
    special tokens.
    """
    starts = vocabulary.starts_word[input_ids] if settings.do_whole_word_mask else None
    budget = prediction_budget(lengths, settings)
    words = find_words(is_text, starts, budget if vocabulary.splits_words else None)
    shape = len(input_ids), settings.max_predictions_per_seq
    # The order of these calls determines the records.
    draws = MaskingDraws(
        _draw_ngrams(words.counts, settings, rng),
        rng.random(shape, np.float32),
        rng.integers(0, vocabulary.size, shape),
    )
    if settings.do_permutation:
        permuted = _draw_ngrams(words.counts, settings, rng)
        draws = draws._replace(permuted=permuted, permutation_keys=rng.random(shape, np.float32))
    return mask_tokens(input_ids, is_text, words, budget, draws, vocabulary.mask_id)


def mask_tokens(
    input_ids: np.ndarray,
    is_text: np.ndarray,
    words: Words,
    budget: np.ndarray,
    draws: MaskingDraws,
    mask_id: int,
) -> MaskedBatch:
    """Masks a batch like `mask_batch`, but with given words, budgets and random numbers."""
    output = input_ids.copy()
    chosen, ngrams = choose_ngrams(words, draws.masked, budget)
    selected = _tokens_of(chosen, words, is_text)
    row, position, slot = _slots(selected)
    replacement_draw = draws.replacement_draw[row, slot]
    shown = np.where(replacement_draw < 0.9, input_ids[row, position], draws.random_ids[row, slot])
    output[row, position] = np.where(replacement_draw < 0.8, mask_id, shown)
    slots = draws.replacement_draw.shape[1]
    if draws.permuted is not None and draws.permutation_keys is not None:
        slots *= 2
        moved, _ = choose_ngrams(words, draws.permuted, budget, taken=chosen)
        moving = _tokens_of(moved, words, is_text)
        _permute(input_ids, output, moving, draws.permutation_keys)
        selected |= moving
    row, position, slot = _slots(selected)
    positions = np.zeros((len(selected), slots), np.int64)
    labels = np.zeros((len(selected), slots), np.int32)
    positions[row, slot] = position
    labels[row, slot] = input_ids[row, position]
    counts = np.bincount(row, minlength=len(selected))
    return MaskedBatch(output, positions, labels, counts, ngrams)


def _tokens_of(chosen: np.ndarray, words: Words, is_text: np.ndarray) -> np.ndarray:
    """Returns whether each token belongs to a selected word, bool [B, S]."""
    if not chosen.shape[1]:
        return np.zeros_like(is_text)
    return is_text & np.take_along_axis(chosen, np.maximum(words.of_position, 0), axis=1)


def _slots(selected: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the row, position and index in the row of every True value of bool [B, S]."""
    row, position = np.nonzero(selected)
    first = np.searchsorted(row, np.arange(len(selected)))
    return row, position, np.arange(len(row)) - first[row]


def _permute(
    input_ids: np.ndarray, output: np.ndarray, moving: np.ndarray, keys: np.ndarray
) -> None:
    """Writes the `moving` tokens of each row to `output` in the order of their keys."""
    row, position, slot = _slots(moving)
    sort_keys = np.full(keys.shape, np.inf)
    sort_keys[row, slot] = keys[row, slot]
    origin = sort_keys.argsort(axis=1)[row, slot]
    positions = np.zeros(keys.shape, np.int64)
    positions[row, slot] = position
    output[row, position] = input_ids[row, positions[row, origin]]


@dataclass(frozen=True)
class OnlineMasking:
    """Masks batches of plain records during training, without permutation."""

    settings: MaskingSettings
    mask_id: int
    vocab_size: int
    splits_words: bool = False  # see `Vocabulary`

    def describe(self) -> dict[str, Any]:
        """Returns the settings of the masks, except the seed, as a dictionary for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not False}

    def __call__(
        self, features: Mapping[str, tf.Tensor], numbers: tf.Tensor, seed: int
    ) -> dict[str, tf.Tensor]:
        """Masks a batch. A row depends only on its tokens, its number and the seed.

        `numbers`, int64 [B], are the positions of the examples in the sequence of all passes.
        Returns the features with masked `input_ids`, without `token_boundary`, and with
        `masked_lm_positions` and `masked_lm_ids`, int32 [B, P], and `masked_lm_weights`, float32
        [B, P].
        """
        import tensorflow as tf  # not needed to create records

        types = {
            "input_ids": tf.int32,
            "masked_lm_positions": tf.int32,
            "masked_lm_ids": tf.int32,
            "masked_lm_weights": tf.float32,
        }
        masked = tf.numpy_function(
            partial(self._mask, seed=seed),
            [*(features[name] for name in _INPUTS), numbers],
            list(types.values()),
            stateful=False,
        )
        B, S = features["input_ids"].shape
        for name, values in zip(types, masked, strict=True):
            values.set_shape([B, S if name == "input_ids" else self.settings.prediction_slots])
        kept = {name: value for name, value in features.items() if name != TOKEN_BOUNDARY}
        return {**kept, **dict(zip(types, masked, strict=True))}

    def _mask(
        self,
        input_ids: np.ndarray,
        input_mask: np.ndarray,
        segment_ids: np.ndarray,
        token_boundary: np.ndarray,
        numbers: np.ndarray,
        seed: int,
    ) -> tuple[np.ndarray, ...]:
        is_text = find_text(input_mask, segment_ids)
        starts = token_boundary > 0 if self.settings.do_whole_word_mask else None
        budget = prediction_budget(input_mask.sum(axis=1), self.settings)
        words = find_words(is_text, starts, budget if self.splits_words else None)
        draws = self._draw(row_keys(seed, numbers), words.counts, input_ids.shape[1])
        masked = mask_tokens(input_ids, is_text, words, budget, draws, self.mask_id)
        slots = np.arange(self.settings.prediction_slots)
        weights = (slots < masked.counts[:, None]).astype(np.float32)
        return masked.input_ids, masked.positions.astype(np.int32), masked.labels, weights

    def _draw(self, keys: np.ndarray, counts: np.ndarray, S: int) -> MaskingDraws:
        """Draws the random numbers. A row depends only on its key and its number of words."""
        bits = random_bits(keys, S + self.settings.max_predictions_per_seq)
        columns = np.arange(counts.max(initial=0))
        for_words, for_slots = bits[:, : len(columns)], bits[:, S:]
        # The lower bits determine the order, the upper bits the lengths.
        last = np.iinfo(np.int32).max
        visit = np.where(columns < counts[:, None], below(for_words, 2**31), last)
        # The same as a stable argsort, but several times faster.
        order = np.sort((visit.astype(np.int64) << 32) | columns, axis=1) & (2**32 - 1)
        lengths = _ngram_lengths(uniform(for_words), counts, self.settings)
        random_ids = below(for_slots, self.vocab_size)
        return MaskingDraws(NgramDraws(order, lengths), uniform(for_slots), random_ids)


def find_text(input_mask: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
    """Returns whether each token is text, bool [B, S]. Padding, [CLS] and [SEP] are not text."""
    is_token = input_mask > 0
    ahead = np.full_like(segment_ids, -1)
    ahead[:, :-1] = np.where(is_token, segment_ids, -1)[:, 1:]
    return is_token & (np.arange(input_mask.shape[1]) > 0) & (segment_ids == ahead)


def row_keys(seed: int, numbers: np.ndarray) -> np.ndarray:
    """Returns a key, uint64 [B], for each example number, int64 [B]."""
    return _numbered(_mixed(np.array([seed % 2**64], np.uint64)), numbers.astype(np.uint64))


def random_bits(keys: np.ndarray, count: int) -> np.ndarray:
    """Returns `count` random integers, uint64 [B, count], for each key, uint64 [B]."""
    return _numbered(keys[:, None], np.arange(count, dtype=np.uint64))


def _numbered(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    return _mixed(keys + (counters + np.uint64(1)) * _STEP)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Applies the finalizer of SplitMix64."""
    for shift, factor in _MIX:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def uniform(bits: np.ndarray) -> np.ndarray:
    """Returns uniform float32 numbers in [0, 1) from the upper 24 bits of uint64."""
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def below(bits: np.ndarray, limit: int) -> np.ndarray:
    """Returns int32 numbers in [0, limit), limit <= 2**31, from the lower 32 bits of uint64."""
    low_half = bits & np.uint64(2**32 - 1)
    return ((low_half * np.uint64(limit)) >> np.uint64(32)).astype(np.int32)
