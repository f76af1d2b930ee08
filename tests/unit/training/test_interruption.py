"""Signals while training: steps under way are saved, and the run goes on as if never stopped."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from albert_tf.data.tfrecord import RecordError
from albert_tf.training.evaluation import train_and_evaluate
from albert_tf.training.interruption import (
    Interruption,
    TrainingInterrupted,
    die_on_signals,
    end_on_signals,
    raise_if_interrupted,
)
from tests.full_disk import file_size_limit
from tests.programs import ROOT
from tests.small_records import damage_record, pretraining_columns, write_records
from tests.small_training import (
    PlainLog,
    assert_same_state,
    make_task,
    make_trainer,
    state_of,
    train,
)

STEPS = 8
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class SignallingLog(PlainLog):
    """Sends a signal to its own process, once, while a step runs."""

    signal_step, number = 4, signal.SIGTERM

    def advance(self, step):
        super().advance(step)
        if step == self.signal_step:
            self.signal_step = None
            signal.raise_signal(self.number)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return make_task(write_records(folder / "records", pretraining_columns(13, seed=0)))


@pytest.fixture(scope="module")
def unbroken(task, tmp_path_factory):
    return state_of(train(make_trainer(tmp_path_factory.mktemp("unbroken"), task, STEPS)))


def test_what_was_read_is_trained_on_and_saved_and_the_run_goes_on_bit_equal(
    task, unbroken, tmp_path
):
    handlers = [signal.getsignal(number) for number in SIGNALS]
    trainer = make_trainer(tmp_path, task, STEPS)
    with pytest.raises(TrainingInterrupted) as raised:
        train(trainer, SignallingLog)
    assert raised.value.code == 128 + signal.SIGTERM
    assert trainer.step == 5  # whose batch was read ahead; no multiple of save_checkpoints_steps
    assert trainer.directory.newest().endswith("model.ckpt-5")
    assert handlers == [signal.getsignal(number) for number in SIGNALS]
    assert_same_state(train(make_trainer(tmp_path, task, STEPS)), unbroken)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 3, 4, 5, 6, 8]
    for line in lines:
        assert line["examples_per_second"] / line["steps_per_second"] == pytest.approx(4.0)


def evaluated_steps(folder, task, log_type, last_evaluated=-1, during=lambda: None):
    """Trains and evaluates; returns which steps, and the trainer."""
    trainer = make_trainer(folder, task, STEPS)
    trainer.initialize()
    log = log_type(str(folder), STEPS, trainer.step)
    steps = []

    def evaluate():
        during()
        return {"score": 1.0}

    def record(step, results):
        steps.append(step)

    try:
        train_and_evaluate(trainer, log, evaluate, record, last_evaluated)
    except TrainingInterrupted:
        pass
    finally:
        log.close()
    return steps, trainer


@pytest.mark.slow
@pytest.mark.parametrize("step", [6, 4])
def test_no_evaluation_starts_after_a_signal(task, tmp_path, step):
    """At step 6 a checkpoint is due anyway; that of step 5 is never to be evaluated."""

    class Log(SignallingLog):
        signal_step = step

    assert evaluated_steps(tmp_path, task, Log)[0] == [3]
    # What was left out is made up for.
    assert evaluated_steps(tmp_path, task, PlainLog, last_evaluated=3)[0] == [6, 8]


def test_an_evaluation_is_left_at_once(task, tmp_path):
    ended = []

    def during():
        signal.raise_signal(signal.SIGHUP)
        raise_if_interrupted()
        ended.append(True)

    steps, trainer = evaluated_steps(tmp_path, task, PlainLog, during=during)
    assert (steps, ended, trainer.step) == ([], [], 3)
    assert trainer.directory.newest().endswith("model.ckpt-3")


def test_the_second_signal_does_what_it_always_did(monkeypatch):
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
def test_an_ignored_signal_stays_ignored(number):
    """As SIGINT is in the background of a script, and SIGHUP below nohup."""
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
def test_a_signal_ends_a_command_at_once(number):
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


def test_ctrl_c_raises_what_it_would_have_raised():
    """Python's own handler KeyboardInterrupt, that of a command SystemExit."""
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
    assert isinstance(interruption.stopped(3), KeyboardInterrupt)
    with end_on_signals(), Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
    assert interruption.stopped(3).code == 128 + signal.SIGINT


@pytest.mark.slow
def test_skipped_records_are_counted_and_remembered_over_a_stop(tmp_path):
    """Resuming leaves out what the unbroken run leaves out, and goes on counting."""
    file = write_records(tmp_path / "records", pretraining_columns(30, seed=0))
    damage_record(file, number=25)
    task = make_task(file, skip_damaged_records=True)
    expected = state_of(train(make_trainer(tmp_path / "unbroken", task, STEPS)))
    with pytest.raises(TrainingInterrupted):
        train(make_trainer(tmp_path / "run", task, STEPS), SignallingLog)
    assert_same_state(train(make_trainer(tmp_path / "run", task, STEPS)), expected)
    for run in ("unbroken", "run"):
        lines = (tmp_path / run / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["skipped_records"] == 1
        description = json.loads((tmp_path / run / "train_state/8.json").read_text())
        assert description["skipped_records"] == [f"{file}\t25\t-1"]


@pytest.mark.slow
@pytest.mark.parametrize("skips_damaged", [False, True])
def test_records_that_are_removed_end_the_run_with_their_name(tmp_path, skips_damaged):
    (tmp_path / "[of the *]").mkdir()
    files = [
        write_records(tmp_path / "[of the *]" / f"records{seed}", pretraining_columns(9, seed=seed))
        for seed in (0, 1)
    ]

    class RemovingAtStepFour(PlainLog):
        def advance(self, step):
            super().advance(step)
            if step == 4 and files[1].exists():
                files[1].rename(tmp_path / "away")

    task = make_task(*files, skip_damaged_records=skips_damaged)
    trainer = make_trainer(tmp_path / "run", task, 40)
    with pytest.raises(RecordError) as raised:
        train(trainer, RemovingAtStepFour)
    assert str(files[1]) in str(raised.value)
    assert 4 <= trainer.step < 40
    assert trainer.directory.newest().endswith(f"model.ckpt-{trainer.step}")
    (tmp_path / "away").rename(files[1])
    trainer = train(make_trainer(tmp_path / "run", task, trainer.step + 2))
    assert trainer.directory.newest().endswith(f"model.ckpt-{trainer.step}")


def test_a_full_disk_ends_the_run_with_a_message_and_loses_nothing(task, unbroken, tmp_path):
    class FullFromStepFive(PlainLog):
        def advance(self, step):
            super().advance(step)
            if step == 5:
                limit.enter_context(file_size_limit(5000))

    with pytest.raises(OSError, match="keep_checkpoint_max") as raised, ExitStack() as limit:
        train(make_trainer(tmp_path, task, STEPS), FullFromStepFive)
    assert str(tmp_path) in str(raised.value)
    assert_same_state(train(make_trainer(tmp_path, task, STEPS)), unbroken)
