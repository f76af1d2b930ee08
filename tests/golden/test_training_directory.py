"""Training directories of the original release can be continued."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.cli import run_pretraining
from tests.golden.reference import DATA, Reference, recorded_training
from tests.pretraining_run import assert_same_bits, read_checkpoint
from tests.run_in_process import run_here
from tests.small_records import write_records
from tests.small_training import make_trainer, state_of

MOVED = 'model_checkpoint_path: "/another/machine/run/model.ckpt-8"\n'


def copy_run(optimizer, folder, checkpoint_file):
    """Copies the checkpoint of a recorded run of eight steps."""
    shutil.copytree(DATA / "optimization" / f"{optimizer}_base_checkpoint", folder)
    (folder / "model.ckpt-8.meta").touch()
    if checkpoint_file:
        (folder / "checkpoint").write_text(checkpoint_file)


@pytest.mark.parametrize(
    ("optimizer", "checkpoint_file"), [("lamb", MOVED), ("adamw", None)], ids=["lamb", "adamw"]
)
def test_weights_moments_and_step_are_restored(tmp_path, optimizer, checkpoint_file):
    folder = tmp_path / "output"
    copy_run(optimizer, folder, checkpoint_file)
    _, run = recorded_training(f"{optimizer}_base.npz")
    trainer = make_trainer(folder, Reference("config_0").task, optimizer=run, train_batch_size=6)
    trainer.initialize()
    stored = read_checkpoint(folder / "model.ckpt-8")
    restored = state_of(trainer)
    assert stored.pop("global_step") == trainer.step == 8
    assert_same_bits(restored, stored)


@pytest.mark.usefixtures("eager")
def test_command_continues_the_run_with_the_same_names(tmp_path, caplog):
    folder = tmp_path / "output"
    copy_run("lamb", folder, MOVED)
    reference = Reference("config_0")
    _, run = recorded_training("lamb_base.npz")
    columns = {
        name: values if values.dtype == np.float32 else values.astype(np.int64)
        for name, values in reference.arrays("inputs").items()
    }
    caplog.set_level("INFO", logger="absl")
    run_here(
        run_pretraining,
        {
            **run,
            "input_file": write_records(tmp_path / "train.tfrecord", columns),
            "output_dir": folder,
            "albert_config_file": reference.folder / "albert_config.json",
            "max_seq_length": 24,
            "max_predictions_per_seq": 5,
            "train_batch_size": 6,
            "num_train_steps": 11,
            "xla": False,
        },
    )
    assert f"Resuming from {folder / 'model.ckpt-8'} at step 8" in caplog.text
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-11")
    before, after = (read_checkpoint(folder / f"model.ckpt-{step}") for step in (8, 11))
    described = [
        {name: (value.shape, value.dtype) for name, value in tensors.items()}
        for tensors in (before, after)
    ]
    assert described[1] == described[0]
    assert after["global_step"] == 11
    moments = "bert/pooler/dense/kernel/adam_v"
    assert 0.99 < np.linalg.norm(after[moments]) / np.linalg.norm(before[moments]) < 2.0
