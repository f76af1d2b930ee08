"""The files a fine-tuning run leaves behind, as the original release and the benchmark have them.

`eval_results.txt`, `test_results.tsv` and `submit_results.tsv` are the original's; numbers in them
are written as NumPy writes a float32. A file named after the task, such as `MRPC.tsv`, is what
GLUE's server takes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.files import write_then_rename
from albert_tf.data.text_examples import label_cell
from albert_tf.data.utf8 import read_utf8
from albert_tf.evaluation import RESULTS_FILE
from albert_tf.fine_tuning.drawn_names import drawn_names, font_families
from albert_tf.pictures import png

TEST_RESULTS_FILE = "test_results.tsv"
SUBMIT_RESULTS_FILE = "submit_results.tsv"
CONFUSION_MATRIX_FILE = "confusion_matrix.png"
_RULE = "=" * 50 + "\n"
_HEADER = ("index", "prediction")
_MOST_ANNOTATED_LABELS = 40  # cells of a larger matrix are too small for numbers


class EvaluationResults:
    """`eval_results.txt`: a block of `key = value` lines for every checkpoint evaluated.

    Args:
        output_dir: where the file lies.
        step: finished steps the run goes on from; blocks of later ones are forgotten. None forgets
            them all.
    """

    def __init__(self, output_dir: str, step: int | None = None) -> None:
        self.output_dir = output_dir
        self._path = os.path.join(output_dir, RESULTS_FILE)
        self._blocks = [
            block
            for block in (self._read() if step is not None else [])
            if step is not None and _step_of(block) <= step
        ]

    def _read(self) -> list[str]:
        if not tf.io.gfile.exists(self._path):
            return []
        # What follows the last rule belongs to no checkpoint alone, and is written anew.
        return [f"{block}{_RULE}" for block in read_utf8(self._path).split(_RULE)[:-1]]

    def append(
        self, step: int, results: Mapping[str, float | np.ndarray], best_before: float
    ) -> None:
        """Adds the block of a checkpoint, in place of an earlier one of the same step.

        Args:
            step: finished training steps.
            results: numbers or arrays of numbers by name.
            best_before: the best score of the checkpoints evaluated before; none is -1.
        """
        values = {name: np.asarray(value, np.float32)[()] for name, value in results.items()}
        lines = [
            f"{key} = {value!s}" for key, value in sorted({**values, "global_step": step}.items())
        ]
        lines.append(f"best = {best_before if np.isfinite(best_before) else -1}")
        self.append_lines(step, lines)

    def append_lines(self, step: int, lines: Sequence[str], ending: str = "") -> None:
        """Adds the block of a checkpoint, in place of an earlier one of the same step.

        Args:
            step: finished training steps.
            lines: of the block, `global_step = <step>` among them.
            ending: what stands behind the last block, in place of an earlier ending.
        """
        self._blocks = [block for block in self._blocks if _step_of(block) != step]
        self._blocks.append("".join(f"{line}\n" for line in lines) + _RULE)
        with write_then_rename(self._path) as file:
            file.write(("".join(self._blocks) + ending).encode())

    def lines(self, step: int) -> list[str]:
        """Returns the lines of a checkpoint's block, none where it was not evaluated."""
        blocks = [block for block in self._blocks if _step_of(block) == step]
        return blocks[-1].removesuffix(_RULE).splitlines() if blocks else []


def result_lines(step: int, results: Mapping[str, float | np.ndarray], best: float) -> list[str]:
    """Gives results as lines `key = value` in the original's form; see `EvaluationResults`."""
    values = {name: np.asarray(value, np.float32)[()] for name, value in results.items()}
    lines = [f"{key} = {value!s}" for key, value in sorted({**values, "global_step": step}.items())]
    return [*lines, f"best = {best if np.isfinite(best) else -1}"]


def _step_of(block: str) -> int:
    match = re.search(r"^global_step = ([0-9]{1,18})$", block, re.MULTILINE)
    return int(match.group(1)) if match else -1


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
    """Draws `confusion_matrix.png`; see `draw_confusion_matrix`."""
    with write_then_rename(os.path.join(output_dir, CONFUSION_MATRIX_FILE)) as file:
        file.write(draw_confusion_matrix(counts, names))


def draw_confusion_matrix(counts: np.ndarray, names: Sequence[str]) -> bytes:
    """Draws counts, coloured and annotated with the share of their row.

    Args:
        counts: int [K, K]; row: the right label, column: the predicted one.
        names: of the K labels; for one that no font has the characters of, its number stands.

    Returns:
        A PNG image, the larger the more labels there are.
    """
    from matplotlib.figure import Figure  # slow to import, and most processes draw nothing

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = max(4.0, min(0.6 * len(names) + 2.0, 40.0))  # inches
    figure = Figure(figsize=(size + 1.0, size), layout="constrained")
    axes = figure.add_subplot(xlabel="predicted", ylabel="right")
    image = axes.imshow(shares, vmin=0.0, vmax=1.0, cmap="Blues")
    figure.colorbar(image, label="share of the row", shrink=0.8)
    # Labels are the user's text: a $ in one is no formula.
    families = font_families()
    ticks = [name.replace("$", r"\$") for name in drawn_names(names, families)]
    is_long = max(map(len, ticks)) > 6 or len(names) > 10
    axes.set_xticks(np.arange(len(names)), ticks, rotation=90 if is_long else 0, family=families)
    axes.set_yticks(np.arange(len(names)), ticks, family=families)
    if any(re.fullmatch(r"#\d+", tick) for tick in ticks):
        axes.set_title("#: place in labels.json, from 0", fontsize=8)
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
    return png(figure)
