"""Evaluating and applying a classifier: from texts to scores, predictions and their files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.classification.features import TextFeatures, text_features
from albert_tf.classification.files import (
    clip_similarity,
    write_confusion_matrix,
    write_predictions,
    write_submission,
)
from albert_tf.classification.predict_texts import TextClassifier, predict_file
from albert_tf.data.text_examples import DEV, TEST, Labels, TextData, TextExample
from albert_tf.finetuning.metrics import (
    batch_mean_loss,
    confusion_matrix,
    per_example_losses,
    predictions,
    probabilities,
    scores,
)
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.results import EvaluationResults
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.evaluation import BestCheckpoint


class LoadedData:
    """A source of texts whose files have been read, so that what is wrong with them is known.

    Args:
        data: the source.
        splits: what to read now.

    Raises:
        ValueError: see `TextData.read`.

    Attributes:
        name, labels, best_metric, metrics, submission_file: see `TextData`.
    """

    def __init__(self, data: TextData, splits: Iterable[str]) -> None:
        self.name = data.name
        self.labels = data.labels
        self.best_metric = data.best_metric
        self.metrics = data.metrics
        self.submission_file = data.submission_file
        self.file = data.file
        self._examples = {split: data.read(split) for split in splits}

    def read(self, split: str) -> list[TextExample]:
        """Returns a split's examples, [N]; see `TextData`."""
        return self._examples[split]

    def is_pair(self) -> bool | None:
        """Whether examples have two texts, None where nothing was read."""
        examples = [example for split in self._examples.values() for example in split]
        return any(example.text_b is not None for example in examples) if examples else None


@dataclass(frozen=True)
class RunSettings:
    """How a classifier is evaluated and applied.

    Attributes:
        output_dir: where results are written.
        max_seq_length: longest sequence, in tokens.
        eval_batch_size: examples of an evaluation batch if all were of that length.
        predict_batch_size: the same for prediction.
        padding: one of `data.sequences.PADDINGS`.
    """

    output_dir: str
    max_seq_length: int
    eval_batch_size: int = 8
    predict_batch_size: int = 8
    padding: str = "longest"


class ClassificationRun:
    """A classifier, its data and the files of its run.

    Args:
        data: the texts.
        tokenizer: fits the model.
        model: made under `strategy`.
        strategy: the replicas.
        settings: how it is evaluated and applied.
    """

    def __init__(
        self,
        data: LoadedData,
        tokenizer: Tokenizer,
        model: AlbertForClassification,
        strategy: tf.distribute.Strategy,
        settings: RunSettings,
    ) -> None:
        self.data = data
        self.tokenizer = tokenizer
        self.model = model
        self.strategy = strategy
        self.settings = settings

    def features(self, split: str) -> TextFeatures:
        """Returns the features of a split."""
        examples, length = self.data.read(split), self.settings.max_seq_length
        return text_features(examples, self.data.labels, self.tokenizer, length)

    def _predictor(self, batch_size: int) -> Predictor:
        length = self.settings.max_seq_length
        return Predictor(
            self.model,
            self.strategy,
            max_seq_length=length,
            tokens_per_batch=batch_size * length,
            padding=self.settings.padding,
        )

    def evaluation(
        self, best: BestCheckpoint, step: int | None = None, *, keeps_best: bool = True
    ) -> ClassifierEvaluation:
        """Returns what scores the model on the development set.

        Args:
            best: the best checkpoint so far.
            step: see `EvaluationResults`.
            keeps_best: whether what is evaluated may become the best checkpoint.
        """
        return ClassifierEvaluation(
            self._predictor(self.settings.eval_batch_size),
            self.features(DEV),
            self.data,
            EvaluationResults(self.settings.output_dir, step),
            best,
            batch_size=self.settings.eval_batch_size,
            keeps_best=keeps_best,
        )

    def predict(self) -> None:
        """Writes what the model says of the test set: `test_results.tsv` and its like."""
        features, labels = self.features(TEST), self.data.labels
        predictor = self._predictor(self.settings.predict_batch_size)
        logits = predictor.predict(features.sequences)["logits"]
        names = _names(logits, labels)
        output_dir = self.settings.output_dir
        write_predictions(output_dir, features.guids, probabilities(logits, labels), names)
        logging.info("Predicted %d rows of %s", len(names), self.data.file(TEST))
        if self.data.submission_file:
            path = os.path.join(output_dir, self.data.submission_file)
            submitted = clip_similarity(logits[:, 0]) if labels.is_regression else names
            write_submission(path, features.guids, submitted)

    def predict_file(self, path: str, is_pair: bool, output_path: str | None) -> None:
        """Predicts every line of a file; see `text_prediction.predict_file`."""
        length = self.settings.max_seq_length
        predictor = self._predictor(self.settings.predict_batch_size)
        classifier = TextClassifier(self.tokenizer, predictor, self.data.labels, length, is_pair)
        predict_file(path, classifier, output_path)


def _names(logits: np.ndarray, labels: Labels) -> list[str]:
    """The predicted labels, or numbers as NumPy writes a float32."""
    predicted = predictions(logits, labels)
    if labels.is_regression:
        return [str(value) for value in predicted]
    return [labels.names[label_id] for label_id in predicted]


class ClassifierEvaluation:
    """Scores a classifier on labelled examples, any number of times, and keeps the results.

    Args:
        predictor: of the model.
        features: of N labelled examples, in the order of their file.
        data: what is predicted, and which scores count.
        files: takes the results.
        best: takes the best checkpoint.
        batch_size: examples of a batch of the original, whose means `loss` is the mean of.
        keeps_best: whether what is evaluated may become the best checkpoint.
    """

    def __init__(
        self,
        predictor: Predictor,
        features: TextFeatures,
        data: LoadedData,
        files: EvaluationResults,
        best: BestCheckpoint,
        *,
        batch_size: int,
        keeps_best: bool = True,
    ) -> None:
        if features.label_ids is None:
            raise ValueError(f"{data.file(DEV)} has no labels: nothing can be scored.")
        self._predictor = predictor
        self._features = features
        self._label_ids = features.label_ids
        self._data = data
        self._files = files
        self._best = best
        self._batch_size = batch_size
        self._keeps_best = keeps_best
        self._logits = np.zeros([0, data.labels.num_outputs], np.float32)  # of the last evaluation

    def evaluate(self) -> dict[str, float]:
        """Returns the scores of the model as it is, and `loss`, in the precision of a float32."""
        labels = self._data.labels
        self._logits = self._predictor.predict(self._features.sequences, "evaluating")["logits"]
        losses = per_example_losses(self._logits, self._label_ids, labels)
        results = scores(self._logits, self._label_ids, self._data.metrics, labels, losses=losses)
        results["loss"] = batch_mean_loss(losses, self._batch_size)
        return {name: float(np.float32(value)) for name, value in results.items()}

    def record(self, step: int, results: Mapping[str, float]) -> None:
        """Keeps the results of the last evaluation, and the model if it is the best so far."""
        labels = self._data.labels
        arrays = {}
        if labels.is_regression:
            arrays = {"label_ids": self._label_ids, "pred": predictions(self._logits, labels)}
        self._files.append(step, {**results, **arrays}, self._best.value)
        is_shown = not self._keeps_best or self._best.offer(step, results, self._predictor.model)
        if is_shown and not labels.is_regression:
            counts = confusion_matrix(self._logits, self._label_ids, labels.num_outputs)
            write_confusion_matrix(self._files.output_dir, counts, labels.names)
