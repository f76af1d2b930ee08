"""Masking while training: n-grams of whole words chosen anew every time a record is read.

The rules are those of `masking.py`, as graph operations on a batch: all shapes follow from those of
the batch and the settings, the only loop is over the visits to words. What is drawn at random comes
in as arrays (`draw_masking`), the rest is a pure function of them and equals the NumPy one.

`tf.random.stateless_*` takes one seed a call: a row of a batch would depend on its neighbours. Here
every row has a key of its own, and what it draws is the same in a batch of one and of thousands.
The generator is SplitMix64: a counter times an odd constant, mixed by two multiplications.

Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.pretraining.masking import MaskingSettings, ngram_probabilities, prediction_budget

_STEP = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio, made odd
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

# What is read of a plain record for masking alone; the model is not given it.
TOKEN_BOUNDARY = "token_boundary"
Features = dict[str, tf.Tensor]


def row_keys(seed: int, numbers: tf.Tensor) -> tf.Tensor:
    """Keys that differ between rows and between seeds.

    Args:
        seed: any integer.
        numbers: int64 [B]; what tells the rows apart.

    Returns:
        uint64 [B].
    """
    start = _mixed(tf.constant(seed % 2**64, tf.uint64))
    return _numbered(start, tf.bitcast(numbers, tf.uint64))


def random_bits(keys: tf.Tensor, count: int) -> tf.Tensor:
    """Draws 64 random bits for each row and counter.

    Args:
        keys: uint64 [B]; from `row_keys`.
        count: C, draws a row.

    Returns:
        uint64 [B, C].
    """
    counters = tf.bitcast(tf.range(count, dtype=tf.int64), tf.uint64)
    return _numbered(keys[:, None], counters)


def _numbered(keys: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    return _mixed(keys + (counters + tf.constant(1, tf.uint64)) * tf.constant(_STEP, tf.uint64))


def _mixed(values: tf.Tensor) -> tf.Tensor:
    """The finaliser of SplitMix64, a one-to-one map of 64 bits."""
    for shift, factor in _MIX:
        values = (values ^ _shifted(values, shift)) * tf.constant(factor, tf.uint64)
    return values ^ _shifted(values, 31)


def _shifted(bits: tf.Tensor, count: int) -> tf.Tensor:
    return tf.bitwise.right_shift(bits, tf.constant(count, tf.uint64))


def uniform(bits: tf.Tensor) -> tf.Tensor:
    """Numbers in [0, 1) from the upper 24 bits of uint64; float32, every value of equal weight."""
    return tf.cast(tf.cast(_shifted(bits, 40), tf.int32), tf.float32) * tf.constant(2.0**-24)


def below(bits: tf.Tensor, limit: int) -> tf.Tensor:
    """Integers in [0, limit) from the lower 32 bits of uint64, limit <= 2**31; int32.

    Values differ in probability by 2**-32 at most.
    """
    low_half = bits & tf.constant(2**32 - 1, tf.uint64)
    return tf.cast(_shifted(low_half * tf.constant(limit, tf.uint64), 32), tf.int32)


class GraphWords(NamedTuple):
    """The words of each sequence; as `masking.Words`, with room for S words.

    Attributes:
        counts: int32 [B]; words of each sequence.
        of_position: int32 [B, S]; the word that a text position belongs to (elsewhere unspecified).
        begin: int32 [B, S + 1]; text tokens before each word; all of them from the last word on.
    """

    counts: tf.Tensor
    of_position: tf.Tensor
    begin: tf.Tensor


class GraphDraws(NamedTuple):
    """Random numbers that decide the masking of a batch; as `masking.MaskingDraws`.

    Attributes:
        order: int32 [B, S]; the words of each sequence in the order of the visits, then anything.
        lengths: int32 [B, S]; for each word, the words of the n-gram that starts there.
        replacement_draw: float32 [B, P]; below 0.8 a prediction is shown as [MASK], from 0.9 on as
            a random token, between as it is.
        random_ids: int32 [B, P]; the random tokens.
    """

    order: tf.Tensor
    lengths: tf.Tensor
    replacement_draw: tf.Tensor
    random_ids: tf.Tensor


@dataclasses.dataclass(frozen=True)
class OnlineMasking:
    """Masks batches of plain records.

    Attributes:
        settings: how tokens are chosen.
        mask_id: id of [MASK].
        vocab_size: random tokens are drawn from so many.
    """

    settings: MaskingSettings
    mask_id: int
    vocab_size: int

    def __post_init__(self) -> None:
        if self.settings.masked_lm_prob == 0:
            raise ValueError("--masked_lm_prob must be above 0 for masking while training: 0")
        if self.settings.do_permutation:
            raise ValueError("Masking while training does not permute: do_permutation=True")

    def describe(self) -> dict[str, Any]:
        """Everything that decides the masks next to the seed, as JSON."""
        return dataclasses.asdict(self)

    def __call__(
        self, features: Mapping[str, tf.Tensor], numbers: tf.Tensor, seed: int
    ) -> Features:
        """Masks a batch; a row is a function of its tokens, its number and the seed alone.

        Args:
            features: of plain records: `input_ids`, `input_mask`, `segment_ids`, `token_boundary`,
                int32 [B, S], and others, which stay as they are.
            numbers: int64 [B]; place of each example in the stream of all examples and passes.
            seed: any integer.

        Returns:
            The features without `token_boundary`, `input_ids` masked, and with
            `masked_lm_positions`, `masked_lm_ids`, int32 [B, P], `masked_lm_weights`, float32.
        """
        S = features["input_ids"].shape[1]
        is_text = find_text(features["input_mask"], features["segment_ids"])
        whole_words = self.settings.do_whole_word_mask
        words = find_words(is_text, features[TOKEN_BOUNDARY] if whole_words else None)
        budgets = prediction_budget(np.arange(S + 1), self.settings).astype(np.int32)
        budget = tf.gather(budgets, tf.reduce_sum(features["input_mask"], axis=1))
        keys = row_keys(seed, numbers)
        draws = draw_masking(keys, words.counts, S, self.settings, self.vocab_size)
        masked = mask_tokens(
            features["input_ids"], is_text, words, budget, draws, self.settings.ngram, self.mask_id
        )
        kept = {name: value for name, value in features.items() if name != TOKEN_BOUNDARY}
        return {**kept, **masked}


def find_text(input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
    """Marks text: neither padding nor [CLS], which is first, nor [SEP], which ends each segment.

    Args:
        input_mask: int32 [B, S].
        segment_ids: int32 [B, S].

    Returns:
        bool [B, S].
    """
    is_token = input_mask > 0
    columns = tf.range(input_mask.shape[1])
    ahead = tf.where(is_token, segment_ids, -1)
    ahead = tf.pad(ahead[:, 1:], [[0, 0], [0, 1]], constant_values=-1)
    return is_token & (columns > 0) & (segment_ids == ahead)


def find_words(is_text: tf.Tensor, token_boundary: tf.Tensor | None) -> GraphWords:
    """Groups tokens to words, as `masking.find_words` does.

    Args:
        is_text: bool [B, S].
        token_boundary: int32 [B, S], not 0 where a word starts; None makes every text token a word.
    """
    S = is_text.shape[1]
    tokens = tf.cast(is_text, tf.int32)
    tokens_before = tf.cumsum(tokens, axis=1, exclusive=True)
    opens = tokens
    if token_boundary is not None:
        # The first text token opens a word whatever it is.
        opens = tf.cast(is_text & ((token_boundary > 0) | (tokens_before == 0)), tf.int32)
    opened = tf.cumsum(opens, axis=1)
    place = _positions_of(opened, S + 1)
    total = tf.reduce_sum(tokens, axis=1, keepdims=True)
    begin = tf.gather(tf.concat([tokens_before, total], axis=1), place, batch_dims=1)
    return GraphWords(opened[:, -1], opened - 1, begin)


def _positions_of(counted: tf.Tensor, slots: int) -> tf.Tensor:
    """Where the first, second ... marked positions are, S beyond the last; int32 [B, slots].

    Args:
        counted: int32 [B, S]; marks up to and including each position.
        slots: how many to look for.
    """
    wanted = tf.tile(tf.range(1, slots + 1)[None], [tf.shape(counted)[0], 1])
    return tf.searchsorted(counted, wanted)


def draw_masking(
    keys: tf.Tensor, counts: tf.Tensor, S: int, settings: MaskingSettings, vocab_size: int
) -> GraphDraws:
    """Draws what `mask_tokens` needs; a row depends on its key and its number of words alone.

    Args:
        keys: uint64 [B]; from `row_keys`.
        counts: int32 [B]; words of each sequence.
        S: positions of a sequence.
        settings: n-gram lengths and the number of prediction slots.
        vocab_size: random tokens are drawn from so many.
    """
    bits = random_bits(keys, S + settings.max_predictions_per_seq)
    for_words, for_slots = bits[:, :S], bits[:, S:]
    columns = tf.range(S)
    # The lower bits decide the order, the upper ones the lengths.
    visit = below(for_words, 2**31)
    visit = tf.where(columns < counts[:, None], visit, tf.int32.max)
    order = tf.argsort(visit, axis=1, stable=True)
    point = uniform(for_words)
    lengths = tf.ones_like(order)
    for bound in ngram_probabilities(settings).cumsum()[:-1]:
        lengths += tf.cast(point >= bound, tf.int32)
    # An n-gram that would reach beyond the last word ends there.
    lengths = tf.minimum(lengths, tf.maximum(counts[:, None] - columns, 1))
    return GraphDraws(order, lengths, uniform(for_slots), below(for_slots, vocab_size))


def choose_ngrams(
    words: GraphWords, order: tf.Tensor, lengths: tf.Tensor, longest: int, budget: tf.Tensor
) -> tf.Tensor:
    """Chooses n-grams of words until the budget of tokens is used up, as `masking.py` does.

    Args:
        words: the words of each sequence.
        order: int32 [B, S]; see `GraphDraws`.
        lengths: int32 [B, S]; see `GraphDraws`.
        longest: largest possible length.
        budget: int32 [B]; most tokens to choose in each sequence.

    Returns:
        bool [B, S]; the words chosen.
    """
    S = order.shape[1]
    columns, steps = tf.range(S), tf.range(1, longest + 1)
    visited = _by_visit(words, order, lengths, longest)

    def waiting(visit: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return (left > 0) & (visit < words.counts)

    def visit_next(
        visit: tf.Tensor, left: tf.Tensor, chosen: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        word, length, sizes = (values[:, visit] for values in (order, *visited))
        # Sizes grow with the length: so many lengths fit, and a single word is tried in any case.
        fits = (steps <= length[:, None]) & (sizes <= left[:, None])
        length = tf.maximum(tf.reduce_sum(tf.cast(fits, tf.int32), axis=1), 1)
        size = tf.gather(sizes, length - 1, batch_dims=1)
        behind = columns - word[:, None]
        inside = (behind >= 0) & (behind < length[:, None])
        free = ~tf.reduce_any(chosen & inside, axis=1)
        free &= waiting(visit, left) & (size <= left)
        left -= tf.where(free, size, 0)
        return visit + 1, left, chosen | (inside & free[:, None])

    start = tf.constant(0), budget, tf.zeros_like(order, tf.bool)
    return tf.while_loop(
        lambda visit, left, chosen: (visit < S) & tf.reduce_any(waiting(visit, left)),
        visit_next,
        start,
    )[2]


def _by_visit(
    words: GraphWords, order: tf.Tensor, lengths: tf.Tensor, longest: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Lengths of the n-grams, int32 [B, S], and tokens in 1..longest words, [B, S, longest]."""
    S = order.shape[1]
    total = tf.repeat(words.begin[:, -1:], longest, axis=1)
    begin = tf.concat([words.begin, total], axis=1)
    ends = tf.stack([begin[:, n : n + S] for n in range(1, longest + 1)], axis=2)
    sizes = tf.gather(ends - begin[:, :S, None], order, batch_dims=1)
    return tf.gather(lengths, order, batch_dims=1), sizes


