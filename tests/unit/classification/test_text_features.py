"""Tokenizing and truncating texts, compared with removing tokens one by one."""

import logging

import numpy as np
import pytest

from albert_tf.classification.task import text_features
from albert_tf.finetuning import texts as module
from albert_tf.finetuning.texts import TextExample, text_sequences
from albert_tf.labels import Labels

LABELS = Labels(("no", "yes", "maybe"))


def text_of(count):
    """Returns a text with a number of tokens."""
    return " ".join(["the"] * count)


def popped(first, second, max_seq_length):
    """Returns the lengths of both texts after removing tokens one by one."""
    while first + second > max_seq_length - (3 if second else 2):
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@pytest.mark.parametrize("max_seq_length", [5, 6, 7, 10, 13])
def test_truncation_removes_tokens_of_the_longer_text(tokenizer, max_seq_length):
    pairs = [(a, b) for a in range(14) for b in range(14)]
    examples = [TextExample("x", text_of(a), text_of(b)) for a, b in pairs]
    sequences = text_sequences(examples, tokenizer, max_seq_length)
    rest = sequences.lengths - sequences.first_lengths
    kept = zip(sequences.first_lengths - 2, np.maximum(rest - 1, 0), strict=True)
    assert list(kept) == [popped(a, b, max_seq_length) for a, b in pairs]
    assert sequences.lengths.max() == max_seq_length


def test_sequences_contain_the_tokens_of_the_texts(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "_EXAMPLES_AT_ONCE", 3)  # 7 examples: the last chunk is shorter
    texts = [
        ("The garden of forking paths.", "Kärnten, 9,5 °C — fünf Türme"),
        ("one", None),
        ("", "Only a second text."),
        ("two", ""),
        ("three", "\u0301 \t\n"),  # cleaning removes the whole text
        ("", None),
        ("x " * 40, "y " * 7),
    ]
    examples = [TextExample(str(i), a, b) for i, (a, b) in enumerate(texts)]
    sequences = text_sequences(examples, tokenizer, 64)
    for number, (a, b) in enumerate(texts):
        second = tokenizer.encode(b or "")
        second += [tokenizer.sep_id] if second else []
        first = tokenizer.encode(a)[: 64 - 2 - len(second)]
        start, end = sequences.starts[number : number + 2]
        expected = [tokenizer.cls_id, *first, tokenizer.sep_id, *second]
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
        text_sequences(examples, tokenizer, 10)
        text_sequences(examples, tokenizer, 8)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        "50.0% of 4 texts have more than `max_seq_length`=8 tokens"
    )


@pytest.mark.parametrize(("length", "level"), [(43, "INFO"), (41, "INFO"), (40, "WARNING")])
def test_truncating_more_than_a_tenth_is_a_warning(tokenizer, length, level, caplog):
    caplog.set_level(logging.INFO, logger="absl")
    pairs = [TextExample("x", text_of(a), text_of(3)) for a in [*range(39), 70]]  # 7 to 44, 76
    text_sequences(pairs, tokenizer, length, warn_above=0.1)
    assert [record.levelname for record in caplog.records] == [level]
    assert ("With `max_seq_length`=43, 95% fit" in caplog.text) == (length < 43)


def test_all_examples_or_none_have_labels(tokenizer):
    examples = [TextExample("first", "a", label="yes"), TextExample("second", "b")]
    with pytest.raises(ValueError, match="'second' has none"):
        text_features(examples, LABELS, tokenizer, 8)
    assert text_features(examples[1:], LABELS, tokenizer, 8).label_ids is None
    assert len(text_features([], LABELS, tokenizer, 8).sequences) == 0
