"""What fine-tuning on GLUE gave: the scores of all tasks and seeds in one table and one picture."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from albert_tf.data.files import write_then_rename
from albert_tf.glue_results.runs import GlueRun, task_metrics
from albert_tf.pictures import png

TABLE_FILE = "glue_results.md"
SCORES_FILE = "glue_results.json"
PICTURE_FILE = "glue_results.png"
# The order and the names of GLUE's own table; AX has no labels to score against.
TASK_TITLES = {
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


@dataclass(frozen=True)
class Summary:
    """The scores of a task by one metric.

    Attributes:
        task: key of `GLUE_TASKS`.
        metric: key of `eval_results.txt`.
        values: scores in percent by seed; at least one.
        published: score of the released model in percent, None where none is known.
    """

    task: str
    metric: str
    values: Mapping[int, float]
    published: float | None = None

    @property
    def median(self) -> float:
        """The median over the seeds, in percent."""
        return statistics.median(self.values.values())

    @property
    def lowest(self) -> float:
        """The lowest score of a seed, in percent."""
        return min(self.values.values())

    @property
    def highest(self) -> float:
        """The highest score of a seed, in percent."""
        return max(self.values.values())


def summarize(runs: Sequence[GlueRun], published: Mapping[tuple[str, str], float]) -> list[Summary]:
    """Brings the seeds of each task together.

    Args:
        runs: those without scores are left out.
        published: scores in percent by task and metric.

    Returns:
        A summary for each metric of each task that has scores, in GLUE's order.
    """
    summaries = []
    for task in TASK_TITLES:
        for metric in task_metrics(task):
            values = {
                run.seed: 100 * run.scores[metric]
                for run in runs
                if run.task == task and math.isfinite(run.scores.get(metric, math.nan))
            }
            if values:
                known = published.get((task, metric))
                summaries.append(Summary(task, metric, values, known))
    return summaries


def markdown_table(summaries: Sequence[Summary], model: str | None, runs: Sequence[GlueRun]) -> str:
    """Returns the results as Markdown.

    Args:
        summaries: the rows.
        model: whose published scores the summaries have; None leaves their column out.
        runs: those without scores are named below the table.
    """
    header = ["task", "metric", "median", "min to max", "seeds"]
    header += [f"published, {model}"] if model else []
    rows = [header, ["---"] * 2 + ["---:"] * (len(header) - 2)]
    for summary in summaries:
        spread = f"{summary.lowest:.1f} to {summary.highest:.1f}"
        cells = [TASK_TITLES[summary.task], _METRIC_TITLES[summary.metric], f"{summary.median:.1f}"]
        cells += [spread, str(len(summary.values))]
        cells += [f"{summary.published or '-'}"] if model else []
        rows.append(cells)
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    lines += ["", "In percent, on the development sets, at the best checkpoint of each run."]
    for run in runs:
        if run.problem and run.task in TASK_TITLES:
            lines.append(f"Without a score: {os.path.basename(run.path)} ({run.problem}).")
    return "\n".join(lines) + "\n"


def write_results(
    results_dir: str, summaries: Sequence[Summary], model: str | None, runs: Sequence[GlueRun]
) -> str:
    """Writes `glue_results.md`, `.json` and `.png`; returns the table.

    Args:
        results_dir: where to.
        summaries: see `markdown_table`, as for the others.
        model: whose published scores the summaries have.
        runs: those without scores are named.
    """
    table = markdown_table(summaries, model, runs)
    scores = [
        {
            "task": summary.task,
            "metric": summary.metric,
            "median": summary.median,
            "min": summary.lowest,
            "max": summary.highest,
            "published": summary.published,
            "seeds": {str(seed): value for seed, value in sorted(summary.values.items())},
        }
        for summary in summaries
    ]
    content = json.dumps({"model": model, "unit": "percent", "scores": scores}, indent=2) + "\n"
    files = {
        TABLE_FILE: table.encode(),
        SCORES_FILE: content.encode(),
        PICTURE_FILE: draw_results(summaries),
    }
    for name, data in files.items():
        with write_then_rename(os.path.join(results_dir, name)) as file:
            file.write(data)
    return table


def draw_results(summaries: Sequence[Summary]) -> bytes:
    """Draws a dot for each seed and a line at their median, a column for each metric of a task.

    Returns:
        A PNG image.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(3.0, 1.0 + 0.9 * len(summaries)), 4.0), layout="constrained")
    axes = figure.add_subplot(ylabel="percent, development set")
    for column, summary in enumerate(summaries):
        values = list(summary.values.values())
        axes.plot([column] * len(values), values, "o", alpha=0.5, color="tab:blue")
        axes.hlines(summary.median, column - 0.25, column + 0.25, color="tab:blue")
        if summary.published is not None:
            axes.plot([column], [summary.published], "D", mfc="none", color="tab:orange")
    titles = [f"{TASK_TITLES[s.task]}\n{_METRIC_TITLES[s.metric]}" for s in summaries]
    axes.set_xticks(range(len(titles)), titles, fontsize="small")
    axes.set_xlim(-0.5, max(len(titles), 1) - 0.5)
    axes.plot([], [], "o", alpha=0.5, color="tab:blue", label="one seed")
    axes.plot([], [], "-", color="tab:blue", label="median")
    if any(summary.published is not None for summary in summaries):
        axes.plot([], [], "D", mfc="none", color="tab:orange", label="published")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small")
    return png(figure)
