"""Pictures of how much alike texts are, by the vectors that a model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from albert_tf.pictures import png

_INCHES_A_TEXT = 0.36
_INCHES_A_CHARACTER = 0.09


def similarities(vectors: np.ndarray) -> np.ndarray:
    """Returns the cosine of each two vectors, after their mean was taken from all of them.

    Args:
        vectors: float [T, H], of at least two texts.

    Returns:
        float64 [T, T], -1 to 1; 0 for a vector that is the mean itself.
    """
    centered = np.asarray(vectors, np.float64)
    centered = centered - centered.mean(axis=0)
    lengths = np.linalg.norm(centered, axis=1, keepdims=True)
    directions = centered / np.where(lengths > 0, lengths, 1)
    return directions @ directions.T


def draw_similarity(vectors: np.ndarray, texts: Sequence[str]) -> bytes:
    """Draws a heat map of `similarities`, with the texts at its side.

    Args:
        vectors: float [T, H].
        texts: T of them.

    Returns:
        A PNG image.
    """
    from matplotlib.figure import Figure  # slow to import

    side = max(2.5, _INCHES_A_TEXT * len(texts))
    width = side + _INCHES_A_CHARACTER * max(map(len, texts)) + 1.5
    figure = Figure(figsize=(width, side + 0.4), layout="constrained")
    axes = figure.subplots()
    values = similarities(vectors).round(1) + 0.0  # and no -0.0
    picture = axes.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r")
    names = [f"{text}  {n}" for n, text in enumerate(texts, 1)]
    axes.set_yticks(range(len(texts)), names, parse_math=False)  # a $ in a text is no formula
    axes.set_xticks(range(len(texts)), [str(n) for n in range(1, len(texts) + 1)])
    axes.tick_params(length=0, labelsize=9)
    for row, column in product(range(len(texts)), repeat=2):
        value = values[row, column]
        color = "white" if abs(value) > 0.6 else "black"
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=color, fontsize=7)
    figure.colorbar(picture, ax=axes, label="cosine")
    return png(figure)
