"""The best checkpoint, the evaluator, and the file of results."""

import json
import math
import signal

import pytest
import tensorflow as tf

from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import evaluation
from albert_tf.training.cluster import Workers
from albert_tf.training.evaluation import (
    BestCheckpoint,
    Evaluator,
    comparable_evaluation,
    scored_result,
)
from albert_tf.training.interruption import Interruption, TrainingInterrupted
from albert_tf.training.run_records import new_record, to_line, write_evaluation
from albert_tf.training.strategies import create_strategy
from albert_tf.training.training_directory import TrainingDirectory
from tests.full_disk import record_writes
from tests.small_model import ONE_BLOCK, small_config
from tests.small_records import pretraining_columns, write_records
from tests.small_training import make_task

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module")
def model():
    return AlbertForPretraining(small_config(**ONE_BLOCK))


@pytest.fixture
def directory(tmp_path):
    return TrainingDirectory(str(tmp_path))


def stored_step(directory):
    return int(tf.train.load_checkpoint(directory.best()).get_tensor("global_step"))


def evaluated(step, accuracy):
    return {"step": step, "phase": "eval", "time": "today", "accuracy": accuracy, "loss": 2.0}


@pytest.mark.parametrize(
    ("best_step", "history", "reported", "expected"),
    [
        # On other data, another checkpoint is better.
        (5, [evaluated(5, 0.1), evaluated(10, 0.2)], None, (5, 0.1)),
        # Only the score of the best checkpoint is known.
        (5, [evaluated(10, 0.4)], [], (5, 0.75)),
        (5, [evaluated(10, 0.1), evaluated(15, 0.2)], None, (5, 0.75)),
        # Earlier calls may have evaluated other data.
        (-1, [evaluated(5, 0.5), evaluated(10, 0.1)], [evaluated(10, 0.1)], (10, 0.1)),
        (-1, [evaluated(5, math.nan), evaluated(10, 0.1)], None, (10, 0.1)),
        (-1, [evaluated(5, 0.5)], [], None),
    ],
)
def test_result_contains_the_scores_of_the_best_checkpoint(
    directory, best_step, history, reported, expected
):
    best = BestCheckpoint(directory, "accuracy")
    best.step, best.value = best_step, 0.75
    result = scored_result(best, history, history if reported is None else reported)
    assert (result.output_dir, result.history) == (directory.path, history)
    if expected is None:
        assert (result.step, result.scores) == (None, {})
        return
    step, accuracy = expected
    assert result.step == step
    assert result.scores["accuracy"] == pytest.approx(accuracy, abs=0, nan_ok=True)
    assert not {"step", "phase", "time"} & result.scores.keys()


