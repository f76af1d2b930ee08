"""Killed runs that are resumed end with the same weights as unbroken runs."""

import os
import shutil
import signal

import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats.original import DATA_SUFFIX
from albert_tf.data.tfrecord import RecordError, read_records
from tests.choice_run import ChoiceRun
from tests.classifier_run import ClassifierRun
from tests.pretraining_run import PretrainingRun, assert_same_bits, read_checkpoint
from tests.programs import Program
from tests.small_records import damage_record, pretraining_columns, write_records
from tests.squad_run import SquadRun
from tests.token_run import TokenRun

STEPS = 100  # 30 passes over the input
EVERY = 10


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resuming")
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    return PretrainingRun(folder, **dropout)


@pytest.fixture(scope="module")
def flags():
    return {"num_train_steps": STEPS, "save_checkpoints_steps": EVERY, "log_steps": 4}


@pytest.fixture(scope="module")
def uninterrupted(run, flags):
    """Returns metrics and last checkpoint of an unbroken run."""
    run.must_work(**flags)
    left = run.metrics(), read_checkpoint(run.output / f"model.ckpt-{STEPS}")
    shutil.rmtree(run.output)
    return left


def committed_step(output):
    state = tf.train.get_checkpoint_state(str(output))
    return int(state.model_checkpoint_path.rsplit("-", 1)[1]) if state else 0


# Runs a script that ends itself, because on a busy machine another process could be too late.
ENDING = """
import os, random, runpy, sys, threading, time
import tensorflow as tf

sys.argv[0], output, step, number, seconds = os.environ["ENDING"].split()

def end():
    while int((tf.train.latest_checkpoint(output) or "-0").rpartition("-")[2]) < int(step):
        time.sleep(0.002)
    time.sleep(random.uniform(0.0, float(seconds)))
    os.kill(os.getpid(), int(number))

threading.Thread(target=end, daemon=True).start()
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def end_after(run, flags, step, number=signal.SIGKILL, seconds=0.1):
    """Ends the run at a random moment after the checkpoint of a step; returns its output."""
    (script := run.folder / "ending.py").write_text(ENDING)
    ending = f"{run.script} {run.output} {step} {int(number)} {seconds}"
    result = Program(str(script), run.folder, run.flags(**flags), {"ENDING": ending}).wait()
    status = {signal.SIGKILL: -9, signal.SIGTERM: 143}[number]
    assert result.code == status, f"it ended before it was killed:\n{result.output}"
    return result.output


def test_killed_runs_resume_bit_equal(run, flags, uninterrupted):
    """A kill, a SIGTERM, and a newest checkpoint that was damaged before the last start."""
    metrics, weights = uninterrupted
    end_after(run, flags, 2 * EVERY)
    first = committed_step(run.output)
    printed = end_after(run, flags, first + EVERY, signal.SIGTERM)
    stopped = committed_step(run.output)
    assert first < stopped < STEPS
    assert f"SIGTERM: stopped after step {stopped}, which is saved" in printed
    os.truncate(run.output / f"model.ckpt-{stopped}{DATA_SUFFIX}", 2000)
    printed = run.must_work(**flags)
    assert f"model.ckpt-{stopped} is skipped" in printed
    assert f"model.ckpt-{(stopped - 1) // EVERY * EVERY} at step" in printed
    assert_same_bits(read_checkpoint(run.output / f"model.ckpt-{STEPS}"), weights)
    again = run.metrics()
    assert again.keys() == metrics.keys()
    for step, record in metrics.items():
        for name in set(record) - {"time", "examples_per_second", "steps_per_second"}:
            assert again[step][name] == record[name], (step, name)


# Run, flags for at least sixteen steps, and the last step.
FINE_TUNINGS = {
    "classifier": (ClassifierRun, {"do_eval": True, "train_step": 16}, 16),
    "race": (ChoiceRun, {"do_predict": True, "train_step": 16}, 16),
    "squad": (SquadRun, {"do_predict": True, "num_train_epochs": 6.0}, 18),
    "tokens": (TokenRun, {"do_eval": True, "train_step": 16}, 16),
}
RESULTS = ("eval_results.txt", "best_trial.txt", "labels.json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(FINE_TUNINGS))
def test_a_killed_fine_tuning_run_resumes_bit_equal(tmp_path, golden, kind):
    kind_of_run, flags, last = FINE_TUNINGS[kind]
    run = kind_of_run(tmp_path, golden, hidden_dropout_prob=0.1)
    flags = {**flags, "do_train": True, "save_checkpoints_steps": 4, "keep_checkpoint_max": 2}
    end_after(run, flags, 4, seconds=0.0)
    assert not (run.output / f"model.ckpt-{last}.index").exists()
    assert "Resuming from" in run.must_work(**flags)
    names = [name for name in (*RESULTS, "predictions.json") if (run.output / name).exists()]
    left, weights = run.written(*names), read_checkpoint(run.output / f"model.ckpt-{last}")
    checkpoints = sorted(path.name for path in run.output.glob("model.ckpt-*.index"))
    assert checkpoints == sorted(
        f"model.ckpt-{step}.index" for step in (16 if last > 16 else 12, last, "best")
    )
    run.output = tmp_path / "uninterrupted"
    run.must_work(**flags)
    assert run.written(*names) == left
    assert_same_bits(weights, read_checkpoint(run.output / f"model.ckpt-{last}"))
    assert "Nothing to train" in run.must_work(**flags)
    assert run.written(*names) == left


@pytest.mark.slow
def test_resuming_does_not_read_the_input_again(run, tmp_path):
    file = write_records(tmp_path / "long.tfrecord", pretraining_columns(400, seed=5))
    flags = {"input_file": file, "save_checkpoints_steps": 100}
    run.must_work(**flags, output_dir=tmp_path / "output", num_train_steps=50)
    damage_record(file, number=280)  # used, and not one of the 256 that are checked at the start
    with pytest.raises(RecordError, match="record 280"):
        list(read_records(str(file)))
    run.must_work(**flags, output_dir=tmp_path / "output", num_train_steps=53)


@pytest.mark.slow
def test_unreadable_input_loses_no_steps(run, tmp_path):
    file = write_records(tmp_path / "long.tfrecord", pretraining_columns(320, seed=5))
    whole = file.read_bytes()
    flags = {"input_file": file, "output_dir": tmp_path, "save_checkpoints_steps": 100}
    damage_record(file, number=280)
    printed = run.must_fail(**flags, num_train_steps=50)
    assert f"{file}, record 280: " in printed
    step = committed_step(tmp_path)
    assert 43 < step < 280 // 6
    file.write_bytes(whole)
    printed = run.must_work(**flags, num_train_steps=50)
    assert f"model.ckpt-{step} at step {step}" in printed
    assert "no input position" in printed
    assert committed_step(tmp_path) == 50
