"""Token classification: a label for each word, predicted at its first piece."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.text_examples import Labels
from albert_tf.finetuning.task import InMemoryTask, TrainingData
from albert_tf.modeling.losses import LossSum, accuracy, classification_loss
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.token_classification.features import TokenFeatures
from albert_tf.training.task import EXAMPLE_WEIGHTS, WHOLE, Features, Shard

LOSS = "loss"  # the total is reported under this name, too
_ROWS = "rows"


class TokenClassificationTask(InMemoryTask):
    """The training task of `run_token_classifier.py`.

    Args:
        config: configuration of the model.
        labels: the labels to predict.
        train: training data. If `None`, the task cannot be trained.
        max_seq_length: maximum length S of a sequence.
        classifier_dropout_prob: dropout rate of the input of the head.
        class_weights: float32 [K], weights of the labels in the loss. If `None`, all are 1.
        padding, use_one_hot_embeddings: see `training_batches` and `FactorizedEmbedding`.

    Raises:
        ValueError: `max_seq_length` exceeds the positions of the model, or there are no labels.
    """

    def __init__(
        self,
        config: AlbertConfig,
        labels: Labels,
        train: TokenFeatures | None = None,
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
        if self.train is None or self.train.label_ids is None or not len(self.train.sequences):
            raise UserError("Training needs sentences with labels. Received none.")
        return self.train.sequences, {_ROWS: np.arange(len(self.train.sequences))}

    def train_dataset(self, batch_size: int, seed: int, shard: Shard = WHOLE) -> tf.data.Dataset:
        """See `Task`; batches have `label_ids`, int32 [B, S], -1 for tokens without a label."""
        batches = super().train_dataset(batch_size, seed, shard)
        assert self.train is not None
        with tf.device("/CPU:0"):  # as `training_batches` does
            labels = tf.constant(self.train.token_labels())
            starts = tf.constant(self.train.sequences.starts)

        @tf.autograph.experimental.do_not_convert
        def with_labels(batch: Features) -> Features:
            features = dict(batch)
            places = tf.gather(starts, features.pop(_ROWS))[:, None]
            places += tf.range(tf.shape(features["input_ids"])[1], dtype=tf.int64)
            found = tf.gather(labels, tf.minimum(places, len(labels) - 1))
            found = tf.where(features["input_mask"] > 0, found, -1)
            return {**features, "label_ids": tf.ensure_shape(found, batch["input_ids"].shape)}

        return batches.map(with_labels)

    def describe_input(self) -> dict[str, Any]:
        """See `Task`."""
        self._training_data()
        assert self.train is not None
        digest = hashlib.sha256(self.train.token_labels().data).hexdigest()
        labels = {"labels": list(self.labels.names), "label_digest": digest}
        return {**super().describe_input(), **labels}

    def build_model(self) -> keras.Model:
        """See `Task`."""
        return AlbertForTokenClassification(
            self.config,
            self.labels.num_outputs,
            self.classifier_dropout_prob,
            self.use_one_hot_embeddings,
        )

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Task`."""
        return {LOSS: tf.reduce_sum(self._targets(features)[1])}

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`; the loss is a mean over words, weighted by their labels."""
        return {LOSS: classification_loss(outputs["logits"], *self._targets(features))}

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Task`."""
        return losses[LOSS].mean()

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`."""
        return {"accuracy": accuracy(outputs["logits"], *_labelled(features))}

    def _targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns label ids, see `_labelled`, and their weights in the loss, float32 [B, S]."""
        label_ids, weights = _labelled(features)
        if self.class_weights is not None:
            weights *= tf.gather(tf.constant(self.class_weights), label_ids)
        return label_ids, weights


def _labelled(features: Features) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns label ids, int32 [B, S], 0 without a label, and float32 [B, S], 1 with a label."""
    is_labelled = tf.cast(features["label_ids"] >= 0, tf.float32)
    weights = is_labelled * features[EXAMPLE_WEIGHTS][:, None]
    return tf.maximum(features["label_ids"], 0), weights
