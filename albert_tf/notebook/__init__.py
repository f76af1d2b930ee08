"""What the notebooks share: where to compute, and pictures to look at."""

from albert_tf.notebook.attention import draw_attention
from albert_tf.notebook.curves import draw_metrics
from albert_tf.notebook.device import choose_device

__all__ = ["choose_device", "draw_attention", "draw_metrics"]
