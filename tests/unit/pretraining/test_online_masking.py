"""Masking in graphs: what the NumPy rules give for the same draws, row by row, in distribution."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from albert_tf.pretraining.masking import (
    MaskedBatch,
    MaskingDraws,
    MaskingSettings,
    NgramDraws,
    find_words,
    mask_tokens,
    prediction_budget,
)
from albert_tf.pretraining.online_masking import (
    OnlineMasking,
    below,
    draw_masking,
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


SETTINGS = [
    MaskingSettings(max_predictions_per_seq=6),
    MaskingSettings(masked_lm_prob=0.9, max_predictions_per_seq=40),
    MaskingSettings(masked_lm_prob=0.4, ngram=7, favor_shorter_ngram=False),
    MaskingSettings(do_whole_word_mask=False, ngram=1),
    MaskingSettings(masked_lm_prob=0.01, ngram=2),
]


def offline_with_draws(
    features: dict, is_text: np.ndarray, settings: MaskingSettings, keys: tf.Tensor
) -> MaskedBatch:
    """What the NumPy rules make of the draws of the graph."""
    ids = features["input_ids"].numpy()
    starts = np.append(STARTS, False)
    words = find_words(ids, is_text, starts, settings.do_whole_word_mask)
    counts = tf.constant(words.counts.astype(np.int32))
    draws = [value.numpy() for value in draw_masking(keys, counts, S, settings, V)]
    W = int(words.counts.max())
    ngrams = NgramDraws(draws[0][:, :W].astype(int), draws[1][:, :W].astype(int))
    budget = prediction_budget(features["input_mask"].numpy().sum(axis=1), settings)
    return mask_tokens(ids, is_text, words, budget, MaskingDraws(ngrams, *draws[2:]), MASK)


@pytest.mark.parametrize("settings", SETTINGS)
def test_equal_draws_give_what_the_rules_of_records_give(settings):
    features, is_text = plain_features(1, rows=61)
    numbers = tf.range(61, dtype=tf.int64) * 5
    expected = offline_with_draws(features, is_text, settings, row_keys(11, numbers))
    masked = OnlineMasking(settings, MASK, V)(features, numbers, seed=11)
    assert "token_boundary" not in masked
    np.testing.assert_array_equal(masked["input_ids"], expected.input_ids)
    np.testing.assert_array_equal(masked["masked_lm_positions"], expected.positions)
    np.testing.assert_array_equal(masked["masked_lm_ids"], expected.labels)
    used = np.arange(expected.positions.shape[1]) < expected.counts[:, None]
    np.testing.assert_array_equal(masked["masked_lm_weights"], used)
    assert (expected.counts[[0, 1, 2]] > 0).all()
    assert expected.counts[[3, 4]].tolist() == [0, 0]
    for name in ("input_mask", "segment_ids"):
        np.testing.assert_array_equal(masked[name], features[name])


def test_text_is_found_without_ids():
    features, is_text = plain_features(2, rows=29)
    found = find_text(features["input_mask"], features["segment_ids"])
    np.testing.assert_array_equal(found, is_text)
    one_segment = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = [[0, 1, 1, 1, 0], [0, 1, 0, 0, 0]]
    np.testing.assert_array_equal(find_text(one_segment, tf.zeros_like(one_segment)), expected)


MASKING = OnlineMasking(SETTINGS[0], MASK, V)


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


def test_xla_compiles_static_shapes_to_the_same_masks():
    features, _ = plain_features(4, rows=7)
    numbers = tf.range(7, dtype=tf.int64)
    compiled = tf.function(lambda f, n: MASKING(f, n, 5), jit_compile=True, autograph=False)
    assert_equal_features(compiled(features, numbers), MASKING(features, numbers, 5))
    shapes = {name: tuple(shape) for name, shape in _output_shapes(compiled, features).items()}
    assert shapes["masked_lm_positions"] == shapes["masked_lm_weights"] == (7, 6)
    assert shapes["input_ids"] == (7, S)


def _output_shapes(function, features):
    concrete = function.get_concrete_function(features, tf.TensorSpec([7], tf.int64))
    return tf.nest.map_structure(lambda output: output.shape, concrete.structured_outputs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (MaskingSettings(masked_lm_prob=0), "--masked_lm_prob must be above 0"),
        (MaskingSettings(do_permutation=True), "does not permute"),
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
    keys = tf.constant([1234567, 2**64 - 1], tf.uint64)
    assert random_bits(keys, 5).numpy()[0].tolist() == published


@pytest.mark.parametrize("seed", [0, -1, 2**70 + 3])
def test_numbers_are_uniform(seed):
    """The chance of a p-value below 1e-4 is that number; the seeds are fixed."""
    bits = random_bits(row_keys(seed, tf.range(2000, dtype=tf.int64)), 150)
    unit = uniform(bits).numpy()
    assert unit.dtype == np.float32
    assert 0 <= unit.min() < 1e-4
    assert 1 - 1e-4 < unit.max() < 1
    assert stats.kstest(unit.ravel().astype(float), "uniform").pvalue > 1e-4
    counts = np.bincount(below(bits, 37).numpy().ravel(), minlength=37)
    assert len(counts) == 37
    assert stats.chisquare(counts).pvalue > 1e-4
