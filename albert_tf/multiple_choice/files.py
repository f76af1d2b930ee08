"""The files of a model of multiple choice.

`eval_results.txt` and `predict_results.txt`, the scores of the test set where that has labels, are
the original's. `predictions.tsv`, which the original lacks, has the option chosen for each
question.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.data.files import write_then_rename
from albert_tf.finetuning.results import result_lines
from albert_tf.multiple_choice.data import LETTERS

PREDICTIONS_FILE = "predictions.tsv"
PREDICT_RESULTS_FILE = "predict_results.txt"
_TITLE = "***** Predict results *****"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def write_choice_predictions(
    output_dir: str,
    example_ids: Sequence[str],
    probabilities: np.ndarray,
    predictions: np.ndarray,
    choice_counts: np.ndarray,
) -> None:
    r"""Writes `predictions.tsv`: a header, and a row for each question in its order.

    The columns: `id`; `question`, which question of this id it is, from 0, for those of a RACE
    passage share its id; `prediction`, a letter; then for each letter the probability, empty where
    a question has no such option. In ids a backslash, a tab, a line feed and a carriage return
    stand as `\\`, `\t`, `\n` and `\r`.

    Args:
        output_dir: where to.
        example_ids: what the N questions are called.
        probabilities: float [N, C].
        predictions: int [N], chosen options from 0.
        choice_counts: int [N], options of each question.
    """
    letters = LETTERS[: probabilities.shape[1]]
    rows = [["id", "question", "prediction", *letters]]
    seen: Counter[str] = Counter()
    for name, values, chosen, count in zip(
        example_ids, probabilities.astype(np.float32), predictions, choice_counts, strict=True
    ):
        cells = [str(value) for value in values[:count]] + [""] * (len(letters) - count)
        rows.append([name.translate(_ESCAPES), str(seen[name]), letters[chosen], *cells])
        seen[name] += 1
    with write_then_rename(os.path.join(output_dir, PREDICTIONS_FILE)) as file:
        file.write("".join("\t".join(row) + "\n" for row in rows).encode())


def write_predict_results(
    output_dir: str, step: int, results: Mapping[str, float], best: float
) -> None:
    """Writes `predict_results.txt`: the scores of a test set that has labels.

    Args:
        output_dir: where to.
        step: finished training steps of the model.
        results: numbers by name.
        best: the best score of an evaluation; -inf or NaN where there was none, written as -1.
    """
    lines = [_TITLE, *result_lines(step, results, best)]
    with write_then_rename(os.path.join(output_dir, PREDICT_RESULTS_FILE)) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
