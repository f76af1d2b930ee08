"""Pretraining with the settings of another batch, in micro-batches, as a user runs it."""

import json

import pytest

from albert_tf.checkpoints.load_weights import open_checkpoint
from tests.pretraining_run import PretrainingRun

SETTINGS = {
    "train_batch_size": 6,
    "gradient_accumulation_steps": 3,
    "scale_from_batch_size": 24,
    "num_train_steps": 2,
    "num_warmup_steps": 1,
    "learning_rate": 0.02,
    "save_checkpoints_steps": 5,
}


def weights(run):
    reader, shapes = open_checkpoint(str(run.output / "model.ckpt-8"))
    return {name: reader.get_tensor(name).tobytes() for name in shapes}


@pytest.mark.slow
def test_a_scaled_run_says_so_and_resumes_as_it_was(tmp_path):
    run = PretrainingRun(tmp_path, hidden_dropout_prob=0.2)
    printed = run.must_work(**SETTINGS)
    assert "--learning_rate=0.02 becomes 0.01: times the square root of 6/24" in printed
    assert "--num_train_steps=2 becomes 8" in printed
    config = json.loads((run.output / "run_config.json").read_text())["config"]
    assert config["optimizer"]["num_warmup_steps"] == 1
    assert config["scale_from_batch_size"] == 24
    unbroken = weights(run)
    for path in run.output.rglob("*8.*"):
        path.unlink()
    (run.output / "checkpoint").unlink()
    printed = run.must_work(**SETTINGS)
    assert "at step 5" in printed
    assert "until now" not in printed  # no setting changed
    assert weights(run) == unbroken
