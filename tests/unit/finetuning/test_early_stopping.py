"""Training ends after N evaluations without a better score, also if it is resumed."""

import dataclasses
import math

import pytest

import albert_tf
from albert_tf.classification.run import ClassifierJob
from albert_tf.training.training_directory import TrainingDirectory
from tests.classifier_run import ClassifierRun
from tests.programs import start_workers
from tests.small_training import replace_evaluations
from tests.squad_run import SquadRun

# Score and loss by step. Step 6 is the third step in a row that is not better.
SCORES = {1: (0.25, 1), 2: (0.5, 2), 3: (0.5, 1), 4: (0.5, 1), 5: (math.nan, 0), 6: (0.375, 0)}
SCORES |= {7: (0.75, 1), 8: (0.5, 1)}
FLAGS = {"do_train": True, "do_eval": True, "save_checkpoints_steps": 1, "train_step": 8}


@pytest.fixture
def small(tmp_path, golden, monkeypatch):
    """Returns a classifier with the scores `SCORES`, whose training steps do nothing."""

    def evaluate(job):
        newest = TrainingDirectory(job.settings.output_dir).newest()
        accuracy, loss = SCORES[int(newest.rsplit("-", 1)[1])]
        return {"eval_accuracy": accuracy, "eval_loss": float(loss), "loss": 1.0}

    replace_evaluations(monkeypatch, ClassifierJob, evaluate)
    return ClassifierRun(tmp_path, golden)


def steps_of(result):
    return [record["step"] for record in result.history]


def test_a_resumed_run_ends_at_the_same_step(small, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    settings = albert_tf.ClassificationSettings(**small.flags(**FLAGS, early_stopping=3))
    unbroken = albert_tf.run_classification(settings)
    assert steps_of(unbroken) == [1, 2, 3, 4, 5, 6]
    assert (unbroken.step, unbroken.scores["eval_accuracy"]) == (4, 0.5)
    text = (
        "Early stopping at step 6: 3 evaluations without a better eval_accuracy than 0.5 at step 4"
    )
    assert text in caplog.text

    def breaks(record):  # called after scores are logged, before they are compared with the best
        if record["step"] == 4:
            raise RuntimeError("broken")

    broken = dataclasses.replace(settings, output_dir=str(tmp_path / "broken"))
    with pytest.raises(RuntimeError, match="broken"):
        albert_tf.run_classification(broken, breaks)
    resumed = albert_tf.run_classification(broken)
    assert steps_of(resumed) == [1, 2, 3, 4, 5, 6]
    assert (resumed.step, resumed.scores) == (unbroken.step, unbroken.scores)

    logged = []
    again = albert_tf.run_classification(settings, logged.append)
    assert logged == []
    assert again == unbroken
    patient = albert_tf.run_classification(dataclasses.replace(settings, early_stopping=4))
    assert (patient.step, steps_of(patient)[-1]) == (7, 8)


@pytest.mark.parametrize(
    ("kind", "settings", "job", "needed"),
    [
        (ClassifierRun, albert_tf.ClassificationSettings, albert_tf.run_classification, "do_eval"),
        (SquadRun, albert_tf.SquadSettings, albert_tf.run_squad, "predict_file"),
    ],
)
def test_early_stopping_needs_evaluations(kind, settings, job, needed, tmp_path, golden):
    flags = kind(tmp_path, golden).flags(do_train=True, early_stopping=2)
    with pytest.raises(ValueError, match=f"`early_stopping`=2 .*`{needed}`"):
        job(settings(**flags))
    assert not (tmp_path / "output").exists()


@pytest.mark.slow
def test_two_workers_end_at_the_same_step(tmp_path, golden):
    """With a learning rate near 0, no evaluation is better than the first."""
    small = ClassifierRun(tmp_path, golden)
    flags = small.flags(**{**FLAGS, "train_batch_size": 6, "learning_rate": 1e-30})
    flags["early_stopping"] = 2
    workers = start_workers(small.script, tmp_path, flags)
    results = [worker.wait() for worker in workers]
    assert [result.code for result in results] == [0, 0], results
    rates = [record["learning_rate"] for record in small.metrics("train").values()]
    assert rates == pytest.approx([0.0, 1e-30 * 6 / 7, 1e-30 * 5 / 7])
    assert [*small.metrics("eval")] == [1, 2, 3]
    again = [worker.wait() for worker in start_workers(small.script, tmp_path, flags)]
    assert [result.code for result in again] == [0, 0], again
    assert "Early stopping at step 3" in again[0].output
