"""N-gram masking of whole words, for many sequences at once.

The rules are the original's: words are visited in random order, each opens an n-gram of random
length, an n-gram that does not fit the budget is tried shorter, and one that meets a masked word is
passed over. A step here is "the k-th visit in every sequence". What is drawn at random comes in as
arrays (`draw_masking`), the rest is a pure function of them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from albert_tf.data.errors import UserError


class Words(NamedTuple):
    """The words of each sequence; W is the largest number of them.

    Attributes:
        counts: int64 [B]; words of each sequence.
        of_position: int64 [B, S]; the word that a text position belongs to (elsewhere unspecified).
        begin: int64 [B, W + 1]; text tokens before each word; all of them from the last word on.
    """

    counts: np.ndarray
    of_position: np.ndarray
    begin: np.ndarray


def find_words(is_text: np.ndarray, starts_word: np.ndarray | None) -> Words:
    """Groups tokens to words.

    A token that does not start a word joins the word before it, across [SEP] too; the first text
    token always opens one.

    Args:
        is_text: bool [B, S]; False for special tokens and padding, which belong to no word.
        starts_word: bool [B, S]; whether a token opens a word. None makes every text token a word.

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
    return Words(counts, of_position, begin)


@dataclass(frozen=True)
class MaskingSettings:
    """How tokens are chosen for prediction.

    Attributes:
        masked_lm_prob: fraction of the tokens of a sequence to predict, in [0, 1); 0 masks nothing.
        max_predictions_per_seq: upper limit of predictions a sequence.
        ngram: longest n-gram that is masked together, in words; at least 1.
        favor_shorter_ngram: True draws length n with probability ~ 1/n; False the other way round.
        do_whole_word_mask: False lets every token be a word of its own.
        do_permutation: permute as many of the tokens left, and predict those too.
    """

    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int = 20
    ngram: int = 3
    favor_shorter_ngram: bool = True
    do_whole_word_mask: bool = True
    do_permutation: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.masked_lm_prob < 1:
            raise UserError(
                f"`masked_lm_prob` must be in [0, 1), usually 0.15. Received: {self.masked_lm_prob}"
            )
        for name in ("max_predictions_per_seq", "ngram"):
            if getattr(self, name) < 1:
                raise UserError(f"`{name}` must be at least 1: {getattr(self, name)}")

    @property
    def prediction_slots(self) -> int:
        """Length of the prediction features: twice the limit with permutation."""
        return self.max_predictions_per_seq * (2 if self.do_permutation else 1)


class Vocabulary(NamedTuple):
    """What masking needs to know of a tokenizer.

    Attributes:
        size: V, number of ids.
        unk_id, cls_id, sep_id, mask_id: special ids.
        starts_word: bool [V + 1]; whether a token opens a word. The last entry is for an unknown
            piece inside a word, see `read_documents`.
    """

    size: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    starts_word: np.ndarray


class NgramDraws(NamedTuple):
    """Random numbers that decide one choice of n-grams, int64 [B, W] each.

    Attributes:
        order: the words of each sequence in the order of the visits.
        lengths: for each word, the words of the n-gram that starts there.
    """

    order: np.ndarray
    lengths: np.ndarray


class MaskingDraws(NamedTuple):
    """Every random number that masking takes; P counts prediction slots without permutation.

    Attributes:
        masked: which n-grams are masked.
        replacement_draw: float [B, P]; below 0.8 a prediction is shown as [MASK], from 0.9 on as a
            random token, between as it is. In the order of the positions.
        random_ids: int64 [B, P]; the random tokens.
        permuted: which n-grams take part in the permutation; None without one.
        permutation_keys: float [B, P]; sorting them permutes the tokens; None without permutation.
    """

    masked: NgramDraws
    replacement_draw: np.ndarray
    random_ids: np.ndarray
    permuted: NgramDraws | None = None
    permutation_keys: np.ndarray | None = None


class MaskedBatch(NamedTuple):
    """Sequences ready for prediction.

    Attributes:
        input_ids: int32 [B, S]; with masked, random and permuted tokens in place.
        positions: int64 [B, slots]; ascending, then zeros.
        labels: int32 [B, slots]; the tokens that stood there, then zeros.
        counts: int64 [B]; predictions of each sequence.
        ngrams: int64 [n]; how many n-grams of each length were masked.
    """

    input_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    ngrams: np.ndarray


