"""Files of version 0.1.0 are read, and its training runs are resumed.

`tests/earlier` contains a training directory of `run_pretraining.py` at step 5 of 12, one of
`run_classifier.py` at step 2 of 6, and three `.keras` files with the outputs of their models.
"""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import albert_tf
from tests.classifier_run import ClassifierRun
from tests.pretraining_run import PretrainingRun
from tests.small_model import small_config

EARLIER = Path(__file__).parents[1] / "earlier"
TWO_LAYERS = {"num_hidden_layers": 2, "num_hidden_groups": 2}


@pytest.mark.slow
def test_resumed_pretraining_logs_that_the_input_order_changed(tmp_path):
    run = PretrainingRun(tmp_path, **TWO_LAYERS)
    shutil.copytree(EARLIER / "pretraining", run.output)
    log = run.must_work()
    assert "model.ckpt-5 at step 5" in log
    (line,) = (line for line in log.splitlines() if "reading it from the start" in line)
    assert "input has changed since" in line
    assert "pipeline" in line
    assert sorted(run.metrics()) == [4, 5, 8, 10, 12]


@pytest.mark.slow
def test_fine_tuning_is_resumed(tmp_path, golden):
    run = ClassifierRun(tmp_path, golden, **TWO_LAYERS)
    shutil.copytree(EARLIER / "classifier", run.output)
    assert "model.ckpt-2 at step 2" in run.must_work(do_train=True)
    assert max(run.metrics()) == 6


@pytest.mark.parametrize("name", ["spans", "span_beams", "classification"])
def test_keras_files_load(name):
    _ = albert_tf.AlbertForSpans, albert_tf.AlbertForClassification  # registers the classes
    model = keras.saving.load_model(EARLIER / f"{name}.keras")
    ids = (np.arange(1, 22).reshape(3, 7) % small_config().vocab_size).astype(np.int32)
    outputs = model(
        {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)},
        output_hidden_states=True,  # the default in version 0.1.0
    )
    with np.load(EARLIER / "outputs.npz") as expected:
        names = {key for key in expected if key.startswith(f"{name}/")}
        assert len(names) > 4
        for key in names:
            # The order of summation depends on the processor.
            np.testing.assert_allclose(
                outputs[key.split("/")[1]], expected[key], rtol=1e-4, atol=2e-6
            )
