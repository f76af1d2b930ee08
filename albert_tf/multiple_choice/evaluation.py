"""Evaluating and applying a model of multiple choice: from options to scores and files.

`eval_results.txt` and `predict_results.txt`, the scores of the test set where that has labels, are
the original's. `predictions.tsv`, which the original lacks, has the option chosen for each
question.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.data.files import write_then_rename
from albert_tf.data.text_examples import DEV, TEST
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.results import EvaluationResults, result_lines
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import LETTERS
from albert_tf.multiple_choice.features import ChoiceFeatures
from albert_tf.multiple_choice.metrics import predictions, probabilities, scores
from albert_tf.training.evaluation import BestCheckpoint

PREDICTIONS_FILE = "predictions.tsv"
PREDICT_RESULTS_FILE = "predict_results.txt"
_TITLE = "***** Predict results *****"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
BEST_METRIC = "eval_accuracy"


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


@dataclass(frozen=True)
class ChoiceSettings:
    """How options are chosen.

    Attributes:
        output_dir: where files are written.
        max_seq_length: longest sequence, in tokens.
        eval_batch_size: questions of an evaluation batch if all sequences were of that length.
        predict_batch_size: the same for prediction.
        padding: one of `data.sequences.PADDINGS`.
    """

    output_dir: str
    max_seq_length: int
    eval_batch_size: int = 8
    predict_batch_size: int = 8
    padding: str = "longest"


class ChoiceRun:
    """A model of multiple choice, its questions and the files of its run.

    Args:
        features: of the splits that are evaluated or predicted.
        model: made under `strategy`.
        strategy: the replicas.
        settings: how options are chosen.
    """

    def __init__(
        self,
        features: Mapping[str, ChoiceFeatures],
        model: AlbertForMultipleChoice,
        strategy: tf.distribute.Strategy,
        settings: ChoiceSettings,
    ) -> None:
        self.features = features
        self.model = model
        self.strategy = strategy
        self.settings = settings

    def predictor(self, split: str, batch_size: int) -> Predictor:
        """Returns what scores the options of a split one by one, sorted by length.

        Args:
            split: whose questions.
            batch_size: questions of a batch if all sequences were of the longest length.
        """
        length = self.settings.max_seq_length
        return Predictor(
            self.model,
            self.strategy,
            max_seq_length=length,
            tokens_per_batch=batch_size * self.features[split].num_choices * length,
            padding=self.settings.padding,
        )

    def logits(self, split: str, predictor: Predictor, description: str) -> np.ndarray:
        """Returns the scores of the options of N questions, float32 [N, C].

        Args:
            split: whose questions.
            predictor: see `predictor`.
            description: what the progress bar says.
        """
        features = self.features[split]
        logits = predictor.predict(features.sequences, description)["logits"]
        return logits.reshape(len(features), features.num_choices)

    def scores(self, split: str, logits: np.ndarray, batch_size: int) -> dict[str, float]:
        """Scores a labelled split, in the precision of a float32.

        Args:
            split: with labels.
            logits: float32 [N, C].
            batch_size: see `multiple_choice.metrics.scores`.
        """
        features = self.features[split]
        assert features.label_ids is not None, "questions of train and dev have labels"
        results = scores(
            logits, features.choice_mask, features.label_ids, features.levels, batch_size
        )
        return {name: float(np.float32(value)) for name, value in results.items()}

    def evaluation(
        self, best: BestCheckpoint, step: int | None = None, *, keeps_best: bool = True
    ) -> ChoiceEvaluation:
        """Returns what scores the model on the development set.

        Args:
            best: the best checkpoint so far.
            step: see `EvaluationResults`.
            keeps_best: whether what is evaluated may become the best checkpoint.
        """
        files = EvaluationResults(self.settings.output_dir, step)
        return ChoiceEvaluation(self, files, best, keeps_best=keeps_best)

    def predict(self, step: int, best: float) -> None:
        """Writes the options chosen in the test set, and its scores if it has labels.

        Args:
            step: training step of the model.
            best: the best score of an evaluation, -inf if there was none.
        """
        settings, features = self.settings, self.features[TEST]
        predictor = self.predictor(TEST, settings.predict_batch_size)
        logits = self.logits(TEST, predictor, "predicting")
        write_choice_predictions(
            settings.output_dir,
            features.example_ids,
            probabilities(logits, features.choice_mask),
            predictions(logits, features.choice_mask),
            features.choice_counts,
        )
        logging.info("Chose options of %d questions", len(features))
        if features.label_ids is not None:
            results = self.scores(TEST, logits, settings.predict_batch_size)
            write_predict_results(settings.output_dir, step, results, best)
            for name, value in sorted(results.items()):
                logging.info("%s = %s", name, value)


class ChoiceEvaluation:
    """Scores a model on the development set, any number of times, and keeps the results.

    Args:
        run: the model and its questions.
        files: takes the results.
        best: takes the best checkpoint.
        keeps_best: whether what is evaluated may become the best checkpoint.
    """

    def __init__(
        self,
        run: ChoiceRun,
        files: EvaluationResults,
        best: BestCheckpoint,
        *,
        keeps_best: bool = True,
    ) -> None:
        self._run = run
        self._files = files
        self._best = best
        self._keeps_best = keeps_best
        self._predictor = run.predictor(DEV, run.settings.eval_batch_size)

    def evaluate(self) -> dict[str, float]:
        """Returns the scores of the model as it is."""
        logits = self._run.logits(DEV, self._predictor, "evaluating")
        return self._run.scores(DEV, logits, self._run.settings.eval_batch_size)

    def record(self, step: int, results: Mapping[str, float]) -> None:
        """Keeps the results of the last evaluation, and the model if it is the best so far."""
        self._files.append(step, results, self._best.value)
        if self._keeps_best:
            self._best.offer(step, results, self._run.model)
