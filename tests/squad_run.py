"""A small question-answering model: its data, its command, and its output."""

import json
import random
from pathlib import Path
from typing import Any

import albert_tf
from albert_tf.squad.run import SquadJob
from tests.fine_tuning_run import FineTuningRun

PLACES = ("Porto", "Brest", "Oslo", "Riga", "Turin")
THINGS = ("lighthouse", "market", "harbour", "old town hall", "bridge")
FILES = ("predictions.json", "nbest_predictions.json")


class SquadRun(FineTuningRun):
    """Questions about contexts of one to three windows, a model, and `run_squad.py` with them.

    In version 2 of SQuAD, every third question has no answer.
    """

    script = "run_squad.py"
    job, settings = SquadJob, albert_tf.SquadSettings
    function = albert_tf.run_squad
    files = "train_file", "predict_file"
    actions = "do_train", "do_predict"

    def __init__(self, folder: Path, golden: Path, version: int = 1, **config: Any) -> None:
        super().__init__(folder, golden, **{"max_position_embeddings": 48, **config})
        self.version = version
        for name, count, seed in (("train", 15, 1), ("dev", 11, 2)):
            write_squad(folder / f"{name}.json", questions(count, seed, version))

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns flags for six steps with a checkpoint every two steps."""
        data = {
            "squad_version": self.version,
            "train_file": self.folder / "train.json",
            "predict_file": self.folder / "dev.json",
            "doc_stride": 11,
            "max_query_length": 13,
            "num_train_epochs": 2.0,
            "predict_batch_size": 4,
            "n_best_size": 7,
            "max_answer_length": 5,
        }
        return super().flags(**{**data, **changes})

    def ids(self, name: str = "dev.json") -> list[str]:
        """Returns the questions of a file in order."""
        paragraphs = json.loads((self.folder / name).read_text())["data"][0]["paragraphs"]
        return [question["id"] for paragraph in paragraphs for question in paragraph["qas"]]

    def predictions(self) -> dict[str, str]:
        return json.loads((self.output / "predictions.json").read_text())


def questions(count: int, seed: int, version: int) -> list[tuple[str, str, str | None]]:
    """Returns contexts, questions and answers. Missing answers are `None`."""
    source = random.Random(seed)
    rows: list[tuple[str, str, str | None]] = []
    for number in range(count):
        facts = [
            f"The {thing} of {source.choice(PLACES)} was built in {source.randint(1200, 1999)}."
            for thing in source.sample(THINGS, 1 + number % 4)
        ]
        answer = facts[source.randrange(len(facts))].split()[-1].rstrip(".")
        has_none = version == 2 and number % 3 == 2
        rows.append((" ".join(facts), "When was it built?", None if has_none else answer))
    return rows


def write_squad(path: Path, rows: list[tuple[str, str, str | None]], **changes: Any) -> Path:
    """Writes contexts, questions and answers in the format of SQuAD.

    Answers start at their first occurrence. The changes are applied to the last question.
    """
    paragraphs = []
    for number, (context, question, answer) in enumerate(rows):
        entry: dict[str, Any] = {"id": f"q{number}", "question": question}
        entry["is_impossible"] = answer is None
        entry["answers"] = (
            [] if answer is None else [{"text": answer, "answer_start": context.index(answer)}]
        )
        paragraphs.append({"context": context, "qas": [entry]})
    paragraphs[-1]["qas"][0].update(changes)
    content = {"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content, ensure_ascii=False))
    return path


def without_answers(path: Path, source: Path) -> Path:
    """Copies a file of questions without the answers."""
    content = json.loads(source.read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            del question["answers"], question["is_impossible"]
    path.write_text(json.dumps(content))
    return path
