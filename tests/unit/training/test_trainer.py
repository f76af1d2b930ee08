"""Replicas, workers and divergence. tests/golden compares weights and numbers."""

import math

import pytest
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import step
from albert_tf.training import trainer as trainer_module
from albert_tf.training.cluster import Workers
from albert_tf.training.run_log import RunLog
from albert_tf.training.trainer import TrainingDivergedError
from tests.small_model import dropping_config
from tests.small_records import pretraining_batch, pretraining_columns, write_records
from tests.small_training import (
    ONE_BLOCK,
    make_task,
    make_trainer,
    reports_of,
    skip_steps,
    steps_of,
    train,
)

pytestmark = pytest.mark.usefixtures("eager")


def fixed_trainer(folder, **settings):
    """Returns a trainer with dropout and a learning rate of zero."""
    return make_trainer(
        folder,
        make_task(config=dropping_config(**ONE_BLOCK)),
        optimizer={"num_warmup_steps": 3, "start_warmup_step": 1000},
        **{"train_batch_size": 6, **settings},
    )


def masked_lm_losses(trainer, batches):
    """Returns losses, starting with the masks of the first step."""
    trainer.optimizer.iterations.assign(0)
    return [step["sums"]["masked_lm_loss"].sum for step in reports_of(trainer, batches)]


@pytest.mark.slow
@pytest.mark.parametrize("parts", [{"replicas": 2}, {"gradient_accumulation_steps": 2}])
def test_dropout_masks_depend_on_step_replica_and_micro_batch(tmp_path, parts):
    """With equal masks, the loss of a repeated half would double."""
    half = {name: values[:3] for name, values in pretraining_batch(6, seed=1).items()}
    twice = {name: tf.concat([values, values], axis=0) for name, values in half.items()}
    (single,) = masked_lm_losses(fixed_trainer(tmp_path, train_batch_size=3), [half])
    trainer = fixed_trainer(tmp_path, **parts)
    losses = masked_lm_losses(trainer, [twice] * 3)
    assert abs(losses[0] / (2 * single) - 1.0) > 1e-4
    assert len(set(losses)) == 3
    assert masked_lm_losses(trainer, [twice] * 3) == losses


def small_run(folder, records, **settings):
    """Returns a trainer of four steps, and a log that writes nothing."""
    trainer = make_trainer(folder, make_task(records), 4, **settings)
    return trainer, RunLog(str(folder), 4, write=False)


def test_only_the_chief_writes(tmp_path, monkeypatch):
    skip_steps(monkeypatch)
    records = write_records(tmp_path / "records", pretraining_columns(7, seed=0))
    trainer, log = small_run(tmp_path / "run", records)
    trainer.is_chief = False
    trainer.initialize()
    assert steps_of(trainer, log) == [1, 2, 3, 4]
    assert not (tmp_path / "run").exists()


def test_workers_with_different_checkpoints_or_settings_are_rejected(tmp_path, monkeypatch):
    records = write_records(tmp_path / "records", pretraining_columns(7, seed=0))
    trainer, log = small_run(tmp_path / "run", records)
    values = []

    def another_worker_has(value):
        monkeypatch.setattr(Workers, "gather", lambda _, own: [values.append(own) or own, value])

    another_worker_has(2)
    with pytest.raises(
        ValueError, match=r"newest step .* 0 in worker 0, but 2 in worker 1.*shared"
    ):
        trainer.initialize()
    another_worker_has(-1)
    for changes in ({}, {"seed": 5}):
        trainer, log = small_run(tmp_path / "run", records, **changes)
        with pytest.raises(ValueError, match=r"digest of settings.* -1 in worker 1"):
            steps_of(trainer, log)
    assert trainer.step == 0
    assert values[1] != values[2]  # the seed counts


def test_replicas_of_all_workers_share_the_batch(tmp_path, monkeypatch):
    """A dry run counts the other workers without connecting to them."""

    def new_trainer():
        settings = {"train_batch_size": 12, "gradient_accumulation_steps": 3}
        return make_trainer(tmp_path, make_task(), replicas=2, **settings)

    monkeypatch.setattr(trainer_module, "num_workers", lambda: 2)
    assert new_trainer().replicas == 4
    monkeypatch.setattr(trainer_module, "num_workers", lambda: 3)
    with pytest.raises(ValueError, match=r"`train_batch_size`.* 18 .*Received: 12"):
        new_trainer()


@pytest.mark.slow
def test_step_is_traced_for_each_length_on_tpus(tmp_path, monkeypatch):
    """TPUStrategy would pad dynamic shapes to the full length."""
    monkeypatch.setattr(step, "is_tpu", lambda _: True)
    training = make_trainer(tmp_path, make_task()).train_step
    for length in (11, 7, 9, 7):
        columns = pretraining_columns(4, seed=0, length=length)
        batch = {name: tf.constant(values) for name, values in columns.items()}
        features = {name: tf.cast(v, tf.int32) for name, v in batch.items() if v.dtype == tf.int64}
        training({**batch, **features, "example_weights": tf.ones(4)})
    assert training.experimental_get_tracing_count() == 3


BAD_BATCH = 4  # read by step 5: after the checkpoint of step 3, and reported with step 6


class PoisonedTask(PretrainingTask):
    """One batch has a weight of NaN."""

    def _transform(self, seed):
        def poisoned(features, numbers):
            is_bad = tf.reduce_any(numbers[0] // tf.size(numbers, tf.int64) == BAD_BATCH)
            factor = tf.where(is_bad, math.nan, 1.0)
            return {**features, "masked_lm_weights": factor * features["masked_lm_weights"]}

        return poisoned


def test_a_step_without_masked_tokens_stops_with_advice(tmp_path):
    columns = pretraining_columns(21, seed=0)
    columns["masked_lm_weights"][1:] = 0  # the first record shows that the records are masked
    records = write_records(tmp_path / "records", columns)
    trainer = make_trainer(tmp_path, make_task(records), last_step=40)
    with pytest.raises(UserError, match=r"has no masked_lm_loss.*--nodo_whole_word_mask"):
        train(trainer)


def test_a_diverged_run_stops_with_advice_without_saving(tmp_path):
    records = write_records(tmp_path / "records", pretraining_columns(21, seed=0))
    trainer = make_trainer(tmp_path, make_task(records, kind=PoisonedTask), last_step=10)
    with pytest.raises(TrainingDivergedError, match=r"Step 5: loss=nan") as raised:
        train(trainer)
    for advice in (f"{tmp_path}/model.ckpt-3", "another `seed`", "`learning_rate`"):
        assert advice in str(raised.value)
    assert trainer.directory.newest().endswith("model.ckpt-3")
