"""A small classifier: its texts, its model, its command, and what it leaves behind."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.checkpoints.original import original_names, write_checkpoint
from albert_tf.models import AlbertForPretraining
from tests.programs import Program, Result, run_program
from tests.small_model import small_config

SCRIPT = "run_classifier.py"
LABELS = ("bad", "fine", "so, so")
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "it", "was", "very", "good", "but", "this")
COUNTS = {"train": 17, "dev": 11, "test": 13}


class ClassifierRun:
    """Files of labelled texts of one to thirty words, a model, and `run_classifier.py` on them.

    Args:
        folder: takes the files; the output directory is `output` in it.
        golden: the reference data, whose SentencePiece model of 1000 pieces is used.
        **config: changes of the model.
    """

    def __init__(self, folder: Path, golden: Path, **config: Any) -> None:
        self.folder = folder
        self.golden = golden
        self.output = folder / "output"
        sizes = {"vocab_size": 1000, "num_hidden_layers": 2, "inner_group_num": 1}
        self.config = small_config(**{**sizes, "max_position_embeddings": 24, **config})
        self.config_file = folder / "albert_config.json"
        self.config.to_json_file(str(self.config_file))
        self.rows = {
            split: texts(count, seed) for seed, (split, count) in enumerate(COUNTS.items())
        }
        for split, rows in self.rows.items():
            write_csv(folder / f"{split}.csv", rows)

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Custom data, six steps with a checkpoint at every second."""
        return {
            "task_name": "custom",
            "train_file": self.folder / "train.csv",
            "dev_file": self.folder / "dev.csv",
            "test_file": self.folder / "test.csv",
            "text_a_column": "review",
            "output_dir": self.output,
            "albert_config_file": self.config_file,
            "spm_model_file": self.golden / "tokenizer" / "small_1000.model",
            "max_seq_length": 24,
            "train_batch_size": 5,
            "eval_batch_size": 4,
            "predict_batch_size": 3,
            "train_step": 6,
            "warmup_step": 1,
            "learning_rate": 1e-3,
            "save_checkpoints_steps": 2,
            "log_steps": 1,
            **changes,
        }

    def start(self, **changes: Any) -> Program:
        return Program(SCRIPT, self.folder, self.flags(**changes))

    def __call__(self, **changes: Any) -> Result:
        return run_program(SCRIPT, self.folder, self.flags(**changes))

    def must_work(self, **changes: Any) -> str:
        """Runs the command, which must succeed, and returns what it printed."""
        result = self(**changes)
        assert result.code == 0, result.output
        return result.output

    def pretrained(self) -> str:
        """Writes a checkpoint of an encoder with the heads of pretraining; returns the prefix."""
        prefix = str(self.folder / "pretrained.ckpt")
        write_checkpoint(prefix, original_names(AlbertForPretraining(self.config)), global_step=3)
        return prefix

    def metrics(self, phase: str) -> dict[int, dict[str, float]]:
        """The records of metrics.jsonl by step; a step that appears twice fails."""
        lines = (self.output / "metrics.jsonl").read_text().splitlines()
        records = [record for record in map(json.loads, lines) if record["phase"] == phase]
        steps = [record["step"] for record in records]
        assert len(steps) == len(set(steps))
        return {record["step"]: record for record in records}

    def predicted(self) -> np.ndarray:
        """The probabilities of test_results.tsv, [N, K]."""
        return np.loadtxt(self.output / "test_results.tsv", delimiter="\t", ndmin=2)


def texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Rows of a label and a text; the length of a text tells its label."""
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
    """The blocks of an eval_results.txt, as text."""
    parts = path.read_text().split("=" * 50 + "\n")
    assert not parts.pop()
    return [
        dict(line.split(" = ", 1) for line in part.splitlines() if " = " in line) for part in parts
    ]