class TestBestCheckpoint:
    def test_has_the_best_score_of_all_starts(self, directory, model, tmp_path):
        """Of equal scores, the lower loss is better; of equal losses, the later step."""
        for step, accuracy, loss, best_trial in (
            (5, 0.25, 1.0, "5:5:0.25"),
            (10, 0.5, 1.0, "10:10:0.5"),
            (15, 0.5, 0.75, "15:15:0.5"),
            (20, 0.5, 0.875, "20:15:0.5"),
            (25, 0.5, math.nan, "25:15:0.5"),
            (30, 0.5, 0.75, "30:30:0.5"),
            (35, 0.25, 0.5, "35:30:0.5"),
            (30, 0.5, 0.75, "30:30:0.5"),  # evaluated again
            (15, 0.5, 0.75, "15:30:0.5"),
        ):
            results = {"accuracy": accuracy, "eval_loss": loss, "loss": 2.0}
            best = BestCheckpoint(directory, "accuracy")
            is_best = best.update_if_better(step, results, model)
            with (tmp_path / "metrics.jsonl").open("a") as file:
                file.write(to_line(new_record("eval", step, results)))
            assert (tmp_path / "best_trial.txt").read_text() == best_trial
            assert is_best == (best.step == step)
        again = BestCheckpoint(directory, "accuracy")
        assert (again.last_step, again.step, again.value) == (15, 30, 0.5)
        assert stored_step(directory) == 30

    def test_scores_are_on_disk_before_the_step_counts_as_evaluated(
        self, directory, model, tmp_path, monkeypatch
    ):
        best, metrics = BestCheckpoint(directory, "accuracy"), tmp_path / "metrics.jsonl"
        metrics.touch()
        for accuracy in (0.5, 0.25):  # also if no checkpoint is written
            with monkeypatch.context() as patch:
                events = record_writes(patch)
                best.update_if_better(5, {"accuracy": accuracy}, model)
            replaced = events.index(("replace", (tmp_path / "best_trial.txt").stat().st_ino))
            assert ("fsync", metrics.stat().st_ino) in events[:replaced]

    def test_later_step_is_better_if_the_best_loss_is_unknown(self, directory, model):
        for step in (5, 10):
            best = BestCheckpoint(directory, "accuracy")
            assert best.update_if_better(step, {"accuracy": 0.5, "loss": step}, model)

    def test_nan_is_the_worst_score(self, directory, model, tmp_path):
        """Lower errors are better. Without a number, the loss decides."""
        for step, error in ((5, math.nan), (10, 2.5), (15, 0.5), (20, 1.0)):
            best = BestCheckpoint(directory, "RMSE", is_chosen=True)
            best.update_if_better(step, {"RMSE": error}, model)
        assert (tmp_path / "best_trial.txt").read_text() == "20:15:0.5:RMSE"
        best = BestCheckpoint(directory, "accuracy")
        for step, loss in ((5, 1.0), (10, 0.5), (15, 0.75)):
            best.update_if_better(step, {"accuracy": math.nan, "loss": loss}, model)
        assert (tmp_path / "best_trial.txt").read_text() == "15:10:-inf"
        best = BestCheckpoint(directory, "accuracy")
        best.update_if_better(20, {"accuracy": 0.0, "loss": 9.0}, model)
        assert stored_step(directory) == 20

    def test_replaces_a_checkpoint_chosen_by_another_score(self, directory, model, tmp_path):
        BestCheckpoint(directory, "f1").update_if_better(5, {"f1": 60.0}, model)
        best = BestCheckpoint(directory, "char_f1")
        assert (best.last_step, best.step, best.value) == (5, -1, -math.inf)
        best.update_if_better(10, {"f1": 20.0, "char_f1": 40.0}, model)
        assert (tmp_path / "best_trial.txt").read_text() == "10:10:40.0:char_f1"
        again = BestCheckpoint(directory, "char_f1")
        assert (again.last_step, again.step, again.value) == (10, 10, 40.0)
        assert BestCheckpoint(directory, "f1").step == -1
        assert stored_step(directory) == 10

    def test_damaged_file_is_named(self, directory, model, tmp_path):
        BestCheckpoint(directory, "accuracy").update_if_better(5, {"accuracy": 0.5}, model)
        for content in (b"", b"5:5:0.5:accuracy:more", b"5:5:\xff", b"5:" + b"9" * 5000 + b":0.5"):
            (tmp_path / "best_trial.txt").write_bytes(content)
            with pytest.raises(ValueError, match=r"best_trial\.txt"):
                BestCheckpoint(directory, "accuracy")

    def test_starts_again_if_the_checkpoint_is_missing(self, directory, model, tmp_path):
        BestCheckpoint(directory, "accuracy").update_if_better(5, {"accuracy": 0.5}, model)
        (tmp_path / "model.ckpt-best.index").unlink()
        BestCheckpoint(directory, "accuracy").update_if_better(10, {"accuracy": 0.125}, model)
        assert stored_step(directory) == 10


def test_batch_must_be_a_multiple_of_replicas(model):
    task = PretrainingTask(model.config, max_seq_length=11)
    with pytest.raises(ValueError, match=r"`eval_batch_size`.* 2 .*Received: 7"):
        Evaluator(task, model, create_strategy("mirrored"), batch_size=7)


