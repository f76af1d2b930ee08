"""Masking while training: n-grams of whole words chosen anew every time a record is read.

The rules are those of `masking.py`. What is random is a function of the seed and of the number of
an example: every row has a key of its own, and draws the same in a batch of one and of thousands.
The generator is SplitMix64: a counter times an odd constant, mixed by two multiplications.

Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.pretraining.masking import (
    MaskingDraws,
    MaskingSettings,
    NgramDraws,
    find_words,
    mask_tokens,
    ngram_lengths,
    prediction_budget,
)

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, made odd
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

# What is read of a plain record for masking alone; the model is not given it.
TOKEN_BOUNDARY = "token_boundary"
_INPUTS = ("input_ids", "input_mask", "segment_ids", TOKEN_BOUNDARY)
Features = dict[str, tf.Tensor]


def row_keys(seed: int, numbers: np.ndarray) -> np.ndarray:
    """Keys, uint64 [B], that differ between rows, told apart by int64 [B], and between seeds."""
    return _numbered(_mixed(np.array([seed % 2**64], np.uint64)), numbers.astype(np.uint64))


def random_bits(keys: np.ndarray, count: int) -> np.ndarray:
    """Draws 64 random bits for each row and counter: uint64 [B] gives uint64 [B, count]."""
    return _numbered(keys[:, None], np.arange(count, dtype=np.uint64))


def _numbered(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    return _mixed(keys + (counters + np.uint64(1)) * _STEP)


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64, a one-to-one map of 64 bits."""
    for shift, factor in _MIX:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def uniform(bits: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1) from the upper 24 bits of uint64; float32, every value of equal weight."""
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def below(bits: np.ndarray, limit: int) -> np.ndarray:
    """Integers in [0, limit), limit <= 2**31, from the lower 32 bits; int32, even up to 2**-32."""
    low_half = bits & np.uint64(2**32 - 1)
    return ((low_half * np.uint64(limit)) >> np.uint64(32)).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class OnlineMasking:
    """Masks batches of plain records; random tokens are drawn from `vocab_size` ids."""

    settings: MaskingSettings
    mask_id: int
    vocab_size: int

    def __post_init__(self) -> None:
        if self.settings.masked_lm_prob == 0:
            raise UserError("`masked_lm_prob` must be above 0 for masking while training: 0")
        if self.settings.do_permutation:
            raise UserError("Masking while training does not permute: do_permutation=True")

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
            numbers: int64 [B]; index of each example in the stream of all examples and passes.
            seed: any integer.

        Returns:
            The features without `token_boundary`, `input_ids` masked, and with
            `masked_lm_positions`, `masked_lm_ids`, int32 [B, P], `masked_lm_weights`, float32.
        """
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
        words = find_words(is_text, starts)
        budget = prediction_budget(input_mask.sum(axis=1), self.settings)
        keys, S = row_keys(seed, numbers), input_ids.shape[1]
        draws = draw_masking(keys, words.counts, S, self.settings, self.vocab_size)
        masked = mask_tokens(input_ids, is_text, words, budget, draws, self.mask_id)
        slots = np.arange(self.settings.prediction_slots)
        weights = (slots < masked.counts[:, None]).astype(np.float32)
        return masked.input_ids, masked.positions.astype(np.int32), masked.labels, weights


def find_text(input_mask: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
    """Marks text, bool [B, S]: neither padding nor [CLS], nor [SEP], which ends each segment."""
    is_token = input_mask > 0
    ahead = np.full_like(segment_ids, -1)
    ahead[:, :-1] = np.where(is_token, segment_ids, -1)[:, 1:]
    return is_token & (np.arange(input_mask.shape[1]) > 0) & (segment_ids == ahead)


def draw_masking(
    keys: np.ndarray, counts: np.ndarray, S: int, settings: MaskingSettings, vocab_size: int
) -> MaskingDraws:
    """Draws what `mask_tokens` needs; a row depends on its key and its number of words alone."""
    bits = random_bits(keys, S + settings.max_predictions_per_seq)
    columns = np.arange(counts.max(initial=0))
    for_words, for_slots = bits[:, : len(columns)], bits[:, S:]
    # The lower bits decide the order, the upper ones the lengths.
    last = np.iinfo(np.int32).max
    visit = np.where(columns < counts[:, None], below(for_words, 2**31), last)
    # A stable argsort, several times as fast: equal values are told apart by their columns.
    order = np.sort((visit.astype(np.int64) << 32) | columns, axis=1) & (2**32 - 1)
    lengths = ngram_lengths(uniform(for_words), counts, settings)
    ngrams = NgramDraws(order, lengths)
    return MaskingDraws(ngrams, uniform(for_slots), below(for_slots, vocab_size))
