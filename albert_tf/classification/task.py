"""Features of labeled texts, and the training task of classification."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.data.sequences import TokenSequences
from albert_tf.data.text_examples import TextExample, given_labels
from albert_tf.finetuning.task import LOSS, LabelTask
from albert_tf.finetuning.texts import text_sequences
from albert_tf.labels import Labels
from albert_tf.modeling.heads import class_outputs
from albert_tf.modeling.losses import LossSum, binary_loss, regression_loss
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.objective import EXAMPLE_WEIGHTS, Features


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Features of N examples. For `label_ids` see `Labels.encode`."""

    sequences: TokenSequences
    label_ids: np.ndarray | None
    guids: list[str]


def text_features(
    examples: Sequence[TextExample], labels: Labels, tokenizer: Tokenizer, max_seq_length: int
) -> TextFeatures:
    """Tokenizes examples and encodes their labels; see `text_sequences`.

    Raises ValueError if a label is unknown, or only some examples have a label.
    """
    found = given_labels([(example.guid, example.label) for example in examples], "rows")
    label_ids = labels.encode(found) if found else None
    sequences = text_sequences(examples, tokenizer, max_seq_length)
    return TextFeatures(sequences, label_ids, [example.guid for example in examples])


class ClassificationTask(LabelTask):
    """The training task of `run_classifier.py`; see `LabelTask`."""

    def _columns(self) -> dict[str, np.ndarray]:
        return {"label_ids": self.train.label_ids}

    def build_model(self) -> keras.Model:
        """See `Objective`."""
        return AlbertForClassification(
            self.config,
            self.labels.num_outputs,
            self.classifier_dropout_prob,
            self.use_one_hot_embeddings,
            multi_label=self.labels.multi_label,
        )

    def _loss_targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns labels and weights, [B]; [B, K] for multi-label models."""
        if not self.labels.multi_label:
            return super()._loss_targets(features)
        weights = tf.repeat(features[EXAMPLE_WEIGHTS][:, None], self.labels.num_outputs, axis=1)
        if self.class_weights is not None:
            weights *= self.class_weights
        return features["label_ids"], weights

    def losses(
        self, outputs: Mapping[str, Any], features: Features, ops: Ops = PLAIN
    ) -> dict[str, LossSum]:
        """See `Objective`."""
        if self.labels.multi_label or self.labels.is_regression:
            loss = binary_loss if self.labels.multi_label else regression_loss
            return {LOSS: loss(outputs["logits"], *self._loss_targets(features))}
        return super().losses(outputs, features, ops)

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Objective`; a regression has no metrics other than the loss."""
        if self.labels.is_regression:
            return {}
        if not self.labels.multi_label:
            return super().metrics(outputs, features)
        label_ids, weights = self._targets(features)
        predicted = class_outputs(outputs["logits"], self.labels.threshold)["predictions"]
        is_right = tf.reduce_all(predicted == tf.cast(label_ids, tf.int32), axis=1)
        hits = weights * tf.cast(is_right, weights.dtype)
        return {"accuracy": LossSum(tf.reduce_sum(hits), tf.reduce_sum(weights))}
