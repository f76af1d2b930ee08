"""Draws the curves of a run: one panel per metric, with one color per data set."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.training.run_records import AFTER_STEP, EVALUATION_KEY, LOWER_IS_BETTER, Record, rank

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
_PHASES = {"train": ("tab:blue", "training"), "eval": ("tab:orange", "held-out")}


def png(figure: Any, dpi: int = 100) -> bytes:
    """Returns the PNG image of a `matplotlib.figure.Figure`."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=dpi)
    return image.getvalue()


def draw_curves(
    records: Sequence[Record], title: str = "", config: Mapping[str, Any] | None = None
) -> bytes:
    """Returns a PNG image of the records of `metrics.jsonl`, with one panel per metric.

    `config` contains the settings of the run, as in `run_config.json`: the image marks the warm-up,
    and the best evaluation. If its metric is unknown, it marks the best value in each panel.
    """
    from matplotlib import style  # slow to import
    from matplotlib.figure import Figure

    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}  # steps and values by phase
    for record in records:
        for name, value in record.items():
            # `loss` next to `eval_loss` is the original's mean of batch means, not of examples.
            is_drawn = _rank(name) is not None and (name != "loss" or "eval_loss" not in record)
            if is_drawn and value is not None and math.isfinite(value):
                panel = panels.setdefault(name.removeprefix("eval_"), {"train": [], "eval": []})
                panel.get(record["phase"], []).append((record["step"], value))
    config = config or {}
    evaluation, optimizer = config.get(EVALUATION_KEY) or {}, config.get("optimizer", {})
    metric, after = evaluation.get("metric", ""), evaluation.get(AFTER_STEP, -1)
    found = [r for r in records if r["phase"] == "eval" and metric in r and r["step"] > after]
    best = max(found, key=lambda r: (*rank(r, metric), r["step"]), default=None)
    title = title[:50].encode("latin-1", "replace").decode("latin-1")  # the font has these letters
    if best:
        title += f"\nbest {_readable(metric)}: {best[metric]:.4g} at step {best['step']:,}"
    columns = min(max(len(panels), 1), _COLUMNS)
    lines = -(-max(len(panels), 1) // columns)
    with style.context("default"):  # opaque and readable, whatever the style of a notebook is
        figure = Figure(figsize=(4.6 * columns, 3.2 * lines), layout="constrained")
        figure.suptitle(title, fontsize="medium", parse_math=False)
        places = list(figure.subplots(lines, columns, squeeze=False).flat)
        names = sorted(panels, key=lambda name: (_rank(name), name))
        for axes, name in zip(places, names, strict=False):
            _draw_panel(axes, name, panels[name], best["step"] if best else None)
            if name == "learning_rate" and (warmup_steps := optimizer.get("num_warmup_steps")):
                start = optimizer["start_warmup_step"]
                end = min(start + warmup_steps, max(start, axes.dataLim.x1))
                label = f"warm-up to step {start + warmup_steps:,}"
                axes.axvspan(start, end, color="tab:gray", alpha=0.3, lw=0, label=label)
            axes.legend(fontsize="small", frameon=False)
        for axes in places[len(panels) :]:
            axes.set_visible(False)
        return png(figure, dpi=200)


def _rank(name: str) -> int | None:
    """Returns the position of the panel of a metric; `None` if the metric is not drawn."""
    parts = () if re.match(_HIDDEN, name) else enumerate(_DRAWN)
    return next((rank for rank, part in parts if re.search(part, name)), None)


def _readable(name: str) -> str:
    name = name.removeprefix("eval_")
    for part, text in _READABLE.items():
        name = name.replace(part, text)
    return name


def _draw_panel(
    axes: Any, name: str, panel: Mapping[str, Sequence[tuple[int, float]]], best_step: int | None
) -> None:
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
