"""Metrics of a run against the step, side by side."""

from __future__ import annotations

import os

from albert_tf.curves import Panels, draw_curves
from albert_tf.run_records import METRICS_FILE, read_records


def draw_metrics(output_dir: str, panels: Panels) -> bytes:
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
    records = read_records(os.path.join(output_dir, METRICS_FILE))
    return draw_curves(records, panels, columns=len(panels))
