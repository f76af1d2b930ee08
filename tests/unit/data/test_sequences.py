"""Sequences without padding: layout, batches and concatenation."""

import numpy as np
import pytest

from albert_tf.data.sequences import TokenSequences

CLS, SEP = 2, 3
# Pairs, a single text, an empty first text, nothing at all.
SEGMENTS = [([11, 12, 13], [21]), ([14], []), ([], [22, 23]), ([], []), ([15, 16], [24, 25, 26])]


def laid_out(first, second):
    """A sequence and its number of tokens in segment 0, computed independently."""
    head = [CLS, *first, SEP]
    return head + ([*second, SEP] if second else []), len(head)


@pytest.fixture
def sequences():
    tokens = np.array([token for pair in SEGMENTS for part in pair for token in part], np.int32)
    lengths = np.array([[len(first), len(second)] for first, second in SEGMENTS])
    return TokenSequences.from_segments(tokens, lengths, cls_id=CLS, sep_id=SEP)


def assert_rows(batch, rows, length):
    for place, row in enumerate(rows):
        tokens, first = laid_out(*SEGMENTS[row])
        gap = length - len(tokens)
        np.testing.assert_array_equal(batch["input_ids"][place], tokens + [0] * gap)
        np.testing.assert_array_equal(batch["input_mask"][place], [1] * len(tokens) + [0] * gap)
        expected = [0] * first + [1] * (len(tokens) - first) + [0] * gap
        np.testing.assert_array_equal(batch["segment_ids"][place], expected)
    for values in batch.values():
        assert values.shape == (len(rows), length)
        assert values.dtype == np.int32


def test_sequences_have_special_tokens(sequences):
    expected = [laid_out(*pair) for pair in SEGMENTS]
    assert len(sequences) == len(SEGMENTS)
    assert sequences.lengths.tolist() == [len(tokens) for tokens, _ in expected]
    assert sequences.first_lengths.tolist() == [first for _, first in expected]
    assert sequences.tokens.tolist() == [token for tokens, _ in expected for token in tokens]
    assert {values.dtype for values in vars(sequences).values()} == {np.dtype("i4"), np.dtype("i8")}


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [4, 4, 0], [3], []])
@pytest.mark.parametrize("length", [8, 11])  # the longest sequence, and more
def test_batches_are_padded(sequences, rows, length):
    assert_rows(sequences.padded(np.array(rows, np.int64), length), rows, length)


def test_sequences_are_concatenated(sequences):
    nothing = TokenSequences.concatenate([])
    assert nothing.padded(np.zeros(0, np.int64), 6)["input_ids"].shape == (0, 6)
    joined = TokenSequences.concatenate([sequences, nothing, sequences])
    assert_rows(joined.padded(np.arange(10), 9), [*range(5)] * 2, 9)
    assert joined.starts.dtype == np.int64
    with pytest.raises(ValueError, match="A sequence of 8 tokens does not fit into 7"):
        sequences.padded(np.arange(5), 7)
