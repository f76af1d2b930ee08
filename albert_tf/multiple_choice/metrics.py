"""Scores of multiple choice: those of a classifier whose classes are a question's options."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from albert_tf.data.text_examples import Labels
from albert_tf.finetuning import metrics as classification
from albert_tf.multiple_choice.data import LETTERS


def predictions(logits: np.ndarray, choice_mask: np.ndarray) -> np.ndarray:
    """Returns the number of the chosen option, from 0, int32 [N].

    Args:
        logits: float [N, C].
        choice_mask: float [N, C]; 1 = an option, 0 = none, which is never chosen.
    """
    return classification.predictions(*_masked(logits, choice_mask))


def probabilities(logits: np.ndarray, choice_mask: np.ndarray) -> np.ndarray:
    """Returns the probabilities of the options, float32 [N, C]; 0 where there is none.

    Args:
        logits: float [N, C].
        choice_mask: float [N, C].
    """
    return classification.probabilities(*_masked(logits, choice_mask))


def scores(
    logits: np.ndarray,
    choice_mask: np.ndarray,
    label_ids: np.ndarray,
    levels: Sequence[str],
    batch_size: int,
) -> dict[str, float]:
    """Scores a model.

    Args:
        logits: float [N, C].
        choice_mask: float [N, C].
        label_ids: int32 [N], right options.
        levels: N of them; "" where there is none.
        batch_size: questions of a batch of the original, whose means `loss` is the mean of.

    Returns:
        `eval_accuracy`, `eval_loss` and `loss` as the original, and `eval_accuracy_<level>` for
        each level that occurs.

    Raises:
        ValueError: there is not one question.
    """
    masked, labels = _masked(logits, choice_mask)
    losses = classification.per_example_losses(masked, label_ids, labels)
    results = classification.scores(masked, label_ids, (), labels, losses=losses)
    results["loss"] = classification.batch_mean_loss(losses, batch_size)
    is_right = classification.predictions(masked, labels) == label_ids
    names = np.array(levels)
    for level in sorted(set(levels) - {""}):
        results[f"eval_accuracy_{level}"] = float(is_right[names == level].mean(dtype=np.float64))
    return results


def _masked(logits: np.ndarray, choice_mask: np.ndarray) -> tuple[np.ndarray, Labels]:
    """What a classifier would say, and its classes, the letters of the options."""
    return np.where(choice_mask > 0, logits, -np.inf), Labels(tuple(LETTERS[: logits.shape[1]]))
