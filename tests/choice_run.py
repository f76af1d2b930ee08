"""A small multiple-choice model: its data, its command, and its output."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import albert_tf
from albert_tf.multiple_choice.run import MultipleChoiceJob
from tests.fine_tuning_run import FineTuningRun

ANIMALS = ("cat", "horse", "whale", "sparrow", "ant", "fox", "owl")
LETTERS = "ABCDEFG"
COUNTS = {"train": 13, "dev": 9, "test": 7}


class ChoiceRun(FineTuningRun):
    """RACE directories, custom questions, a model, and `run_race.py` with them."""

    script = "run_race.py"
    job, settings = MultipleChoiceJob, albert_tf.MultipleChoiceSettings
    function = albert_tf.run_multiple_choice
    files = "train_choices", "dev_choices"

    def __init__(self, folder: Path, golden: Path, **config: Any) -> None:
        super().__init__(folder, golden, **{"max_position_embeddings": 40, **config})
        for seed, (split, count) in enumerate(COUNTS.items()):
            write_choices(folder / f"{split}.jsonl", choices(count, seed, 5))
            for level in ("middle", "high"):
                write_race(folder / "RACE" / split / level, choices(count, seed + len(level), 4))

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns flags for six steps on RACE with a checkpoint every two steps."""
        data = {
            "data_dir": self.folder,
            "max_qa_length": 17,
            "eval_batch_size": 3,
            "predict_batch_size": 2,
            "train_step": 6,
            "warmup_step": 1,
        }
        return super().flags(**{**data, **changes})

    def own_data(self) -> dict[str, Any]:
        """Returns flags for custom questions instead of RACE."""
        files = {f"{split}_choices": self.folder / f"{split}.jsonl" for split in COUNTS}
        return {"data_dir": None, **files}

    def predicted(self) -> list[dict[str, str]]:
        """The rows of predictions.tsv."""
        with (self.output / "predictions.tsv").open(newline="") as file:
            return list(csv.DictReader(file, delimiter="\t"))


def choices(count: int, seed: int, most_options: int) -> list[dict[str, Any]]:
    """Returns questions with at least two options, or four for RACE."""
    source = random.Random(seed)
    rows = []
    for number in range(count):
        fewer = number % 3 if most_options > 4 else 0
        options = source.sample(ANIMALS, most_options - fewer)
        label = number % len(options)
        context = " ".join(f"I saw one {animal}." for animal in options * (1 + number % 2))
        question = "The _ was seen." if number % 2 else "What was seen first?"
        row = {"id": f"own-{number}", "context": context, "question": question}
        rows.append({**row, "options": options, "label": label})
    return rows


def write_choices(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Writes JSON Lines. Rows without `label` are questions to predict."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_race(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one JSON file per passage, like the download."""
    folder.mkdir(parents=True)
    for number, row in enumerate(rows):
        passage = {
            "article": row["context"],
            "questions": [row["question"]],
            "options": [row["options"]],
            "answers": [LETTERS[row["label"]]],
            "id": f"{folder.name}{number}.txt",
        }
        (folder / f"{number}.txt").write_text(json.dumps(passage))
