"""Draws the curves of a run: one panel per metric, with one color per data set."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.training.run_records import (
    AFTER_STEP,
    EVALUATION_KEY,
    LOWER_IS_BETTER,
    Record,
    best_of,
)

# Parts of the names of metrics that are drawn, in the order of their panels.
_DRAWN = ("loss", "MSE", "accuracy", "f1", "exact", "corr", "pearson", "spearman")
_DRAWN_LAST = ("learning_rate", "gradient_norm", "loss_scale")
_READABLE = {
    "^eval_": "",
    "^(HasAns|NoAns)_(.*)": r"\2 (\1)",
    "exact(_match)?": "exact match",
    "f1_(macro|micro)": r"\1 F1",
    "f1": "F1",
    "masked_lm": "masked-LM",
    "matthew_corr": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "_": " ",
}
_COLUMNS = 2
_LONGEST_TITLE = 50  # characters
_MOST_MARKED = 60  # longer curves have thin lines without markers
_PHASES = {"train": ("tab:blue", "training"), "eval": ("tab:orange", "held-out")}
_Series = dict[str, list[tuple[int, float]]]  # steps and finite values by phase


def png(figure: Any, dpi: int = 100) -> bytes:
    """Returns the PNG image of a `matplotlib.figure.Figure`."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=dpi)
    return image.getvalue()


def drawable(text: str) -> str:
    """Replaces characters that the font does not contain with "?"."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont("DejaVu Sans"))
    return "".join(one if font.get_char_index(ord(one)) else "?" for one in text)


def draw_curves(
    records: Sequence[Record], title: str = "", config: Mapping[str, Any] | None = None
) -> bytes:
    """Returns a PNG image of the records of `metrics.jsonl`, with one panel per metric.

    `config` contains the settings of the run, as in `run_config.json`: the image marks the warm-up,
    and the evaluation with the best score. If the metric is unknown, it marks the best value in
    each panel. The last panel lists metrics with values at fewer than two steps.
    """
    from matplotlib import style  # slow to import
    from matplotlib.figure import Figure

    panels: dict[str, _Series] = {}
    for record in records:
        for name, value in record.items():
            # `loss` next to `eval_loss` is the original's mean of batch means, not of examples.
            if _rank(name) is None or (name == "loss" and "eval_loss" in record):
                continue
            series = panels.setdefault(name.removeprefix("eval_"), {phase: [] for phase in _PHASES})
            if value is not None and math.isfinite(value) and record["phase"] in series:
                series[record["phase"]].append((record["step"], value))
    names = sorted(panels, key=lambda name: (_rank(name), name))
    curves = [n for n in names if len({p[0] for points in panels[n].values() for p in points}) > 1]
    texts = [_text(name, panels[name]) for name in names if name not in curves]
    config = config or {}
    evaluation, optimizer = config.get(EVALUATION_KEY) or {}, config.get("optimizer", {})
    metric, after = evaluation.get("metric", ""), evaluation.get(AFTER_STEP, -1)
    found = [r for r in records if r["phase"] == "eval" and metric in r and r["step"] > after]
    best = best_of(found, metric) if found else None
    title = drawable(title)[:_LONGEST_TITLE]
    if best:
        title += f"\nbest {_readable(metric)}: {best[metric]:.4g} at step {best['step']:,}"
    number = max(1, len(curves) + bool(texts))
    columns = min(number, _COLUMNS)
    lines = -(-number // columns)
    with style.context("default"):  # opaque and readable, whatever the style of a notebook is
        figure = Figure(figsize=(4.6 * columns, 3.2 * lines), layout="constrained")
        figure.suptitle(title, fontsize="medium", parse_math=False)
        places = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, name in zip(places, curves, strict=False):
            _draw_curve(axes, name, panels[name], best["step"] if best else None)
            if name == "learning_rate" and optimizer.get("num_warmup_steps"):
                start = optimizer["start_warmup_step"]
                end = start + optimizer["num_warmup_steps"]
                seen = min(max(start, axes.dataLim.x1), end)
                label = f"warm-up to step {end:,}"
                axes.axvspan(start, seen, color="tab:gray", alpha=0.3, lw=0, label=label)
            axes.legend(fontsize="small", frameon=False)
        for axes in places[len(curves) :]:
            axes.set_axis_off()
        if texts:
            places[len(curves)].text(0, 1, "\n".join(texts), va="top", fontsize="small")
        return png(figure, dpi=200)


def _rank(name: str) -> int | None:
    """Returns the position of the panel of a metric; `None` if the metric is not drawn."""
    if name in _DRAWN_LAST:
        return len(_DRAWN) + _DRAWN_LAST.index(name)
    is_of_class = name.startswith("f1_") and name not in ("f1_macro", "f1_micro")
    if "thresh" in name or is_of_class or name == "RMSE_of_mean":
        return None  # there may be hundreds of classes, and the mean is constant
    return next((rank for rank, part in enumerate(_DRAWN) if part in name), None)


def _readable(name: str) -> str:
    for pattern, text in _READABLE.items():
        name = re.sub(pattern, text, name)
    return name


def _text(name: str, series: _Series) -> str:
    values = [
        f"{_PHASES[phase][1]} {value:.4g} (step {step:,})"
        for phase, points in series.items()
        for step, value in points
    ]
    return f"{_readable(name)}: {', '.join(values) or 'no finite value'}"


def _draw_curve(axes: Any, name: str, series: _Series, best_step: int | None) -> None:
    for phase, (color, label) in _PHASES.items():
        marker, width = (".", 1.5) if len(series[phase]) <= _MOST_MARKED else ("", 0.8)
        if series[phase]:
            columns = zip(*series[phase], strict=True)
            axes.plot(*columns, color=color, marker=marker, lw=width, label=label)
    if points := [point for point in series["eval"] if best_step in (None, point[0])]:
        is_low = "loss" in name or name in LOWER_IS_BETTER
        step, value = (min if is_low else max)(points, key=lambda point: point[1])
        label = f"step {step:,}: {value:.4g}"
        axes.plot(step, value, "*", color="tab:red", markersize=11, label=label)
    axes.locator_params("x", nbins=5, integer=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="step", title=_readable(name))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
