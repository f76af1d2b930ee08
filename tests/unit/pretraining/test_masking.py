import numpy as np
import pytest

from albert_tf.pretraining.masking import (
    MaskingSettings,
    NgramDraws,
    Vocabulary,
    Words,
    choose_ngrams,
    find_words,
    mask_batch,
    prediction_budget,
)

V, CLS, SEP, MASK = 90, 2, 3, 4
STARTS = np.arange(V + 1) % 3 > 0  # a third of the tokens continue a word
VOCABULARY = Vocabulary(V, 1, CLS, SEP, MASK, STARTS)


def sequences(seed: int, rows: int = 23) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random [CLS] A [SEP] B [SEP] with ragged lengths: ids, is_text, lengths."""
    B, S = rows, 41
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, S, B, endpoint=True)
    columns = np.arange(S)
    is_text = (columns > 0) & (columns < lengths[:, None] - 1)
    ids = np.where(is_text, rng.integers(5, V, (B, S)), 0).astype(np.int32)
    middle = rng.integers(2, lengths - 2)
    is_text[np.arange(B), middle] = False
    ids[:, 0] = CLS
    ids[np.arange(B), middle] = ids[np.arange(B), lengths - 1] = SEP
    return ids, is_text, lengths


SETTINGS = [
    MaskingSettings(max_predictions_per_seq=6),
    MaskingSettings(masked_lm_prob=0.9, max_predictions_per_seq=40),
    MaskingSettings(masked_lm_prob=0.4, ngram=7, favor_shorter_ngram=False),
    MaskingSettings(do_whole_word_mask=False, ngram=1),
    MaskingSettings(masked_lm_prob=0.3, max_predictions_per_seq=9, do_permutation=True),
    MaskingSettings(masked_lm_prob=0),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_masked_batches_keep_the_rules(settings):
    ids, is_text, lengths = sequences(3)
    batch = mask_batch(ids, is_text, lengths, VOCABULARY, settings, np.random.default_rng(7))
    budget = prediction_budget(lengths, settings)
    words = find_words(is_text, STARTS[ids] if settings.do_whole_word_mask else None)
    slots = settings.prediction_slots
    assert batch.positions.shape == batch.labels.shape == (len(ids), slots)
    assert (batch.counts <= budget * (2 if settings.do_permutation else 1)).all()
    for row, count in enumerate(batch.counts):
        positions = batch.positions[row, :count]
        assert (np.diff(positions) > 0).all()
        assert is_text[row, positions].all()
        np.testing.assert_array_equal(batch.labels[row, :count], ids[row, positions])
        assert not batch.positions[row, count:].any()
        assert not batch.labels[row, count:].any()
        untouched = np.ones(ids.shape[1], bool)
        untouched[positions] = False
        np.testing.assert_array_equal(batch.input_ids[row, untouched], ids[row, untouched])
        chosen = set(words.of_position[row, positions])
        whole = is_text[row] & np.isin(words.of_position[row], list(chosen))
        np.testing.assert_array_equal(np.flatnonzero(whole), positions)


def test_random_tokens_come_from_the_whole_vocabulary():
    ids, is_text, lengths = sequences(6, rows=4000)
    settings = MaskingSettings(masked_lm_prob=0.5, max_predictions_per_seq=40)
    batch = mask_batch(ids, is_text, lengths, VOCABULARY, settings, np.random.default_rng(3))
    row, slot = np.nonzero(np.arange(40) < batch.counts[:, None])
    shown = batch.input_ids[row, batch.positions[row, slot]]
    replaced = shown[(shown != MASK) & (shown != batch.labels[row, slot])]
    assert set(range(V)) - {MASK} == set(replaced)  # special tokens too


def test_sequences_do_not_depend_on_their_neighbours():
    """Shorter rows of a batch are chosen as if they were alone, given the same draws."""
    ids, is_text, _ = sequences(8)
    words = find_words(is_text, STARTS[ids])
    rng = np.random.default_rng(9)
    W = int(words.counts.max())
    order = np.argsort(rng.random((len(ids), W)) + (np.arange(W) >= words.counts[:, None]))
    longest = np.maximum(words.counts[:, None] - np.arange(W), 1)
    lengths = np.minimum(rng.integers(1, 4, (len(ids), W)), longest)
    budget = rng.integers(0, 12, len(ids))
    together, _ = choose_ngrams(words, NgramDraws(order, lengths), budget)
    for row in range(len(ids)):
        one = Words(*(values[row : row + 1] for values in words))
        draws = NgramDraws(order[row : row + 1], lengths[row : row + 1])
        alone, _ = choose_ngrams(one, draws, budget[row : row + 1])
        np.testing.assert_array_equal(alone[0], together[row])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("masked_lm_prob", 1.0, r"`masked_lm_prob` must be in \[0, 1\).*1.0"),
        ("masked_lm_prob", -0.1, "`masked_lm_prob`"),
        ("ngram", 0, "`ngram` must be at least 1. Received: 0"),
        ("max_predictions_per_seq", 0, "`max_predictions_per_seq` must be at least 1. Received: 0"),
    ],
)
def test_settings_are_checked(name, value, message):
    with pytest.raises(ValueError, match=message):
        MaskingSettings(**{name: value})
