"""`run_pretraining.py --do_eval` compared with the metrics of the original release."""

import numpy as np
import pytest

from tests.golden.reference import Reference, numbered
from tests.pretraining_run import read_checkpoint
from tests.programs import run_program
from tests.small_records import write_records

NAMES = (
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "sentence_order_accuracy",
    "sentence_order_loss",
)
TWO_REPLICAS = {"num_logical_cpu_devices": 2, "distribution_strategy": "mirrored"}


class Evaluation:
    """Three recorded batches of a configuration as records, and the command that evaluates them."""

    def __init__(self, golden, name, folder):
        self.reference = Reference(golden, name)
        self.expected = self.reference.values("eval_metrics")
        self.folder = folder
        self.batches = [numbered(self.reference.arrays("eval_batches"), n) for n in range(3)]
        for batch in self.batches:
            del batch["example_weights"]
        self.columns = {
            feature: np.concatenate([as_stored(batch[feature]) for batch in self.batches])
            for feature in self.batches[0]
        }

    def run(self, **flags):
        """Returns the content of eval_results.txt."""
        examples, predictions = self.columns["masked_lm_positions"].shape
        output = self.folder / "output"
        result = run_program(
            "run_pretraining.py",
            self.folder,
            {
                "input_file": write_records(self.folder / "eval.tfrecord", self.columns),
                "output_dir": output,
                "albert_config_file": self.reference.folder / "albert_config.json",
                "init_checkpoint": self.reference.checkpoint,
                "max_seq_length": self.columns["input_ids"].shape[1],
                "max_predictions_per_seq": predictions,
                "eval_batch_size": examples // 3,
                "do_train": False,
                "do_eval": True,
                **flags,
            },
        )
        assert result.code == 0, result.output
        lines = (output / "eval_results.txt").read_text().splitlines()
        assert [line.split(" = ")[0] for line in lines] == ["global_step", *NAMES]
        return {key: float(value) for key, value in (line.split(" = ") for line in lines)}

    def loss_of_rows(self, *sizes):
        """Returns the mean loss of our model over successive batches of these sizes."""
        model, task, ends = self.reference.model(), self.reference.task, np.cumsum(sizes)
        losses = []
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            rows = {name: values[start:end] for name, values in self.columns.items()}
            features = {**rows, "example_weights": np.ones(end - start, np.float32)}
            losses.append(float(task.total_loss(task.losses(model(features), features))))
        return np.mean(losses)


def as_stored(tensor):
    values = tensor.numpy()
    return values if values.dtype == np.float32 else values.astype(np.int64)


def assert_results(actual, expected, names=NAMES):
    for name in names:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=0, err_msg=name)


@pytest.mark.parametrize("name", ["config_2", "config_6"])
def test_results_equal_the_original(golden, tmp_path, name):
    evaluation = Evaluation(golden, name, tmp_path)
    results = evaluation.run()
    assert_results(results, evaluation.expected)
    assert results["global_step"] == read_checkpoint(evaluation.reference.checkpoint)["global_step"]


@pytest.mark.parametrize("flags", [{}, TWO_REPLICAS], ids=["one replica", "two replicas"])
def test_shorter_last_batch_counts_every_example_once(golden, tmp_path, flags):
    evaluation = Evaluation(golden, "config_0", tmp_path)
    results = evaluation.run(eval_batch_size=8, max_eval_steps=1000, **flags)  # 8 + 8 + 2 examples
    expected = {**evaluation.expected, "loss": evaluation.loss_of_rows(8, 8, 2)}
    assert_results(results, expected)
    assert abs(expected["loss"] / evaluation.expected["loss"] - 1.0) > 1e-3


def test_max_eval_steps(golden, tmp_path):
    evaluation = Evaluation(golden, "config_0", tmp_path)
    results = evaluation.run(max_eval_steps=2)
    loss = np.mean(evaluation.expected["loss_of_each_batch"][:2])
    np.testing.assert_allclose(results["loss"], loss, rtol=1e-5, atol=0)
