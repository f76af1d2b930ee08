"""A small classifier: its texts, its model, its command, and its output."""

import csv
import random
from pathlib import Path
from typing import Any

import numpy as np

import albert_tf
from albert_tf.classification.run import ClassifierJob
from tests.fine_tuning_run import FineTuningRun

LABELS = ("bad", "fine", "so, so")
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "it", "was", "very", "good", "but", "this")
COUNTS = {"train": 17, "dev": 11, "test": 13}


class ClassifierRun(FineTuningRun):
    """Files of labeled texts, a model, and `run_classifier.py` with them."""

    script = "run_classifier.py"
    job, settings = ClassifierJob, albert_tf.ClassificationSettings
    function = albert_tf.run_classification

    def __init__(self, folder: Path, golden: Path, **config: Any) -> None:
        super().__init__(folder, golden, **config)
        self.rows = {
            split: texts(count, seed) for seed, (split, count) in enumerate(COUNTS.items())
        }
        for split, rows in self.rows.items():
            write_csv(folder / f"{split}.csv", rows)

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns flags for six steps on custom data with a checkpoint every two steps."""
        data = {
            "task_name": "custom",
            "train_file": self.folder / "train.csv",
            "dev_file": self.folder / "dev.csv",
            "test_file": self.folder / "test.csv",
            "text_a_column": "review",
            "eval_batch_size": 4,
            "predict_batch_size": 3,
            "train_step": 6,
            "warmup_step": 1,
        }
        return super().flags(**{**data, **changes})

    def predicted(self) -> np.ndarray:
        """The probabilities of test_results.tsv, [N, K]."""
        return np.loadtxt(self.output / "test_results.tsv", delimiter="\t", ndmin=2)


def texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Returns rows of a label and a text. The label is determined by the length of the text."""
    source = random.Random(seed)
    rows = []
    for number in range(count):
        label = number % len(LABELS)
        words = source.choices(WORDS, k=source.randint(1 + 10 * label, 10 + 10 * label))
        rows.append((LABELS[label], " ".join(words)))
    return rows


def write_csv(path: Path, rows: list[tuple[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("label", "review"), *rows])
    return path


def blocks(path: Path) -> list[dict[str, str]]:
    """Returns the blocks of an eval_results.txt."""
    parts = path.read_text().split("=" * 50 + "\n")
    assert not parts.pop()
    return [
        dict(line.split(" = ", 1) for line in part.splitlines() if " = " in line) for part in parts
    ]
