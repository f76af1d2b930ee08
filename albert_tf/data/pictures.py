"""Pictures in PNG format, which matplotlib draws."""

import io
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from albert_tf.data.files import write_file

_LONGEST_NAME = 24  # characters per class name
_MOST_ANNOTATED_LABELS = 40  # cells of larger matrices are too small for numbers


def png(figure: Any, dpi: int = 100) -> bytes:
    """Returns the PNG image of a `matplotlib.figure.Figure`."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=dpi)
    return image.getvalue()


def write_confusion_matrix(output_dir: str, counts: np.ndarray, names: Iterable[str]) -> None:
    """Draws counts, int [K, K], of true classes (rows) and predicted classes (columns).

    The file is `confusion_matrix.png`. Colors show the share of each count in its row. Names that
    the font cannot draw are replaced by `#` and the class id.
    """
    from matplotlib.figure import Figure  # slow to import, and most processes draw nothing
    from matplotlib.font_manager import findfont, get_font

    names, shares = list(names), counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = max(4.0, min(0.6 * len(names) + 2.0, 40.0))  # inches
    figure = Figure(figsize=(size + 1.0, size), layout="constrained")
    axes = figure.add_subplot(xlabel="predicted", ylabel="true")
    image = axes.imshow(shares, vmin=0.0, vmax=1.0, cmap="Blues")
    figure.colorbar(image, label="share of the row", shrink=0.8)
    font = get_font(findfont("DejaVu Sans"))
    ticks = []
    for number, name in enumerate(names):
        name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        is_drawable = all(font.get_char_index(ord(character)) for character in name)
        # "$" would start a formula.
        ticks.append(name.replace("$", r"\$") if is_drawable else f"#{number}")
    is_long = max(map(len, ticks)) > 6 or len(names) > 10
    axes.set_xticks(np.arange(len(names)), ticks, rotation=90 if is_long else 0)
    axes.set_yticks(np.arange(len(names)), ticks)
    fontsize = 8 if len(names) > 5 else 10
    for (row, column), count in np.ndenumerate(counts):
        if len(names) <= _MOST_ANNOTATED_LABELS:
            share = shares[row, column]
            color = "white" if share > 0.5 else "black"
            text = f"{count}\n{share:.0%}"
            axes.text(column, row, text, ha="center", va="center", fontsize=fontsize, color=color)
    write_file(os.path.join(output_dir, "confusion_matrix.png"), png(figure))
