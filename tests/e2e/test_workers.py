"""Training on several workers: the same weights, one set of files, and clear errors."""

import copy
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.classifier_run import ClassifierRun
from tests.pretraining_run import SCRIPT, PretrainingRun, assert_same_bits, read_checkpoint
from tests.programs import start_workers
from tests.small_records import pretraining_columns, write_records
from tests.small_training import forget_after

STEPS, EVERY = 24, 8
EVEN_FILES, RECORDS = 6, 8  # six streams of eight records
FLAGS = {
    "input_file": "even-*.tfrecord",
    "num_train_steps": STEPS,
    "save_checkpoints_steps": EVERY,
    "keep_checkpoint_max": 0,
    "do_eval": True,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a run without dropout, because dropout masks differ between replicas."""
    run = PretrainingRun(tmp_path_factory.mktemp("workers"))
    for n in range(EVEN_FILES):
        columns = pretraining_columns(RECORDS, seed=n)
        write_records(run.folder / f"even-{n}.tfrecord", columns)
    return run


def committed_step(output):
    """Returns the step of the newest checkpoint."""
    return int(tf.train.latest_checkpoint(str(output)).rsplit("-", 1)[1])


def flags_of(run, **changes):
    """Returns the flags of a run."""
    flags = run.flags(**{**FLAGS, **changes})
    return {**flags, "input_file": run.folder / flags["input_file"]}


def train(run, output, code=0, **changes):
    """Trains on two workers; returns the output of each."""
    flags = flags_of(run, output_dir=output, **changes)
    results = [worker.wait() for worker in start_workers(SCRIPT, run.folder, flags)]
    for result in results:
        assert result.code == code, result.output
    return [result.output for result in results]


def train_alone(run, output, **changes):
    """Trains in one process; returns its output."""
    return run.must_work(**flags_of(run, output_dir=output, **changes))


@pytest.fixture(scope="module")
def two_workers(run):
    """Returns the output directory of a run on two workers, and their output."""
    output = run.folder / "two-workers"
    return output, train(run, output)


def assert_close(actual, expected):
    """Checks that two checkpoints are equal except for the order of summation.

    The bias of the keys changes no probability. Its gradient consists only of rounding errors.
    """
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_two_workers_equal_one_process(run, two_workers):
    output, (chief, other) = two_workers
    train_alone(run, run.output)
    assert_close(
        read_checkpoint(output / f"model.ckpt-{STEPS}"),
        read_checkpoint(run.output / f"model.ckpt-{STEPS}"),
    )
    expected, names = run.results(), run.files_of("*")
    two = copy.copy(run)
    two.output = output
    assert two.files_of("*") == names
    for name, value in two.results().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, err_msg=name)
    assert list(two.metrics()) == list(range(4, STEPS + 1, 4))
    assert "replicas_in_sync=2" in two.log()
    assert "all_reduce=ring" in two.log()
    assert "\nstep " in chief
    assert "\nstep " not in other


@pytest.mark.slow
def test_a_killed_worker_stops_all_and_they_resume_bit_equal(run, two_workers):
    expected, _ = two_workers
    output = run.folder / "killed"
    flags = flags_of(run, output_dir=output)
    chief, other = start_workers(SCRIPT, run.folder, flags)
    while tf.train.latest_checkpoint(str(output)) is None:
        assert chief.is_running(), chief.wait().output
        time.sleep(0.05)
    other.kill()
    result = chief.wait()
    assert result.code == 1
    assert "Another worker ended or cannot be reached" in result.output
    assert "Traceback" not in result.output
    step = committed_step(output)
    assert step < STEPS
    chief, other = start_workers(SCRIPT, run.folder, flags)
    while committed_step(output) == step:
        assert chief.is_running(), chief.wait().output
        time.sleep(0.02)
    other.send(signal.SIGTERM)
    results = chief.wait(), other.wait()
    step = committed_step(output)
    assert step < STEPS
    for result, asked in zip(results, (" of another worker", ""), strict=True):
        assert result.code == 143, result.output
        assert f"SIGTERM{asked}: stopped after step {step}, which is saved" in result.output
    for printed in train(run, output):
        assert f"model.ckpt-{step} at step {step}" in printed
    assert_same_bits(
        read_checkpoint(output / f"model.ckpt-{STEPS}"),
        read_checkpoint(expected / f"model.ckpt-{STEPS}"),
    )


def copy_until(step, output, target):
    """Copies a directory in its state after the checkpoint of a step."""
    shutil.copytree(output, target)
    forget_after(step, target)
    return target


@pytest.mark.slow
def test_another_number_of_workers_resumes_with_the_same_batches(run, two_workers, tmp_path):
    """Two workers, one process, two workers: only the order of summation differs."""
    output, _ = two_workers
    expected = read_checkpoint(output / f"model.ckpt-{STEPS}")
    one = copy_until(EVERY, output, tmp_path / "one")
    printed = train_alone(run, one)
    assert f"at step {EVERY}" in printed
    assert "from the start" not in printed
    assert_close(read_checkpoint(one / f"model.ckpt-{STEPS}"), expected)
    two = copy_until(2 * EVERY, one, tmp_path / "two")
    for printed in train(run, two):
        assert f"at step {2 * EVERY}" in printed
        assert "from the start" not in printed
    assert_close(read_checkpoint(two / f"model.ckpt-{STEPS}"), expected)


@pytest.mark.slow
def test_only_the_chief_evaluates_and_predicts(tmp_path, golden):
    """In fine-tuning, the chief of two workers writes the same files as a single process."""
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    classifier = ClassifierRun(tmp_path, golden, **dropout)
    actions = {"do_train": True, "do_eval": True, "do_predict": True}
    flags = {**actions, "classifier_dropout_prob": 0.0, "train_batch_size": 6}
    one, two = classifier.output, tmp_path / "two-workers"
    workers = start_workers(
        ClassifierRun.script, tmp_path, classifier.flags(**flags, output_dir=two)
    )
    for result in [worker.wait() for worker in workers]:
        assert result.code == 0, result.output
    assert classifier(**flags).code == 0
    names = [sorted(path.name for path in folder.iterdir()) for folder in (one, two)]
    assert names[0] == names[1]
    assert_close(read_checkpoint(two / "model.ckpt-6"), read_checkpoint(one / "model.ckpt-6"))
    probabilities = [np.loadtxt(folder / "test_results.tsv") for folder in (two, one)]
    np.testing.assert_allclose(*probabilities, rtol=1e-5, atol=0)
