"""The task of a fine-tuned model, stored next to its checkpoints as `labels.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.checkpoints.model_directory import RUN_CONFIG_FILE, read_run_config
from albert_tf.data.errors import UserError
from albert_tf.data.files import write_file
from albert_tf.data.strict_json import JsonError, JsonValue, read_json
from albert_tf.labels import Labels

LABELS_FILE = "labels.json"
SQUAD_TASKS = {1: "squad1.1", 2: "squad2.0"}  # by version
MULTIPLE_CHOICE = "race"  # also for custom data
QUESTION_TASKS = (*SQUAD_TASKS.values(), MULTIPLE_CHOICE)
TOKENS = "tokens"  # any task with a label per token
THRESHOLD = "null_score_diff_threshold"  # the only setting that is not an integer
_MULTI_LABEL = "multi_label_threshold"  # only for multi-label tasks
UNNAMED = "custom"  # custom files, or an unknown task
UNCLEAR = ""  # labels of texts or of tokens
_SCALE = ("mean", "deviation")  # only for regressions of custom files

_OTHER_TASK = "Use the same task and data, another model or, to train, a new `output_dir`."
_SAME_KIND = {"mismnli": "mnli", "ax": "mnli"}  # tasks whose models are interchangeable


@dataclass(frozen=True)
class StoredTask:
    """A task and its labels, whose order is part of the model."""

    name: str  # a GLUE task in lower case, `UNNAMED`, `UNCLEAR`, `TOKENS`, or a `QUESTION_TASKS`
    labels: Labels = field(default_factory=Labels)  # empty for question tasks
    is_pair: bool | None = True  # whether an example is a pair of texts. `None` if unknown.
    columns: Mapping[str, str | None] = field(default_factory=dict)  # of custom files, by flag
    # Number of tokens to which texts were truncated. `None` if unknown.
    max_seq_length: int | None = None
    # Further settings of a question task, by flag
    settings: Mapping[str, float] = field(default_factory=dict)
    # Mean and standard deviation of the training labels of a regression, in whose unit the head was
    # trained; see `ClassificationTask`. `None` if the head was trained without a unit.
    scale: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of `labels.json`."""
        if self.name in QUESTION_TASKS:
            return {
                "task_name": self.name,
                "settings": dict(self.settings),
                "max_seq_length": self.max_seq_length,
            }
        return {
            "task_name": self.name,
            "labels": list(self.labels.names),
            "regression": self.labels.is_regression,
            **({_MULTI_LABEL: self.labels.threshold} if self.labels.multi_label else {}),
            "pairs": self.is_pair,
            "columns": dict(self.columns),
            "max_seq_length": self.max_seq_length,
            **(dict(zip(_SCALE, self.scale, strict=True)) if self.scale else {}),
        }

    def write(self, directory: str) -> None:
        """Writes `labels.json`."""
        content = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        write_file(os.path.join(directory, LABELS_FILE), f"{content}\n")

    @classmethod
    def read(cls, directory: str) -> StoredTask | None:
        """Reads the `labels.json` in a directory, or the task in its `run_config.json`.

        Returns `None` if neither exists. Raises `ValueError` if a value is invalid, or the files
        describe different tasks.
        """
        path = os.path.join(directory, LABELS_FILE)
        trained = _task_of_run(directory)
        if not tf.io.gfile.exists(path):
            if trained is not None:
                logging.warning("%s is missing: using the task in %s", path, RUN_CONFIG_FILE)
            return trained
        task = cls._read(path)
        if trained is not None:
            sources = {path: task.facts, os.path.join(directory, RUN_CONFIG_FILE): trained.facts}
            rename = " To rename classes, load the model with rename_labels=True and save it."
            advice = Meeting.LOAD.value + rename * (task.labels != trained.labels)
            settle(sources, Meeting.LOAD, advice=advice)
        return task

    @classmethod
    def _read(cls, path: str) -> StoredTask:
        content = JsonValue(read_json(path, repr(path)), repr(path))
        try:
            return _task(content)
        except JsonError:
            raise
        except ValueError as error:  # raised by `Labels`
            raise UserError(f"{path!r}: {error}") from error

    def named(self, name: str) -> StoredTask:
        """Returns the task with a name, which also states the kind of its labels, if it has none.

        Some formats store labels without the name of the task.
        """
        if self.name == UNCLEAR or (self.name == UNNAMED and name not in (TOKENS, *QUESTION_TASKS)):
            return replace(self, name=name or UNNAMED)
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """The task as facts. Question tasks have no labels."""
        facts = {"task": self.name, "max_seq_length": self.max_seq_length, "scale": self.scale}
        is_of_texts = self.name not in QUESTION_TASKS
        return facts | ({"labels": self.labels, "pairs": self.is_pair} if is_of_texts else {})

    def check_name(self, name: str, directory: str, *, is_training: bool) -> None:
        """Raises `ValueError` if the model in `directory` was trained for another task.

        Without training, interchangeable tasks are accepted (MNLI and AX).
        """
        same = {} if is_training else _SAME_KIND
        names = {directory: self.name, "this command": name}
        tasks = stated("task", {where: same.get(n, n) for where, n in names.items()})
        settle(tasks, Meeting.RESUME, advice=_OTHER_TASK)

    def check_answers(self, asked: StoredTask, directory: str) -> None:
        """Raises `ValueError` if the labels differ, or only one task has pairs of texts."""
        path = os.path.join(directory, LABELS_FILE)
        path = path if tf.io.gfile.exists(path) else directory
        answers = {"task": None, "scale": None, "max_seq_length": None}
        sources = {path: self.facts | answers, "the data": asked.facts}
        settle(sources, Meeting.RESUME, advice=_OTHER_TASK)