class TestEvaluator:
    """Evaluations of 11 examples in batches of 4."""

    @pytest.fixture(scope="class")
    def task(self, model, tmp_path_factory):
        path = tmp_path_factory.mktemp("evaluation") / "records"
        write_records(path, pretraining_columns(11, seed=3))
        return make_task(eval_files=[str(path)], config=model.config)

    @pytest.fixture(scope="class")
    def evaluator(self, task, model):
        return Evaluator(task, model, create_strategy("one_device"), 4, splits_over_workers=True)

    @pytest.fixture(scope="class")
    def expected(self, evaluator):
        return evaluator.evaluate()

    def test_stops_between_batches_after_a_signal(self, task, evaluator, monkeypatch):
        data, taken = list(task.eval_dataset(4)), []

        def batches(batch_size):
            for batch in data:
                taken.append(batch)
                yield batch
                signal.raise_signal(signal.SIGTERM)

        monkeypatch.setattr(task, "eval_dataset", batches)
        with pytest.raises(TrainingInterrupted), Interruption() as i, i.evaluation(3):
            evaluator.evaluate()
        assert len(taken) == 2

    def test_rejects_workers_with_other_examples(self, evaluator, monkeypatch):
        class TwoWorkers(Workers):
            rank, size = 0, 2

            def __init__(self, strategy):
                """Connects to no other worker."""

            def gather(self, value):
                return [value, value + 1]

        monkeypatch.setattr(evaluation, "Workers", TwoWorkers)
        with pytest.raises(
            ValueError, match="number of evaluation batches is 3 in worker 0, but 4"
        ):
            evaluator.evaluate()

    @pytest.mark.usefixtures("traced")
    def test_compiled_results_are_equal(self, task, model, expected):
        strategy = create_strategy("one_device")
        compiled = Evaluator(task, model, strategy, 4, jit_compile=True).evaluate()
        assert compiled.keys() == expected.keys()
        for name, value in expected.items():
            assert compiled[name] == pytest.approx(value, rel=1e-5), name


class TestComparableEvaluation:
    def test_other_data_discard_the_best_score(self, directory, model, tmp_path, caplog):
        best = BestCheckpoint(directory, "accuracy")
        first = {"digest": "a", "metric": "accuracy"}
        assert comparable_evaluation(best, None) == {}
        evaluation = comparable_evaluation(best, first)
        write_evaluation(directory.path, evaluation)
        best.update_if_better(5, {"accuracy": 0.75}, model)
        (tmp_path / "model.ckpt-7.index").touch()
        assert comparable_evaluation(best, first) == comparable_evaluation(best, None) == evaluation
        # Other versions may describe evaluations with fewer keys.
        assert comparable_evaluation(best, {**first, "new": 3}) == {**evaluation, "new": 3}
        assert best.value == 0.75
        other = {**first, "digest": "b"}
        assert comparable_evaluation(best, other, is_over=True) == {**other, "after_step": -1}
        assert (best.step, best.value, best.is_comparable) == (5, 0.75, False)
        assert not caplog.messages
        result = scored_result(best, [], [])
        assert (result.step, result.scores) == (5, {})
        by_another_metric = BestCheckpoint(directory, "char_f1")  # named in best_trial.txt
        caplog.clear()
        comparable_evaluation(by_another_metric, {**first, "metric": "char_f1"}, is_over=True)
        assert scored_result(by_another_metric, [], []).step is None
        assert comparable_evaluation(best, other) == {**other, "after_step": 7}
        assert (best.step, best.value) == (-1, -math.inf)
        assert "step 5) was selected by another evaluation: evaluation.digest" in caplog.text
        assert BestCheckpoint(directory, "accuracy").step == -1

    def test_the_other_settings_of_the_run_are_kept(self, tmp_path):
        path = tmp_path / "run_config.json"
        path.write_text('{"time": "now", "config": {"seed": 3, "evaluation": {"digest": "a"}}}')
        write_evaluation(str(tmp_path), {"digest": "b"})
        config = {"seed": 3, "evaluation": {"digest": "b"}}
        assert json.loads(path.read_text()) == {"time": "now", "config": config}
