"""What `run_glue.sh` leaves behind, as one table, one picture and GLUE's submission.

A run is a directory `<task>-seed<seed>`; it counts with the checkpoint that was best on the
development set. AX has no labels to score against.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import statistics
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import logging

from albert_tf.checkpoints.run_records import BEST_FILE, NUMBER, STEP, BestTrial
from albert_tf.data.files import (
    file_exists,
    folder_names,
    open_binary,
    read_utf8,
    write_then_rename,
)
from albert_tf.data.strict_json import shown
from albert_tf.data.text_examples import GLUE_TASKS
from albert_tf.training.curves import png

_RESULTS_FILE = "eval_results.txt"
_UNFINISHED_FILE = "run_glue.unfinished"  # there from the start of a run until it ends well
_KEYS = {"matthews": "matthew_corr"}  # of metrics that files call otherwise than tasks do
# The order and the names of GLUE's own table.
_TITLES = {
    "cola": "CoLA",
    "sst-2": "SST-2",
    "mrpc": "MRPC",
    "sts-b": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI-m",
    "mismnli": "MNLI-mm",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
_METRIC_TITLES = {
    "eval_accuracy": "accuracy",
    "f1": "F1",
    "matthew_corr": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
# One model answers these sets and MNLI's own, so their files come from runs of one seed.
_OF_MNLI = ("mismnli", "ax")
Row = dict[str, Any]  # task, metric, median, min, max, published, seeds: scores by seed, in percent


@dataclass(frozen=True)
class GlueRun:
    """One task fine-tuned with one seed.

    Attributes:
        task: key of `GLUE_TASKS`.
        seed: of the run.
        path: its directory.
        scores: at the best checkpoint, by the keys of `eval_results.txt`.
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

    @property
    def predictions(self) -> str:
        """The file for GLUE's server, which may not be there."""
        return os.path.join(self.path, GLUE_TASKS[self.task].submission_file)


def read_runs(results_dir: str) -> list[GlueRun]:
    """Reads the runs in a directory, by task and seed.

    Raises:
        ValueError: there are none, or a file of one cannot be understood; the message names it.
    """
    tasks = "|".join(map(re.escape, GLUE_TASKS))
    names = (re.fullmatch(rf"({tasks})-seed([0-9]{{1,18}})", n) for n in folder_names(results_dir))
    runs = [_read_run(m[1], int(m[2]), os.path.join(results_dir, m[0])) for m in names if m]
    if not runs:
        raise ValueError(
            f"--results_dir {results_dir!r} holds no results of run_glue.sh: no directory "
            "<task>-seed<seed>, such as rte-seed1."
        )
    order = list(GLUE_TASKS)
    return sorted(runs, key=lambda run: (order.index(run.task), run.seed))


def _read_run(task: str, seed: int, path: str) -> GlueRun:
    blocks = read_evaluations(os.path.join(path, _RESULTS_FILE))
    best_file = os.path.join(path, BEST_FILE)
    step = BestTrial.read(best_file).step if file_exists(best_file) else max(blocks, default=-1)
    problem = "" if step in blocks else f"{_RESULTS_FILE} lacks the best checkpoint's scores"
    if file_exists(os.path.join(path, _UNFINISHED_FILE)):
        problem = "has not finished"
    return GlueRun(task, seed, path, {} if problem else blocks[step], problem)


def read_evaluations(path: str) -> dict[int, dict[str, float]]:
    """Reads an `eval_results.txt`, if it is there: the results of each checkpoint, by its step.

    Arrays, which the original prints among them, are left out.

    Raises:
        ValueError: the file is damaged; names it and the key.
    """
    blocks: dict[int, dict[str, float]] = {}
    text = read_utf8(path) if file_exists(path) else ""
    for block in re.split(r"^=+$", text, flags=re.MULTILINE):
        values = dict(re.findall(r"^(\w+) = ([-+\w.]+)$", block, re.MULTILINE))
        values.pop("best", None)  # of the checkpoints before this one
        for key, value in values.items() if "global_step" in values else ():
            if not re.fullmatch(STEP if key == "global_step" else NUMBER, value):
                raise ValueError(f"{path}: {key:.80} must be a number. Received: {shown(value)}")
        if "global_step" in values:
            step = int(values.pop("global_step"))
            blocks[step] = {key: float(value) for key, value in values.items()}
    return blocks


def published_scores(model: str) -> tuple[str | None, dict[tuple[str, str], float]]:
    """Finds the published model, and its scores in percent by task and metric, of runs.

    `model` is the name of a released one, such as "base_v2", or a model of any format, which counts
    as the released model that has its configuration; None and no scores for others.

    Raises:
        ValueError: there is no such model.
    """
    # TensorFlow, which a table without them need not wait for.
    from albert_tf.checkpoints.formats import recognise
    from albert_tf.checkpoints.model_directory import CONFIG_FILE
    from albert_tf.config import PRESETS, AlbertConfig
    from albert_tf.finetuning.recipes import SIZES, VERSIONS, recipe_for, released_name

    name: str | None = model
    if model not in PRESETS:
        config_file = os.path.join(model, CONFIG_FILE)  # which alone will do
        is_there = file_exists(config_file)
        config = AlbertConfig.from_json_file(config_file) if is_there else None
        config = config or recognise(model, "--model").config
        name = released_name(config) if config else None
    size, _, version = (name or "").partition("_")
    if size not in SIZES or version not in VERSIONS:
        return None, {}
    published = {task: recipe_for(task, size, version).published for task in GLUE_TASKS}
    return name, {(t, metric): score for t in published for metric, score in published[t].items()}


