"""Curves of metrics: which are drawn, and where."""

import io
import math

import pytest
from matplotlib.image import imread

from albert_tf.training.curves import draw_curves


def size(records, **settings):
    """Panels side by side and one below the other; they are drawn 460 x 300."""
    height, width = imread(io.BytesIO(draw_curves(records, **settings))).shape[:2]
    assert (width % 460, height % 300) == (0, 0)
    return width // 460, height // 300


def record(phase="eval", step=1, **metrics):
    return {"step": step, "phase": phase, "time": "-", **metrics}


def test_a_panel_for_each_metric_and_none_for_rates():
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
    assert size([record(matthew_corr=0.1, pearson=0.2, spearman=0.3)]) == (2, 2)
    assert size([record(steps_per_second=3.0)]) == (1, 1)


def test_training_and_held_out_data_share_a_panel():
    records = [record("train", accuracy=0.25, loss=3.0), record("eval", eval_accuracy=0.5)]
    assert size(records) == (2, 1)
    alone = draw_curves(records[:1], {"accuracy": ["accuracy"]})
    both = draw_curves(records, {"accuracy": ["accuracy", "eval_accuracy"]})
    assert alone != both


def test_what_is_asked_for_must_have_been_recorded():
    records = [record("train", step=2, loss=0.5, accuracy=0.75), record(f1=None)]
    assert size(records, panels={"loss": ["loss"]}, columns=1) == (1, 1)
    with pytest.raises(ValueError, match=r"f1.*: accuracy, .*step"):
        draw_curves(records, {"score": ["f1"]})
