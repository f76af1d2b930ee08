"""Collects the results of `run_glue.sh` in a table, a figure and a submission to the GLUE server.

A run is a directory `<task>-seed<seed>`. Its scores are the scores of its best checkpoint.
"""

import io
import math
import os
import re
import statistics
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.original import BEST_FILE
from albert_tf.config import PRESETS
from albert_tf.data.errors import UserError, without_secrets
from albert_tf.data.files import file_exists, folder_names, read_file, write_file
from albert_tf.data.pictures import png
from albert_tf.finetuning.recipes import VERSIONS, recipe_for, released_name
from albert_tf.glue import GLUE_TASKS
from albert_tf.tools.commands import read_evaluations, write_table
from albert_tf.training.run_records import BestTrial

# Scores by task, seed and metric. Unfinished runs have no scores.
Runs = Mapping[str, Mapping[int, Mapping[str, float]]]
_METRICS = {
    "matthew_corr": "Matthews",
    "eval_accuracy": "accuracy",
    "f1": "F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
# Tasks and metrics of the table, in the order of the GLUE leaderboard. The task AX has no labels.
_ROWS = [
    ("cola", "matthew_corr"),
    ("sst-2", "eval_accuracy"),
    ("mrpc", "eval_accuracy"),
    ("mrpc", "f1"),
    ("sts-b", "pearson"),
    ("sts-b", "spearman"),
    ("qqp", "eval_accuracy"),
    ("qqp", "f1"),
    *((task, "eval_accuracy") for task in ("mnli", "mismnli", "qnli", "rte", "wnli")),
]


def read_runs(results_dir: str) -> Runs:
    """Returns the scores of all runs in a directory.

    Raises `ValueError` if the directory contains no runs, or if a file of a run is damaged.
    """
    runs: dict[str, dict[int, Mapping[str, float]]] = {}
    for name in folder_names(results_dir):
        task, _, seed = name.rpartition("-seed")
        if task in GLUE_TASKS and re.fullmatch("[0-9]{1,18}", seed):
            runs.setdefault(task, {})[int(seed)] = _best_scores(os.path.join(results_dir, name))
    if not runs:
        raise UserError(
            "`results_dir` must contain results of run_glue.sh: directories <task>-seed<seed>, "
            f"such as rte-seed1. Received: {results_dir!r}"
        )
    return runs


def _best_scores(path: str) -> Mapping[str, float]:
    if file_exists(os.path.join(path, "run_glue.unfinished")):
        return {}
    evaluations = read_evaluations(path)
    best_file = os.path.join(path, BEST_FILE)
    is_trained = file_exists(best_file)  # a run that only evaluates has no best checkpoint
    step = BestTrial.read(best_file).step if is_trained else max(evaluations, default=-1)
    return evaluations.get(step, {})


def write_results(results_dir: str, runs: Runs, model: str | None = None) -> str:
    """Writes `glue_results.md`, `.json` and `.png`. Returns the Markdown table.

    Runs without scores, and tasks on which all seeds seem to give one answer, are listed below the
    table. If `model` is the path or name of a released model, the table also contains its published
    scores.
    """
    name = _released_model(model) if model else None
    shown_model = name or (model and without_secrets(model))
    rows = result_rows(runs, name)
    header = ["task", "metric", "median", "min to max", "seeds"]
    cells = [header + [f"published, {name}"] * bool(name)]
    for row in rows:
        title = GLUE_TASKS[row["task"]].submission_file.removesuffix(".tsv")
        cells.append([title, _METRICS[row["metric"]], f"{row['median']:.1f}"])
        cells[-1] += [f"{row['min']:.1f} to {row['max']:.1f}", str(len(row["seeds"]))]
        cells[-1] += [str(row["published"] or "-")] * bool(name)
    notes = ["In percent, on the development sets, at the best checkpoint of each run."]
    notes += [f"Model: {shown_model}."] if model else []
    for task in dict(_ROWS):
        missing = [seed for seed, values in sorted(runs.get(task, {}).items()) if not values]
        notes += [f"No scores: {task}-seed{seed}." for seed in missing]
        notes += _constant_answers(task, [row for row in rows if row["task"] == task])
    figure = _figure(["\n".join(row[:2]) for row in cells[1:]], rows)
    content = {"model": shown_model, "unit": "percent", "scores": rows}
    return write_table(os.path.join(results_dir, "glue_results"), cells, notes, content, figure)


def result_rows(runs: Runs, name: str | None) -> list[dict[str, Any]]:
    """Returns the scores of each task and metric, with those published for the model `name`."""
    rows = []
    for task, metric in _ROWS:
        scores = sorted(runs.get(task, {}).items())
        if seeds := {seed: 100 * values[metric] for seed, values in scores if metric in values}:
            low, median, high = (f(seeds.values()) for f in (min, statistics.median, max))
            published = recipe_for(task, *name.split("_")).published.get(metric) if name else None
            row = {"task": task, "metric": metric, "median": median, "min": low, "max": high}
            rows.append({**row, "published": published, "seeds": seeds})
    return rows


def _released_model(model: str) -> str | None:
    """Returns the name of a released English model, such as "base_v2". `None` for other models."""
    config = PRESETS.get(model) or open_model(model).config
    name = model if model in PRESETS else released_name(config) if config else None
    return name if name and name.endswith(VERSIONS) else None


def _constant_answers(task: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a note if all seeds have the same scores, or no correlation with the labels."""
    is_same = bool(rows) and all(row["min"] == row["max"] for row in rows)
    if not is_same or (len(rows[0]["seeds"]) == 1 and rows[0]["median"] != 0):
        return []
    return [
        f"{task}: all seeds have the same scores, as if every example got the same answer. Check "
        "the predictions, and train with more steps or another learning rate."
    ]


def _figure(titles: list[str], rows: list[dict[str, Any]]) -> bytes:
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(max(3, 1 + 0.9 * len(rows)), 4), layout="constrained")
    axes = figure.add_subplot(ylabel="percent, development set")
    for column, row in enumerate(rows):
        scores = row["seeds"].values()
        axes.plot([column] * len(scores), scores, "o", alpha=0.5, color="tab:blue")
        axes.plot(column, row["median"], "_", markersize=30, color="tab:blue")
        axes.plot(column, row["published"] or math.nan, "D", mfc="none", color="tab:orange")
    axes.set_xticks(range(len(rows)), titles, fontsize="small")
    axes.set_xlim(-0.5, len(rows) - 0.5)
    published = "\ndiamonds: published" if any(row["published"] for row in rows) else ""
    axes.set_title(f"dots: seeds, lines: medians{published}", fontsize="small")
    axes.grid(axis="y", alpha=0.3)
    return png(figure)


def write_submission(
    path: str, results_dir: str, runs: Runs, *, allow_missing: bool = False
) -> list[str]:
    """Writes the zip file for the GLUE server. Returns the files of predictions in it.

    It contains the predictions of the best seed of each task. MNLI-mm and AX use the seed of MNLI,
    because one model predicts all three. Missing predictions are an error, unless `allow_missing`.
    """

    def file_of(task: str, seed: int) -> str:
        return os.path.join(results_dir, f"{task}-seed{seed}", GLUE_TASKS[task].submission_file)

    files: dict[str, str] = {}
    for task in GLUE_TASKS:
        scored = "mnli" if task in ("mismnli", "ax") else task
        metric, scores = GLUE_TASKS[scored].best_metric, runs.get(scored, {})
        seeds = [seed for seed in sorted(scores) if file_exists(file_of(scored, seed))]
        best = max(seeds, key=lambda seed: scores[seed].get(metric, -math.inf), default=None)
        if best is not None and file_exists(file_of(task, best)):
            files[task] = file_of(task, best)
    missing = [task for task in GLUE_TASKS if task not in files]
    if missing and not (files and allow_missing):
        raise UserError(
            f"{path!r} cannot be submitted: the GLUE server requires predictions for all tasks. "
            f"Missing: {', '.join(missing)}. Run these tasks, or set `allow_missing`."
        )
    if missing:
        logging.warning("The submission lacks %s and will be rejected", ", ".join(missing))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for task, source in sorted(files.items()):
            archive.writestr(GLUE_TASKS[task].submission_file, read_file(source))
    write_file(path, content.getvalue())
    return sorted(files.values())