def mask_tokens(
    input_ids: tf.Tensor,
    is_text: tf.Tensor,
    words: GraphWords,
    budget: tf.Tensor,
    draws: GraphDraws,
    longest: int,
    mask_id: int,
) -> Features:
    """Masks a batch of sequences as the draws say.

    Args:
        input_ids: int32 [B, S].
        is_text: bool [B, S]; tokens that may be masked.
        words: from `find_words`.
        budget: int32 [B]; at most P.
        draws: from `draw_masking`.
        longest: largest possible n-gram length.
        mask_id: id of [MASK].

    Returns:
        `input_ids` and the three `masked_lm_*` features, see `OnlineMasking`.
    """
    P = draws.replacement_draw.shape[1]
    chosen = choose_ngrams(words, draws.order, draws.lengths, longest, budget)
    selected = is_text & tf.gather(chosen, tf.maximum(words.of_position, 0), batch_dims=1)
    counted = tf.cumsum(tf.cast(selected, tf.int32), axis=1)
    slot = tf.maximum(counted - 1, 0)
    replacement_draw = tf.gather(draws.replacement_draw, slot, batch_dims=1)
    shown = tf.where(
        replacement_draw < 0.9, input_ids, tf.gather(draws.random_ids, slot, batch_dims=1)
    )
    shown = tf.where(replacement_draw < 0.8, mask_id, shown)
    used = tf.range(P) < counted[:, -1:]
    positions = tf.where(used, _positions_of(counted, P), 0)
    labels = tf.where(used, tf.gather(input_ids, positions, batch_dims=1), 0)
    return {
        "input_ids": tf.where(selected, shown, input_ids),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": tf.cast(used, tf.float32),
    }
