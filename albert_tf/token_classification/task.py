"""The training task of token classification. The first piece of a word predicts its label."""

import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.finetuning.objective import LabelTask
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.token_classification.features import TokenFeatures
from albert_tf.training.objective import EXAMPLE_WEIGHTS, WHOLE, Features, Shard

_ROWS = "rows"


class TokenClassificationTask(LabelTask):
    """The training task of `run_token_classifier.py`; see `LabelTask`."""

    train: TokenFeatures

    def _columns(self) -> dict[str, np.ndarray]:
        return {_ROWS: np.arange(len(self.train.sequences))}

    def train_dataset(self, batch_size: int, seed: int, shard: Shard = WHOLE) -> tf.data.Dataset:
        """See `Objective`. `label_ids` are int32 [B, S], -1 for tokens without a label."""
        batches = super().train_dataset(batch_size, seed, shard)
        with tf.device("/CPU:0"):  # as in `training_batches`
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
        """See `Objective`."""
        described = super().describe_input()
        digest = hashlib.sha256(self.train.token_labels().data).hexdigest()
        return {**described, "label_digest": digest}

    def build_model(self) -> keras.Model:
        """See `Objective`."""
        return AlbertForTokenClassification(
            self.config,
            self.labels.num_outputs,
            self.classifier_dropout_prob,
            self.use_one_hot_embeddings,
        )

    def _targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns label ids, int32 [B, S], and weights, float32 [B, S], 0 for unlabeled tokens."""
        is_labelled = tf.cast(features["label_ids"] >= 0, tf.float32)
        weights = is_labelled * features[EXAMPLE_WEIGHTS][:, None]
        return tf.maximum(features["label_ids"], 0), weights
