"""Several processes train as one: the same weights, one set of files, and no end without a word."""

import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.classifier_run import ClassifierRun
from tests.pretraining_run import SCRIPT, PretrainingRun, assert_same_bits, read_checkpoint
from tests.programs import start_workers

STEPS, EVERY = 40, 8
FLAGS = {
    "num_train_steps": STEPS,
    "save_checkpoints_steps": EVERY,
    "keep_checkpoint_max": 0,
    "do_eval": True,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run without dropout, whose masks would differ from replica to replica."""
    return PretrainingRun(tmp_path_factory.mktemp("workers"))


def committed_step(output):
    """The step of the newest checkpoint."""
    return int(tf.train.latest_checkpoint(str(output)).rsplit("-", 1)[1])


def train(run, output, **changes):
    """Trains on two workers; returns what each printed."""
    flags = run.flags(output_dir=output, **{**FLAGS, **changes})
    results = [worker.wait() for worker in start_workers(SCRIPT, run.folder, flags)]
    for result in results:
        assert result.code == 0, result.output
    return [result.output for result in results]


@pytest.fixture(scope="module")
def two_workers(run):
    """The output directory of a training on two workers, and what they printed."""
    output = run.folder / "two-workers"
    return output, train(run, output)


def assert_close(actual, expected):
    """Fails unless two checkpoints differ by no more than the order of summing explains.

    A bias of the keys changes no probability: its gradient is rounding alone, which the optimizer
    makes steps of.
    """
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_two_workers_train_as_one_process_does(run, two_workers):
    output, (chief, other) = two_workers
    run.must_work(**FLAGS)
    assert_close(
        read_checkpoint(output / f"model.ckpt-{STEPS}"),
        read_checkpoint(run.output / f"model.ckpt-{STEPS}"),
    )
    own, expected = PretrainingRun.results, run.results()
    assert sorted(path.name for path in output.iterdir()) == sorted(
        path.name for path in run.output.iterdir()
    )
    run.output, one = output, run.output
    try:
        for name, value in own(run).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, err_msg=name)
        assert list(run.metrics()) == list(range(4, STEPS + 1, 4))
    finally:
        run.output = one
    assert "replicas_in_sync=2" in chief
    assert "replicas_in_sync=2" in other
    assert "phase=train" in chief
    assert "phase=" not in other


@pytest.mark.slow
def test_a_killed_worker_ends_the_others_and_all_resume_bit_equal(run, two_workers):
    expected, _ = two_workers
    output = run.folder / "killed"
    flags = run.flags(output_dir=output, **FLAGS)
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


@pytest.mark.slow
def test_the_chief_alone_evaluates_and_predicts(tmp_path, golden):
    """Fine-tuning: what the chief writes on two workers is what one process writes."""
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


@pytest.mark.slow
@pytest.mark.parametrize("after", [EVERY, STEPS - EVERY], ids="after step {}".format)
def test_workers_stop_at_one_step_near_a_checkpoint_and_near_the_end(run, two_workers, after):
    """The step is saved, and nothing is read beyond it: all go on bit-equal."""
    expected, _ = two_workers
    output = run.folder / f"stopped-{after}"
    flags = run.flags(output_dir=output, **FLAGS)
    workers = start_workers(SCRIPT, run.folder, flags)
    while tf.train.latest_checkpoint(str(output)) is None or committed_step(output) < after:
        assert workers[0].is_running(), workers[0].wait().output
        time.sleep(0.002)
    workers[1].send(signal.SIGTERM)
    results = [worker.wait() for worker in workers]
    for result, asked in zip(results, (" of another worker", ""), strict=True):
        assert result.code == 143, result.output
        stopped = f"SIGTERM{asked}: stopped after step {committed_step(output)}, which is saved"
        assert stopped in result.output
    train(run, output)
    assert_same_bits(
        read_checkpoint(output / f"model.ckpt-{STEPS}"),
        read_checkpoint(expected / f"model.ckpt-{STEPS}"),
    )
