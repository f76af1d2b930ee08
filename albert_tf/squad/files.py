"""The files of a model that answers questions, in the original release's form."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping

from albert_tf.data.files import write_then_rename
from albert_tf.finetuning.results import EvaluationResults
from albert_tf.squad.answers import SquadAnswers

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"
_STEP = "global_step = "
_BEST = "best "


def write_answers(output_dir: str, answers: SquadAnswers, threshold: float | None = None) -> None:
    """Writes `predictions.json`, `nbest_predictions.json` and, for SQuAD 2.0, `null_odds.json`.

    Each is one object whose keys are the questions' ids, in their order. The n best of a question
    are objects of `text`, `probability`, `start_log_prob` and `end_log_prob`.

    Args:
        output_dir: where to.
        answers: of all questions.
        threshold: null odds from which on the answer is ""; None always takes the best one.
    """
    _write(output_dir, PREDICTIONS_FILE, _texts(answers.predictions(threshold)))
    # Of an id that occurs twice, the last question's, as in the other files.
    numbers = {qas_id: number for number, qas_id in enumerate(answers.ids)}
    entries = ((json.dumps(id_), _entries(answers, number)) for id_, number in numbers.items())
    _write(output_dir, NBEST_FILE, entries)
    if answers.null_odds is not None:
        _write(output_dir, NULL_ODDS_FILE, _texts(answers.null_odds_by_id()))


def _texts(values: Mapping[str, str] | Mapping[str, float]) -> Iterable[tuple[str, str]]:
    return ((json.dumps(key), json.dumps(value)) for key, value in values.items())


def _entries(answers: SquadAnswers, number: int) -> str:
    """The n best of a question, as `json.dumps` with an indent of 4 gives them, only faster."""
    entries = (
        f"        {{\n"
        f'            "text": {json.dumps(candidate.text)},\n'
        f'            "probability": {candidate.probability!r},\n'
        f'            "start_log_prob": {candidate.start_log_prob!r},\n'
        f'            "end_log_prob": {candidate.end_log_prob!r}\n'
        f"        }}"
        for candidate in answers.candidates[number]
    )
    return "[\n" + ",\n".join(entries) + "\n    ]"


def _write(output_dir: str, name: str, items: Iterable[tuple[str, str]]) -> None:
    """Writes an object of keys and values that are JSON already."""
    with write_then_rename(os.path.join(output_dir, name)) as file:
        separator = "{\n"
        for key, value in items:
            file.write(f"{separator}    {key}: {value}".encode())
            separator = ",\n"
        file.write(b"{}\n" if separator == "{\n" else b"\n}\n")


class SquadEvaluationResults(EvaluationResults):
    """`eval_results.txt`: a block for every checkpoint, and at the end the best one's once more."""

    def append_with_best(
        self,
        step: int,
        results: Mapping[str, float],
        *,
        best_step: int,
        best_f1: float,
        name: str = "f1",
    ) -> None:
        """Adds the block of a checkpoint, in place of an earlier one of the same step.

        Args:
            step: finished training steps.
            results: numbers by name.
            best_step: step of the best checkpoint so far, this one included; -1 if none scored.
            best_f1: its score.
            name: what kind of F1 that is.
        """
        lines = [f"{key} = {value}" for key, value in sorted(results.items())]
        best_lines = lines if best_step == step else self._results(best_step)
        ending = [*best_lines, f"best perf happened at step: {best_step}"]
        best = best_f1 if math.isfinite(best_f1) else -1
        block = [*lines, f"{_STEP}{step}", f"{_BEST}{name} = {best}"]
        self.append_lines(step, block, "\n".join(ending))

    def _results(self, step: int) -> list[str]:
        return [line for line in self.lines(step) if not line.startswith((_STEP, _BEST))]
