"""Functions that run jobs: results, logged records, and the state of the process afterwards."""

import dataclasses
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial

import absl.logging
import keras
import matplotlib
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

import albert_tf
from albert_tf.data.tfrecord import count_records
from tests.classifier_run import ClassifierRun, blocks
from tests.pretraining_run import PretrainingRun
from tests.programs import ROOT
from tests.squad_run import SquadRun

pytestmark = pytest.mark.usefixtures("eager")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM)


def process_state():
    """Returns the state that a job must not change."""
    loggers = [logging.getLogger(name) for name in (None, "absl", "tensorflow", "matplotlib")]
    return {
        "signals": [signal.getsignal(number) for number in SIGNALS],
        "loggers": [(one.level, list(one.handlers), list(one.filters)) for one in loggers],
        "verbosity": absl.logging.get_verbosity(),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "keras": (keras.config.floatx(), keras.config.dtype_policy().name, keras.config.epsilon()),
        "random": (random.getstate(), str(np.random.get_state())),
        "tensorflow": (
            tf.compat.v1.get_seed(0),
            tf.config.optimizer.get_experimental_options(),
            tf.config.optimizer.get_jit(),
            tf.config.get_soft_device_placement(),
            tf.config.experimental.tensor_float_32_execution_enabled(),
            is_op_determinism_enabled(),
            tf.distribute.has_strategy(),
            tf.executing_eagerly(),
        ),
        "matplotlib": matplotlib.get_backend(),
        "threads": [thread for thread in threading.enumerate() if not thread.daemon],
    }