def summarize(runs: Sequence[GlueRun], published: Mapping[tuple[str, str], float]) -> list[Row]:
    """Returns a row for each metric that GLUE defines for a task and that has scores.

    They are in GLUE's order. Published scores are in percent, by task and metric.
    """
    rows: list[Row] = []
    for task in _TITLES:
        for metric in task_metrics(task):
            values = {
                run.seed: 100 * run.scores[metric]
                for run in runs
                if run.task == task and math.isfinite(run.scores.get(metric, math.nan))
            }
            if values:
                rows.append(
                    {
                        "task": task,
                        "metric": metric,
                        "median": statistics.median(values.values()),
                        "min": min(values.values()),
                        "max": max(values.values()),
                        "published": published.get((task, metric)),
                        "seeds": values,
                    }
                )
    return rows


def task_metrics(task: str) -> list[str]:
    """Returns the keys of the scores GLUE defines for a task, the one that decides first."""
    row = GLUE_TASKS[task]
    return list(dict.fromkeys([row.best_metric, *(_KEYS.get(name, name) for name in row.metrics)]))


def write_results(
    results_dir: str, rows: Sequence[Row], model: str | None, runs: Sequence[GlueRun]
) -> str:
    """Writes `glue_results.md`, `.json` and `.png`; returns the table.

    The rows are those of `summarize`, with published scores of `model`. Runs without scores are
    named below the table.
    """
    header = ["task", "metric", "median", "min to max", "seeds"]
    header += [f"published, {model}"] if model else []
    cells = [header]
    for row in rows:
        scores = [f"{row['median']:.1f}", f"{row['min']:.1f} to {row['max']:.1f}"]
        published = [str(row["published"] or "-")] if model else []
        titles = [_TITLES[row["task"]], _METRIC_TITLES[row["metric"]]]
        cells.append([*titles, *scores, str(len(row["seeds"])), *published])
    notes = ["In percent, on the development sets, at the best checkpoint of each run."]
    notes += [
        f"Without a score: {os.path.basename(run.path)} ({run.problem})."
        for run in runs
        if run.problem and run.task in _TITLES
    ]
    content = {"model": model, "unit": "percent", "scores": rows}
    path = os.path.join(results_dir, "glue_results")
    return write_table(path, cells, notes, content, _picture(rows))


def write_table(
    path: str, rows: Sequence[Sequence[str]], notes: Sequence[str], content: Any, picture: bytes
) -> str:
    """Writes `<path>.md`, `.json` and `.png`; returns the table as Markdown, with its notes.

    The first row is the header; the first two columns are texts, the others numbers.
    """
    header, *others = rows
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *others]
    table = "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes]) + "\n"
    text = json.dumps(content, indent=2) + "\n"
    for ending, data in (("md", table.encode()), ("json", text.encode()), ("png", picture)):
        with write_then_rename(f"{path}.{ending}") as file:
            file.write(data)
    return table


def _picture(rows: Sequence[Row]) -> bytes:
    """A column for each metric of a task: a dot for each seed, their median, what was published."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(max(3, 1 + 0.9 * len(rows)), 4), layout="constrained")
    axes = figure.add_subplot(ylabel="percent, development set")
    for column, row in enumerate(rows):
        seeds = row["seeds"].values()
        axes.plot([column] * len(seeds), seeds, "o", alpha=0.5, color="tab:blue")
        axes.plot(column, row["median"], "_", markersize=30, color="tab:blue")
        if row["published"] is not None:
            axes.plot(column, row["published"], "D", mfc="none", color="tab:orange")
    titles = [f"{_TITLES[row['task']]}\n{_METRIC_TITLES[row['metric']]}" for row in rows]
    axes.set_xticks(range(len(rows)), titles, fontsize="small")
    axes.set_title("dots: seeds, lines: medians, diamonds: published", fontsize="small")
    axes.grid(axis="y", alpha=0.3)
    return png(figure)


def choose_files(runs: Sequence[GlueRun]) -> dict[str, str]:
    """Returns the predictions to submit, by task: those of the seed with the best score."""
    chosen: dict[str, GlueRun] = {}
    for run in sorted(runs, key=lambda run: (-run.score, run.seed)):
        if run.task not in _OF_MNLI and file_exists(run.predictions):
            chosen.setdefault(run.task, run)
    for run in runs:
        of_chosen = "mnli" in chosen and run.seed == chosen["mnli"].seed
        if run.task in _OF_MNLI and of_chosen and file_exists(run.predictions):
            chosen[run.task] = run
    return {task: run.predictions for task, run in chosen.items()}


def write_submission(path: str, files: Mapping[str, str], *, allow_missing: bool = False) -> None:
    """Writes the zip of `choose_files`; the same predictions give the same bytes.

    Raises:
        ValueError: predictions of a task are missing, and may not be or are all there were.
    """
    missing = [task for task in GLUE_TASKS if task not in files]
    if missing and not (files and allow_missing):
        raise ValueError(
            "--submission: the GLUE server requires predictions for all tasks; those for "
            f"{', '.join(missing)} are missing. Run these tasks, or pass --allow_missing."
        )
    if missing:
        logging.warning("The submission lacks %s and will be rejected", ", ".join(missing))
    by_name = {GLUE_TASKS[task].submission_file: files[task] for task in files}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(by_name):
            info = zipfile.ZipInfo(name)  # without the time of the file it comes from
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            with open_binary(by_name[name], "rb") as source:
                archive.writestr(info, source.read())
    with write_then_rename(path) as file:
        file.write(content.getvalue())
