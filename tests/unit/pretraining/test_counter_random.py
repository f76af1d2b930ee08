"""Random numbers of a key and a counter: the published generator, uniform, row by row."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from albert_tf.pretraining.online_masking import below, random_bits, row_keys, uniform


def test_bits_are_those_of_splitmix64():
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    keys = tf.constant([1234567, 2**64 - 1], tf.uint64)
    assert random_bits(keys, 5).numpy()[0].tolist() == published


@pytest.mark.parametrize("seed", [0, -1, 2**70 + 3])
def test_rows_do_not_depend_on_their_batch(seed):
    numbers = tf.constant([7, 3, 2**62, 0, 7], tf.int64)
    together = random_bits(row_keys(seed, numbers), 6).numpy()
    for row, number in enumerate(numbers):
        alone = random_bits(row_keys(seed, number[None]), 9).numpy()
        np.testing.assert_array_equal(alone[0, :6], together[row])
    assert len(np.unique(together)) == 4 * 6  # two rows have the same number


def drawn(seed: int) -> tf.Tensor:
    """Bits of neighbouring rows, as batches of examples draw them: 2000 x 150."""
    return random_bits(row_keys(seed, tf.range(2000, dtype=tf.int64)), 150)


@pytest.mark.parametrize("seed", [0, 1])
def test_numbers_are_uniform(seed):
    """The chance of a p-value below 1e-4 is that number; the seeds are fixed."""
    bits = drawn(seed)
    unit = uniform(bits).numpy()
    assert unit.dtype == np.float32
    assert 0 <= unit.min() < 1e-4
    assert 1 - 1e-4 < unit.max() < 1
    assert stats.kstest(unit.ravel().astype(float), "uniform").pvalue > 1e-4
    counts = np.bincount(below(bits, 37).numpy().ravel(), minlength=37)
    assert len(counts) == 37
    assert stats.chisquare(counts).pvalue > 1e-4


def test_neighbours_are_independent():
    """Rows, counters, halves of one word, and seeds: correlations below five deviations."""
    bits = drawn(0)
    unit = uniform(bits).numpy().astype(float)
    pairs = {
        "rows": (unit[1:], unit[:-1]),
        "counters": (unit[:, 1:], unit[:, :-1]),
        "halves": (unit, below(bits, 2**31).numpy()),
        "seeds": (unit, uniform(drawn(1)).numpy()),
    }
    for name, (a, b) in pairs.items():
        correlation = np.corrcoef(a.ravel(), b.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(a.size), name


def test_every_bit_is_set_half_of_the_time():
    bits = np.unpackbits(drawn(2).numpy().view(np.uint8).reshape(-1, 8), axis=1)
    np.testing.assert_allclose(bits.mean(axis=0), 0.5, rtol=0, atol=5 * 0.5 / np.sqrt(len(bits)))
