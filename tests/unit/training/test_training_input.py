"""Input that is read ahead, and several steps per call."""

import json
import threading
from contextlib import contextmanager

import pytest
import tensorflow as tf

from albert_tf.training.interruption import TrainingInterrupted
from albert_tf.training.trainer import TrainingInput
from tests.programs import TIMEOUT
from tests.small_records import pretraining_columns, write_records
from tests.small_training import (
    SignallingLog,
    assert_same_state,
    make_task,
    make_trainer,
    state_of,
    train,
)


def threads():
    return [one for one in threading.enumerate() if one.name.startswith("training_input")]


def numbers(batches):
    return [int(batch["number"]) for batch in batches]


@pytest.fixture
def source():
    source = TrainingInput(({"number": tf.constant(n)} for n in range(9)), {})
    yield source
    source.close()
    assert not threads()


def test_order_of_batches_that_were_read_ahead(source):
    assert source.take(1, numbers) == [0]
    source.read_ahead(3, numbers)
    assert source.is_ahead
    assert source.take(3, numbers) == [1, 2, 3]
    assert not source.is_ahead


def test_reading_ahead_has_its_own_thread(source):
    seen, called = [], threading.Event()

    def prepare(batches):
        seen.append(threading.current_thread())
        called.set()
        return numbers(batches)

    source.read_ahead(1, prepare)
    assert called.wait(TIMEOUT)
    assert source.take(1, prepare) == [0]
    assert seen[0] is not threading.current_thread()


def test_read_errors_are_raised_by_take(source):
    assert source.take(8, numbers) == list(range(8))
    source.read_ahead(2, numbers)  # one is left
    assert not source.is_broken
    with pytest.raises(StopIteration):
        source.take(2, numbers)
    assert source.is_broken


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return make_task(write_records(folder / "records", pretraining_columns(13, seed=0)))


# Checkpoints are due after 3, 6 and 8. Step s + 1 transmits the signal to the workers. Step s + 2
# was already read, unless a checkpoint is due.
STOPS = {1: 3, 3: 3, 4: 6, 8: 8}


@pytest.mark.slow
@pytest.mark.parametrize(("step", "stop"), STOPS.items())
def test_workers_stop_at_the_same_step(task, tmp_path, step, stop):
    class Log(SignallingLog):
        signal_step = step

    trainer = make_trainer(tmp_path, task, 8)
    trainer._is_alone = False
    with pytest.raises(TrainingInterrupted):
        train(trainer, Log)
    assert trainer.step == stop
    assert trainer.directory.newest().endswith(f"-{stop}")


def records_of(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {(line["phase"], line["step"]): line for line in map(json.loads, lines)}


class CountingProfiler:
    def __init__(self):
        self.calls, self.is_closed = [], False

    @contextmanager
    def steps(self, first, count):
        self.calls.append((first, count))
        yield

    def close(self):
        self.is_closed = True


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2], ids="replicas={}".format)
def test_several_steps_per_call_equal_single_calls(task, tmp_path, replicas):
    """Calls end at reports (every 5) and checkpoints (every 7), but not at signals."""
    settings = {"replicas": replicas, "log_steps": 5, "save_checkpoints_steps": 7}
    single, several = tmp_path / "single", tmp_path / "several"
    expected = state_of(train(make_trainer(single, task, 11, **settings)))

    class Log(SignallingLog):
        signal_step = 3

    settings["iterations_per_loop"] = 3
    trainer = make_trainer(several, task, 11, **settings)
    trainer.profiler = CountingProfiler()
    with pytest.raises(TrainingInterrupted):
        train(trainer, Log)
    assert trainer.profiler.calls == [(1, 3), (4, 2)]
    assert trainer.profiler.is_closed
    assert not threads()
    trainer = make_trainer(several, task, 11, **settings)
    trainer.profiler = CountingProfiler()
    assert_same_state(train(trainer), expected)
    assert trainer.profiler.calls == [(6, 2), (8, 3), (11, 1)]
    assert trainer._training.updates.experimental_get_tracing_count() == 1
    records, others = records_of(single), records_of(several)
    assert list(records) == list(others) == [("train", step) for step in (5, 7, 10, 11)]
    for key, record in records.items():
        assert others[key]["loss"] == record["loss"]
        assert others[key]["gradient_norm"] == record["gradient_norm"]
