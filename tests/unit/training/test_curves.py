"""Curves of metrics."""

import io
import math

import pytest
from matplotlib.image import imread

from albert_tf.training.curves import draw_curves

pytestmark = pytest.mark.usefixtures("drawn")


def size(records):
    """Returns the numbers of columns and rows of panels. A panel has 460 x 300 pixels.

    Versions of Matplotlib round the size of a picture differently.
    """
    height, width = imread(io.BytesIO(draw_curves(records))).shape[:2]
    columns, rows = round(width / 460), round(height / 300)
    assert abs(width - 460 * columns) <= 1
    assert abs(height - 300 * rows) <= 1
    return columns, rows


def record(phase="eval", step=1, **metrics):
    return {"step": step, "phase": phase, "time": "-", **metrics}


def test_one_panel_per_metric():
    everything = {
        "masked_lm_loss": 1.0,
        "sentence_order_accuracy": 0.5,
        "best_f1": 60.0,
        "gradient_norm": 2.0,
        "learning_rate": 0.1,
    }
    assert size([record(**everything)]) == (2, 3)
    assert size([record(masked_lm_loss=1.0, steps_per_second=3.0, best_f1_thresh=-8.0)]) == (1, 1)
    assert size([record(loss=math.nan, learning_rate=0.1)]) == (2, 1)
    assert size([record(loss=1.0, f1_macro=0.5, f1_sport=0.5, f1_loss=0.5)]) == (2, 1)
    assert size([record(steps_per_second=3.0)]) == (1, 1)


def test_training_and_evaluation_share_a_panel():
    records = [record("train", accuracy=0.25, loss=3.0), record("eval", eval_accuracy=0.5)]
    assert size(records) == (2, 1)
    assert draw_curves(records[:1]) != draw_curves(records)


def test_metric_without_values():
    assert size([record(loss=0.5, f1=None)]) == (2, 1)


def test_the_held_out_loss_is_the_mean_over_all_examples():
    """`loss` next to `eval_loss` is the mean of batch means, as the original computes it."""
    training = record("train", loss=3.0)
    true = [training, record(eval_loss=0.5)]
    assert draw_curves([training, record(eval_loss=0.5, loss=0.25)]) == draw_curves(true)
    assert draw_curves([training, record(loss=0.5)]) == draw_curves(true)
