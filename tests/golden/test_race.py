"""Examples, features and scores of RACE, compared with the original release."""

import csv

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from albert_tf.checkpoints.loading import load_weights
from albert_tf.cli import run_race
from albert_tf.config import AlbertConfig
from albert_tf.finetuning.metrics import predictions, probabilities
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import chosen_levels, read_race
from albert_tf.multiple_choice.run import scores
from albert_tf.multiple_choice.task import choice_features
from tests.golden.reference import (
    DATA,
    INPUTS,
    flags_with_weights,
    read_arrays,
    read_json,
    tokenizer_named,
)
from tests.run_in_process import run_here

FOLDER = DATA / "race"
HEADS = FOLDER / "heads"
RECORDED = read_json(FOLDER / "examples.json")
SPLITS = ("train", "dev", "test")
TOKENIZERS = ("spm", "wordpiece")
LENGTHS = ((64, 24), (128, 128), (40, 10))


@pytest.fixture(scope="module")
def arrays():
    return read_arrays(FOLDER / "features.npz")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("chosen", ["both", "high_only", "middle_only"])
def test_examples_equal_the_original(split, name, chosen):
    levels = chosen_levels(chosen == "high_only", chosen == "middle_only")
    clean = tokenizer_named(name).clean if name == "spm" else None
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
    examples = read_race(str(FOLDER / "data"), split)
    length, qa_length = lengths
    features = choice_features(
        examples, tokenizer_named(name), max_seq_length=length, max_qa_length=qa_length
    )
    prefix = f"{split}/{name}/{length}_{qa_length}/"
    padded = features.sequences.padded(np.arange(len(features.sequences)), length)
    for key in INPUTS:
        expected = arrays[prefix + key]
        assert expected.shape == (len(features), 4, length)
        np.testing.assert_array_equal(padded[key].reshape(expected.shape), expected, err_msg=key)
    assert features.label_ids.dtype == arrays[f"{prefix}label_id"].dtype
    np.testing.assert_array_equal(features.label_ids, arrays[f"{prefix}label_id"])


def test_scores_equal_the_original():
    recorded = read_arrays(HEADS / "outputs.npz")
    label_ids = read_arrays(HEADS / "inputs.npz")["label_ids"]
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


@pytest.mark.usefixtures("eager")
def test_program_equals_the_model_with_recorded_features(arrays, tmp_path):
    """test_heads.py compares the model with the original."""
    output = tmp_path / "output"
    flags = {"data_dir": FOLDER / "data", "max_seq_length": 64, "max_qa_length": 24}
    flags |= {"do_train": False, "do_predict": True}
    weights = HEADS / "model.ckpt"
    run_here(run_race, flags_with_weights(output, weights, "model.ckpt-5", **flags))
    model = AlbertForMultipleChoice(AlbertConfig.from_json_file(str(HEADS / "albert_config.json")))
    load_weights(model, str(HEADS / "model.ckpt")).check_complete()
    for split, name in (("dev", "eval_results"), ("test", "predict_results")):
        features = {key: arrays[f"{split}/spm/64_24/{key}"] for key in (*INPUTS, "label_id")}
        labels = features.pop("label_id")
        logits = model({key: tf.constant(values) for key, values in features.items()})["logits"]
        expected = special.softmax(logits.numpy(), axis=1)
        losses = -np.log(expected[np.arange(len(labels)), labels])
        batches = [losses[start : start + 8].mean() for start in range(0, len(losses), 8)]
        values = {
            "eval_accuracy": (expected.argmax(axis=1) == labels).mean(),
            "eval_loss": losses.mean(),
            "loss": np.mean(batches),
        }
        lines = (output / f"{name}.txt").read_text().splitlines()
        written = dict(line.split(" = ") for line in lines if " = " in line)
        for key, value in values.items():
            assert float(written[key]) == pytest.approx(value, abs=1e-5), key
        levels = {"eval_accuracy_middle", "eval_accuracy_high"}
        assert written.keys() >= {*values, *levels, "global_step", "best"}
    with (output / "predictions.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    written = np.array([[float(row[letter]) for letter in "ABCD"] for row in rows])
    np.testing.assert_allclose(written, expected, rtol=0, atol=1e-5)
    assert np.ptp(expected, axis=1).max() > 1e-3
