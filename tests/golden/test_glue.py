"""Rows and features of all GLUE tasks, compared with the original release."""

import numpy as np
import pytest

from albert_tf.classification.data import GlueData
from albert_tf.classification.task import text_features
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.glue import GLUE_TASKS
from tests.golden.reference import DATA, INPUTS, read_arrays, read_json, tokenizer_named

FOLDER = DATA / "glue"
RECORDED = read_json(FOLDER / "features.json")
CASES = [
    (task, split, name)
    for task in GLUE_TASKS
    for split, tokenizers in RECORDED[task]["splits"].items()
    for name in tokenizers
]


@pytest.fixture(scope="module")
def arrays():
    return read_arrays(FOLDER / "features.npz")


def glue_data(task: str) -> GlueData:
    return GlueData(task.upper(), str(FOLDER / "data"))


def test_all_cases_are_compared():
    assert len(CASES) == 68  # 10 tasks of 3 splits and one of 1, with 2 tokenizers; 6 cased
    assert {task for task, _, _ in CASES} == set(GLUE_TASKS)


@pytest.mark.parametrize(("task", "split", "name"), CASES)
def test_rows_equal_the_original(task, split, name):
    data, expected = glue_data(task), RECORDED[task]["splits"][split][name]
    examples = data.read(split)
    clean = str if name == "wordpiece" else tokenizer_named(name).clean
    ours = [(e.guid, clean(e.text_a), e.text_b and clean(e.text_b)) for e in examples]
    assert ours == [(row["guid"], row["text_a"], row["text_b"]) for row in expected]
    labels = [example.label for example in examples]
    if split == TEST:  # the original sets placeholder labels
        assert set(labels) == {None}
    else:
        convert = float if data.labels.is_regression else str
        assert [convert(label) for label in labels] == [row["label"] for row in expected]


@pytest.mark.parametrize(("task", "split", "name"), CASES)
def test_features_equal_the_original(arrays, task, split, name):
    data = glue_data(task)
    guids = [row["guid"] for row in RECORDED[task]["splits"][split][name]]
    for length in (16, 32, 64):
        features = text_features(data.read(split), data.labels, tokenizer_named(name), length)
        assert features.guids == guids
        prefix = f"{task}/{split}/{name}/{length}/"
        padded = features.sequences.padded(np.arange(len(guids)), length)
        for key in INPUTS:
            np.testing.assert_array_equal(padded[key], arrays[prefix + key], err_msg=key)
        if split == TEST:
            assert features.label_ids is None
        else:
            expected = arrays[prefix + "label_id"]
            assert features.label_ids.dtype == expected.dtype
            np.testing.assert_array_equal(features.label_ids, expected)


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_names_of_labels_equal_the_original(task):
    names = RECORDED[task]["labels"]
    assert glue_data(task).labels.names == (() if names == [None] else tuple(names))


def test_ax_uses_the_training_data_of_mnli():
    """The original has no training data for AX."""
    ax, mnli = glue_data("ax"), glue_data("mnli")
    for split in (TRAIN, DEV):
        assert ax.read(split) == mnli.read(split)
