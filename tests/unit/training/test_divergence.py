"""Losses and gradients that become NaN or infinite."""

import math

import pytest
import tensorflow as tf

from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.trainer import TrainingDivergedError
from tests.small_records import pretraining_columns, write_records
from tests.small_training import make_task, make_trainer, train

BAD_BATCH = 4  # read by step 5: after the checkpoint of step 3, and reported with step 6


class PoisonedTask(PretrainingTask):
    """One batch has a weight of NaN."""

    def _transform(self, seed):
        def poisoned(features, numbers):
            is_bad = tf.reduce_any(numbers[0] // tf.size(numbers, tf.int64) == BAD_BATCH)
            factor = tf.where(is_bad, math.nan, 1.0)
            return {**features, "masked_lm_weights": factor * features["masked_lm_weights"]}

        return poisoned


def test_stops_with_advice_without_saving(tmp_path):
    records = write_records(tmp_path / "records", pretraining_columns(21, seed=0))
    trainer = make_trainer(tmp_path, make_task(records, kind=PoisonedTask), last_step=10)
    with pytest.raises(TrainingDivergedError, match=r"Step 5: loss=nan") as raised:
        train(trainer)
    for advice in (f"{tmp_path}/model.ckpt-3", "another `seed`", "`learning_rate`"):
        assert advice in str(raised.value)
    assert trainer.directory.newest().endswith("model.ckpt-3")
