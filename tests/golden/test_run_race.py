"""`run_race.py` with a recorded model, compared with results for features of the original."""

import csv
import shutil

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.config import AlbertConfig
from albert_tf.modeling.models import AlbertForMultipleChoice
from tests.programs import run_program

TOLERANCE = 1e-5
STEP = 5


@pytest.fixture(scope="module")
def output(golden, tmp_path_factory):
    """Returns the directory with the results of the command."""
    folder = tmp_path_factory.mktemp("run")
    output = folder / "output"
    output.mkdir()
    heads = golden / "race" / "heads"
    for suffix in ("index", "data-00000-of-00001"):
        shutil.copy(heads / f"model.ckpt.{suffix}", output / f"model.ckpt-{STEP}.{suffix}")
    result = run_program(
        "run_race.py",
        folder,
        {
            "data_dir": golden / "race" / "data",
            "output_dir": output,
            "spm_model_file": golden / "tokenizer" / "small_1000.model",
            "albert_config_file": heads / "albert_config.json",
            "max_seq_length": 64,
            "max_qa_length": 24,
            "do_train": False,
            "do_predict": True,
        },
    )
    assert result.code == 0, result.output
    return output


@pytest.fixture(scope="module")
def model(golden):
    """Returns the model; another test compares it with the recorded logits."""
    heads = golden / "race" / "heads"
    model = AlbertForMultipleChoice(AlbertConfig.from_json_file(str(heads / "albert_config.json")))
    load_weights(model, str(heads / "model.ckpt")).check_complete()
    return model


def expected(golden, model, split):
    """Returns probabilities [N, C] for features of the original, and labels."""
    prefix = f"{split}/spm/64_24/"
    with np.load(golden / "race" / "features.npz") as file:
        arrays = {
            name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)
        }
    labels = arrays.pop("label_id")
    logits = model({name: tf.constant(values) for name, values in arrays.items()})["logits"]
    return special.softmax(logits.numpy(), axis=1), labels


def test_predictions_equal_results_for_recorded_features(golden, model, output):
    probabilities, _ = expected(golden, model, "test")
    with (output / "predictions.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    written = np.array([[float(row[letter]) for letter in "ABCD"] for row in rows])
    np.testing.assert_allclose(written, probabilities, rtol=0, atol=TOLERANCE)
    assert np.ptp(probabilities, axis=1).max() > 100 * TOLERANCE


@pytest.mark.parametrize(("split", "name"), [("dev", "eval_results"), ("test", "predict_results")])
def test_scores_equal_results_for_recorded_features(golden, model, output, split, name):
    probabilities, labels = expected(golden, model, split)
    lines = (output / f"{name}.txt").read_text().splitlines()
    written = dict(line.split(" = ") for line in lines if " = " in line)
    losses = -np.log(probabilities[np.arange(len(labels)), labels])
    batches = [losses[start : start + 8].mean() for start in range(0, len(losses), 8)]
    values = {
        "eval_accuracy": (probabilities.argmax(axis=1) == labels).mean(),
        "eval_loss": losses.mean(),
        "loss": np.mean(batches),
    }
    for key, value in values.items():
        assert float(written[key]) == pytest.approx(value, abs=TOLERANCE), key
    levels = {"eval_accuracy_middle", "eval_accuracy_high"}
    assert written.keys() >= {*values, *levels, "global_step", "best"}
