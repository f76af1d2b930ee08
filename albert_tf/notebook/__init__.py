"""What the notebooks share: where to compute, what to start from, and pictures to look at."""

from albert_tf.notebook.attention import draw_attention
from albert_tf.notebook.curves import draw_metrics
from albert_tf.notebook.device import choose_device
from albert_tf.notebook.model import choose_model
from albert_tf.notebook.similarity import draw_similarity
from albert_tf.notebook.spans import draw_question_attention, draw_spans

__all__ = [
    "choose_device",
    "choose_model",
    "draw_attention",
    "draw_metrics",
    "draw_question_attention",
    "draw_similarity",
    "draw_spans",
]
