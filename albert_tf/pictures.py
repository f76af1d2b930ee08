"""Figures as bytes, to be shown or written."""

from __future__ import annotations

import io
from typing import Any


def png(figure: Any, dpi: int = 100) -> bytes:
    """Returns a figure of Matplotlib as a PNG image.

    Args:
        figure: a `matplotlib.figure.Figure`.
        dpi: pixels an inch.
    """
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=dpi)
    return image.getvalue()
