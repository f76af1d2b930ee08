"""Scores of labelled words, against seqeval and conlleval.pl."""

import json
from pathlib import Path

import pytest

from albert_tf.token_classification.labels import entities
from albert_tf.token_classification.metrics import best_metric, scores

# By record_conlleval.py.
CASES = json.loads(Path(__file__).with_name("conlleval.json").read_text("utf-8"))


def split(case: dict) -> tuple[list[list[str]], list[list[str]]]:
    return [s.split() for s in case["gold"]], [s.split() for s in case["predicted"]]


@pytest.mark.parametrize("case", CASES)
def test_entities_are_those_of_seqeval(case):
    _, predicted = split(case)
    found = [[list(entity) for entity in entities(s, case["scheme"])] for s in predicted]
    assert found == case["seqeval"]


@pytest.mark.parametrize("case", [case for case in CASES if "conlleval" in case])
def test_scores_are_those_of_conlleval(case):
    gold, predicted = split(case)
    expected = case["conlleval"]
    found = scores(gold, predicted, case["scheme"])
    wanted, guessed, right = expected["counts"]
    assert found["precision"] == pytest.approx(right / guessed, abs=1e-12)
    assert found["recall"] == pytest.approx(right / wanted, abs=1e-12)
    names = ["eval_accuracy", "precision", "recall", "f1"]
    # It prints percentages with two decimals.
    for name, percentage in zip(names, expected["total"], strict=True):
        assert 100 * found[name] == pytest.approx(percentage, abs=0.005001)
    for kind, percentages in expected["types"].items():
        for name, percentage in zip(names[1:], percentages, strict=True):
            assert 100 * found[f"{name}_{kind}"] == pytest.approx(percentage, abs=0.005001)
    assert len(found) == 4 + 3 * len(expected["types"])


def test_an_entity_is_right_if_all_its_words_and_its_type_are():
    gold = [["B-A", "I-A", "O"], ["B-B", "O", "B-A"]]
    predicted = [["B-A", "O", "O"], ["B-B", "B-C", "B-A"]]
    expected = {
        "eval_accuracy": 4 / 6,
        **{"precision": 2 / 4, "recall": 2 / 3, "f1": 4 / 7},
        **{"precision_A": 1 / 2, "recall_A": 1 / 2, "f1_A": 1 / 2},
        **{"precision_B": 1.0, "recall_B": 1.0, "f1_B": 1.0},
        **{"precision_C": 0.0, "recall_C": 0.0, "f1_C": 0.0},
    }
    assert scores(gold, predicted, "IOB2") == pytest.approx(expected, abs=1e-12)
    assert best_metric("IOB2") == "f1"


def test_plain_labels_are_scored_one_by_one():
    found = scores(iter([["N", "V", "N"], ["O"]]), iter([["N", "N", "N"], ["O"]]), "plain")
    expected = {
        "eval_accuracy": 3 / 4,
        **{"precision_N": 2 / 3, "recall_N": 1.0, "f1_N": 4 / 5},
        **{"precision_O": 1.0, "recall_O": 1.0, "f1_O": 1.0},
        **{"precision_V": 0.0, "recall_V": 0.0, "f1_V": 0.0},
    }
    assert found == pytest.approx(expected, abs=1e-12)
    assert best_metric("plain") == "eval_accuracy"


def test_nothing_to_find():
    found = scores([["O", "O"]], [["O", "O"]], "IOB2")
    assert found == {"eval_accuracy": 1.0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert set(scores([["B", "I"]], [["B", "O"]], "IOB2")) == set(found)


@pytest.mark.parametrize(
    ("gold", "predicted"), [([], []), ([["O"]], []), ([["O"]], [["O", "O"]]), ([["O", "O"]], [[]])]
)
def test_there_is_one_prediction_for_every_word(gold, predicted):
    with pytest.raises(ValueError, match=r"no word|zip"):
        scores(gold, predicted, "IOB2")
