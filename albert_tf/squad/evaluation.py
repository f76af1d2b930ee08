"""Evaluating and applying a model that answers questions: from windows to answers and files.

The files are in the original release's form.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from absl import logging

from albert_tf.checkpoints.trained_task import THRESHOLD
from albert_tf.data.files import write_then_rename
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.results import EvaluationResults
from albert_tf.squad.answers import AnswerSelector, SquadAnswers
from albert_tf.squad.data import Question, SquadData
from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.metrics import has_references, is_chinese, v1_scores, v2_scores
from albert_tf.training.evaluation import BestCheckpoint, result_lines

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


class SquadEvaluationResults:
    """`eval_results.txt`: a block for every checkpoint, and at the end the best one's once more.

    Args:
        output_dir: where the file lies.
        step: see `EvaluationResults`.
    """

    def __init__(self, output_dir: str, step: int | None = None) -> None:
        self._file = EvaluationResults(output_dir, step)

    def append(
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
        self._file.append_lines(step, block, "\n".join(ending))

    def _results(self, step: int) -> list[str]:
        lines = self._file.lines(step)
        return [line for line in lines if not line.startswith((_STEP, _BEST))]


@dataclass(frozen=True)
class SquadSettings:
    """How questions are answered.

    Attributes:
        output_dir: where files are written.
        version: 1 or 2, of SQuAD.
        n_best_size: see `AnswerSelector`.
        max_answer_length: see `AnswerSelector`.
        threshold: null odds from which on a question of SQuAD 2.0 is not answered. None takes the
            best of the references, or `known_threshold` where there are none.
        known_threshold: the best one of an earlier evaluation; None if there was none.
    """

    output_dir: str
    version: int
    n_best_size: int = 20
    max_answer_length: int = 30
    threshold: float | None = None
    known_threshold: float | None = None


def threshold_without_references(settings: SquadSettings) -> float | None:
    """Returns the null odds from which on SQuAD 2.0's questions are not answered.

    It is the one that is set, else the known one, else 0; None for SQuAD 1.1.
    """
    if settings.version == 1:
        return None
    if settings.threshold is None and settings.known_threshold is None:
        logging.warning(
            "There are no answers to find the best threshold by, and no evaluation of this model "
            "has found it: --%s=0 is taken",
            THRESHOLD,
        )
        return 0.0
    return settings.known_threshold if settings.threshold is None else settings.threshold


def best_metric(questions: Sequence[Question], version: int) -> str:
    """Returns the name of the score that chooses the best checkpoint.

    Args:
        questions: that are evaluated.
        version: 1 or 2, of SQuAD.

    Differs: where most references are Chinese, F1 of SQuAD 1.1 says little, because it takes what
        stands between blanks for a word; CMRC 2018's of characters is taken.
    """
    if version == 2:
        return "best_f1"
    return "char_f1" if is_chinese(questions) else "f1"


class SquadRun:
    """A model, the questions it answers, and the files of its run.

    Args:
        data: the questions.
        features: their windows.
        predictor: of the model; gives `squad.answers.OUTPUTS`. With its padding "max" the logits
            of padding take part in choosing the best starts and ends of SQuAD 1.1, as in the
            original.
        settings: how questions are answered.
        keep_threshold: takes the threshold of the best checkpoint of SQuAD 2.0.

    Raises:
        ValueError: a setting is out of range.

    Attributes:
        has_references: whether answers can be scored.
        best_metric: name of the score that chooses the best checkpoint.
        best_name: what `eval_results.txt` calls it.
    """

    def __init__(
        self,
        data: SquadData,
        features: SquadFeatures,
        predictor: Predictor,
        settings: SquadSettings,
        keep_threshold: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.data = data
        self.features = features
        self.predictor = predictor
        self.settings = settings
        self.keep_threshold = keep_threshold
        self.has_references = has_references(data.questions, settings.version)
        self.best_metric = best_metric(data.questions, settings.version)
        self.best_name = self.best_metric.removeprefix("best_")
        self._written_step: int | None = None  # whose answers the files have
        self._selector()  # complains now of settings that it cannot take

    def _selector(self) -> AnswerSelector:
        settings = self.settings
        return AnswerSelector(
            self.data,
            self.features,
            version=settings.version,
            n_best_size=settings.n_best_size,
            max_answer_length=settings.max_answer_length,
            ranks_padding=self.predictor.padding == "max",
        )

    def answers(self, description: str = "answering") -> SquadAnswers:
        """Returns the answers of the model as it is; of a window's outputs only the best stay.

        Args:
            description: what the progress bar says.

        Raises:
            ValueError: an output is not finite.
        """
        selector = self._selector()
        for rows, outputs in self.predictor.batches(self.features.sequences, description):
            selector.add(rows, outputs)
        return selector.answers()

    def scores(self, answers: SquadAnswers) -> dict[str, float]:
        """Scores answers by their references; see `v1_scores` and `v2_scores`."""
        questions, predictions = self.data.questions, answers.predictions()
        if self.settings.version == 1:
            return v1_scores(questions, predictions)
        odds = answers.null_odds_by_id()
        return v2_scores(questions, predictions, odds, self.settings.threshold)

    def write(self, step: int, answers: SquadAnswers, scores: Mapping[str, float]) -> None:
        """Writes the answers of a checkpoint.

        Args:
            step: its training step.
            answers: what it says.
            scores: of these answers; empty where there are no references.
        """
        threshold = scores.get(THRESHOLD)
        if threshold is None:
            threshold = threshold_without_references(self.settings)
        write_answers(self.settings.output_dir, answers, threshold)
        self._written_step = step

    def evaluation(self, best: BestCheckpoint, step: int | None = None) -> SquadEvaluation:
        """Returns what scores the model.

        Args:
            best: the best checkpoint so far.
            step: see `EvaluationResults`.
        """
        return SquadEvaluation(self, SquadEvaluationResults(self.settings.output_dir, step), best)

    def predict(self, step: int, *, keeps_scores: bool) -> None:
        """Writes what the model says, and logs its scores if there are references.

        Args:
            step: training step of the model's checkpoint. If this run has evaluated it as the
                best, all is written already.
            keeps_scores: whether `eval_results.txt` is to hold these scores, in place of others.
        """
        if step == self._written_step:
            return
        answers = self.answers()
        scores = self.scores(answers) if self.has_references else {}
        self.write(step, answers, scores)
        logging.info("Answered %d questions of %s", len(answers), self.data.path)
        if scores:
            for line in result_lines(step, scores):
                logging.info(line)
        if scores and keeps_scores:
            results = SquadEvaluationResults(self.settings.output_dir)
            best = scores[self.best_metric]
            results.append(step, scores, best_step=step, best_f1=best, name=self.best_name)


class SquadEvaluation:
    """Scores a model by the references, any number of times, and keeps the results.

    Args:
        run: the model and its questions, which have references.
        files: takes the results.
        best: takes the best checkpoint.
    """

    def __init__(self, run: SquadRun, files: SquadEvaluationResults, best: BestCheckpoint) -> None:
        self._run = run
        self._files = files
        self._best = best
        self._answers: SquadAnswers | None = None  # of the last evaluation

    def evaluate(self) -> dict[str, float]:
        """Returns the scores of the model as it is."""
        self._answers = self._run.answers("evaluating")
        return self._run.scores(self._answers)

    def record(self, step: int, results: Mapping[str, float]) -> None:
        """Keeps the results of the last evaluation; if the best so far, its answers and the model.

        The model comes last: a run that ends before evaluates this checkpoint once more.
        """
        assert self._answers is not None, "nothing has been evaluated"
        best, score = self._best, results[self._run.best_metric]
        is_best = score > best.value
        best_step, best_f1 = (step, score) if is_best else (best.step, best.value)
        name = self._run.best_name
        self._files.append(step, results, best_step=best_step, best_f1=best_f1, name=name)
        if is_best:
            self._run.write(step, self._answers, results)
            if "best_f1_thresh" in results:
                self._run.keep_threshold(results["best_f1_thresh"])
        best.offer(step, results, self._run.predictor.model)
