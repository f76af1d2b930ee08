"""Regressions on any scale: the head predicts numbers in the unit of the labels."""

import json

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.classification.task import label_scale
from tests.classifier_run import ClassifierRun
from tests.small_training import skip_steps

pytestmark = pytest.mark.usefixtures("eager")


@pytest.mark.parametrize(
    ("labels", "mean", "deviation"),
    [
        ([0.0, 50.0, 100.0], 50.0, np.sqrt(5000 / 3)),
        ([1e-6, 3e-6], 2e-6, 1e-6),
        ([-2e9, 2e9], 0.0, 2e9),
        ([0.1] * 7, 0.1, 1.0),
        ([-8.0], -8.0, 1.0),
    ],
)
def test_scale_is_mean_and_deviation(labels, mean, deviation, caplog):
    assert label_scale(np.array(labels, np.float32), "a") == pytest.approx((mean, deviation))
    assert not caplog.messages


def test_numbers_that_float32_cannot_distinguish(caplog):
    label_scale(np.array([1.6e9, 1.6e9 + 3600], np.float32), "a.csv")
    assert "a.csv: labels with mean 1.6" in caplog.text
    assert "multiples of 128" in caplog.text
    for size in (1e30, 1e-30):
        with pytest.raises(ValueError, match=r"a\.csv: .* deviation .*Received: 5e[+-]\d+"):
            label_scale(np.array([0, size], np.float32), "a.csv")


def write_numbers(path, unit):
    rows = [{"text_a": f"the cat {n}", "label": unit * (n % 5)} for n in range(5)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def train(tmp_path, golden, monkeypatch):
    """Returns a function that starts a regression without training it, and the files of a run."""
    skip_steps(monkeypatch)
    small = ClassifierRun(tmp_path, golden)

    def train(name, unit, **changes):
        files = {
            split: write_numbers(tmp_path / f"{name}_{split}.jsonl", unit)
            for split in ("train_file", "dev_file")
        }
        columns = {"text_a_column": "text_a", "output_dir": str(tmp_path / name), "train_step": 1}
        flags = {**files, **columns, "regression": True, "do_train": True, "do_eval": True}
        return albert_tf.run_classification(
            albert_tf.ClassificationSettings(**small.flags(**{**flags, **changes}))
        )

    return train


def test_a_new_head_starts_at_the_mean(train, tmp_path, caplog):
    """A trained head is kept if the new labels have the same unit."""
    caplog.set_level("INFO", logger="absl")
    first = train("millions", 1e6)
    deviation = np.sqrt(2) * 1e6
    assert StoredTask.read(str(tmp_path / "millions")).scale == pytest.approx((2e6, deviation))
    assert first.scores["RMSE_of_mean"] == pytest.approx(deviation)
    assert 0.9 * deviation < first.scores["RMSE"] < 1.1 * deviation
    assert first.scores["R2"] == pytest.approx(0, abs=0.2)
    loaded = albert_tf.TextClassifier.load(tmp_path / "millions")
    rows = [json.loads(li) for li in (tmp_path / "millions_dev_file.jsonl").open()]
    texts, labels = ([row[key] for row in rows] for key in ("text_a", "label"))
    assert loaded.evaluate(texts, labels)["RMSE"] == pytest.approx(first.scores["RMSE"], rel=1e-4)
    loaded.save(tmp_path / "saved")
    assert StoredTask.read(str(tmp_path / "saved")).scale == pytest.approx((2e6, deviation))
    start = first.best_checkpoint
    again = train("similar", 2e6, init_checkpoint=start)
    assert again.scores["RMSE_of_mean"] == pytest.approx(2 * deviation)
    assert again.scores["RMSE"] > 1.1 * deviation
    caplog.clear()
    other = train("thousandths", 1e-3, init_checkpoint=start)
    assert "scale is mean 2e+06 and deviation 1.41421e+06 in" in caplog.text
    assert other.scores["RMSE"] < 2e-3
    caplog.clear()
    train("millions", 1e-3, train_step=2)
    assert "scale is mean 2e+06" in caplog.text
    assert StoredTask.read(str(tmp_path / "millions")).scale == pytest.approx((2e6, deviation))
