"""Masking when records are created, and masking while training: a function of seed and number."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from albert_tf.pretraining.masking import (
    MaskingSettings,
    OnlineMasking,
    Vocabulary,
    below,
    find_text,
    mask_batch,
    random_bits,
    row_keys,
    uniform,
)

V, CLS, SEP, MASK = 90, 2, 3, 4
S = 41
STARTS = np.arange(V + 1) % 3 > 0  # a third of the tokens continue a word
VOCABULARY = Vocabulary(V, 1, CLS, SEP, MASK, STARTS)


def sequences(seed: int, rows: int) -> tuple[dict, np.ndarray, np.ndarray]:
    """Random [CLS] A [SEP] B [SEP] of different lengths as plain records; is_text; lengths.

    Row 3 has no text, row 4 is padding.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, S, (rows, 1), endpoint=True)
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
    features = {name: tf.constant(value.astype(np.int32)) for name, value in features.items()}
    return features, is_text, lengths[:, 0]


def test_random_tokens_come_from_the_whole_vocabulary():
    features, is_text, lengths = sequences(6, rows=4000)
    settings = MaskingSettings(masked_lm_prob=0.5, max_predictions_per_seq=40)
    ids = features["input_ids"].numpy()
    batch = mask_batch(ids, is_text, lengths, VOCABULARY, settings, np.random.default_rng(3))
    row, slot = np.nonzero(np.arange(40) < batch.counts[:, None])
    shown = batch.input_ids[row, batch.positions[row, slot]]
    replaced = shown[(shown != MASK) & (shown != batch.labels[row, slot])]
    assert set(range(V)) - {MASK} == set(replaced)  # including special tokens


def test_text_is_found_without_ids():
    features, is_text, _ = sequences(2, rows=29)
    found = find_text(features["input_mask"].numpy(), features["segment_ids"].numpy())
    np.testing.assert_array_equal(found, is_text)
    one_segment = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = [[0, 1, 1, 1, 0], [0, 1, 0, 0, 0]]
    np.testing.assert_array_equal(find_text(one_segment, np.zeros_like(one_segment)), expected)


ONLINE = OnlineMasking(MaskingSettings(max_predictions_per_seq=6), MASK, V)


def test_online_masks_do_not_depend_on_the_batch():
    features, _, _ = sequences(3, rows=9)
    numbers = tf.constant([5, 2, 8, 0, 1, 2**61, 9, 7, 4], tf.int64)
    together = ONLINE(features, numbers, seed=3)
    for row in range(9):
        one = {name: values[row : row + 1] for name, values in features.items()}
        one = ONLINE(one, numbers[row : row + 1], seed=3)
        assert one.keys() == together.keys()
        for name, values in together.items():
            assert one[name].dtype == values.dtype, name
            np.testing.assert_array_equal(one[name], values[row : row + 1], err_msg=name)


def test_shapes_are_static_in_a_graph():
    features, _, _ = sequences(4, rows=7)
    masked = tf.function(lambda f, n: ONLINE(f, n, 5), autograph=False).get_concrete_function(
        features, tf.TensorSpec([7], tf.int64)
    )
    shapes = {name: tuple(output.shape) for name, output in masked.structured_outputs.items()}
    assert shapes["masked_lm_positions"] == shapes["masked_lm_weights"] == (7, 6)
    assert shapes["input_ids"] == (7, S)
    assert "token_boundary" not in shapes


def test_online_masks_of_a_seed_never_change():
    """A run that is resumed with a later version gets the same masks."""
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
    positions = masked["masked_lm_positions"].numpy()
    assert positions.tolist() == [[3, 6, 10, 11, 12, 15], [2, 3, 4, 5, 6, 7]]
    shown = ids.copy()
    shown[0, [3, 6, 10, 11, 12]] = [4, 4, 4, 23, 4]
    shown[1, 2:8] = [4, 4, 4, 4, 4, 62]
    np.testing.assert_array_equal(masked["input_ids"], shown)
    np.testing.assert_array_equal(masked["masked_lm_ids"], np.take_along_axis(ids, positions, 1))
    np.testing.assert_array_equal(masked["masked_lm_weights"], np.ones((2, 6)))


def test_bits_equal_those_of_splitmix64():
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
    """A p-value below 1e-4 has that probability; the seeds are fixed."""
    bits = random_bits(row_keys(seed, np.arange(2000)), 150)
    unit = uniform(bits)
    assert unit.dtype == np.float32
    assert 0 <= unit.min() < 1e-4
    assert 1 - 1e-4 < unit.max() < 1
    assert stats.kstest(unit.ravel().astype(float), "uniform").pvalue > 1e-4
    counts = np.bincount(below(bits, 37).ravel(), minlength=37)
    assert len(counts) == 37
    assert stats.chisquare(counts).pvalue > 1e-4


def test_words_longer_than_the_predictions_are_masked_by_token():
    """Proteins without blanks would have no masks. Other words remain whole."""
    long, short = np.arange(10, 30), np.array([30, 31, 32])
    ids = np.array([[CLS, *long, *short, *short + 3, SEP]])
    is_text = (ids != CLS) & (ids != SEP)
    starts = np.zeros(V + 1, bool)
    starts[[10, 30, 33]] = True
    vocabulary = Vocabulary(V, 1, CLS, SEP, MASK, starts)
    settings = MaskingSettings(0.15, 4, ngram=1)
    features = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
        "token_boundary": starts[ids],
    }
    features = {name: tf.constant(value.astype(np.int32)) for name, value in features.items()}
    found = {False: set(), True: set()}
    for seed in range(40):
        for splits in found:
            kind = vocabulary._replace(splits_words=splits)
            masked = mask_batch(
                ids, is_text, np.array([28]), kind, settings, np.random.default_rng(seed)
            )
            online = OnlineMasking(settings, MASK, V, splits)(features, tf.constant([seed]), 7)
            labels = online["masked_lm_ids"].numpy()[online["masked_lm_weights"].numpy() > 0]
            found[splits] |= {tuple(masked.labels[0, : masked.counts[0]]), tuple(labels)}
    assert found[False] == {(30, 31, 32), (33, 34, 35)}
    whole = {30, 31, 32}, {33, 34, 35}
    for labels in found[True]:
        assert {*labels} & {*long}
        assert all({*labels} & word in (set(), word) for word in whole)
    # Runs without this rule are resumed.
    described = OnlineMasking(settings, MASK, V, splits_words=True).describe()
    assert described.pop("splits_words") is True
    assert OnlineMasking(settings, MASK, V).describe() == described
