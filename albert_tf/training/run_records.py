"""Files of a training run: `run_config.json`, `metrics.jsonl` and `best_trial.txt`.

A line of `metrics.jsonl` contains `step`, `phase`, `time`, and metrics by name. NaN and infinity,
which JSON does not support, are stored as null.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from absl import logging

from albert_tf.checkpoints.model_directory import RUN_CONFIG_FILE, read_run_config, read_run_file
from albert_tf.data.errors import UserError
from albert_tf.data.files import read_file, read_utf8, write_file
from albert_tf.data.strict_json import JsonValue, parse_json, shown

METRICS_FILE = "metrics.jsonl"
EVALUATION_KEY = "evaluation"  # key in run_config.json
AFTER_STEP = "after_step"  # in the evaluation; only later evaluations used the same data
LOSSES = ("eval_loss", "loss")  # most exact first
LOWER_IS_BETTER = frozenset({*LOSSES, "MSE", "RMSE"})
Record = dict[str, Any]  # step, phase, time and the metrics
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?|inf|nan)"  # in the format of Python
STEP = r"-?[0-9]{1,18}"
_CONTENT = re.compile(rf"({STEP}):({STEP}):({NUMBER})(?::(\w+))?\s*")


def write_evaluation(output_dir: str, evaluation: Mapping[str, Any]) -> None:
    """Replaces the description of the evaluation in the settings of the last start of a run."""
    config = {**read_run_config(output_dir), EVALUATION_KEY: evaluation}
    text = json.dumps({**read_run_file(output_dir), "config": config}, indent=2) + "\n"
    write_file(os.path.join(output_dir, RUN_CONFIG_FILE), text)


def new_record(phase: str, step: int, metrics: Mapping[str, float]) -> Record:
    """Returns the record of metrics that were measured now."""
    values = {name: float(value) for name, value in metrics.items()}
    return {"step": step, "phase": phase, "time": iso_time(), **values}


def iso_time() -> str:
    """Returns the local time."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def to_line(record: Mapping[str, Any]) -> str:
    """Returns the line of a record, including the line end."""
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }
    return json.dumps(finite) + "\n"


def read_records(path: str) -> list[Record]:
    """Reads the lines of a file. Damaged lines are skipped with a warning.

    A truncated last line is skipped without a warning, because it may be being written.
    """
    lines = read_file(path).split(b"\n")
    records, damages = [], []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                records.append(_record(line, path, number))
            except ValueError as error:
                damages += [error] * (number < len(lines))
    if damages:
        logging.warning("%d damaged lines of %s are skipped: %s", len(damages), path, damages[0])
    return records


def _record(line: bytes, where: str, number: int) -> Record:
    content = JsonValue(parse_json(line, where, line=number), f"{where}, line {number}")
    record: Record = {"step": content["step"].whole_number(0), "phase": content["phase"].text()}
    if not record["phase"].isidentifier():  # it becomes the name of a directory
        raise content["phase"].error("a name")
    for key, value in content.members().items():
        if key == "time":
            record[key] = value.text()
        elif key not in record:
            record[key] = math.nan if value.value is None else float(value.number())
    return record


def rank(results: Mapping[str, float], metric: str) -> tuple[float, ...]:
    """Returns the score `metric` and, if the results contain a loss, its negative value.

    The evaluation with the higher rank is better: of equal scores, the one with the lower loss. NaN
    is the worst value, also for scores that are missing because a label does not occur. The sign of
    scores that should be low is changed.
    """
    score = results.get(metric, math.nan)
    loss = next((results[key] for key in LOSSES if key in results), None)
    values = [-score if metric in LOWER_IS_BETTER else score]
    values += [] if loss is None else [-loss]
    return tuple(-math.inf if math.isnan(value) else value for value in values)


def evaluations(records: Iterable[Record], metric: str, after: int = -1) -> list[Record]:
    """Returns the evaluations after a step that contain a metric."""
    found = (record for record in records if record["phase"] == "eval" and metric in record)
    return [record for record in found if record["step"] > after]


def best_of(found: Iterable[Record], metric: str) -> Record | None:
    """Returns the best evaluation, see `rank`; of equal ones, the last."""
    return max(found, key=lambda record: (*rank(record, metric), record["step"]), default=None)


class BestTrial(NamedTuple):
    """The content of `best_trial.txt`: `last_step:best_step:best_value`, as in the original."""

    last_step: int  # step of the last evaluated checkpoint
    step: int  # step of the best checkpoint; -1 if there is none
    value: float  # score of the best checkpoint
    metric: str | None = None  # stored after another colon; `None` for the metric of the original

    @classmethod
    def read(cls, path: str) -> BestTrial:
        """Reads the file. Raises ValueError if it is damaged."""
        content = read_utf8(path)
        match = _CONTENT.fullmatch(content)
        if not match:
            raise UserError(
                f"{path} must contain last_step:best_step:best_value. Received: {shown(content)}. "
                "If you remove the file, the next evaluated checkpoint becomes the best checkpoint."
            )
        return cls(int(match[1]), int(match[2]), float(match[3]), match[4])

    def to_text(self) -> str:
        """Returns the content of the file."""
        fields = [self.last_step, self.step, self.value]
        return ":".join(map(str, fields + [self.metric] * (self.metric is not None)))