def _task_of_run(directory: str) -> StoredTask | None:
    """Returns the task of the run that trained the model in a directory, if it is stored."""
    try:
        return _task(JsonValue(read_run_config(directory), RUN_CONFIG_FILE)["task"])
    except ValueError:  # pretraining, no run, or a file of another program
        return None


def _task(content: JsonValue) -> StoredTask:
    """Parses the result of `StoredTask.to_dict`."""
    name = content["task_name"].text()
    length = content.get("max_seq_length")
    max_seq_length = length.whole_number(1) if length else None
    if name in QUESTION_TASKS:
        settings = {
            flag: value.number() if flag == THRESHOLD else value.whole_number(1)
            for flag, value in content["settings"].members().items()
        }
        return StoredTask(name, max_seq_length=max_seq_length, settings=settings)
    threshold = content.members().get(_MULTI_LABEL)
    labels = Labels(
        tuple(label.text() for label in content["labels"].elements()),
        threshold is not None,
        threshold.number() if threshold else Labels.threshold,
    )
    regression = content.members().get("regression")
    if regression and regression.truth_value() != labels.is_regression:
        raise regression.error(f"{labels.is_regression}".lower() + " with these labels")
    pairs, columns = content["pairs"], content.members().get("columns")
    mean, deviation = map(content.members().get, _SCALE)
    if deviation and not deviation.number() > 0:
        raise deviation.error("a number above 0")
    return StoredTask(
        name,
        labels,
        None if pairs.value is None else pairs.truth_value(),
        {
            flag: None if column.value is None else column.text()
            for flag, column in (columns.members() if columns else {}).items()
        },
        max_seq_length,
        scale=(mean.number(), deviation.number()) if mean and deviation else None,
    )


def warn_of_another_length(task: StoredTask | None, max_seq_length: int | None) -> None:
    """Logs a warning if texts are truncated to another length than in training."""
    lengths = {"the model": task and task.max_seq_length, "the arguments": max_seq_length or None}
    settle(stated("max_seq_length", lengths), Meeting.GIVEN)
