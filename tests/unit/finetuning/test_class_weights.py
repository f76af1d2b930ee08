"""Class weights: parsing, "balanced", and their effect on losses."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

import albert_tf
from albert_tf.classification.task import ClassificationTask
from albert_tf.finetuning.class_weights import class_weights
from albert_tf.modeling.losses import means
from albert_tf.token_classification.task import TokenClassificationTask
from tests.classifier_run import ClassifierRun
from tests.unit.test_job_tasks import LABELS, LENGTH, PLAIN

NAMES = ("a", "b", "x", "y", "a,b", "=", "x=1,y")
COUNTS = np.array([3, 1, 4, 1, 5, 9, 2])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("a=2,b=0.5", {"a": 2, "b": 0.5}),
        ("b=0.5, a=2e0", {"a": 2, "b": 0.5}),
        ("==.25,a=7", {"=": 0.25, "a": 7}),
        ({"a": np.float32(2), "x=1,y": 3}, {"a": 2, "x=1,y": 3}),
    ],
)
def test_weights_of_labels_without_an_entry_are_one(setting, expected):
    weights = class_weights(setting, NAMES, COUNTS)
    assert dict(zip(NAMES, weights, strict=True)) == {**dict.fromkeys(NAMES, 1.0), **expected}


def test_balanced_weights_equal_scikit_learn():
    label_ids = np.repeat(np.arange(len(NAMES)), COUNTS)
    expected = compute_class_weight("balanced", classes=np.unique(label_ids), y=label_ids)
    np.testing.assert_allclose(class_weights("balanced", NAMES, COUNTS), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("setting", "counts"),
    [
        ("", COUNTS),
        ("a=nan", COUNTS),
        ("a,b=3", COUNTS),  # names with commas need a dictionary
        ("a=0", COUNTS),
        ({"a": 0.0}, COUNTS),
        ({"z": 1.0}, COUNTS),
        ({"a": float("inf")}, COUNTS),
        ("a=1,a=1", COUNTS),
        ("balanced", COUNTS * [1, 0, 1, 1, 1, 1, 1]),
    ],
)
def test_invalid_weights_are_rejected(setting, counts):
    with pytest.raises(ValueError, match="`class_weights`"):
        class_weights(setting, NAMES, counts)


def test_a_loss_is_the_weighted_sum_divided_by_the_sum_of_the_weights():
    weights = np.array([0.5, 4, 1], np.float32)
    labels = LABELS["classes"]
    task = ClassificationTask(PLAIN, labels, max_seq_length=LENGTH, class_weights=weights)
    batch = {
        "label_ids": tf.constant([0, 1, 2, 2, 1, 0, 2, 1]),
        "example_weights": tf.constant([1.0, 0, 1, 1, 1, 1, 1, 1]),
    }
    logits = tf.random.stateless_normal([8, 3], seed=(1, 2))
    losses = -tf.nn.log_softmax(logits).numpy()[np.arange(8), batch["label_ids"]]
    weights = weights[batch["label_ids"]] * batch["example_weights"]
    sums = []
    for rows in (slice(0, 5), slice(5, 8)):
        part = {name: values[rows] for name, values in batch.items()}
        sums.append(task.losses({"logits": logits[rows]}, part))
        assert sums[-1]["loss"].weight == task.loss_weights(part)["loss"]
        assert task.metrics({"logits": logits[rows]}, part)["accuracy"].weight == sum(
            part["example_weights"]
        )
    expected = np.sum(weights * losses) / np.sum(weights)
    np.testing.assert_allclose(means(sums)["loss"], expected, rtol=1e-6, atol=0)


def test_words_are_weighted_by_their_labels_and_other_tokens_are_ignored():
    weights = np.array([0.5, 4, 1], np.float32)
    task = TokenClassificationTask(
        PLAIN, LABELS["classes"], max_seq_length=LENGTH, class_weights=weights
    )
    label_ids = np.array([[-1, 0, 1, 2, -1], [1, 2, -1, 0, 0]], np.int32)
    features = {"label_ids": tf.constant(label_ids), "example_weights": tf.constant([1.0, 0.0])}
    logits = tf.random.stateless_normal([2, 5, 3], seed=(1, 2))
    found = task.losses({"logits": logits}, features)["loss"]
    losses = -tf.nn.log_softmax(logits).numpy()[0, [1, 2, 3], [0, 1, 2]]
    assert float(found.weight) == float(task.loss_weights(features)["loss"]) == 5.5
    np.testing.assert_allclose(found.sum, np.sum(weights * losses), rtol=1e-6, atol=0)
    assert task.metrics({"logits": logits}, features)["accuracy"].weight == 3


def test_a_job_rejects_invalid_weights_before_writing(tmp_path, golden):
    small = ClassifierRun(tmp_path, golden)

    def run(**changes):
        flags = small.flags(do_train=True, **changes)
        albert_tf.run_classification(albert_tf.ClassificationSettings(**flags))

    with pytest.raises(ValueError, match=r"`class_weights` must be .*'awful=2'"):
        run(class_weights="awful=2")
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("label,review\n0.5,good\n2,bad\n")
    with pytest.raises(ValueError, match="`class_weights` needs classes"):
        run(class_weights="balanced", regression=True, train_file=numbers)
    assert not small.output.exists()
