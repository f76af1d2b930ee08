"""What a fine-tuned model was trained to do, kept beside its checkpoints as `labels.json`.

Evaluating, predicting and exporting later read the labels back: their order is part of the model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import tensorflow as tf

from albert_tf.data.files import write_then_rename
from albert_tf.data.text_examples import Labels

LABELS_FILE = "labels.json"
# Tasks with the same labels and the same kind of text: a model of one answers the others.
_SAME_KIND = ({"mnli", "mismnli", "ax"},)


@dataclass(frozen=True)
class TrainedTask:
    """A task and what it predicts.

    Attributes:
        name: the task in lower case; "custom" for files of the user's own.
        labels: what is predicted.
        columns: names of the columns of a user's files, by flag.
        do_lower_case: whether texts are lower-cased.
    """

    name: str
    labels: Labels
    columns: Mapping[str, str | None] = field(default_factory=dict)
    do_lower_case: bool = True

    def write(self, directory: str) -> None:
        """Writes `labels.json`; a label's place in `labels` is its id."""
        content = {
            "task_name": self.name,
            "labels": list(self.labels.names),
            "regression": self.labels.is_regression,
            "columns": dict(self.columns),
            "do_lower_case": self.do_lower_case,
        }
        with write_then_rename(os.path.join(directory, LABELS_FILE)) as file:
            file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    @classmethod
    def read(cls, directory: str) -> TrainedTask | None:
        """Reads the `labels.json` of a directory, None where there is none.

        Raises:
            ValueError: the file is not one that `write` wrote.
        """
        path = os.path.join(directory, LABELS_FILE)
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
        try:
            values = json.loads(content)
            return cls(
                values["task_name"],
                Labels(tuple(values["labels"])),
                values.get("columns", {}),
                values.get("do_lower_case", True),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path!r} should hold task_name and labels as JSON, but does not: {error!r}"
            ) from error

    def check_answers(self, asked: TrainedTask, directory: str) -> None:
        """Refuses a task that the model in a directory was not trained for.

        Args:
            asked: the task of the command line.
            directory: where this one was read from.

        Raises:
            ValueError: another task, unless its texts and labels are of the same kind (MNLI,
                its mismatched part and AX); other labels; another case.
        """
        path = os.path.join(directory, LABELS_FILE)
        is_same_kind = any({self.name, asked.name} <= kind for kind in _SAME_KIND)
        if self.name != asked.name and not is_same_kind:
            raise ValueError(
                f"{directory!r} belongs to another task: {path} says {self.name!r}, --task_name "
                f"{asked.name!r}. Give a fresh --output_dir, or the same task."
            )
        if self.labels != asked.labels:
            raise ValueError(
                f"{directory!r} belongs to another task: the labels in {path} are "
                f"{_described(self.labels)}, those of the data {_described(asked.labels)}. Give a "
                "fresh --output_dir, or the same data."
            )
        if self.do_lower_case != asked.do_lower_case:
            raise ValueError(
                f"--do_lower_case={asked.do_lower_case} contradicts {path}: the model was trained "
                f"with --do_lower_case={self.do_lower_case}."
            )


def _described(labels: Labels) -> str:
    return "numbers" if labels.is_regression else ", ".join(map(repr, labels.names))
