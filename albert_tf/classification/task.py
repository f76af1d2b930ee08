"""Classification and regression of texts and of pairs of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.classification.features import TextFeatures
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.text_examples import Labels
from albert_tf.finetuning.task import InMemoryTask, TrainingData
from albert_tf.modeling.losses import (
    LossSum,
    accuracy,
    binary_loss,
    classification_loss,
    regression_loss,
)
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.serving.saved_model import class_outputs
from albert_tf.training.task import EXAMPLE_WEIGHTS, Features

LOSS = "loss"  # the total is reported under this name, too


class ClassificationTask(InMemoryTask):
    """The training task of `run_classifier.py`.

    Args:
        config: configuration of the model.
        labels: the labels to predict.
        train: training data. If `None`, the task cannot be trained.
        max_seq_length: maximum length S of a sequence.
        classifier_dropout_prob: dropout rate of the pooled output.
        class_weights: float32 [K], weights of the classes in the loss. If `None`, all are 1.
        padding, use_one_hot_embeddings: see `training_batches` and `FactorizedEmbedding`.

    Raises:
        ValueError: `max_seq_length` exceeds the positions of the model, or no example has a label.
    """

    def __init__(
        self,
        config: AlbertConfig,
        labels: Labels,
        train: TextFeatures | None = None,
        *,
        max_seq_length: int,
        classifier_dropout_prob: float = 0.1,
        class_weights: np.ndarray | None = None,
        padding: str = "longest",
        use_one_hot_embeddings: bool = False,
    ) -> None:
        super().__init__(
            config,
            max_seq_length=max_seq_length,
            padding=padding,
            use_one_hot_embeddings=use_one_hot_embeddings,
        )
        self.labels = labels
        self.train = train
        self.classifier_dropout_prob = classifier_dropout_prob
        self.class_weights = class_weights
        if train is not None:
            self._training_data()

    def _training_data(self) -> TrainingData:
        if self.train is None:
            raise UserError("This task has no training data.")
        sequences, label_ids = self.train.sequences, self.train.label_ids
        if label_ids is None or not len(sequences):
            raise UserError(
                f"Training needs examples with labels. Received: {len(sequences)} examples"
                f"{'' if label_ids is not None else ' without'}"
            )
        return sequences, {"label_ids": label_ids}

    def describe_input(self) -> dict[str, Any]:
        """See `Task`."""
        return {**super().describe_input(), "labels": list(self.labels.names)}

    def build_model(self) -> keras.Model:
        """See `Task`."""
        return AlbertForClassification(
            self.config,
            self.labels.num_outputs,
            self.classifier_dropout_prob,
            self.use_one_hot_embeddings,
            multi_label=self.labels.multi_label,
        )

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Task`."""
        return {LOSS: tf.reduce_sum(self._weights(features))}

    def _weights(self, features: Features) -> tf.Tensor:
        """Returns the weights in the loss, float32 [B]; [B, K] for multi-label models."""
        weights = features[EXAMPLE_WEIGHTS]
        if self.labels.multi_label:
            of_labels = np.ones(self.labels.num_outputs, np.float32)
            return weights[:, None] * (
                of_labels if self.class_weights is None else self.class_weights
            )
        if self.class_weights is None:
            return weights
        return weights * tf.gather(tf.constant(self.class_weights), features["label_ids"])

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`."""
        loss = regression_loss if self.labels.is_regression else classification_loss
        loss = binary_loss if self.labels.multi_label else loss
        return {LOSS: loss(outputs["logits"], features["label_ids"], self._weights(features))}

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Task`."""
        return losses[LOSS].mean()

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`; a regression has no metrics other than the loss."""
        if self.labels.is_regression:
            return {}
        weights, logits, label_ids = (
            features[EXAMPLE_WEIGHTS],
            outputs["logits"],
            features["label_ids"],
        )
        if not self.labels.multi_label:
            return {"accuracy": accuracy(logits, label_ids, weights)}
        predicted = class_outputs(logits, self.labels.threshold)["predictions"]
        is_right = tf.reduce_all(predicted == tf.cast(label_ids, tf.int32), axis=1)
        hits = weights * tf.cast(is_right, weights.dtype)
        return {"accuracy": LossSum(tf.reduce_sum(hits), tf.reduce_sum(weights))}
