"""Draws the curves of a run: one panel per metric, with one color per data set."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.data.pictures import png
from albert_tf.training.run_records import (
    AFTER_STEP,
    EVALUATION_KEY,
    LOWER_IS_BETTER,
    Record,
    best_of,
    evaluations,
)

# Names of metrics that are drawn, in the order of their panels.
_DRAWN = (
    *("loss$", "MSE$", "accuracy", "f1", "exact", "corr", "pearson", "spearman"),
    *("learning_rate", "gradient_norm", "loss_scale"),
)
_HIDDEN = "f1_(?!macro$|micro$)|.*thresh"  # there may be hundreds of classes
_READABLE = {
    "masked_lm": "masked-LM",
    "f1": "F1",
    "matthew_corr": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "_": " ",
}
_COLUMNS = 2
_MOST_MARKED = 60  # longer curves have thin lines without markers
Panel = dict[str, list[tuple[int, float]]]  # steps and values by phase
_PHASES = {"train": ("tab:blue", "training"), "eval": ("tab:orange", "held-out")}


def draw_curves(
    records: Sequence[Record], title: str = "", config: Mapping[str, Any] | None = None
) -> bytes:
    """Returns a PNG image of the records of `metrics.jsonl`, with one panel per metric.

    `config` contains the settings of the run, as in `run_config.json`: the image marks the warm-up,
    and the best evaluation. If its metric is unknown, it marks the best value in each panel.
    """
    from matplotlib import style  # slow to import
    from matplotlib.figure import Figure

    panels, config = _panels(records), config or {}
    best, step = _best_evaluation(records, config.get(EVALUATION_KEY) or {})
    columns = min(max(len(panels), 1), _COLUMNS)
    lines = -(-max(len(panels), 1) // columns)
    with style.context("default"):  # opaque and readable, whatever the style of a notebook is
        figure = Figure(figsize=(4.6 * columns, 3.2 * lines), layout="constrained")
        name = title[:50].encode("latin-1", "replace").decode("latin-1")  # letters of the font
        figure.suptitle(name + best, fontsize="medium", parse_math=False)
        places = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, name in zip(places, panels, strict=False):
            _draw_panel(axes, name, panels[name], step)
            if name == "learning_rate":
                _shade_warmup(axes, **config.get("optimizer", {}))
            axes.legend(fontsize="small", frameon=False)
        for axes in places[len(panels) :]:
            axes.set_visible(False)
        return png(figure, dpi=200)


def _panels(records: Sequence[Record]) -> dict[str, Panel]:
    """Returns the panels in their order, by the name of the metric."""
    panels: dict[str, Panel] = {}
    for record in records:
        for name, value in record.items():
            # `loss` next to `eval_loss` is the original's mean of batch means, not of examples.
            is_drawn = _rank(name) is not None and (name != "loss" or "eval_loss" not in record)
            if is_drawn and value is not None and math.isfinite(value):
                panel = panels.setdefault(name.removeprefix("eval_"), {"train": [], "eval": []})
                panel.get(record["phase"], []).append((record["step"], value))
    return {name: panels[name] for name in sorted(panels, key=lambda name: (_rank(name), name))}


def _best_evaluation(
    records: Sequence[Record], evaluation: Mapping[str, Any]
) -> tuple[str, int | None]:
    """Returns a line about the best evaluation, and its step; "" and `None` if it is unknown."""
    metric, after = evaluation.get("metric", ""), evaluation.get(AFTER_STEP, -1)
    if not (best := best_of(evaluations(records, metric, after), metric)):
        return "", None
    step = best["step"]
    return f"\nbest {_readable(metric)}: {best[metric]:.4g} at step {step:,}", step


def _rank(name: str) -> int | None:
    """Returns the position of the panel of a metric; `None` if the metric is not drawn."""
    parts = () if re.match(_HIDDEN, name) else enumerate(_DRAWN)
    return next((rank for rank, part in parts if re.search(part, name)), None)


def _readable(name: str) -> str:
    name = name.removeprefix("eval_")
    for part, text in _READABLE.items():
        name = name.replace(part, text)
    return name


def _draw_panel(axes: Any, name: str, panel: Panel, best_step: int | None) -> None:
    steps = {step for points in panel.values() for step, _ in points}
    is_single = len(steps) == 1
    for phase, (color, label) in _PHASES.items():
        if points := panel[phase]:
            marker, width = (".", 1.5) if len(points) <= _MOST_MARKED else ("", 0.8)
            label += f": {points[0][1]:.4g}" * is_single
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, lw=width, label=label)
    if points := [point for point in panel["eval"] if best_step in (None, point[0])]:
        is_low = "loss" in name or name in LOWER_IS_BETTER
        step, value = (min if is_low else max)(points, key=lambda point: point[1])
        label = f"step {step:,}: {value:.4g}"
        axes.plot(step, value, "*", color="tab:red", markersize=11, label=label)
    axes.locator_params("x", nbins=5, integer=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="step", title=_readable(name))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if is_single:  # has no scale
        axes.set(xticks=[*steps], yticks=[])


def _shade_warmup(
    axes: Any, num_warmup_steps: int = 0, start_warmup_step: int = 0, **_: Any
) -> None:
    if end := num_warmup_steps and start_warmup_step + num_warmup_steps:
        shown = min(end, max(start_warmup_step, axes.dataLim.x1))
        label = f"warm-up to step {end:,}"
        axes.axvspan(start_warmup_step, shown, color="tab:gray", alpha=0.3, lw=0, label=label)
