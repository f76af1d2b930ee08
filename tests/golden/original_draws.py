"""Random numbers drawn in the order of the original, which replay its masking."""

import random
from collections.abc import Sequence

import numpy as np

from albert_tf.pretraining.masking import (
    MaskingDraws,
    MaskingSettings,
    NgramDraws,
    ngram_probabilities,
)


class OriginalDraws:
    """Visits the words of one sequence as the original does, to record what it draws.

    Args:
        sizes: tokens of each word.
        budget: most tokens to mask.
        python: draws orders, fates, random tokens and the permutation.
        numpy: draws n-gram lengths.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        budget: int,
        settings: MaskingSettings,
        vocab_size: int,
        python: random.Random,
        numpy: np.random.RandomState,
    ):
        self.sizes = sizes
        self.budget = budget
        self.settings = settings
        self.vocab_size = vocab_size
        self.python = python
        self.numpy = numpy
        self.first_token = np.cumsum([0, *sizes])

    def draw(self) -> MaskingDraws:
        order = list(range(len(self.sizes)))
        fates: dict[int, tuple[float, int]] = {}
        masked = self._walk(order, set(), fates)
        slots = self.settings.max_predictions_per_seq
        fate = np.zeros([1, slots])
        random_ids = np.zeros([1, slots], np.int64)
        for slot, token in enumerate(sorted(fates)):
            fate[0, slot], random_ids[0, slot] = fates[token]
        permuted = keys = None
        if not self.settings.do_permutation:
            self.python.shuffle(order)
        else:
            taken = set(fates)
            permuted = self._walk(order, taken)
            sources = list(range(len(taken) - len(fates)))
            self.python.shuffle(sources)
            keys = np.zeros([1, slots])
            keys[0, sources] = range(len(sources))
        return MaskingDraws(masked, fate, random_ids, permuted, keys)

    def _walk(self, order: list[int], taken: set[int], fates: dict | None = None) -> NgramDraws:
        self.python.shuffle(order)
        lengths = np.ones([1, len(order)], np.int64)
        limit = len(taken) + self.budget
        for word in order:
            if len(taken) >= limit:
                break
            lengths[0, word] = min(self._draw_length(), len(order) - word)
            tokens = self._fitting_tokens(word, lengths[0, word], limit - len(taken))
            if taken.isdisjoint(tokens):
                taken.update(tokens)
                for token in tokens if fates is not None else ():
                    fates[token] = self._draw_fate()
        return NgramDraws(np.array([order]), lengths)

    def _draw_length(self) -> int:
        p = ngram_probabilities(self.settings)
        return self.numpy.choice(np.arange(1, len(p) + 1), p=p)

    def _fitting_tokens(self, word: int, length: int, room: int) -> range:
        while length:
            tokens = range(self.first_token[word], self.first_token[word + length])
            if len(tokens) <= room:
                return tokens
            length -= 1
        return range(0)

    def _draw_fate(self) -> tuple[float, int]:
        if self.python.random() < 0.8:
            return 0.0, 0
        if self.python.random() < 0.5:
            return 0.85, 0
        return 0.95, self.python.randint(0, self.vocab_size - 1)
