"""Signals during training: the current steps are saved, and the run can be resumed."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, suppress

import pytest

from albert_tf.training.interruption import (
    Interruption,
    TrainingInterrupted,
    die_on_signals,
    end_on_signals,
)
from albert_tf.training.run_log import RunLog
from tests.full_disk import file_size_limit
from tests.programs import ROOT
from tests.small_records import pretraining_columns, write_records
from tests.small_training import (
    SignallingLog,
    assert_same_state,
    make_task,
    make_trainer,
    restarted,
    state_of,
    train,
)

STEPS = 8
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return make_task(write_records(folder / "records", pretraining_columns(13, seed=0)))


@pytest.fixture(scope="module")
def uninterrupted(task, tmp_path_factory):
    """Returns the trainer of an uninterrupted run, its first state and its last state."""
    trainer = make_trainer(tmp_path_factory.mktemp("uninterrupted"), task, STEPS)
    first = state_of(trainer)
    return trainer, first, state_of(train(trainer))


def test_interrupted_run_is_saved_and_resumes_bit_equal(uninterrupted, tmp_path):
    handlers = [signal.getsignal(number) for number in SIGNALS]
    trainer, first, last = uninterrupted
    trainer = restarted(trainer, tmp_path, first)
    with pytest.raises(TrainingInterrupted) as raised:
        train(trainer, SignallingLog)
    assert raised.value.code == 128 + signal.SIGTERM
    assert trainer.step == 5  # its batch was read ahead
    assert trainer.directory.newest().endswith("model.ckpt-5")
    assert handlers == [signal.getsignal(number) for number in SIGNALS]
    assert_same_state(train(restarted(trainer, tmp_path)), last)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 3, 4, 5, 6, 8]
    for line in lines:
        assert line["examples_per_second"] / line["steps_per_second"] == pytest.approx(4.0)


def evaluated_steps(trainer, log_type):
    """Trains; returns the steps of the checkpoints that would be evaluated."""
    trainer.initialize()
    steps = []
    with (
        closing(log_type(trainer.config.output_dir, STEPS, trainer.step)) as log,
        closing(trainer.checkpoints(log)) as checkpoints,
        suppress(TrainingInterrupted),
    ):
        for step in checkpoints:
            steps += [step] * trainer.is_checkpoint(step)
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("step", [6, 4])
def test_no_evaluation_starts_after_a_signal(uninterrupted, tmp_path, step):
    """At step 6 a checkpoint is due; the checkpoint of step 5 is never evaluated."""

    class Log(SignallingLog):
        signal_step = step

    trainer, first, _ = uninterrupted
    assert evaluated_steps(restarted(trainer, tmp_path, first), Log) == [3]
    # The skipped evaluation follows after resuming.
    assert evaluated_steps(restarted(trainer, tmp_path), RunLog) == [6, 8]


def test_second_signal_calls_the_earlier_handler(monkeypatch):
    received = []
    earlier = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGTERM)
            assert (interruption.signal, received) == (signal.SIGTERM, [])
            signal.raise_signal(signal.SIGTERM)
            assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, earlier)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ignored_signals_stay_ignored(number):
    """SIGINT is ignored in background jobs of scripts, SIGHUP with nohup."""
    earlier = signal.signal(number, signal.SIG_IGN)
    try:
        with end_on_signals(), Interruption() as interruption:
            signal.raise_signal(number)
            assert interruption.signal is None
            with die_on_signals():
                signal.raise_signal(number)
    finally:
        signal.signal(number, earlier)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_ends_a_command_at_once(number):
    program = (
        "import os, signal, sys\n"
        "from albert_tf.training.interruption import end_on_signals\n"
        "with end_on_signals():\n"
        "    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # as while TensorFlow is imported\n"
        "    try: signal.raise_signal(int(sys.argv[1]))\n"
        "    finally: print('not reached', flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(int(number))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + number, "")
    (line,) = done.stderr.split("\n")[1:-1]
    assert line.startswith(number.name)


def test_full_disk_ends_the_run_without_losing_steps(uninterrupted, tmp_path):
    class FullFromStepFive(RunLog):
        def advance(self, step, results=()):
            super().advance(step, results)
            if step == 5:
                limit.enter_context(file_size_limit(5000))

    trainer, first, last = uninterrupted
    trainer = restarted(trainer, tmp_path, first)
    with pytest.raises(OSError, match="keep_checkpoint_max") as raised, ExitStack() as limit:
        train(trainer, FullFromStepFive)
    assert str(tmp_path) in str(raised.value)
    assert_same_state(train(restarted(trainer, tmp_path)), last)
