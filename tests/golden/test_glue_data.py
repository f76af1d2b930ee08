"""Rows of GLUE's files, compared with the original release."""

import json
from pathlib import Path

import numpy as np
import pytest

from albert_tf.classification.data import GlueData
from albert_tf.data.text_examples import DEV, GLUE_TASKS, TEST, TRAIN
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer

# In the original, AX has no training and evaluation data; here it uses the data of MNLI.
SPLITS = [
    (task, split)
    for task in GLUE_TASKS
    for split in (TRAIN, DEV, TEST)
    if task != "ax" or split == TEST
]


@pytest.fixture(scope="module")
def recorded(golden: Path) -> dict:
    recorded = json.loads((golden / "glue" / "features.json").read_text(encoding="utf-8"))
    assert {*recorded} - {"padding_example_at_16"} == {*GLUE_TASKS}
    return recorded


@pytest.fixture(scope="module")
def tokenizers(golden: Path) -> dict[str, Tokenizer | None]:
    model = str(golden / "tokenizer" / "small_1000.model")
    return {
        "wordpiece": None,  # does not change texts
        "spm": load_tokenizer(spm_model_file=model),
        "spm_cased": load_tokenizer(spm_model_file=model, do_lower_case=False),
    }


def data(golden: Path, task: str) -> GlueData:
    return GlueData(task.upper(), str(golden / "glue" / "data"))


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_rows_equal_the_original(task, split, golden, recorded, tokenizers):
    glue = data(golden, task)
    examples = glue.read(split)
    for name, expected in recorded[task]["splits"][split].items():
        clean = tokenizers[name].clean if tokenizers[name] else str
        ours = [
            (e.guid, clean(e.text_a), None if e.text_b is None else clean(e.text_b))
            for e in examples
        ]
        assert ours == [(row["guid"], row["text_a"], row["text_b"]) for row in expected]
        if split != TEST:
            labels = [e.label for e in examples]
            if glue.labels.is_regression:
                labels = list(map(float, labels))
            assert labels == [row["label"] for row in expected]


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_test_rows_have_no_label(task, golden):
    assert {example.label for example in data(golden, task).read(TEST)} == {None}


@pytest.mark.parametrize("task", [task for task in GLUE_TASKS if task != "ax"])
def test_label_ids_equal_the_original(task, golden, recorded):
    glue = data(golden, task)
    recorded_names = recorded[task]["labels"]
    assert glue.labels.names == (() if recorded_names == [None] else tuple(recorded_names))
    ids = glue.labels.encode([example.label for example in glue.read(DEV)])
    with np.load(golden / "glue" / "features.npz") as features:
        expected = features[f"{task}/{DEV}/wordpiece/16/label_id"]
    np.testing.assert_array_equal(ids, expected)
    assert ids.dtype == expected.dtype


def test_ax_uses_the_training_data_of_mnli(golden):
    ax, mnli = data(golden, "ax"), data(golden, "mnli")
    for split in (TRAIN, DEV):
        assert ax.file(split) == mnli.file(split)
        assert ax.read(split) == mnli.read(split)
    assert ax.labels == mnli.labels
