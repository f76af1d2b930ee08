"""Collects the results of `run_glue.sh` in a table, a figure and a submission to the GLUE server.

A run is a directory `<task>-seed<seed>`. Its scores are the scores of its best checkpoint.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import statistics
import types
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.checkpoints.run_records import BEST_FILE, NUMBER, STEP, BestTrial
from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    file_exists,
    folder_names,
    open_binary,
    read_utf8,
    write_then_rename,
)
from albert_tf.data.text_examples import GLUE_TASKS
from albert_tf.training.curves import png

Scores = dict[str, float]  # by the names in eval_results.txt
Runs = Mapping[str, Mapping[int, Scores]]  # by task and seed; incomplete runs have no scores
_NO_SCORES = {"global_step", "best"}  # other numbers in eval_results.txt
# Task, its title, metric, its title; in the order of the GLUE leaderboard. AX has no labels.
_ROWS = (
    ("cola", "CoLA", "matthew_corr", "Matthews"),
    ("sst-2", "SST-2", "eval_accuracy", "accuracy"),
    ("mrpc", "MRPC", "eval_accuracy", "accuracy"),
    ("mrpc", "MRPC", "f1", "F1"),
    ("sts-b", "STS-B", "pearson", "Pearson"),
    ("sts-b", "STS-B", "spearman", "Spearman"),
    ("qqp", "QQP", "eval_accuracy", "accuracy"),
    ("qqp", "QQP", "f1", "F1"),
    ("mnli", "MNLI-m", "eval_accuracy", "accuracy"),
    ("mismnli", "MNLI-mm", "eval_accuracy", "accuracy"),
    ("qnli", "QNLI", "eval_accuracy", "accuracy"),
    ("rte", "RTE", "eval_accuracy", "accuracy"),
    ("wnli", "WNLI", "eval_accuracy", "accuracy"),
)


def read_runs(results_dir: str) -> Runs:
    """Returns the scores of all runs in a directory.

    Raises:
        ValueError: the directory contains no runs, or a file of a run is damaged.
    """
    runs: dict[str, dict[int, Scores]] = {}
    for name in folder_names(results_dir):
        task, _, seed = name.rpartition("-seed")
        if task in GLUE_TASKS and re.fullmatch("[0-9]{1,18}", seed):
            runs.setdefault(task, {})[int(seed)] = _best_scores(os.path.join(results_dir, name))
    if not runs:
        raise UserError(
            f"`results_dir` must contain results of run_glue.sh: directories <task>-seed<seed>, "
            f"such as rte-seed1. Received: {results_dir!r}"
        )
    return runs


def _best_scores(path: str) -> Scores:
    if file_exists(os.path.join(path, "run_glue.unfinished")):
        return {}
    evaluations = read_evaluations(path)
    best_file = os.path.join(path, BEST_FILE)
    is_trained = file_exists(best_file)  # a run that only evaluates has no best checkpoint
    step = BestTrial.read(best_file).step if is_trained else max(evaluations, default=-1)
    return evaluations.get(step, {})


def read_evaluations(output_dir: str) -> dict[int, Scores]:
    """Returns the finite numbers in `eval_results.txt` by step. Without a file, it is empty."""
    path = os.path.join(output_dir, "eval_results.txt")
    evaluations = {}
    for block in read_utf8(path).split("=" * 50) if file_exists(path) else ():
        if step := re.search(rf"^global_step = ({STEP})$", block, re.MULTILINE):
            numbers = re.findall(rf"^(\w+) = ({NUMBER})$", block, re.MULTILINE)
            values = {key: float(value) for key, value in numbers if math.isfinite(float(value))}
            evaluations[int(step[1])] = {k: values[k] for k in values.keys() - _NO_SCORES}
    return evaluations


def published_scores(model: str) -> tuple[str | None, dict[tuple[str, str], float | None]]:
    """Returns the name of a released model and its published scores.

    Args:
        model: a name such as "base_v2", or a model in any format, which is identified by its
            configuration.

    Returns:
        The name, and scores in percent by task and metric. `None` and no scores for other models.

    Raises:
        ValueError: there is no such model.
    """
    # These modules import TensorFlow, which the other functions do not need.
    from albert_tf.checkpoints.formats import locate, open_model
    from albert_tf.config import PRESETS
    from albert_tf.finetuning.recipes import SIZES, VERSIONS, recipe_for, released_name

    config = None if model in PRESETS else open_model(locate(model)).config
    name = model if model in PRESETS else released_name(config) if config else None
    size, _, version = (name or "").partition("_")
    if size not in SIZES or version not in VERSIONS:
        return None, {}
    recipes = {task: recipe_for(task, size, version) for task, *_ in _ROWS}
    return name, {(t, m): recipes[t].published.get(m) for t, _, m, _ in _ROWS}


def write_results(
    results_dir: str,
    runs: Runs,
    model: str | None = None,
    published: Mapping[tuple[str, str], float | None] = types.MappingProxyType({}),
) -> str:
    """Writes `glue_results.md`, `.json` and `.png`; returns the Markdown table.

    Args:
        results_dir: directory of the files.
        runs: see `read_runs`. Runs without scores are listed below the table.
        model: name of the model with the published scores. If `None`, the table has no such column.
        published: see `published_scores`.
    """
    cells = [["task", "metric", "median", "min to max", "seeds"]]
    cells[0] += [f"published, {model}"] if model else []
    rows: list[dict[str, Any]] = []
    for task, title, metric, metric_title in _ROWS:
        found = sorted(runs.get(task, {}).items())
        if seeds := {seed: 100 * scores[metric] for seed, scores in found if metric in scores}:
            best, worst = max(seeds.values()), min(seeds.values())
            row = {"task": task, "metric": metric, "median": statistics.median(seeds.values())}
            row |= {"min": worst, "max": best, "published": published.get((task, metric))}
            rows.append({**row, "seeds": seeds})
            spread = f"{worst:.1f} to {best:.1f}"
            cells.append([title, metric_title, f"{row['median']:.1f}", spread, str(len(seeds))])
            cells[-1] += [str(row["published"] or "-")] if model else []
    notes = ["In percent, on the development sets, at the best checkpoint of each run."]
    for task in dict.fromkeys(row[0] for row in _ROWS):
        missing = [seed for seed, scores in sorted(runs.get(task, {}).items()) if not scores]
        notes += [f"No scores: {task}-seed{seed}." for seed in missing]
    content = {"model": model, "unit": "percent", "scores": rows}
    titles = ["\n".join(row[:2]) for row in cells[1:]]
    path = os.path.join(results_dir, "glue_results")
    return write_table(path, cells, notes, content, _figure(titles, rows))


def write_table(
    path: str, rows: Sequence[Sequence[str]], notes: Sequence[str], content: Any, figure: bytes
) -> str:
    """Writes `<path>.md`, `.json` and `.png`; returns the Markdown table with its notes.

    The first row is the header. The first two columns are texts, the others numbers.
    """
    header, *others = rows
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *others]
    table = "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes]) + "\n"
    text = json.dumps(content, indent=2) + "\n"
    for ending, data in (("md", table.encode()), ("json", text.encode()), ("png", figure)):
        with write_then_rename(f"{path}.{ending}") as file:
            file.write(data)
    return table


def _figure(titles: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(max(3, 1 + 0.9 * len(rows)), 4), layout="constrained")
    axes = figure.add_subplot(ylabel="percent, development set")
    for column, row in enumerate(rows):
        scores = row["seeds"].values()
        axes.plot([column] * len(scores), scores, "o", alpha=0.5, color="tab:blue")
        axes.plot(column, row["median"], "_", markersize=30, color="tab:blue")
        axes.plot(column, row["published"] or math.nan, "D", mfc="none", color="tab:orange")
    axes.set_xticks(range(len(rows)), titles, fontsize="small")
    axes.set_title("dots: seeds, lines: medians, diamonds: published", fontsize="small")
    axes.grid(axis="y", alpha=0.3)
    return png(figure)


def choose_files(results_dir: str, runs: Runs) -> dict[str, str]:
    """Returns the predictions to submit by task: those of the seed with the best score.

    MNLI-mm and AX use the seed of MNLI, because one model predicts all three.
    """

    def path(task: str, seed: int) -> str:
        return os.path.join(results_dir, f"{task}-seed{seed}", GLUE_TASKS[task].submission_file)

    def best_seed(task: str) -> int:
        metric, seeds = GLUE_TASKS[task].best_metric, runs.get(task, {})
        found = [(seeds[n].get(metric, -math.inf), -n) for n in seeds if file_exists(path(task, n))]
        return -max(found, default=(0, 1))[1]

    chosen = {t: path(t, best_seed("mnli" if t in ("mismnli", "ax") else t)) for t in GLUE_TASKS}
    return {task: file for task, file in chosen.items() if file_exists(file)}


def write_submission(path: str, files: Mapping[str, str], *, allow_missing: bool = False) -> None:
    """Writes the zip file for the GLUE server.

    Args:
        path: the zip file.
        files: predictions by task; see `choose_files`.
        allow_missing: whether predictions of some tasks may be missing.

    Raises:
        ValueError: predictions are missing.
    """
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
            with open_binary(source, "rb") as file:
                archive.writestr(GLUE_TASKS[task].submission_file, file.read())
    with write_then_rename(path) as output:
        output.write(content.getvalue())
