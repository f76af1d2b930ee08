"""Scores of labelled words: entities as in conlleval, or labels of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from albert_tf.data.errors import UserError
from albert_tf.token_classification.labels import PLAIN, entities


def best_metric(scheme: str) -> str:
    """Returns the score that the best checkpoint maximizes."""
    return "eval_accuracy" if scheme == PLAIN else "f1"


def scores(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]], scheme: str
) -> dict[str, float]:
    """Scores the labels of all sentences together.

    Args:
        gold: the correct labels of each sentence.
        predicted: the predicted labels of each sentence.
        scheme: scheme of both, see `entities`.

    Returns:
        Numbers from 0 to 1. `eval_accuracy`: the share of words with the correct label. Unless
        labels are plain, `precision`, `recall` and `f1` of entities; an entity is correct if its
        type and all its words are. For every type, or plain label, that is correct or predicted
        anywhere, `precision_X`, `recall_X` and `f1_X`. Divisions by 0 give 0.

    Raises:
        ValueError: there is no word, or the numbers of labels differ.

    Source: conlleval.pl (CoNLL-2000), which reports percentages.
    """
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    num_words = num_right = 0
    for expected, labels in zip(gold, predicted, strict=True):
        pairs = zip(expected, labels, strict=True)
        num_words += len(expected)
        num_right += sum(one == other for one, other in pairs)
        if scheme == PLAIN:
            wanted.update(expected)
            found.update(labels)
            right.update(a for a, b in zip(expected, labels, strict=True) if a == b)
            continue
        of_gold, of_labels = entities(expected, scheme), entities(labels, scheme)
        wanted.update(entity.type for entity in of_gold)
        found.update(entity.type for entity in of_labels)
        right.update(entity.type for entity in {*of_gold} & {*of_labels})
    if not num_words:
        raise UserError("There is no word to score.")
    types = sorted({*wanted, *found})
    scored = {"eval_accuracy": num_right / num_words}
    if scheme != PLAIN:
        scored |= _scores(right.total(), found.total(), wanted.total())
    for name in filter(None, types):  # labels without types have only the type ""
        scored |= _scores(right[name], found[name], wanted[name], f"_{name}")
    return scored


def _scores(right: int, found: int, wanted: int, ending: str = "") -> dict[str, float]:
    return {
        f"precision{ending}": right / found if found else 0.0,
        f"recall{ending}": right / wanted if wanted else 0.0,
        f"f1{ending}": 2 * right / (found + wanted) if found + wanted else 0.0,
    }
