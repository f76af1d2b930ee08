"""`TextClassifier`: types of predictions, regressions, and invalid input.

tests/e2e/test_run_classifier.py compares its numbers with the numbers of the command.
"""

import os
import random

import numpy as np
import pytest

from albert_tf import AlbertForClassification, TextClassifier
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.labels import Labels
from tests.text_models import CONFIG, assert_rejected, write_model

pytestmark = pytest.mark.usefixtures("eager")

NAMES = ("low", "middle", "high")
TASK = StoredTask("custom", Labels(NAMES), is_pair=False, max_seq_length=20)


@pytest.fixture(scope="module")
def model():
    random.seed(3)
    return AlbertForClassification(CONFIG, 3)


@pytest.fixture(scope="module")
def directory(model, tokenizer, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trained"), model, tokenizer, TASK)


def test_predictions_contain_python_types(model, directory, tokenizer):
    (found,) = TextClassifier.load(directory)(["the cat"])
    assert type(found.label) is str
    assert list(found.probabilities) == list(NAMES)
    assert {type(value) for value in found.probabilities.values()} == {float}
    assert found.label == max(found.probabilities, key=found.probabilities.get)
    assert found.value is None
    in_memory = TextClassifier(model, tokenizer, labels=list(NAMES), max_seq_length=20)
    # Single texts and pairs are accepted if the model does not store which it expects.
    assert in_memory(["the cat"], ["sat"]) != [found]


def test_a_regression_gives_the_number(tokenizer, tmp_path):
    model = AlbertForClassification(CONFIG, 1)
    task = StoredTask("sts-b", Labels(), is_pair=True, max_seq_length=24)
    regression = TextClassifier.load(write_model(tmp_path, model, tokenizer, task))
    (found,) = regression(["the cat"], ["sat"])
    assert found.label == str(np.float32(found.value))
    assert found.probabilities == {}
    os.remove(tmp_path / "labels.json")  # as a regression of another program
    assert TextClassifier.load(tmp_path, max_seq_length=24)(["the cat"], ["sat"]) == [found]
    batch = tokenizer(["the cat"], ["sat"])
    np.testing.assert_allclose(found.value, model(batch)["logits"][0, 0], rtol=1e-5)
    assert TextClassifier(model, tokenizer, labels=[], pairs=True)(["the cat"], ["sat"]) == [found]


def test_bad_input_is_rejected(model, directory, tokenizer, tmp_path):
    classifier = TextClassifier.load(directory)
    pairs = TextClassifier(model, tokenizer, labels=NAMES, pairs=True)
    unlabelled = write_model(tmp_path / "unlabelled", model, tokenizer)
    short = StoredTask("custom", Labels(NAMES[:2]), is_pair=False)
    mislabelled = write_model(tmp_path / "mislabelled", model, tokenizer, short)
    load = TextClassifier.load
    # Iterating over a pandas table yields the names of its columns.
    table = type("Table", (list,), {"ndim": 2})(["text_a", "label"])
    assert_rejected([
        (lambda: classifier(table), TypeError, "texts must be a list of texts"),
        (lambda: classifier(["a"], ["b"]), ValueError, "text_pairs must be None"),
        (lambda: pairs(["a"]), ValueError, "text_pairs must contain"),
        (lambda: pairs(["a"], ["b", "c"]), ValueError, "text_pairs must have as many .* 1.*2"),
        (lambda: load("mini"), ValueError, "path must be a model with a classifier.*masked LM"),
        (lambda: load(unlabelled), ValueError, "labels` must name the 3 classes.*unlabelled"),
        (lambda: load(mislabelled), ValueError, "head is .* in .*mislabelled"),
        (lambda: load(directory, labels=["a"] * 3), ValueError, "new_head=True"),
        (lambda: load(directory, max_seq_length=2), ValueError, "`max_seq_length` must be"),
        (lambda: load(directory, new_head=True), ValueError, "new_head.* require labels"),
        (lambda: TextClassifier(model, tokenizer), ValueError, "labels must name the 3 outputs"),
        (
            lambda: TextClassifier(model, tokenizer, labels=NAMES, pairs="no"),
            TypeError,
            "pairs must be True, False or None",
        ),
    ])  # fmt: skip
    assert load(unlabelled, labels=NAMES, max_seq_length=20)(["a"]) == classifier(["a"])
