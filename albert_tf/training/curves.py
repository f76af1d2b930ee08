"""Draws the curves of a run: one panel per metric, with one color per data set."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

# Parts of the names of metrics that are drawn, in the order of their panels.
_DRAWN = ("loss", "MSE", "accuracy", "f1", "exact", "corr", "pearson", "spearman")
_DRAWN_LAST = ("learning_rate", "gradient_norm", "loss_scale")
_COLUMNS = 2
_PHASES = {"train": ("tab:blue", "training"), "eval": ("tab:orange", "held-out")}


def png(figure: Any) -> bytes:
    """Returns the PNG image of a `matplotlib.figure.Figure`."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=100)
    return image.getvalue()


def draw_curves(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns a PNG image of the records of `metrics.jsonl`, with one panel per metric."""
    from matplotlib.figure import Figure  # slow to import

    # `loss` next to `eval_loss` is the original's mean of batch means, not of examples.
    records = [
        {name: record[name] for name in record if name != "loss" or "eval_loss" not in record}
        for record in records
    ]
    names = {name for record in records for name in record if _rank(name) is not None}
    panels: dict[str, list[str]] = {}  # names of metrics by title
    for name in sorted(names, key=lambda name: (_rank(name), name.removeprefix("eval_"))):
        panels.setdefault(_title(name), []).append(name)
    columns = min(max(len(panels), 1), _COLUMNS)
    lines = -(-max(len(panels), 1) // columns)
    figure = Figure(figsize=(4.6 * columns, 3 * lines), layout="constrained")
    places = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, (title, members) in zip(places, panels.items(), strict=False):
        _draw_panel(axes, members, records)
        axes.set(xlabel="step", ylabel=title)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    return png(figure)


def _rank(name: str) -> int | None:
    """Returns the position of the panel of a metric; `None` if the metric is not drawn."""
    if name in _DRAWN_LAST:
        return len(_DRAWN) + _DRAWN_LAST.index(name)
    is_of_class = name.startswith("f1_") and name not in ("f1_macro", "f1_micro")
    if "thresh" in name or is_of_class:  # there may be hundreds of classes
        return None
    return next((rank for rank, part in enumerate(_DRAWN) if part in name), None)


def _title(name: str) -> str:
    return name.removeprefix("eval_").replace("_", " ")


def _draw_panel(axes: Any, names: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
    for phase, (color, label) in _PHASES.items():
        for name in names:
            points = [
                (record["step"], record[name])
                for record in records
                if record["phase"] == phase and record.get(name) is not None
            ]
            if points:
                axes.plot(*zip(*points, strict=True), "-", color=color, marker=".", label=label)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:  # every value may be null
        axes.legend(fontsize="small", frameon=False)
