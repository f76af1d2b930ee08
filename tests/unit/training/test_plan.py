"""The plan of a training compared with the training."""

import dataclasses

import pytest

from albert_tf.training import run_training as plan_module
from albert_tf.training import trainer as trainer_module
from albert_tf.training.memory import TrainingSetting, estimate_memory
from albert_tf.training.run_training import TrainingPlan
from tests.small_records import PREDICTIONS, pretraining_columns, write_records
from tests.small_training import make_task, make_trainer, train


def plan_of(trainer, **changes):
    return TrainingPlan(
        trainer, **{"num_examples": 13, "max_predictions_per_seq": PREDICTIONS, **changes}
    )


@pytest.fixture
def records(tmp_path):
    return write_records(tmp_path / "train.tfrecord", pretraining_columns(13, seed=1))


def fresh_trainer(folder, **config):
    """Returns an initialized trainer without data."""
    trainer = make_trainer(
        folder,
        make_task(),
        20,
        **{"train_batch_size": 12, "save_checkpoints_steps": 5000, **config},
    )
    trainer.initialize()
    return trainer


def test_plan_predicts_steps_and_checkpoints_also_after_resuming(tmp_path, records):
    folder = tmp_path / "output"
    done = []

    def saved(trainer):
        plan = plan_of(trainer)
        steps, checkpoints, size = plan.steps, plan.checkpoints, plan.checkpoint_bytes
        first = trainer.step
        written, save = [], trainer.directory.save
        trainer.directory.save = lambda step, *rest: (written.append(step), save(step, *rest))
        train(trainer)
        assert (trainer.step - first, len(written)) == (steps, checkpoints)
        stored = sum(path.stat().st_size for path in folder.glob(f"model.ckpt-{written[-1]}.*"))
        # Names and offsets are in the index.
        assert size <= stored <= size + 150 * 100
        done.append(written)

    first = make_trainer(folder, make_task(records), last_step=5)
    first.initialize()
    assert not folder.exists()
    saved(first)
    second = make_trainer(folder, make_task(records), last_step=9, keep_checkpoint_max=2)
    second.initialize()
    assert second.step == 5
    saved(second)
    assert done == [[3, 5], [6, 9]]
    third = make_trainer(folder, make_task(records), last_step=9)
    third.initialize()
    plan = plan_of(third)
    assert (plan.steps, plan.checkpoints, plan.disk_bytes) == (0, 0, 0)


def test_replicas_of_all_workers_share_the_batch(tmp_path, monkeypatch):
    """A dry run counts the other workers without connecting to them."""
    monkeypatch.setattr(trainer_module, "num_workers", lambda: 2)
    assert fresh_trainer(tmp_path, replicas=2, gradient_accumulation_steps=3).replicas == 4
    monkeypatch.setattr(trainer_module, "num_workers", lambda: 3)
    with pytest.raises(ValueError, match=r"`train_batch_size`.* 18 .*Received: 12"):
        fresh_trainer(tmp_path, replicas=2, gradient_accumulation_steps=3)


def test_disk_space_includes_the_checkpoint_before_removal(tmp_path):
    trainer = fresh_trainer(tmp_path, save_checkpoints_steps=5, keep_checkpoint_max=2)
    plan = plan_of(trainer)
    weights = 4 * trainer.model.count_params()
    assert plan.checkpoint_bytes == pytest.approx(3 * weights, rel=1e-3)
    assert plan.disk_bytes == 3 * plan.checkpoint_bytes
    best = dataclasses.replace(plan, keeps_best=True)
    assert best.disk_bytes == 3 * plan.checkpoint_bytes + weights
    everything = plan_of(fresh_trainer(tmp_path, save_checkpoints_steps=6, keep_checkpoint_max=0))
    assert everything.checkpoints == 4  # after steps 6, 12, 18 and 20
    assert everything.disk_bytes == 4 * plan.checkpoint_bytes


def test_memory_of_a_cpu_is_the_sum_of_its_devices(tmp_path):
    one = plan_of(fresh_trainer(tmp_path)).memory_bytes - 1e9
    half = plan_of(fresh_trainer(tmp_path, train_batch_size=6)).memory_bytes - 1e9
    both = plan_of(fresh_trainer(tmp_path, replicas=2)).memory_bytes - 1e9
    assert both == 2 * half > one
    options = plan_of(fresh_trainer(tmp_path, train_batch_size=3), sequences_per_example=4)
    assert options.memory_bytes - 1e9 == one


def test_memory_of_a_tpu_assumes_compilation(tmp_path, monkeypatch):
    trainer = fresh_trainer(tmp_path, train_batch_size=6)
    config = trainer.model.config
    setting = TrainingSetting(6, trainer.task.max_seq_length, PREDICTIONS, xla=True)
    estimate = estimate_memory(config, setting)
    monkeypatch.setattr(plan_module, "is_tpu", lambda _: True)
    monkeypatch.setattr(plan_module, "tpu_memory", lambda cores: 100 * cores)
    monkeypatch.setattr(type(trainer.strategy.extended), "num_replicas_per_host", 4, raising=False)
    plan = plan_of(trainer)
    assert plan.memory_bytes == estimate.peak - estimate.program
    assert plan.available_memory == 400
    assert "`remat`" in next(plan.warnings())


def test_warnings(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "machine_memory", lambda: 900_000_000)
    monkeypatch.setattr(plan_module, "free_bytes", lambda path: 1000)
    memory, disk, examples = plan_of(fresh_trainer(tmp_path), num_examples=11).warnings()
    assert "0.9GB" in memory
    assert "`keep_checkpoint_max`" in disk
    assert "`train_batch_size`" in examples
