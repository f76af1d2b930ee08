"""Examples, features and scores of RACE, compared with the original release."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data.text_examples import Labels
from albert_tf.finetuning.metrics import predictions, probabilities
from albert_tf.multiple_choice.data import chosen_levels, read_race
from albert_tf.multiple_choice.run import scores
from albert_tf.multiple_choice.task import ChoiceFeatures, choice_features
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "race"
RECORDED = json.loads((FOLDER / "examples.json").read_text("utf-8"))
SPLITS = ("train", "dev", "test")
TOKENIZERS = ("spm", "wordpiece")
LENGTHS = ((64, 24), (128, 128), (40, 10))
INPUTS = ("input_ids", "input_mask", "segment_ids")


@cache
def tokenizer_of(name: str) -> Tokenizer:
    if name == "wordpiece":
        return load_tokenizer(vocab_file=str(DATA / "tokenizer" / "vocab.txt"))
    return load_tokenizer(spm_model_file=str(DATA / "tokenizer" / "small_1000.model"))


def features_of(split: str, name: str, lengths: tuple[int, int]) -> ChoiceFeatures:
    return choice_features(
        read_race(str(FOLDER / "data"), split),
        tokenizer_of(name),
        max_seq_length=lengths[0],
        max_qa_length=lengths[1],
    )


@pytest.fixture(scope="module")
def arrays():
    with np.load(FOLDER / "features.npz") as file:
        return dict(file)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("chosen", ["both", "high_only", "middle_only"])
def test_examples_equal_the_original(split, name, chosen):
    levels = chosen_levels(chosen == "high_only", chosen == "middle_only")
    clean = tokenizer_of(name).clean if name == "spm" else None
    ours = [
        {
            "example_id": example.example_id,
            "context_sentence": clean(example.context) if clean else example.context,
            "endings": list(example.endings(clean)),
            "label": example.label,
        }
        for example in read_race(str(FOLDER / "data"), split, levels=levels)
    ]
    assert ours == RECORDED[f"{split}/{name}/{chosen}"]
    assert len(ours) > 1


def test_every_array_is_compared(arrays):
    assert [list(lengths) for lengths in LENGTHS] == RECORDED["max_seq_length_and_max_qa_length"]
    assert len(arrays) == len(SPLITS) * len(TOKENIZERS) * len(LENGTHS) * 4


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_features_equal_the_original(arrays, split, name, lengths):
    features = features_of(split, name, lengths)
    expected = {
        key: arrays[f"{split}/{name}/{lengths[0]}_{lengths[1]}/{key}"]
        for key in (*INPUTS, "label_id")
    }
    padded = features.sequences.padded(np.arange(len(features.sequences)), lengths[0])
    for key in INPUTS:
        assert expected[key].shape == (len(features), 4, lengths[0])
        ours = padded[key].reshape(expected[key].shape)
        np.testing.assert_array_equal(ours, expected[key], err_msg=key)
    assert features.label_ids.dtype == expected["label_id"].dtype
    np.testing.assert_array_equal(features.label_ids, expected["label_id"])


def test_scores_equal_the_original():
    with np.load(FOLDER / "heads" / "outputs.npz") as file:
        recorded = dict(file)
    with np.load(FOLDER / "heads" / "inputs.npz") as file:
        label_ids = file["label_ids"]
    logits, labels = recorded["logits"], Labels(("A", "B", "C", "D"))
    np.testing.assert_allclose(
        probabilities(logits, labels), recorded["probabilities"], rtol=1e-5, atol=1e-7
    )
    np.testing.assert_array_equal(predictions(logits, labels), recorded["predictions"])
    results = scores(logits, label_ids, [""] * len(label_ids), 3)
    is_right = recorded["predictions"] == label_ids
    assert results["eval_accuracy"] == pytest.approx(is_right.mean(), rel=1e-6)
    assert results["eval_loss"] == pytest.approx(recorded["loss"], rel=1e-5)
    losses = recorded["per_example_loss"]
    assert results["loss"] == pytest.approx((losses[:3].mean() + losses[3:].mean()) / 2, rel=1e-5)
