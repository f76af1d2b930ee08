"""Curves of metrics."""

import io
import math

import matplotlib as mpl
import pytest
from matplotlib.image import imread

from albert_tf.training.curves import draw_curves
from tests.pictures import Figure

pytestmark = pytest.mark.usefixtures("drawn")


@pytest.fixture
def figures(monkeypatch):
    """Returns a list of the figures that are saved."""
    saved = []
    draw = Figure.savefig

    def save(figure, *args, **kwargs):
        saved.append(figure)
        draw(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", save)
    return saved


def size(records):
    """Returns the numbers of columns and rows of panels. A panel has 920 x 640 pixels.

    Versions of Matplotlib round the size of a picture differently.
    """
    height, width = imread(io.BytesIO(draw_curves(records))).shape[:2]
    columns, rows = round(width / 920), round(height / 640)
    assert abs(width - 920 * columns) <= 1
    assert abs(height - 640 * rows) <= 1
    return columns, rows


def record(phase="eval", step=1, **metrics):
    return {"step": step, "phase": phase, "time": "-", **metrics}


def curve(**metrics):
    """Returns the records of two evaluations with the same values."""
    return [record(step=2, **metrics), record(step=7, **metrics)]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_one_panel_per_metric():
    everything = {
        "masked_lm_loss": 1.0,
        "sentence_order_accuracy": 0.5,
        "best_f1": 60.0,
        "gradient_norm": 2.0,
        "learning_rate": 0.1,
    }
    assert size(curve(**everything)) == (2, 3)
    assert size(curve(masked_lm_loss=1.0, steps_per_second=3.0, best_f1_thresh=-8.0)) == (1, 1)
    assert size(curve(RMSE=0.25, RMSE_of_mean=0.5)) == (1, 1)
    assert size(curve(loss=math.nan, learning_rate=0.1)) == (1, 1)
    assert size(curve(loss=1.0, f1_macro=0.5, f1_sport=0.5, f1_loss=0.5)) == (2, 1)
    assert size(curve(steps_per_second=3.0)) == (1, 1)
    assert size(curve(loss=0.5, f1=None)) == size([]) == (1, 1)


def test_training_and_evaluation_share_a_panel():
    records = [record("train", accuracy=0.25, loss=3.0), record("train", 4, accuracy=0.5, loss=2.0)]
    records.append(record("eval", 4, eval_accuracy=0.5))
    assert size(records) == (2, 1)
    assert draw_curves(records[:2]) != draw_curves(records)


def test_single_values_have_no_scale(figures):
    records = [record("train", step, loss=0.5 * step) for step in (1, 3)]
    draw_curves([*records, record(step=3, matthew_corr=0.25, pearson=math.inf)])
    loss, score = figures[0].axes
    assert (loss.get_title(), score.get_title()) == ("loss", "Matthews correlation")
    assert (score.get_xticks().tolist(), score.get_yticks().tolist()) == ([3], [])
    assert legend(score)[0] == "held-out: 0.25"
    assert len(loss.get_yticks()) > 1


def test_the_held_out_loss_is_the_mean_over_all_examples():
    """`loss` next to `eval_loss` is the mean of batch means, as the original computes it."""
    training = [record("train", step, loss=3.0) for step in (1, 2)]
    true = [*training, record(eval_loss=0.5)]
    assert draw_curves([*training, record(eval_loss=0.5, loss=0.25)]) == draw_curves(true)
    assert draw_curves([*training, record(loss=0.5)]) == draw_curves(true)


def test_the_best_evaluation_is_marked(figures):
    """Of equal scores, the lower loss is best, as in `BestCheckpoint`."""
    rows = {2: (0.9, 0.1, 0.1), 4: (0.5, 0.3, 0.2), 6: (0.75, 0.7, 0.5), 8: (0.75, 0.6, 0.25)}
    names = ("eval_accuracy", "eval_loss", "masked_lm_accuracy")
    records = [
        record(step=step, **dict(zip(names, row, strict=True))) for step, row in rows.items()
    ]
    evaluation = {"metric": "eval_accuracy", "after_step": 2}  # step 2 used other data
    draw_curves(records, "run", {"evaluation": evaluation})
    marks = [legend(axes)[-1] for axes in figures[0].axes if axes.get_legend()]
    assert marks == ["step 8: 0.6", "step 8: 0.75", "step 8: 0.25"]
    assert figures[0].get_suptitle() == "run\nbest accuracy: 0.75 at step 8"
    draw_curves(records, "run", {"evaluation": None})
    marks = [legend(axes)[-1] for axes in figures[1].axes if axes.get_legend()]
    assert marks == ["step 2: 0.1", "step 2: 0.9", "step 6: 0.5"]
    titles = [axes.get_title() for axes in figures[1].axes if axes.get_legend()]
    assert titles == ["loss", "accuracy", "masked-LM accuracy"]
    assert figures[1].get_suptitle() == "run"


@pytest.mark.parametrize(("num_steps", "end"), [(3, 5), (50, 9)])
def test_the_warm_up_is_shaded(figures, num_steps, end):
    """The axis is not longer than the run."""
    records = [record("train", step, learning_rate=1 / step, loss=0.5) for step in (6, 9)]
    config = {"optimizer": {"num_warmup_steps": num_steps, "start_warmup_step": 2}}
    draw_curves(records, "run", config)
    loss, rate = figures[0].axes
    assert not loss.patches
    assert (rate.patches[0].get_x(), rate.patches[0].get_width()) == (2, end - 2)
    assert legend(rate)[-1] == f"warm-up to step {2 + num_steps}"


def test_the_image_does_not_depend_on_the_style_and_the_name(recwarn):
    records = curve(loss=0.5)
    expected = draw_curves(records, "a?b$c^d")
    with mpl.rc_context({"figure.facecolor": (0, 0, 0, 0), "text.color": "white"}):
        assert draw_curves(records, "a\u5b57b$c^d") == expected
    assert (imread(io.BytesIO(expected))[..., 3] == 1).all()
    assert not recwarn.list
