"""Warnings of models that predict the same for nearly all examples."""

import numpy as np
import pytest

from albert_tf.finetuning.metrics import warn_of_constant
from albert_tf.labels import Labels

NAMES = Labels(("neg", "pos"))
TOPICS = Labels(("art", "law", "sea"), multi_label=True)
IDS = np.arange(12) % 2
ROWS = np.eye(3, dtype=int)[np.arange(12) % 3]


@pytest.mark.parametrize(
    ("predicted", "true", "labels", "shown"),
    [
        (np.ones(12, int), IDS, NAMES, "'pos'"),
        (["" for _ in range(12)], [str(i) for i in range(12)], Labels(), "''"),
        (np.tile([0, 1, 1], (12, 1)), ROWS, TOPICS, "'law|sea'"),
        (np.zeros((12, 3), int), ROWS, TOPICS, "''"),
        (2.5 + 0.0001 * np.arange(12), np.arange(12.0), Labels(), "'2.5'"),
        # Different predictions, one true value, or few examples.
        (IDS, np.roll(IDS, 1), NAMES, None),
        (np.ones(12, int), np.ones(12, int), NAMES, None),
        (np.ones(12, int), np.zeros(12, int), NAMES, None),
        (np.ones(9, int), IDS[:9], NAMES, None),
        (ROWS, np.roll(ROWS, 1), TOPICS, None),
        (0.2 * np.arange(12), np.arange(12.0), Labels(), None),
        ((), (), Labels(), None),
    ],
)
def test_constant_predictions_are_reported(predicted, true, labels, shown, caplog):
    warn_of_constant(predicted, true, labels)
    found = [message.split(",")[0] for message in caplog.messages]
    assert found == ([f"100% of 12 predictions are {shown}"] if shown else [])


def first(count, total):
    """Returns ids [total] that are 1 for the first examples, otherwise 0."""
    return (np.arange(total) < count).astype(int)


@pytest.mark.parametrize(
    ("predicted", "true", "share"),
    [
        (first(4, 100), first(50, 100), "96%"),
        (first(6, 100), first(50, 100), None),
        (first(3, 853), first(37, 853), "99.6%"),  # words: nearly all are O
        (first(4, 853), first(37, 853), None),
        (first(0, 200), first(4, 200), None),  # nearly all true values are the same
        (first(0, 200), first(5, 200), "100%"),
        (np.where(first(8, 100), 3.0, 2.0), np.arange(100.0), "92%"),
        (np.where(first(8, 100), 3.0, 2.0), 2.0 * first(50, 100), None),
        (["x"] * 93 + list("abcdefg"), [str(i) for i in range(100)], "93%"),
        (np.eye(3, dtype=int)[first(2, 50)], ROWS.repeat(5, axis=0)[:50], "96%"),
    ],
)
def test_nearly_constant_predictions_are_reported(predicted, true, share, caplog):
    warn_of_constant(predicted, true, Labels())
    found = [message.split(" of")[0] for message in caplog.messages]
    assert found == ([share] if share else [])
