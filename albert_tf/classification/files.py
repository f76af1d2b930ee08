"""The files a fine-tuning run leaves behind, as the original release and the benchmark have them.

`eval_results.txt`, `test_results.tsv` and `submit_results.tsv` are the original's; numbers in them
are written as NumPy writes a float32. A file named after the task, such as `MRPC.tsv`, is what
GLUE's server takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.data.files import write_then_rename
from albert_tf.data.text_examples import label_cell
from albert_tf.training.curves import png

_LONGEST = 24  # characters of a name in the picture
TEST_RESULTS_FILE = "test_results.tsv"
SUBMIT_RESULTS_FILE = "submit_results.tsv"
CONFUSION_MATRIX_FILE = "confusion_matrix.png"
_HEADER = ("index", "prediction")
_MOST_ANNOTATED_LABELS = 40  # cells of a larger matrix are too small for numbers


def write_predictions(
    output_dir: str, guids: Sequence[str], scores: np.ndarray, predictions: Sequence[str]
) -> None:
    """Writes `test_results.tsv` and `submit_results.tsv`, a row for each example in its order.

    Args:
        output_dir: where to.
        guids: what the N examples are called.
        scores: float32 [N, K]; probabilities of the labels, or [N, 1] the number of a regression.
        predictions: N labels, or numbers as text.
    """
    numbers = [list(map(str, row)) for row in scores.astype(np.float32)]
    _write_rows(os.path.join(output_dir, TEST_RESULTS_FILE), numbers)
    rows = [_HEADER, *zip(guids, map(label_cell, predictions), strict=True)]
    _write_rows(os.path.join(output_dir, SUBMIT_RESULTS_FILE), rows)


def write_submission(path: str, guids: Sequence[str], predictions: Sequence[str]) -> None:
    """Writes the file GLUE's server takes for a task: the index of each row and its label.

    Args:
        path: where to; the server wants a name of its own for every task.
        guids: indices of the N rows, as the test file has them.
        predictions: N labels. Numbers are clipped to the 0 to 5 of STS-B by `clip_similarity`.
    """
    _write_rows(path, [_HEADER, *zip(guids, predictions, strict=True)])


def clip_similarity(values: np.ndarray) -> list[str]:
    """Returns predicted similarities [N] in the range of STS-B's scores, with three decimals."""
    return [f"{value:.3f}" for value in np.clip(values, 0.0, 5.0)]


def _write_rows(path: str, rows: Iterable[Iterable[str]]) -> None:
    with write_then_rename(path) as file:
        file.write("".join("\t".join(row) + "\n" for row in rows).encode())


def write_confusion_matrix(output_dir: str, counts: np.ndarray, names: Sequence[str]) -> None:
    """Draws `confusion_matrix.png`: counts, coloured and annotated with the share of their row.

    Args:
        output_dir: where to.
        counts: int [K, K]; row: the right label, column: the predicted one.
        names: of the K labels, shortened if need be; `#` and the number of the class where
            matplotlib's font lacks a character.
    """
    from matplotlib.figure import Figure  # slow to import, and most processes draw nothing
    from matplotlib.font_manager import findfont, get_font

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = max(4.0, min(0.6 * len(names) + 2.0, 40.0))  # inches
    figure = Figure(figsize=(size + 1.0, size), layout="constrained")
    axes = figure.add_subplot(xlabel="predicted", ylabel="right")
    image = axes.imshow(shares, vmin=0.0, vmax=1.0, cmap="Blues")
    figure.colorbar(image, label="share of the row", shrink=0.8)
    font = get_font(findfont("DejaVu Sans"))
    ticks = []
    for number, name in enumerate(map(label_cell, names)):
        name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        is_drawable = all(font.get_char_index(ord(character)) for character in name)
        # Labels are the user's text: a $ in one is no formula.
        ticks.append(name.replace("$", r"\$") if is_drawable else f"#{number}")
    is_long = max(map(len, ticks)) > 6 or len(names) > 10
    axes.set_xticks(np.arange(len(names)), ticks, rotation=90 if is_long else 0)
    axes.set_yticks(np.arange(len(names)), ticks)
    if len(names) <= _MOST_ANNOTATED_LABELS:
        for (row, column), count in np.ndenumerate(counts):
            axes.text(
                column,
                row,
                f"{count}\n{shares[row, column]:.0%}",
                ha="center",
                va="center",
                fontsize=8 if len(names) > 5 else 10,
                color="white" if shares[row, column] > 0.5 else "black",
            )
    with write_then_rename(os.path.join(output_dir, CONFUSION_MATRIX_FILE)) as file:
        file.write(png(figure))
