"""The runs `run_glue.sh` leaves behind: a directory `<task>-seed<seed>` for each.

A run counts with the checkpoint that was best on the development set.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from albert_tf.best_trial import BEST_FILE, NUMBER, STEP, BestTrial
from albert_tf.data.files import file_exists, folder_names
from albert_tf.data.glue_tasks import GLUE_TASKS
from albert_tf.data.strict_json import shown
from albert_tf.data.utf8 import read_utf8

_KEYS = {"matthews": "matthew_corr"}  # of metrics that files call otherwise than tasks do
_RESULTS_FILE = "eval_results.txt"
_UNFINISHED_FILE = "run_glue.unfinished"  # there from the start of a run until it ends well


@dataclass(frozen=True)
class GlueRun:
    """One task fine-tuned with one seed.

    Attributes:
        task: key of `GLUE_TASKS`.
        seed: of the run.
        path: its directory.
        scores: results at the best checkpoint as `eval_results.txt` has them, by their keys; empty
            where there are none.
        problem: why there are none.
    """

    task: str
    seed: int
    path: str
    scores: Mapping[str, float]
    problem: str = ""

    @property
    def score(self) -> float:
        """The score the best checkpoint was chosen by; minus infinity where there is none."""
        score = self.scores.get(GLUE_TASKS[self.task].best_metric, math.nan)
        return -math.inf if math.isnan(score) else score


def task_metrics(task: str) -> list[str]:
    """Returns the keys of the scores GLUE defines for a task, the one that decides first."""
    row = GLUE_TASKS[task]
    return list(dict.fromkeys([row.best_metric, *(_KEYS.get(name, name) for name in row.metrics)]))


def read_runs(results_dir: str) -> list[GlueRun]:
    """Reads the runs in a directory, by task and seed.

    Raises:
        ValueError: there are none, or a file of one cannot be understood; the message names it.
    """
    tasks = "|".join(map(re.escape, GLUE_TASKS))
    runs = []
    for name in folder_names(results_dir):
        if match := re.fullmatch(rf"({tasks})-seed([0-9]{{1,18}})", name):
            path = os.path.join(results_dir, name)
            runs.append(_read_run(match[1], int(match[2]), path))
    if not runs:
        raise ValueError(
            f"--results_dir {results_dir!r} holds no results of run_glue.sh: no directory "
            "<task>-seed<seed>, such as rte-seed1."
        )
    order = list(GLUE_TASKS)
    return sorted(runs, key=lambda run: (order.index(run.task), run.seed))


def _read_run(task: str, seed: int, path: str) -> GlueRun:
    """The run with its scores, or with what it lacks."""
    if file_exists(os.path.join(path, _UNFINISHED_FILE)):
        return GlueRun(task, seed, path, {}, "has not finished")
    blocks = read_evaluations(os.path.join(path, _RESULTS_FILE))
    if not blocks:
        return GlueRun(task, seed, path, {}, f"no {_RESULTS_FILE}")
    best_file = os.path.join(path, BEST_FILE)
    step = BestTrial.read(best_file).step if file_exists(best_file) else max(blocks)
    if step not in blocks:
        problem = f"{_RESULTS_FILE} has no results of step {step}, the best one"
        return GlueRun(task, seed, path, {}, "no checkpoint has a score" if step < 0 else problem)
    return GlueRun(task, seed, path, blocks[step])


def read_evaluations(path: str) -> dict[int, dict[str, float]]:
    """Reads an `eval_results.txt`: the results of each evaluated checkpoint, by its step.

    Arrays, which the original prints among them, are left out.

    Args:
        path: need not exist.

    Raises:
        ValueError: the file is damaged; names it and the key.
    """
    if not file_exists(path):
        return {}
    blocks: dict[int, dict[str, float]] = {}
    for block in re.split(r"^=+$", read_utf8(path), flags=re.MULTILINE):
        values = dict(re.findall(r"^(\w+) = ([-+\w.]+)$", block, re.MULTILINE))
        if "global_step" in values:
            step = int(_checked(path, "global_step", values.pop("global_step"), STEP))
            values.pop("best", None)  # of the checkpoints before this one
            blocks[step] = {
                key: float(_checked(path, key, value, NUMBER)) for key, value in values.items()
            }
    return blocks


def _checked(path: str, key: str, value: str, pattern: str) -> str:
    if not re.fullmatch(pattern, value):
        raise ValueError(f"{path}: {key:.80} should be a number. Received: {shown(value)}")
    return value
