"""`run_pretraining.py --do_eval` compared with the metrics of the original release."""

import numpy as np
import pytest

from albert_tf.cli import run_pretraining
from tests.golden.reference import Reference, numbered
from tests.pretraining_run import read_checkpoint
from tests.run_in_process import run_here
from tests.small_records import write_records

pytestmark = pytest.mark.usefixtures("eager")

TWO_REPLICAS = {"num_logical_cpu_devices": 2, "distribution_strategy": "mirrored"}


def recorded_examples(reference):
    """Returns the examples of three recorded batches by feature."""
    arrays = reference.arrays("eval_batches")
    batches = [numbered(arrays, number) for number in range(3)]
    return {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0].keys() - {"example_weights"}
    }


def evaluate(reference, folder, **flags):
    """Evaluates the recorded examples; returns the content of eval_results.txt."""
    examples = recorded_examples(reference)
    columns = {
        name: values if values.dtype == np.float32 else values.astype(np.int64)
        for name, values in examples.items()
    }
    settings = {
        "input_file": write_records(folder / "eval.tfrecord", columns),
        "output_dir": folder / "output",
        "albert_config_file": reference.folder / "albert_config.json",
        "init_checkpoint": reference.checkpoint,
        "max_seq_length": columns["input_ids"].shape[1],
        "max_predictions_per_seq": columns["masked_lm_positions"].shape[1],
        "eval_batch_size": len(columns["input_ids"]) // 3,
        "do_train": False,
        "do_eval": True,
    }
    run_here(run_pretraining, {**settings, **flags})
    lines = (folder / "output" / "eval_results.txt").read_text().splitlines()
    results = {key: float(value) for key, value in (line.split(" = ") for line in lines)}
    assert list(results) == sorted(results)
    return results


def assert_results(actual, expected):
    assert actual.keys() == expected.keys() - {"loss_of_each_batch"} | {"global_step"}
    for name in actual.keys() - {"global_step"}:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=0, err_msg=name)


@pytest.mark.parametrize("name", ["config_2", pytest.param("config_6", marks=pytest.mark.slow)])
def test_results_equal_the_original(tmp_path, name):
    reference = Reference(name)
    results = evaluate(reference, tmp_path)
    assert_results(results, reference.values("eval_metrics"))
    assert results["global_step"] == read_checkpoint(reference.checkpoint)["global_step"]


@pytest.mark.parametrize(
    "flags",
    [{}, pytest.param(TWO_REPLICAS, marks=pytest.mark.slow)],
    ids=["one replica", "two replicas"],
)
def test_shorter_last_batch_counts_every_example_once(tmp_path, flags):
    reference = Reference("config_0")
    results = evaluate(reference, tmp_path, eval_batch_size=8, max_eval_steps=1000, **flags)
    examples, model, task = recorded_examples(reference), reference.model(), reference.task
    losses = []
    for start in (0, 8, 16):  # of 18 examples
        rows = {name: values[start : start + 8] for name, values in examples.items()}
        rows["example_weights"] = np.ones(len(rows["input_ids"]), np.float32)
        losses.append(float(task.total_loss(task.losses(model(rows), rows))))
    recorded = reference.values("eval_metrics")
    assert abs(np.mean(losses) / recorded["loss"] - 1.0) > 1e-3
    assert_results(results, {**recorded, "loss": np.mean(losses)})


@pytest.mark.slow
def test_max_eval_steps(tmp_path):
    reference = Reference("config_0")
    results = evaluate(reference, tmp_path, max_eval_steps=2)
    loss = np.mean(reference.values("eval_metrics")["loss_of_each_batch"][:2])
    np.testing.assert_allclose(results["loss"], loss, rtol=1e-5, atol=0)
