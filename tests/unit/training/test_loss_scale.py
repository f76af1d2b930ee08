"""The loss scale of float16, and training with overflows."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.training import step as module
from albert_tf.training.run_log import RunLog
from albert_tf.training.step import LossScale
from albert_tf.training.trainer import TrainingDivergedError
from tests import small_training
from tests.small_records import pretraining_batch, pretraining_columns, write_records
from tests.small_training import (
    assert_same_state,
    forget_after,
    make_task,
    reports_of,
    state_of,
    steps_of,
)


def make_trainer(folder, *files, **config):
    settings = {"save_checkpoints_steps": 2, "keep_checkpoint_max": 0, "log_steps": 3, **config}
    return small_training.make_trainer(
        folder,
        make_task(*files),
        8,
        optimizer={"learning_rate": 0.02, "num_warmup_steps": 0},
        train_batch_size=6,
        precision="float16",
        **settings,
    )


class TestScale:
    def test_halves_and_doubles(self, monkeypatch):
        monkeypatch.setattr(module, "GROWTH_STEPS", 3)
        scale, seen = LossScale(), []
        for norm in (1.0, 2.0, np.inf, 1.0, 1.0, 0.0, np.nan, 1.0, 1.0, 1.0, 1.0):
            skipped = bool(scale.update(tf.constant(norm)))
            seen.append((float(scale.scale) / module.INITIAL_SCALE, skipped))
        scales = [1, 1, 0.5, 0.5, 0.5, 1, 0.5, 0.5, 0.5, 1, 1]
        assert [s for s, _ in seen] == scales
        assert [i for i, (_, skipped) in enumerate(seen) if skipped] == [2, 6]
        assert scale.state() == {"scale": module.INITIAL_SCALE, "good_steps": 1}

    def test_bounds(self, monkeypatch):
        monkeypatch.setattr(module, "GROWTH_STEPS", 1)
        scale = LossScale()
        scale.restore({"scale": 2.0, "good_steps": 7})
        assert bool(scale.update(tf.constant(np.inf)))
        assert not bool(scale.update(tf.constant(np.inf)))
        assert float(scale.scale) == 1.0
        scale.restore({"scale": module.MAX_SCALE, "good_steps": 0})
        scale.update(tf.constant(1.0))
        assert float(scale.scale) == module.MAX_SCALE


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"replicas": 2}, {"gradient_accumulation_steps": 3, "remat": True}]
)
def test_overflow_skips_the_step(tmp_path, settings):
    trainer = make_trainer(tmp_path, jit_compile=True, **settings)
    batches = [pretraining_batch(6, seed=1)]
    (first,) = reports_of(trainer, batches)
    assert (first["loss_scale"], first["is_skipped"]) == (2.0**15, 0.0)
    before = state_of(trainer)
    trainer._training.loss_scale.restore({"scale": 2.0**30, "good_steps": 4})
    (overflown,) = reports_of(trainer, batches)
    assert overflown["is_skipped"] == 1.0
    assert not np.isfinite(overflown["gradient_norm"])
    assert_same_state(trainer, before)
    assert trainer.optimizer.iterations.numpy() == 2
    assert trainer._training.loss_scale.state() == {"scale": 2.0**29, "good_steps": 0}
    trainer._training.loss_scale.restore({"scale": 2.0**11, "good_steps": 0})
    (again,) = reports_of(trainer, batches)
    assert again["is_skipped"] == 0.0
    assert any((values != before[name]).any() for name, values in state_of(trainer).items())


def train(folder, records):
    """Trains or resumes. Some steps overflow from step 3 on, as scales from 2^18 on do."""
    trainer = make_trainer(folder, records)
    trainer.initialize()
    log = RunLog(str(folder), 8, trainer.step)
    for step in trainer.checkpoints(log):
        if step == 2:
            trainer._training.loss_scale.restore({"scale": 2.0**20, "good_steps": 2})
    log.close()
    return trainer


@pytest.mark.slow
def test_resumed_run_has_the_same_scales(tmp_path):
    records = write_records(tmp_path / "records", pretraining_columns(17, seed=0))
    run, copy = tmp_path / "run", tmp_path / "copy"
    unbroken = state_of(train(run, records))
    state = json.loads((run / "train_state/4.json").read_text())["loss_scale"]
    assert state == {"scale": 2.0**18, "good_steps": 0}
    shutil.copytree(run, copy)
    forget_after(4, copy)
    assert_same_state(train(copy, records), unbroken)
    for folder in (run, copy):
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        by_step = {line["step"]: line for line in lines}
        assert by_step[3]["skipped_steps"] + by_step[4]["skipped_steps"] == 2.0
        assert by_step[4]["loss_scale"] == 2.0**19
        assert "loss" not in by_step[4]  # the only step was skipped
        assert np.isfinite(by_step[8]["loss"])
        assert by_step[8]["loss_scale"] < 2.0**19


@pytest.mark.slow
def test_overflow_at_a_scale_of_one_is_divergence(tmp_path):
    records = write_records(tmp_path / "records", pretraining_columns(17, seed=0))
    trainer = make_trainer(tmp_path / "run", records)
    trainer.initialize()
    trainer._training.loss_scale.restore({"scale": 2.0, "good_steps": 0})
    trainer.model.encoder.pooler.kernel.assign(tf.fill([12, 12], np.float32(np.nan)))
    with pytest.raises(TrainingDivergedError, match=r"Step 2: loss=nan"):
        steps_of(trainer, RunLog(str(tmp_path / "log"), 8))
    assert not list((tmp_path / "run").glob("model.ckpt-*"))
