"""Losses that become NaN or spike, and rollbacks."""

import json
import math
import shutil
from itertools import count

import pytest
import tensorflow as tf

from albert_tf.config import TrainerConfig
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.task import StreamIterator
from albert_tf.training.trainer import DivergenceGuard, TrainingDivergedError
from tests.small_records import pretraining_columns, write_records
from tests.small_training import (
    assert_same_state,
    forget_after,
    make_task,
    make_trainer,
    state_of,
    train,
)

STEPS = 10
ROLL_BACK = {"on_divergence": "rollback", "keep_checkpoint_max": 0}
BAD_BATCH = 4  # read by step 5: after the checkpoint of step 3, and reported with step 6


class PoisonedTask(PretrainingTask):
    """One batch has a weight of NaN."""

    bad_batches = (BAD_BATCH,)

    def _transform(self, seed):
        def poisoned(features, numbers):
            bad = tf.constant(self.bad_batches, tf.int64)
            is_bad = tf.reduce_any(numbers[0] // tf.size(numbers, tf.int64) == bad)
            factor = tf.where(is_bad, math.nan, 1.0)
            return {**features, "masked_lm_weights": factor * features["masked_lm_weights"]}

        return poisoned


class SkippingBatches(StreamIterator):
    """The batches of another iterator except three."""

    def __init__(self, batches, first):
        self.__dict__ = batches.__dict__
        self.first, self.numbers = first, count()

    def __next__(self):
        if next(self.numbers) == self.first:
            for _ in range(3):
                super().__next__()
        return super().__next__()


class SkippingTask(PretrainingTask):
    """The batches that the other task trains on after a rollback from step 6 to step 3."""

    def train_dataset(self, *settings):
        return SkippingBatches(super().train_dataset(*settings), first=3)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return write_records(
        tmp_path_factory.mktemp("records") / "records", pretraining_columns(21, seed=0)
    )


def metrics_of(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [(record["phase"], record["step"], record) for record in map(json.loads, lines)]


def test_stops_with_advice_without_saving(records, tmp_path):
    trainer = make_trainer(tmp_path, make_task(records, kind=PoisonedTask), STEPS)
    with pytest.raises(TrainingDivergedError, match=r"Step 5: loss=nan") as raised:
        train(trainer)
    for advice in (f"{tmp_path}/model.ckpt-3", "`on_divergence`=rollback", "`learning_rate`"):
        assert advice in str(raised.value)
    assert trainer.directory.newest().endswith("model.ckpt-3")


@pytest.fixture(scope="module")
def rolled_back(records, tmp_path_factory):
    """Returns task, folder and last state of a run with one rollback."""
    task, folder = make_task(records, kind=PoisonedTask), tmp_path_factory.mktemp("run")
    return task, folder, state_of(train(make_trainer(folder, task, STEPS, **ROLL_BACK)))


def test_rolls_back_and_skips_batches(records, rolled_back, tmp_path):
    _, folder, state = rolled_back
    assert_same_state(
        train(make_trainer(tmp_path, make_task(records, kind=SkippingTask), STEPS)), state
    )
    records_of_run = metrics_of(folder)
    assert [line[:2] for line in records_of_run] == [
        ("train", 2),
        ("train", 3),
        ("roll_back", 3),
        *(("train", step) for step in (4, 6, 8, 9, 10)),
    ]
    assert records_of_run[2][2]["roll_backs"] == 1
    assert records_of_run[2][2]["skipped_batches"] == 3
    description = json.loads((folder / "train_state/10.json").read_text())
    assert description["divergence"] == {"roll_backs": 1, "skipped_batches": 3}


@pytest.mark.slow
@pytest.mark.parametrize("kept", [3, 6])
def test_run_killed_around_a_rollback_resumes(rolled_back, tmp_path, kept):
    task, folder, state = rolled_back
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    forget_after(kept, tmp_path)
    assert_same_state(train(make_trainer(tmp_path, task, STEPS, **ROLL_BACK)), state)
    description = json.loads((tmp_path / "train_state/10.json").read_text())
    assert description["divergence"] == {"roll_backs": 1, "skipped_batches": 3}


@pytest.mark.slow
def test_stops_after_three_rollbacks(records, tmp_path):
    class AlwaysPoisonedTask(PoisonedTask):
        bad_batches = tuple(range(4, 50))

    task = make_task(records, kind=AlwaysPoisonedTask)
    with pytest.raises(TrainingDivergedError, match="diverged again after 3 rollbacks"):
        train(make_trainer(tmp_path, task, STEPS, on_divergence="rollback"))
    (record,) = (record for phase, _, record in metrics_of(tmp_path) if phase == "roll_back")
    assert (record["roll_backs"], record["step"]) == (3, 3)


def guard(**settings):
    return DivergenceGuard(TrainerConfig("-", **settings))


def problem_of(looks, losses, first=1):
    """Returns the first problem of steps with these losses and gradient norm 1."""
    found = (looks.problem(step, loss, 1.0) for step, loss in enumerate(losses, first))
    return next(filter(None, found), None)


class TestSpikes:
    LOSSES = (4.0, 3.0, 5.0, 4.5, 3.5) * 3  # median 4

    def test_loss_above_the_factor_is_a_spike(self):
        problem = problem_of(guard(max_loss_spike=2.0), [*self.LOSSES, 8.5], first=31)
        assert problem is not None
        assert problem.startswith("Step 46: loss=8.5 is more than 2 times the median")

    @pytest.mark.parametrize(("factor", "loss"), [(2.0, 7.9), (0.0, 1e9)])
    def test_smaller_losses_are_not_spikes(self, factor, loss):
        assert problem_of(guard(max_loss_spike=factor), [*self.LOSSES, loss]) is None

    def test_median_of_the_last_hundred_steps(self):
        looks = guard(max_loss_spike=2.0)
        assert problem_of(looks, [9.0] * 100 + [1.0] * 51) is None
        assert problem_of(looks, [2.5]) is not None

    def test_state_is_restored(self):
        first, second = guard(max_loss_spike=2.0), guard(max_loss_spike=2.0)
        problem_of(first, self.LOSSES)
        second.restore(json.loads(json.dumps(first.state())))
        assert problem_of(second, [8.5]) == problem_of(first, [8.5]) is not None

    def test_rollback_restores_earlier_losses(self):
        looks = guard(max_loss_spike=2.0, on_divergence="rollback")
        problem_of(looks, self.LOSSES)
        looks.saved()
        assert problem_of(looks, [7.9] * 30 + [9.0]) is None  # the median has risen
        looks.rolled_back(31)
        assert problem_of(looks, [9.0]) is not None


@pytest.mark.parametrize(("loss", "norm"), [(math.inf, 1.0), (1.0, math.nan)])
def test_non_finite_numbers_are_reported(loss, norm):
    assert guard().problem(8, loss, norm) == f"Step 8: loss={loss}, gradient_norm={norm}"