def prediction_budget(lengths: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Tokens to mask in sequences of the given lengths [B], special tokens included: int64 [B].

    At least 1 unless the fraction is 0. Halves are rounded to even.
    """
    if settings.masked_lm_prob == 0:
        return np.zeros(len(lengths), np.int64)
    wanted = np.rint(lengths * settings.masked_lm_prob).astype(np.int64)
    return np.minimum(settings.max_predictions_per_seq, np.maximum(1, wanted))


def draw_masking(
    words: Words, settings: MaskingSettings, vocab_size: int, rng: np.random.Generator
) -> MaskingDraws:
    """Draws everything that `mask_tokens` needs for one batch."""
    shape = len(words.counts), settings.max_predictions_per_seq
    masked = _draw_ngrams(words.counts, settings, rng)
    replacement_draw = rng.random(shape, np.float32)
    random_ids = rng.integers(0, vocab_size, shape)
    if not settings.do_permutation:
        return MaskingDraws(masked, replacement_draw, random_ids)
    permuted = _draw_ngrams(words.counts, settings, rng)
    return MaskingDraws(
        masked, replacement_draw, random_ids, permuted, rng.random(shape, np.float32)
    )


def _draw_ngrams(
    counts: np.ndarray, settings: MaskingSettings, rng: np.random.Generator
) -> NgramDraws:
    """Draws visiting orders and n-gram lengths for sequences of `counts` [B] words."""
    columns = np.arange(int(counts.max(initial=0)))
    shape = len(counts), len(columns)
    # Sorting random integers that carry the word number in their low bits gives permutations.
    bits = len(columns).bit_length()
    keys = rng.integers(0, 2**63, shape, dtype=np.uint64) >> np.uint64(bits) << np.uint64(bits)
    keys |= columns.astype(np.uint64)
    keys[columns >= counts[:, None]] |= np.uint64(2**63)
    keys.sort(axis=1)
    order = (keys & np.uint64(2**bits - 1)).astype(np.int64)

    return NgramDraws(order, ngram_lengths(rng.random(shape, np.float32), counts, settings))


def ngram_lengths(point: np.ndarray, counts: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Turns random numbers into lengths of n-grams in words, int64 [B, W].

    An n-gram that would reach beyond the last word ends there.

    Args:
        point: float32 [B, W], in [0, 1).
        counts: int64 [B]; words of each sequence.
        settings: the longest n-gram, and which lengths are likelier.
    """
    bounds = ngram_probabilities(settings).cumsum()[:-1]
    lengths = 1 + np.searchsorted(bounds, point, side="right")
    return np.minimum(lengths, np.maximum(counts[:, None] - np.arange(point.shape[1]), 1))


def ngram_probabilities(settings: MaskingSettings) -> np.ndarray:
    """Probability of each n-gram length 1..ngram, float64 [ngram]."""
    weights = 1 / np.arange(1, settings.ngram + 1)
    weights = weights if settings.favor_shorter_ngram else weights[::-1]
    return weights / weights.sum()


def choose_ngrams(
    words: Words, draws: NgramDraws, budget: np.ndarray, taken: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses n-grams of words until the budget of tokens is used up.

    Args:
        words: the words of each sequence.
        draws: order of the visits and n-gram lengths.
        budget: int64 [B]; most tokens to choose in each sequence.
        taken: bool [B, W]; words that must not be chosen.

    Returns:
        bool [B, W], the words chosen; int64 [n], how many n-grams of each length 0..n-1.
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
        length, size = _fit(words.begin, rows, word, draws.lengths[rows, word], remaining[rows])
        inside = steps < length[:, None]
        span = word[:, None] + steps
        free = (size <= remaining[rows]) & ~(busy[rows[:, None], span] & inside).any(axis=1)
        inside &= free[:, None]
        busy[np.broadcast_to(rows[:, None], span.shape)[inside], span[inside]] = True
        remaining[rows] -= size * free
        ngrams += np.bincount(length[free], minlength=longest + 1)
    chosen = busy[:, :W]
    return (chosen if taken is None else chosen & ~taken), ngrams


def _fit(
    begin: np.ndarray, rows: np.ndarray, word: np.ndarray, length: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lengths in words and sizes in tokens of n-grams shortened to fit, at most to one word."""
    start = begin[rows, word]
    size = begin[rows, word + length] - start
    while (shrink := (size > room) & (length > 1)).any():
        length = length - shrink
        size = begin[rows, word + length] - start
    return length, size


def mask_batch(
    input_ids: np.ndarray,
    is_text: np.ndarray,
    lengths: np.ndarray,
    vocabulary: Vocabulary,
    settings: MaskingSettings,
    rng: np.random.Generator,
) -> MaskedBatch:
    """Masks a batch of sequences at random.

    Args:
        input_ids: int32 [B, S].
        is_text: bool [B, S]; False for special tokens and padding.
        lengths: int [B]; tokens of each sequence, special tokens included.
        vocabulary: word starts and special ids.
        settings: how much to mask, and how.
        rng: decides everything that is random.
    """
    starts = vocabulary.starts_word[input_ids] if settings.do_whole_word_mask else None
    words = find_words(is_text, starts)
    budget = prediction_budget(lengths, settings)
    draws = draw_masking(words, settings, vocabulary.size, rng)
    return mask_tokens(input_ids, is_text, words, budget, draws, vocabulary.mask_id)


def mask_tokens(
    input_ids: np.ndarray,
    is_text: np.ndarray,
    words: Words,
    budget: np.ndarray,
    draws: MaskingDraws,
    mask_id: int,
) -> MaskedBatch:
    """Does what `mask_batch` does with words, budgets and the draws of `draw_masking` given."""
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
    """Marks the tokens, bool [B, S], of the chosen words, bool [B, W]."""
    if not chosen.shape[1]:
        return np.zeros_like(is_text)
    return is_text & np.take_along_axis(chosen, np.maximum(words.of_position, 0), axis=1)


def _slots(selected: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, position and number within its row of every marked token of bool [B, S]."""
    row, position = np.nonzero(selected)
    first = np.searchsorted(row, np.arange(len(selected)))
    return row, position, np.arange(len(row)) - first[row]


def _permute(
    input_ids: np.ndarray, output: np.ndarray, moving: np.ndarray, keys: np.ndarray
) -> None:
    """Writes the `moving` tokens of each row to `output` in the order of their sorted keys."""
    row, position, slot = _slots(moving)
    sort_keys = np.full(keys.shape, np.inf)
    sort_keys[row, slot] = keys[row, slot]
    origin = sort_keys.argsort(axis=1)[row, slot]
    positions = np.zeros(keys.shape, np.int64)
    positions[row, slot] = position
    output[row, position] = input_ids[row, positions[row, origin]]
