"""Tokenizing and truncating texts, compared with removing tokens one by one."""

import logging

import numpy as np
import pytest

from albert_tf.classification.task import text_features
from albert_tf.data.text_examples import Labels, TextExample
from albert_tf.finetuning import texts as module
from albert_tf.finetuning.texts import text_sequences

LABELS = Labels(("no", "yes", "maybe"))


def text_of(count):
    """Returns a text with a number of tokens."""
    return " ".join(["the"] * count)


def popped(first, second, max_seq_length):
    """Returns the lengths of both texts after removing tokens one by one."""
    if not second:
        return min(first, max_seq_length - 2), 0
    while first + second > max_seq_length - 3:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def kept(sequences):
    """Returns the numbers of tokens of both texts, without special tokens."""
    first = sequences.first_lengths - 2
    rest = sequences.lengths - sequences.first_lengths
    return [(int(a), int(b)) for a, b in zip(first, np.maximum(rest - 1, 0), strict=True)]


@pytest.mark.parametrize("max_seq_length", [5, 6, 7, 10, 13])
def test_truncation_removes_tokens_of_the_longer_text(tokenizer, max_seq_length):
    pairs = [(a, b) for a in range(14) for b in range(14)]
    examples = [TextExample("x", text_of(a), text_of(b)) for a, b in pairs]
    sequences = text_sequences(examples, tokenizer, max_seq_length)
    assert kept(sequences) == [popped(a, b, max_seq_length) for a, b in pairs]
    assert sequences.lengths.max() == max_seq_length


@pytest.mark.parametrize("max_seq_length", [3, 8])
def test_single_texts_have_one_separator(tokenizer, max_seq_length):
    examples = [TextExample("x", text_of(a)) for a in range(9)]
    sequences = text_sequences(examples, tokenizer, max_seq_length)
    assert kept(sequences) == [(min(a, max_seq_length - 2), 0) for a in range(9)]
    np.testing.assert_array_equal(sequences.first_lengths, sequences.lengths)


def test_the_tokens_are_those_of_the_texts(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "_EXAMPLES_AT_ONCE", 3)  # 8 examples: the last chunk is shorter
    texts = [
        ("The garden of forking paths.", "Kärnten, 9,5 °C — fünf Türme"),
        ("one", None),
        ("", "A second text alone."),
        ("two", ""),
        ("three", "\u0301 \t\n"),  # cleaning removes the whole text
        ("", None),
        ("日本語 text", 'quote " and\ttab'),
        ("x " * 40, "y " * 7),
    ]
    examples = [TextExample(str(i), a, b) for i, (a, b) in enumerate(texts)]
    sequences = text_sequences(examples, tokenizer, 64)
    for number, (a, b) in enumerate(texts):
        expected = [tokenizer.cls_id, *tokenizer.encode(a), tokenizer.sep_id]
        second = tokenizer.encode(b or "")
        expected += [*second, tokenizer.sep_id] if second else []
        if number == 7:
            keep = 64 - 3 - len(second)
            expected = [*expected[: 1 + keep], tokenizer.sep_id, *second, tokenizer.sep_id]
        start, end = sequences.starts[number : number + 2]
        assert sequences.tokens[start:end].tolist() == expected
    assert len(sequences) == len(texts)


@pytest.mark.parametrize(
    ("second", "max_seq_length", "message"),
    [
        ("b", 4, r"`max_seq_length` must be at least 5 for pairs of texts.*Received: 4"),
        (None, 2, r"`max_seq_length` must be at least 3 for texts.*Received: 2"),
    ],
)
def test_too_short_sequences_are_rejected(tokenizer, second, max_seq_length, message):
    examples = [TextExample("x", "a"), TextExample("y", "a", second)]
    with pytest.raises(ValueError, match=message):
        text_sequences(examples, tokenizer, max_seq_length)
    assert len(text_sequences(examples, tokenizer, max_seq_length + 1)) == 2


def test_the_number_of_truncated_examples_is_logged(tokenizer, caplog):
    examples = [TextExample("x", text_of(a)) for a in (3, 6, 7, 8)]
    with caplog.at_level(logging.INFO, logger="absl"):
        text_sequences(examples, tokenizer, 8)
        assert "truncated=2 of=4 max_seq_length=8" in caplog.text
        caplog.clear()
        text_sequences(examples, tokenizer, 10)
        assert "truncated" not in caplog.text


def test_labels_become_ids_or_numbers(tokenizer):
    examples = [TextExample(f"row-{i}", "a", label=name) for i, name in enumerate(["yes", "no"])]
    features = text_features(examples, LABELS, tokenizer, 8)
    assert features.label_ids.tolist() == [1, 0]
    assert features.label_ids.dtype == np.int32
    assert features.guids == ["row-0", "row-1"]
    numbers = [TextExample("x", "a", label=number) for number in ("0.25", "5")]
    scores = text_features(numbers, Labels(), tokenizer, 8).label_ids
    assert scores.tolist() == [0.25, 5.0]
    assert scores.dtype == np.float32
    assert text_features([TextExample("x", "a")], LABELS, tokenizer, 8).label_ids is None
    assert len(text_features([], LABELS, tokenizer, 8).sequences) == 0
    with pytest.raises(ValueError, match="'second' has none"):
        text_features([*examples, TextExample("second", "b")], LABELS, tokenizer, 8)
