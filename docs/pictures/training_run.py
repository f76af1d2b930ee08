"""Draws losses and scores of a run, as the run itself does, without its other curves.

PYTHONPATH=. python docs/pictures/training_run.py stage1/metrics.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from albert_tf.training.curves import draw_curves

KEPT = (
    "step",
    "phase",
    "time",
    "masked_lm_loss",
    "sentence_order_loss",
    "masked_lm_accuracy",
    "sentence_order_accuracy",
)


def draw(metrics_file: str, path: str) -> None:
    """Draws the losses and scores in a `metrics.jsonl`."""
    lines = Path(metrics_file).read_text(encoding="utf-8").splitlines()
    records = [
        {key: record[key] for key in KEPT if key in record} for record in map(json.loads, lines)
    ]
    Path(path).write_bytes(draw_curves(records))


if __name__ == "__main__":
    draw(sys.argv[1], str(Path(__file__).with_suffix(".png")))
