"""Features of all GLUE tasks, compared with the original release."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from albert_tf.classification.data import GlueData
from albert_tf.classification.task import TextFeatures, text_features
from albert_tf.data.text_examples import GLUE_TASKS
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "glue"
LENGTHS = (16, 32, 64)
RECORDED = json.loads((FOLDER / "features.json").read_text("utf-8"))
CASES = [
    (task, split, name)
    for task in GLUE_TASKS
    for split, tokenizers in RECORDED[task]["splits"].items()
    for name in tokenizers
]
INPUTS = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture(scope="module")
def arrays():
    with np.load(FOLDER / "features.npz") as file:
        return dict(file)


@cache
def tokenizer_of(name: str) -> Tokenizer:
    if name == "wordpiece":
        return load_tokenizer(vocab_file=str(DATA / "tokenizer" / "vocab.txt"))
    model = str(DATA / "tokenizer" / "small_1000.model")
    return load_tokenizer(spm_model_file=model, do_lower_case=name == "spm")


def features_of(task: str, split: str, name: str, length: int) -> TextFeatures:
    data = GlueData(task, str(FOLDER / "data"))
    return text_features(data.read(split), data.labels, tokenizer_of(name), length)


def assert_padded(features: TextFeatures, length: int, expected: dict[str, np.ndarray]) -> None:
    padded = features.sequences.padded(np.arange(len(features.guids)), length)
    for name in INPUTS:
        np.testing.assert_array_equal(padded[name], expected[name], err_msg=name)


def test_all_cases_are_compared():
    assert len(CASES) == 68  # 10 tasks of 3 splits and one of 1, with 2 tokenizers; 6 cased
    assert {task for task, _, _ in CASES} == set(GLUE_TASKS)


@pytest.mark.parametrize(("task", "split", "name"), CASES)
def test_features_equal_the_original(arrays, task, split, name):
    guids = [row["guid"] for row in RECORDED[task]["splits"][split][name]]
    for length in LENGTHS:
        features = features_of(task, split, name, length)
        assert features.guids == guids
        prefix = f"{task}/{split}/{name}/{length}/"
        expected = {key: arrays[prefix + key] for key in (*INPUTS, "label_id")}
        assert_padded(features, length, expected)
        if split == "test":  # the original invents labels
            assert features.label_ids is None
        else:
            assert features.label_ids.dtype == expected["label_id"].dtype
            np.testing.assert_array_equal(features.label_ids, expected["label_id"])
