"""Scores compared with hand-computed values, and scores of degenerate inputs."""

import math

import numpy as np
import pytest

from albert_tf.finetuning.metrics import (
    F1_OF_CLASSES,
    batch_mean_loss,
    confusion_matrix,
    per_example_losses,
    predictions,
    probabilities,
    score_names,
    scores,
)
from albert_tf.labels import Labels

pytestmark = pytest.mark.filterwarnings("error")
TWO, THREE, NUMBER = Labels(("0", "1")), Labels(("a", "b", "c")), Labels()


def logits_of(predicted, num_labels):
    """Returns logits whose largest value is the prediction."""
    return np.eye(num_labels, dtype=np.float32)[predicted]


def column(values):
    return np.array(values, np.float32)[:, None]


def test_scores_of_two_classes():
    labels = np.array([1, 1, 1, 0, 0, 0, 0])
    predicted = [1, 1, 0, 1, 0, 0, 0]  # 2 right and 1 wrong of class 1, 3 and 1 of class 0
    result = scores(logits_of(predicted, 2), labels, ("f1", "matthews", "f1_macro"), TWO)
    loss = (5 * math.log(1 + math.exp(-1)) + 2 * math.log(1 + math.e)) / 7
    expected = {
        "eval_accuracy": 5 / 7,
        "f1": 2 / 3,
        "matthew_corr": (2 * 3 - 1 * 1) / 12,
        "f1_macro": (2 / 3 + 3 / 4) / 2,
        "eval_loss": loss,
    }
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        assert result[name] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("predicted", [0, 1])
def test_scores_of_a_single_class_are_defined(label, predicted):
    result = scores(
        logits_of([predicted] * 3, 2), np.full(3, label), ("f1", "f1_macro", "matthews"), TWO
    )
    assert result["eval_accuracy"] == (label == predicted)
    assert result["f1"] == (label == predicted == 1)
    assert result["f1_macro"] == (label == predicted)
    assert result["matthew_corr"] == 0.0


@pytest.mark.parametrize(
    ("outputs", "labels"),
    [
        ([2.0, 2.0, 2.0], [1.0, 2.0, 4.0]),
        ([1.0, 2.0, 4.0], [3.0, 3.0, 3.0]),
        ([1.5], [1.0]),
        ([4.0, np.nextafter(np.float32(4), np.float32(5)), 4.0], [1.0, 2.0, 4.0]),
    ],
    ids=["constant outputs", "constant labels", "one example", "nearly constant outputs"],
)
def test_correlations_with_a_constant_are_undefined(outputs, labels):
    labels = np.array(labels, np.float32)
    result = scores(column(outputs), labels, ("pearson", "spearman"), NUMBER)
    if len({*outputs}) < 2 or len({*labels}) < 2:
        assert math.isnan(result["pearson"])
        assert math.isnan(result["spearman"])
    assert result["MSE"] == pytest.approx(np.mean((np.array(outputs) - labels) ** 2))


def test_f1_of_each_class_shows_a_constant_answer():
    """The class that sorts last has an F1 of 0.974 if 95% of the labels are this class."""
    labels = np.array([0] + [1] * 19)
    names = Labels(("a\tb", "spam"))
    found = scores(logits_of([1] * 20, 2), labels, ("f1", F1_OF_CLASSES), names)
    assert found["f1"] == found["f1_spam"] == pytest.approx(38 / 39)
    assert found["f1_a\\tb"] == 0
    several = Labels(("joy", "fear"), multi_label=True)
    found = scores(
        np.array([[1.0, -1.0]] * 3), np.array([[1, 0], [1, 1], [0, 0]]), (F1_OF_CLASSES,), several
    )
    assert found["f1_joy"] == pytest.approx(4 / 5)
    assert found["f1_fear"] == 0
    assert score_names((F1_OF_CLASSES, "matthews"), TWO) == [
        "eval_accuracy",
        "f1_0",
        "f1_1",
        "matthew_corr",
        "eval_loss",
    ]
    assert "RMSE_of_mean" not in score_names(("R2", "RMSE_of_mean"), NUMBER)


def test_errors_are_compared_with_the_error_of_the_mean():
    labels = np.array([10.0, 20.0, 60.0], np.float32)
    names = ("R2", "RMSE", "RMSE_of_mean")
    found = scores(column([12.0, 20.0, 60.0]), labels, names, NUMBER)
    assert found["RMSE"] == pytest.approx(math.sqrt(4 / 3))
    assert found["RMSE_of_mean"] == pytest.approx(math.sqrt((20**2 + 10**2 + 30**2) / 3))
    assert found["R2"] == pytest.approx(1 - 4 / 1400)
    assert scores(column([30.0] * 3), labels, names, NUMBER)["R2"] == pytest.approx(0)
    constant = scores(column([0.5, 0.0]), np.full(2, 0.1, np.float32), names, NUMBER)
    assert math.isnan(constant["R2"])
    assert constant["RMSE_of_mean"] == 0


def test_probabilities_and_predictions():
    large = np.array([[1000.0, -1000.0], [-1000.0, 1000.0]], np.float32)
    np.testing.assert_array_equal(probabilities(large, TWO), np.eye(2))
    np.testing.assert_array_equal(per_example_losses(large, np.array([0, 0]), TWO), [0.0, 2000.0])
    logits = np.log(np.array([[0.2, 0.3, 0.5], [0.7, 0.1, 0.2]], np.float32))
    np.testing.assert_allclose(probabilities(logits, THREE), np.exp(logits), rtol=1e-6, atol=0)
    assert predictions(logits, THREE).tolist() == [2, 0]
    numbers = column([1.25, -3.0])
    np.testing.assert_array_equal(probabilities(numbers, NUMBER), numbers)
    np.testing.assert_array_equal(predictions(numbers, NUMBER), numbers[:, 0])
    assert probabilities(logits, THREE).dtype == predictions(numbers, NUMBER).dtype == np.float32


def test_batches_of_any_size_have_the_same_weight_as_in_the_original():
    losses = np.array([1.0, 2.0, 6.0, 7.0, 8.0], np.float32)
    assert batch_mean_loss(losses, 2) == (1.5 + 6.5 + 8.0) / 3


def test_confusion_matrix_has_true_classes_in_rows():
    matrix = confusion_matrix(np.array([2, 2, 0, 2]), np.array([0, 0, 0, 2]), 4)
    assert matrix.tolist() == [[1, 0, 2, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
