"""Scores of multiple choice against values worked out by hand; options that are not there."""

import math
import warnings

import numpy as np
import pytest

from albert_tf.multiple_choice.metrics import predictions, probabilities, scores

# 5 questions of 3, 2, 4, 2 and 3 options; what stands where there is none would win.
COUNTS = (3, 2, 4, 2, 3)
MASK = (np.arange(4) < np.array(COUNTS)[:, None]).astype(np.float32)
LOGITS = np.where(
    MASK > 0,
    np.array([[0, 1, 0, 0], [2, 0, 0, 0], [0, 0, 0, 3], [1, 1, 0, 0], [-1, -2, -3, 0]], np.float32),
    np.float32(50),
)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_an_option_that_is_not_there_is_never_chosen():
    chosen = predictions(LOGITS, MASK)
    assert chosen.tolist() == [1, 0, 3, 0, 0]
    assert chosen.dtype == np.int32


def test_probabilities_are_shared_by_the_options_that_are_there():
    shares = probabilities(LOGITS, MASK)
    assert shares.dtype == np.float32
    assert (shares[MASK == 0] == 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), np.ones(5), rtol=1e-6)
    np.testing.assert_allclose(shares[3], [0.5, 0.5, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(shares[1, 0], 1 / (1 + math.exp(-2)), rtol=1e-6)


def test_scores():
    labels = np.array([1, 1, 3, 1, 0], np.int32)  # right, wrong, right, wrong, right
    results = scores(LOGITS, MASK, labels, ["high", "middle", "high", "high", "middle"], 3)
    e = math.exp
    losses = [
        -math.log(e(1) / (e(1) + 2)),
        -math.log(1 / (1 + e(2))),
        -math.log(e(3) / (e(3) + 3)),
        -math.log(0.5),
        -math.log(1 / (1 + e(-1) + e(-2))),
    ]
    expected = {
        "eval_accuracy": 3 / 5,
        "eval_accuracy_high": 2 / 3,
        "eval_accuracy_middle": 1 / 2,
        "eval_loss": sum(losses) / 5,
        "loss": (sum(losses[:3]) / 3 + sum(losses[3:]) / 2) / 2,
    }
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        assert results[name] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize(
    ("levels", "keys"), [([""] * 5, set()), (["high"] * 5, {"eval_accuracy_high"})]
)
def test_only_levels_that_occur_are_scored(levels, keys):
    results = scores(LOGITS, MASK, np.zeros(5, np.int32), levels, 8)
    assert results.keys() == {"eval_accuracy", "eval_loss", "loss"} | keys
    assert results["eval_loss"] == pytest.approx(results["loss"], rel=1e-12)


def test_no_question_cannot_be_scored():
    with pytest.raises(ValueError, match="no example"):
        scores(LOGITS[:0], MASK[:0], np.zeros(0, np.int32), [], 8)
