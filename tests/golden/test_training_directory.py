"""Training directories of the original release can be continued."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.original_names import original_names
from albert_tf.training.distribution import split_batch
from tests.golden.reference import DATA, Reference, pretraining_gradients, recorded_training
from tests.pretraining_run import read_checkpoint
from tests.programs import run_program
from tests.small_records import write_records
from tests.small_training import make_trainer

KEY_BIAS = "self/key/bias"  # its gradient is 0 except for rounding
MOVED = 'model_checkpoint_path: "/another/machine/run/model.ckpt-8"\n'


def copy_run(optimizer, folder, checkpoint_file):
    """Copies the checkpoint of a recorded run of eight steps."""
    shutil.copytree(DATA / "optimization" / f"{optimizer}_base_checkpoint", folder)
    (folder / "model.ckpt-8.meta").touch()
    if checkpoint_file:
        (folder / "checkpoint").write_text(checkpoint_file)


def next_update(tensors, gradients, run):
    """Returns weights and moments after the ninth update, computed with NumPy."""
    decay = (1.0 - 8 / run["num_train_steps"]) ** run["poly_power"]
    assert run["num_warmup_steps"] <= 8
    norm = np.sqrt(sum(np.square(g, dtype=np.float64).sum() for g in gradients.values()))
    after = {}
    for name, gradient in gradients.items():
        g = np.float64(gradient) * min(1.0, 1.0 / norm)
        w, m, v = (np.float64(tensors[name + slot]) for slot in ("", "/adam_m", "/adam_v"))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        update, ratio = m / (np.sqrt(v) + 1e-6), 1.0
        if not ("LayerNorm" in name or "bias" in name):
            update += 0.01 * w
            if run["optimizer"] == "lamb":
                ratio = np.linalg.norm(w) / np.linalg.norm(update)
        after[name] = w - run["learning_rate"] * decay * ratio * update
        after[f"{name}/adam_m"], after[f"{name}/adam_v"] = m, v
    return after


@pytest.mark.parametrize(
    ("optimizer", "checkpoint_file"), [("lamb", MOVED), ("adamw", None)], ids=["lamb", "adamw"]
)
def test_next_update_equals_the_original(tmp_path, optimizer, checkpoint_file):
    folder = tmp_path / "output"
    copy_run(optimizer, folder, checkpoint_file)
    reference = Reference("config_0")
    _, run = recorded_training(f"{optimizer}_base.npz")
    trainer = make_trainer(folder, reference.task, optimizer=run, train_batch_size=6)
    trainer.initialize()
    assert trainer.step == 8
    gradients = pretraining_gradients(trainer.model, reference.task, reference.inputs)
    gradients = {name: np.array(tf.convert_to_tensor(g)) for name, g in gradients.items()}
    expected = next_update(read_checkpoint(folder / "model.ckpt-8"), gradients, run)
    trainer.train_step(split_batch(trainer.strategy, reference.inputs))
    for name, variable in original_names(trainer.model).items():
        values = {name: variable}
        for slot, moment in trainer.optimizer.slots(variable).items():
            values[f"{name}/{slot}"] = moment
        for key, value in values.items():
            atol = 1e-6 * np.abs(expected[key]).max()
            if KEY_BIAS in key:
                atol = 1e-4 if key == name else 1e-8
            np.testing.assert_allclose(value, expected[key], rtol=1e-5, atol=atol, err_msg=key)


def test_command_continues_the_run_with_the_same_names(tmp_path):
    folder = tmp_path / "output"
    copy_run("lamb", folder, MOVED)
    reference = Reference("config_0")
    _, run = recorded_training("lamb_base.npz")
    columns = {
        name: values if values.dtype == np.float32 else values.astype(np.int64)
        for name, values in reference.arrays("inputs").items()
    }
    result = run_program(
        "run_pretraining.py",
        tmp_path,
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
    assert result.code == 0, result.output
    assert f"Resuming from {folder / 'model.ckpt-8'} at step 8" in result.output
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
