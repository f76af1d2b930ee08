"""Files of version 0.1.0 are read, and its training runs are resumed.

`tests/earlier` contains a training directory of `run_pretraining.py` at step 5 of 12, one of
`run_classifier.py` at step 2 of 6, the final weights of both, and three `.keras` files with the
outputs of their models. Later versions read records in another order. The final weights of the
pretraining therefore come from a later version, which read the input from the start at step 5.
"""

import shutil
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.load_weights import open_checkpoint
from tests.classifier_run import ClassifierRun
from tests.pretraining_run import PretrainingRun
from tests.programs import warm_python
from tests.small_model import small_config

TWO_LAYERS = {"num_hidden_layers": 2, "num_hidden_groups": 2}
EARLIER = Path(__file__).parents[1] / "earlier"
ROOT = Path(__file__).parents[2]
# The order of summation depends on the processor.
CLOSE = {"rtol": 1e-4, "atol": 2e-6}

# Runs a script with the dropout of version 0.1.0, which draws other masks.
WITH_FORMER_DROPOUT = """
import runpy
import tensorflow as tf
from albert_tf.modeling import kernels

def dropout(x, rate, seed):
    return tf.nn.experimental.stateless_dropout(x, rate, seed, rng_alg="auto_select")

kernels.dropout = dropout
runpy.run_path({script!r}, run_name="__main__")
"""


def resume(run, script: str, folder: str, **changes) -> str:
    """Resumes a run with relative paths as in the original run; returns the log."""
    shutil.copytree(EARLIER / folder, run.output)
    flags = {name: value for name, value in run.flags(**changes).items() if value is not None}
    line = [
        f"--{'' if value else 'no'}{name}"
        if isinstance(value, bool)
        else f"--{name}={str(value).replace(f'{run.folder}/', '')}"
        for name, value in flags.items()
    ]
    program = run.folder / script
    program.write_text(WITH_FORMER_DROPOUT.format(script=str(ROOT / script)))
    command = [warm_python(), str(program), *line]
    done = subprocess.run(command, cwd=run.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def assert_weights(prefix: Path, expected: str) -> None:
    reader, shapes = open_checkpoint(str(prefix))
    with np.load(EARLIER / expected) as weights:
        assert set(weights) == {name for name in shapes if not name.endswith(("adam_m", "adam_v"))}
        for name in weights:
            np.testing.assert_allclose(
                reader.get_tensor(name), weights[name], **CLOSE, err_msg=name
            )


@pytest.mark.slow
def test_resumed_pretraining_logs_that_the_input_order_changed(tmp_path):
    run = PretrainingRun(tmp_path, **TWO_LAYERS)
    log = resume(run, "run_pretraining.py", "pretraining", keep_checkpoint_max=0)
    (line,) = (line for line in log.splitlines() if "reading it from the start" in line)
    assert "input has changed since" in line
    assert line.split("model.ckpt-5 was saved ")[1].startswith("(pipeline")
    assert "model.ckpt-5 at step 5" in log
    assert_weights(run.output / "model.ckpt-12", "pretraining_step_12.npz")
    assert sorted(run.metrics()) == [4, 5, 8, 10, 12]


@pytest.mark.slow
def test_resumed_fine_tuning_ends_with_the_same_weights(tmp_path, golden):
    run = ClassifierRun(tmp_path, golden, **TWO_LAYERS)
    shutil.copy(golden / "tokenizer" / "small_1000.model", tmp_path)
    resume(
        run,
        "run_classifier.py",
        "classifier",
        do_train=True,
        keep_checkpoint_max=0,
        spm_model_file="small_1000.model",
    )
    assert_weights(run.output / "model.ckpt-6", "classifier_step_6.npz")


@pytest.mark.parametrize("name", ["spans", "span_beams", "classification"])
def test_keras_files_load(name):
    _ = albert_tf.AlbertForSpans, albert_tf.AlbertForClassification  # registers the classes
    model = keras.saving.load_model(EARLIER / f"{name}.keras")
    ids = (np.arange(1, 22).reshape(3, 7) % small_config().vocab_size).astype(np.int32)
    outputs = model(
        {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)},
        # Version 0.1.0 returned the hidden states by default.
        output_hidden_states=True,
    )
    with np.load(EARLIER / "outputs.npz") as expected:
        names = {key for key in expected if key.startswith(f"{name}/")}
        assert len(names) > 4
        for key in names:
            np.testing.assert_allclose(outputs[key.split("/")[1]], expected[key], **CLOSE)
