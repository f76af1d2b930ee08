"""Training ends after N evaluations without a better score, also if it is resumed."""

import math

import numpy as np
import pytest

from albert_tf.classification.run import ClassifierJob
from albert_tf.training.training_directory import TrainingDirectory
from tests.choice_run import ChoiceRun
from tests.classifier_run import ClassifierRun
from tests.programs import start_workers
from tests.small_training import replace_evaluations
from tests.squad_run import SquadRun
from tests.token_run import TokenRun

pytestmark = pytest.mark.usefixtures("eager")

# Score and loss by step. Step 6 is the third step in a row that is not better.
SCORES = {1: (0.25, 1), 2: (0.5, 2), 3: (0.5, 1), 4: (0.5, 1), 5: (math.nan, 0), 6: (0.375, 0)}
SCORES |= {7: (0.75, 1), 8: (0.5, 1), 9: (0.25, 9)}
METRICS = {ClassifierRun: "eval_loss", SquadRun: "exact_match"}
STEPS = {"save_checkpoints_steps": 1, "train_step": 8}


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
    settings = {**STEPS, "early_stopping": 3}
    unbroken = small.here(**settings)
    assert steps_of(unbroken) == [1, 2, 3, 4, 5, 6]
    assert (unbroken.step, unbroken.scores["eval_accuracy"]) == (4, 0.5)
    text = (
        "Early stopping at step 6: 3 evaluations without a better eval_accuracy than 0.5 at step 4"
    )
    assert text in caplog.text

    def breaks(record):  # called after scores are logged, before they are compared with the best
        if record["step"] == 4:
            raise RuntimeError("broken")

    broken = {**settings, "output_dir": tmp_path / "broken"}
    with pytest.raises(RuntimeError, match="broken"):
        small.here(breaks, **broken)
    resumed = small.here(**broken)
    assert steps_of(resumed) == [1, 2, 3, 4, 5, 6]
    assert (resumed.step, resumed.scores) == (unbroken.step, unbroken.scores)

    logged = []
    assert small.here(logged.append, **settings) == unbroken
    assert logged == []
    patient = small.here(**{**settings, "early_stopping": 4})
    assert (patient.step, steps_of(patient)[-1]) == (7, 8)


def test_constant_predictions_are_reported_once(small, monkeypatch, caplog):
    evaluate = ClassifierJob.evaluate

    def evaluate_constant(job):
        job.evaluated = np.zeros(12, int), np.arange(12) % 2
        return evaluate(job)

    monkeypatch.setattr(ClassifierJob, "evaluate", evaluate_constant)
    small.here(**STEPS)
    assert caplog.text.count("100% of 12 predictions are 'bad'") == 1


def test_the_setting_selects_the_best_checkpoint(small, tmp_path, caplog):
    """Of losses, the lowest is best. NaN and overflows are not."""
    found = small.here(**STEPS, best_metric="eval_loss")
    assert (found.step, found.scores["eval_loss"]) == (6, 0.0)
    assert (small.output / "best_trial.txt").read_text() == "8:6:0.0:eval_loss"
    again = small.here(**{**STEPS, "train_step": 9})
    assert "best checkpoint was not selected by eval_accuracy" in caplog.text
    assert again.step == 9


@pytest.mark.parametrize(
    ("kind", "valid"),
    [
        (ClassifierRun, "eval_accuracy, eval_loss, f1_bad, f1_fine, f1_macro, f1_so, so, matt.*"),
        (SquadRun, "exact_match, f1"),
        (ChoiceRun, "eval_accuracy, eval_loss"),
        (TokenRun, "eval_accuracy, eval_loss, f1, f1_animal, .*, precision, .*, recall_place"),
    ],
)
def test_unknown_metrics_are_rejected_before_writing(kind, valid, tmp_path, golden):
    expected = f"`best_metric` must be one of {valid}. Received: 'F1'"
    with pytest.raises(ValueError, match=expected):
        kind(tmp_path, golden).here(best_metric="F1")
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("kind", "needed"), [(ClassifierRun, "do_eval"), (SquadRun, "predict_file")]
)
def test_early_stopping_needs_evaluations(kind, needed, tmp_path, golden):
    small = kind(tmp_path, golden)
    for name, value in (("early_stopping", 2), ("best_metric", METRICS[kind])):
        with pytest.raises(ValueError, match=f"`{name}`={value} .*`{needed}`"):
            small.here(**{small.actions[1]: False, name: value})
    assert not (tmp_path / "output").exists()


@pytest.mark.slow
def test_two_workers_end_at_the_same_step(tmp_path, golden):
    """With a learning rate near 0, no evaluation is better than the first."""
    small = ClassifierRun(tmp_path, golden)
    flags = small.flags(
        **{
            **STEPS,
            "do_train": True,
            "do_eval": True,
            "train_batch_size": 6,
            "learning_rate": 1e-30,
        }
    )
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
