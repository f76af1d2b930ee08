"""`eval_results.txt` of a fine-tuning, as the original release writes it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.files import read_utf8, write_then_rename
from albert_tf.training.evaluation import RESULTS_FILE

_RULE = "=" * 50 + "\n"


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
        self.append_lines(step, result_lines(step, results, best_before))

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
