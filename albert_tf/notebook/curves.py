"""Metrics of a run against the step, side by side."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.data.files import open_binary

_PHASES = {"train": ("tab:blue", "while training"), "eval": ("tab:orange", "on held-out data")}


def draw_metrics(output_dir: str, panels: Mapping[str, Sequence[str]]) -> bytes:
    """Draws what `metrics.jsonl` says of the metrics asked for.

    Args:
        output_dir: of a run.
        panels: for each panel, from left to right, what its vertical axis shows, and the names of
            the metrics drawn in it. What was not recorded is left out.

    Returns:
        A PNG image.

    Raises:
        ValueError: nothing of a panel was recorded.
    """
    from matplotlib.figure import Figure  # slow to import, as is the next

    from albert_tf.run_log import METRICS_FILE

    with open_binary(os.path.join(output_dir, METRICS_FILE), "rb") as file:
        records = [json.loads(line) for line in file]
    figure = Figure(figsize=(4.6 * len(panels), 3.2), layout="constrained")
    for axes, (title, names) in zip(
        figure.subplots(1, len(panels), squeeze=False).flat, panels.items(), strict=True
    ):
        if not _draw_panel(axes, names, records):
            known = sorted({name for record in records for name in record})
            raise ValueError(f"Nothing was recorded of {', '.join(names)}; but: {', '.join(known)}")
        axes.set(xlabel="step", ylabel=title)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small", frameon=False)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110)
    return image.getvalue()


def _draw_panel(axes: Any, names: Sequence[str], records: Sequence[dict[str, Any]]) -> bool:
    """Draws a line for each metric and phase; whether there was one."""
    styles = ("-", "--", ":")
    for phase, (color, description) in _PHASES.items():
        number = 0
        for name in names:
            points = [
                (record["step"], record[name])
                for record in records
                if record["phase"] == phase and record.get(name) is not None
            ]
            if points:
                style = styles[number % len(styles)]
                label = f"{name.removeprefix('eval_').replace('_', ' ')} {description}"
                axes.plot(*zip(*points, strict=True), style, color=color, marker=".", label=label)
                number += 1
    return bool(axes.lines)
