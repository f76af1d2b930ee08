"""Questions as sequences: truncation and missing options."""

import logging

import numpy as np
import pytest

from albert_tf.multiple_choice import task as module
from albert_tf.multiple_choice.data import ChoiceExample
from albert_tf.multiple_choice.task import choice_features


def words(count):
    """Returns a text with a number of tokens."""
    return " ".join(["the"] * count)


def example(context, *endings, label=0, name="x", level=""):
    """Returns an example whose question consists of the blank."""
    return ChoiceExample(name, context, "_", endings, label, level)


def layout(features):
    """Returns the lengths of context and ending of each sequence; (-1, -1) for empty ones."""
    sequences = features.sequences
    first = np.where(sequences.lengths > 0, sequences.first_lengths - 2, -1)
    second = np.where(sequences.lengths > 0, sequences.lengths - sequences.first_lengths - 1, -1)
    return list(zip(first.tolist(), second.tolist(), strict=True))


def expected_layout(context, ending, max_seq_length, max_qa_length):
    """Truncates token by token, by the rule of the original, extended to long endings."""
    ending = min(ending, max_qa_length)
    while ending > max_seq_length - 3:
        ending -= 1
    while context + ending > max_seq_length - 3:
        context -= 1
    return context, ending


@pytest.mark.parametrize("max_seq_length", [4, 8, 13])
@pytest.mark.parametrize("max_qa_length", [1, 7, 128])
def test_endings_keep_their_end_and_contexts_their_beginning(
    tokenizer, max_seq_length, max_qa_length
):
    pairs = [(a, b) for a in range(12) for b in range(12)]
    examples = [example(words(a), words(b), words(11 - b)) for a, b in pairs]
    features = choice_features(
        examples, tokenizer, max_seq_length=max_seq_length, max_qa_length=max_qa_length
    )
    limits = max_seq_length, max_qa_length
    expected = [expected_layout(a, n, *limits) for a, b in pairs for n in (b, 11 - b)]
    assert layout(features) == expected


def test_sequences_contain_the_tokens_of_their_texts(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "_TEXTS_AT_ONCE", 3)  # there are 3 contexts and 11 endings
    texts = ["The garden of forking paths.", "Kärnten, 9,5 °C — fünf Türme", "", "日本語 text"]
    examples = [
        ChoiceExample("a", texts[0], "What＿ is it", (" one ", "TWO", ""), 1),
        ChoiceExample("b", texts[1], "Why?", ("´x", "\u0301 \n"), 0),
        ChoiceExample("c", texts[0], "It _ and _.", ("is", "was", "e\u0301", "9,"), 3),
        ChoiceExample("d", texts[2], "", (texts[3], "x"), 1),
    ]
    features = choice_features(examples, tokenizer, max_seq_length=64)
    assert features.choice_counts.tolist() == [3, 2, 4, 2]
    assert features.choice_mask.tolist() == [[1] * n + [0] * (4 - n) for n in (3, 2, 4, 2)]
    assert (features.num_choices, len(features)) == (4, 4)
    sequences = features.sequences
    for number, row in enumerate(examples):
        context = tokenizer.encode(row.context)
        for choice in range(4):
            start, end = sequences.starts[4 * number + choice : 4 * number + choice + 2]
            tokens = sequences.tokens[start:end].tolist()
            if choice >= len(row.options):
                assert tokens == []
                continue
            ending = tokenizer.convert_tokens_to_ids(
                tokenizer.tokenize_clean(row.endings(tokenizer.clean)[choice])
            )
            sep = tokenizer.sep_id
            assert tokens == [tokenizer.cls_id, *context, sep, *ending, sep], (number, choice)
            assert sequences.first_lengths[4 * number + choice] == len(context) + 2
    assert features.label_ids.tolist() == [1, 0, 3, 1]


def test_truncations_are_logged(tokenizer, caplog):
    rows = [example(words(9), words(2), words(8)), example(words(3), words(2), "\u0301")]
    with caplog.at_level(logging.INFO, logger="absl"):
        choice_features(rows, tokenizer, max_seq_length=9, max_qa_length=5)
    assert "50.0% of 4 texts have more than `max_seq_length`=9 tokens" in caplog.text
    assert "truncated for 1 of 4 options: `max_qa_length`=5" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="absl"):
        choice_features(rows[1:], tokenizer, max_seq_length=8, max_qa_length=2)
    assert "truncated" not in caplog.text


def test_all_questions_or_none_have_labels(tokenizer):
    first = example("a", "b", "c", name="first", level="high")
    rows = [first, example("a", "b", "c", label=None, name="second")]
    with pytest.raises(ValueError, match="'second' has none"):
        choice_features(rows, tokenizer, max_seq_length=9)
    assert choice_features(rows[1:], tokenizer, max_seq_length=9).label_ids is None
    labelled = choice_features(rows[:1], tokenizer, max_seq_length=9)
    assert labelled.label_ids.tolist() == [0]
    assert (labelled.example_ids, labelled.levels) == (["first"], ["high"])
    assert choice_features([], tokenizer, max_seq_length=9).choice_mask.shape == (0, 0)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [((3, 9), "`max_seq_length` must be at least 4.*3"), ((9, 0), "`max_qa_length` .*1.*0")],
)
def test_too_short_lengths_are_rejected(tokenizer, lengths, message):
    with pytest.raises(ValueError, match=message):
        choice_features([], tokenizer, max_seq_length=lengths[0], max_qa_length=lengths[1])
