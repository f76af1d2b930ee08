"""Classification and regression of texts and of pairs of texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.batching import EXAMPLE_WEIGHTS
from albert_tf.data.length_batching import training_batches
from albert_tf.data.text_examples import Labels
from albert_tf.data.text_features import TextFeatures
from albert_tf.losses import LossSum, accuracy, classification_loss, regression_loss
from albert_tf.models import AlbertForClassification
from albert_tf.tasks.base import Features

LOSS = "loss"  # the only one: the name it is reported by anyway


class ClassificationTask:
    """The task of `run_classifier.py`, as the trainer sees it.

    Args:
        config: the model.
        labels: what is predicted.
        train: what to train on; None where nothing is trained.
        max_seq_length: S that no sequence exceeds.
        classifier_dropout_prob: dropout of the pooled output.
        padding: see `training_batches`.
        use_one_hot_embeddings: see `FactorizedEmbedding`.

    Raises:
        ValueError: sequences longer than the model's position table, or nothing to learn from.
    """

    def __init__(
        self,
        config: AlbertConfig,
        labels: Labels,
        train: TextFeatures | None = None,
        *,
        max_seq_length: int,
        classifier_dropout_prob: float = 0.1,
        padding: str = "longest",
        use_one_hot_embeddings: bool = False,
    ) -> None:
        config.check_sequence_length(max_seq_length, "--max_seq_length")
        self.config = config
        self.labels = labels
        self.train = train
        self.max_seq_length = max_seq_length
        self.classifier_dropout_prob = classifier_dropout_prob
        self.padding = padding
        self.use_one_hot_embeddings = use_one_hot_embeddings
        if train is not None:
            self._train_labels()

    def train_dataset(self, batch_size: int, seed: int) -> tf.data.Dataset:
        """See `Task`."""
        return training_batches(
            self._train_features().sequences,
            {"label_ids": self._train_labels()},
            batch_size,
            seed=seed,
            max_seq_length=self.max_seq_length,
            padding=self.padding,
        )

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """See `Task`; features are in memory, where nothing is read."""
        return nullcontext()

    def describe_input(self) -> dict[str, Any]:
        """See `Task`."""
        sequences = self._train_features().sequences
        digest = hashlib.sha256()
        for array in (
            sequences.tokens,
            sequences.starts,
            sequences.first_lengths,
            self._train_labels(),
        ):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return {
            "examples": len(sequences),
            "digest": digest.hexdigest(),
            "labels": list(self.labels.names),
            "max_seq_length": self.max_seq_length,
            "padding": self.padding,
        }

    def _train_features(self) -> TextFeatures:
        if self.train is None:
            raise ValueError("This task was given nothing to train on.")
        return self.train

    def _train_labels(self) -> np.ndarray:
        """int32 or float32 [N], the labels of the training examples."""
        train = self._train_features()
        if train.label_ids is None or not len(train.sequences):
            raise ValueError(
                f"Training needs examples with labels. Received: {len(train.sequences)} examples"
                f"{'' if train.label_ids is not None else ' without'}"
            )
        return train.label_ids

    def build_model(self) -> keras.Model:
        """See `Task`."""
        return AlbertForClassification(
            self.config,
            self.labels.num_outputs,
            self.classifier_dropout_prob,
            self.use_one_hot_embeddings,
        )

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Task`."""
        return {LOSS: tf.reduce_sum(features[EXAMPLE_WEIGHTS])}

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`."""
        loss = regression_loss if self.labels.is_regression else classification_loss
        return {LOSS: loss(outputs["logits"], features["label_ids"], features[EXAMPLE_WEIGHTS])}

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Task`."""
        return losses[LOSS].mean()

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`; of numbers there is none beside the loss."""
        if self.labels.is_regression:
            return {}
        weights = features[EXAMPLE_WEIGHTS]
        return {"accuracy": accuracy(outputs["logits"], features["label_ids"], weights)}
