"""Masking while training: a function of seed and number, row by row."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from albert_tf.pretraining.masking import (
    MaskingSettings,
    OnlineMasking,
    below,
    find_text,
    random_bits,
    row_keys,
    uniform,
)

V, CLS, SEP, MASK = 90, 2, 3, 4
STARTS = np.arange(V) % 3 > 0  # a third of the tokens continue a word
S = 41


def plain_features(seed: int, rows: int, shortest: int = 5) -> tuple[dict, np.ndarray]:
    """Ragged [CLS] A [SEP] B [SEP], a row without text and one of padding; which are text."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, S, (rows, 1), endpoint=True)
    middle = rng.integers(2, lengths - 2)
    lengths[3], middle[3] = 3, 1
    lengths[4] = middle[4] = 0
    columns = np.arange(S)
    is_token = columns < lengths
    is_text = is_token & (columns > 0) & (columns != middle) & (columns < lengths - 1)
    ids = np.where(is_text, rng.integers(5, V, (rows, S)), SEP * is_token)
    ids[:, 0] = CLS * is_token[:, 0]
    features = {
        "input_ids": ids,
        "input_mask": is_token,
        "segment_ids": is_token & (columns > middle),
        "token_boundary": is_token & (STARTS[ids] | ~is_text),
    }
    return {name: tf.constant(value.astype(np.int32)) for name, value in features.items()}, is_text


def test_text_is_found_without_ids():
    features, is_text = plain_features(2, rows=29)
    found = find_text(features["input_mask"].numpy(), features["segment_ids"].numpy())
    np.testing.assert_array_equal(found, is_text)
    one_segment = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = [[0, 1, 1, 1, 0], [0, 1, 0, 0, 0]]
    np.testing.assert_array_equal(find_text(one_segment, np.zeros_like(one_segment)), expected)


MASKING = OnlineMasking(MaskingSettings(max_predictions_per_seq=6), MASK, V)


def assert_equal_features(actual: dict, expected: dict) -> None:
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert actual[name].dtype == values.dtype, name
        np.testing.assert_array_equal(actual[name], values, err_msg=name)


def test_a_row_does_not_depend_on_its_batch():
    features, _ = plain_features(3, rows=9)
    numbers = tf.constant([5, 2, 8, 0, 1, 2**61, 9, 7, 4], tf.int64)
    together = MASKING(features, numbers, seed=3)
    for row in range(9):
        alone = {name: values[row : row + 1] for name, values in features.items()}
        alone = MASKING(alone, numbers[row : row + 1], seed=3)
        assert_equal_features(alone, {k: v[row : row + 1] for k, v in together.items()})


def test_shapes_are_static_in_a_graph():
    features, _ = plain_features(4, rows=7)
    masked = tf.function(lambda f, n: MASKING(f, n, 5), autograph=False).get_concrete_function(
        features, tf.TensorSpec([7], tf.int64)
    )
    shapes = {name: tuple(output.shape) for name, output in masked.structured_outputs.items()}
    assert shapes["masked_lm_positions"] == shapes["masked_lm_weights"] == (7, 6)
    assert shapes["input_ids"] == (7, S)
    assert "token_boundary" not in shapes


def test_the_masks_of_a_seed_stay_what_they_are():
    """Later versions must go on with the masks that a run began with."""
    ids = np.arange(10, 50).reshape(2, 20)
    features = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.arange(20) > np.array([[9], [9]]),
        "token_boundary": ids % 3 > 0,
    }
    features = {name: tf.constant(value.astype(np.int32)) for name, value in features.items()}
    masking = OnlineMasking(MaskingSettings(0.3, 6), MASK, V)
    masked = masking(features, tf.constant([5, 2**40], tf.int64), seed=-7)
    assert masked["masked_lm_positions"].numpy().tolist() == [
        [3, 6, 10, 11, 12, 15],
        [2, 3, 4, 5, 6, 7],
    ]
    shown = ids.copy()
    shown[0, [3, 6, 10, 11, 12]] = [4, 4, 4, 23, 4]
    shown[1, 2:8] = [4, 4, 4, 4, 4, 62]
    np.testing.assert_array_equal(masked["input_ids"], shown)
    np.testing.assert_array_equal(
        masked["masked_lm_ids"], np.take_along_axis(ids, masked["masked_lm_positions"].numpy(), 1)
    )
    np.testing.assert_array_equal(masked["masked_lm_weights"], np.ones((2, 6)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (MaskingSettings(masked_lm_prob=0), "`masked_lm_prob` must be above 0"),
        (MaskingSettings(do_permutation=True), "do_permutation"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        OnlineMasking(settings, MASK, V)


def test_bits_are_those_of_splitmix64():
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    keys = np.array([1234567, 2**64 - 1], np.uint64)
    assert random_bits(keys, 5)[0].tolist() == published


@pytest.mark.parametrize("seed", [0, -1, 2**70 + 3])
def test_numbers_are_uniform(seed):
    """The chance of a p-value below 1e-4 is that number; the seeds are fixed."""
    bits = random_bits(row_keys(seed, np.arange(2000)), 150)
    unit = uniform(bits)
    assert unit.dtype == np.float32
    assert 0 <= unit.min() < 1e-4
    assert 1 - 1e-4 < unit.max() < 1
    assert stats.kstest(unit.ravel().astype(float), "uniform").pvalue > 1e-4
    counts = np.bincount(below(bits, 37).ravel(), minlength=37)
    assert len(counts) == 37
    assert stats.chisquare(counts).pvalue > 1e-4