def logged(folder):
    """Returns the records of metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def small(tmp_path_factory, golden):
    return ClassifierRun(tmp_path_factory.mktemp("job"), golden)


@pytest.fixture(scope="module")
def trained(small):
    """Returns the result of a training, its records, and the state before and after."""
    records = []
    tf.random.set_seed(17)
    before = process_state()
    result = small.here(records.append)
    return result, records, before, process_state()


def test_results_and_records_equal_the_files(small, trained):
    result, records, before, after = trained
    assert result.history == records == logged(small.output)
    evaluations = [record for record in records if record["phase"] == "eval"]
    assert [record["step"] for record in evaluations] == [2, 4, 6]
    assert result.step == max(evaluations, key=lambda record: record["eval_accuracy"])["step"]
    assert (result.output_dir, result.best_checkpoint) == (
        str(small.output),
        str(small.output / "model.ckpt-best"),
    )
    by_step = {int(b["global_step"]): b for b in blocks(small.output / "eval_results.txt")}
    block = by_step[result.step]
    assert {name: np.float32(block[name]) for name in result.scores} == result.scores
    assert block.keys() == result.scores.keys() | {"global_step", "best"}
    assert after == before


def test_a_finished_run_returns_its_result_again(small, trained):
    records = []
    assert small.here(records.append) == trained[0]
    assert records == []
    assert small.here(dry_run=True) == albert_tf.JobResult(str(small.output))


def test_evaluations_in_a_thread_use_the_data_and_precision_of_the_call(small, trained):
    records, results = [], []
    flags = {"do_train": False, "dev_file": small.folder / "test.csv", "checkpoint": "best"}
    before = process_state()
    thread = threading.Thread(
        target=lambda: results.append(small.here(records.append, **flags, precision="bfloat16"))
    )
    thread.start()
    thread.join()
    (result,) = results
    assert process_state() == before
    (record,) = result.history
    assert records == [record]
    assert record["phase"] == "eval"
    assert {**record, **result.scores, "step": result.step} == record
    assert result.step == trained[0].step
    assert result.scores["loss"] != trained[0].scores["loss"]


@pytest.mark.slow
def test_a_training_in_a_thread_gives_the_same_losses(small, trained, tmp_path):
    flags = {"do_eval": False, "output_dir": tmp_path / "output", "train_step": 2}
    flags["num_logical_cpu_devices"] = 2  # can be set only once per process
    results = []
    thread = threading.Thread(target=lambda: results.append(small.here(**flags)))
    thread.start()
    thread.join()
    (result,) = results
    losses = [record["loss"] for record in trained[1] if record["phase"] == "train"]
    assert [record["loss"] for record in result.history] == losses[:2]


@pytest.mark.slow
def test_interrupted_jobs_are_resumed(small, tmp_path):
    """An error of the caller loses the steps since the last checkpoint; Ctrl-C does not."""

    def on_log(record):
        if record["step"] == 3:
            with pytest.raises(RuntimeError, match="Another job is running"):
                albert_tf.run_classification(settings)
            raise RuntimeError("no connection")

    def interrupt(record):
        if record["step"] == 4:
            signal.raise_signal(signal.SIGINT)

    settings = small.given(do_eval=False, output_dir=tmp_path / "output", train_step=6)
    before = process_state()
    with pytest.raises(RuntimeError, match="no connection"):
        albert_tf.run_classification(settings, on_log)
    assert process_state() == before
    with pytest.raises(KeyboardInterrupt, match="step 4, which is saved"):
        albert_tf.run_classification(settings, interrupt)
    assert process_state() == before
    assert (tmp_path / "output" / "model.ckpt-4.index").exists()
    result = albert_tf.run_classification(settings)
    assert (result.step, result.scores, result.best_checkpoint) == (6, {}, None)
    assert [record["step"] for record in result.history] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_predictions_are_scored_if_the_answers_are_known(tmp_path, golden):
    small = SquadRun(tmp_path, golden)
    start = small.pretrained()
    trained = small.here(init_checkpoint=start, do_predict=False, num_train_epochs=0.7)
    assert (trained.step, trained.scores, trained.best_checkpoint) == (2, {}, None)
    records = []
    result = small.here(records.append, do_train=False)
    assert result.history == records
    assert result.step == 2
    lines = (small.output / "eval_results.txt").read_text().splitlines()
    assert f"f1 = {result.scores['f1']}" in lines


def test_pretraining_returns_what_it_logged(tmp_path):
    small = PretrainingRun(tmp_path)
    records, determinism = [], set()

    def on_log(record):
        records.append(record)
        determinism.add(is_op_determinism_enabled())

    settings = albert_tf.PretrainingSettings(
        **small.flags(num_train_steps=3, do_eval=True, deterministic=True, profile_steps="2,3")
    )
    before = process_state()
    result = albert_tf.run_pretraining(settings, on_log)
    assert process_state() == before
    assert determinism == {True}
    assert len(list(small.output.glob("tensorboard/plugins/profile/*/*.xplane.pb"))) == 1
    assert result.history == records == logged(small.output)
    assert (result.step, result.best_checkpoint) == (3, str(small.output / "model.ckpt-best"))
    assert {**result.scores, "global_step": 3} == small.results()
    # The best checkpoint of a finished run was chosen with other data.
    other = dataclasses.replace(settings, eval_input_file=small.files[0])
    assert albert_tf.run_pretraining(other).scores == {}
    evaluated = albert_tf.run_pretraining(
        dataclasses.replace(settings, do_train=False, max_eval_steps=1)
    )
    (record,) = evaluated.history
    assert (record["step"], record["loss"]) == (3, evaluated.scores["loss"])
    assert evaluated.scores["loss"] != result.scores["loss"]


def test_text_becomes_a_vocabulary_and_records(tmp_path, golden):
    """The script has no guard, and other processes must not run it again."""
    text = golden / "pretraining_data" / "corpus.txt"
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import albert_tf\n"
        "print('started')\n"
        f"albert_tf.train_sentencepiece({str(text)!r}, 'vocab', vocab_size=300)\n"
        "settings = albert_tf.PretrainingDataSettings(\n"
        f"    input_file={str(text)!r}, output_file='new@2', spm_model_file='vocab.model',\n"
        "    max_seq_length=32, dupe_factor=1, num_workers=2\n"
        ")\n"
        "print(albert_tf.create_pretraining_data(settings).counts['instances'])\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    files = [str(tmp_path / f"new-0000{number}-of-00002") for number in (0, 1)]
    assert done.stdout == f"started\n{count_records(files)}\n"


def test_invalid_settings_are_rejected():
    records = partial(albert_tf.PretrainingDataSettings, input_file="a", output_file="b")
    create, train = albert_tf.create_pretraining_data, albert_tf.train_sentencepiece
    squad, other = (
        kind(output_dir="out")
        for kind in (albert_tf.SquadSettings, albert_tf.ClassificationSettings)
    )
    region = ["--region=x"]
    for call, error, message in (
        (lambda: create(records(beam_options="-x")), TypeError, "beam_options must be a list"),
        (lambda: create(records(beam_options=region)), ValueError, "require `runner`.*--region=x"),
        (
            lambda: create(records(max_seq_length="5")),
            TypeError,
            "`max_seq_length` must be of .*int",
        ),
        (lambda: create("text.txt"), TypeError, r"must be albert_tf\.PretrainingDataSettings"),
        (lambda: train("a", "b", vocab_size=0), ValueError, "`vocab_size` must be at least 1"),
        (lambda: train(["a"], "b"), TypeError, "`input_file` must be of type str"),
        (lambda: albert_tf.run_squad(other), TypeError, r"must be albert_tf\.SquadSettings"),
        (lambda: albert_tf.run_squad(squad, {}), TypeError, "on_log must be a function"),
    ):
        with pytest.raises(error, match=message):
            call()
