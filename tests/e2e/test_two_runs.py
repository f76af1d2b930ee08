"""Two runs in one output directory."""

import signal
import socket
import time

import pytest

from tests.classifier_run import ClassifierRun
from tests.pretraining_run import PretrainingRun
from tests.programs import TIMEOUT
from tests.run_in_process import assert_unchanged, tree

ENDLESS = 10**6
WATCHING = {
    **{"do_train": False, "do_eval": True, "eval_checkpoint": "all"},
    **{"num_train_steps": ENDLESS, "watch_secs": TIMEOUT},
}


def stop_at(program, path):
    """Suspends a program, which keeps its locks, once it has written a file."""
    while not path.exists():
        assert program.is_running(), program.wait().output
        time.sleep(0.01)
    program.send(signal.SIGSTOP)


def error_of(program):
    """Returns the one-line error of a program."""
    result = program.wait()
    assert result.code == 1, result.output
    assert "Traceback" not in result.output
    (error,) = [line for line in result.output.splitlines() if line.startswith("error: ")]
    return error


def assert_rejected(program, first):
    assert f"host={socket.gethostname()} pid={first.pid} " in error_of(program)


@pytest.mark.slow
def test_one_training_and_one_evaluation_at_a_time(tmp_path):
    run = PretrainingRun(tmp_path)
    training = run.start(num_train_steps=ENDLESS, save_checkpoints_steps=50)
    stop_at(training, run.output / "checkpoint")
    before = tree(run.output)
    assert_rejected(run.start(), training)
    assert_rejected(run.start(dry_run=True), training)
    assert_unchanged(run.output, before)
    watching = run.start(**WATCHING)  # in parallel with the training
    stop_at(watching, run.output / "best_trial.txt")
    assert_rejected(run.start(**WATCHING), watching)
    for program in (training, watching):
        program.send(signal.SIGCONT)
        program.kill()
        program.wait()


@pytest.mark.slow
def test_a_second_fine_tuning_run_is_rejected_but_prediction_is_not(tmp_path, golden):
    run = ClassifierRun(tmp_path, golden)
    training = run.start(do_train=True, do_eval=True, train_step=ENDLESS)
    stop_at(training, run.output / "best_trial.txt")
    assert_rejected(run.start(do_train=True, do_predict=True), training)
    assert_rejected(run.start(do_train=True, dry_run=True), training)
    assert_rejected(run.start(do_eval=True), training)  # the training also evaluates
    run.must_work(do_predict=True, export_dir=tmp_path / "export")
    training.kill()
    training.wait()
    run.must_work(do_eval=True)
