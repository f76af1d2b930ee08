"""Features of labeled texts, and the training task of classification."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.splits import given_labels
from albert_tf.finetuning.objective import HEAD_VARIABLES, LOSS, LabelTask
from albert_tf.finetuning.texts import TextExample, text_sequences
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
    examples: Sequence[TextExample],
    labels: Labels,
    tokenizer: Tokenizer,
    max_seq_length: int,
    warn_above: float = 1.0,
    source: str | None = None,
) -> TextFeatures:
    """Tokenizes examples and encodes their labels; see `text_sequences`.

    Raises ValueError if a label is unknown, or only some examples have a label.
    """
    found = given_labels([(example.guid, example.label) for example in examples], "rows")
    label_ids = labels.encode(found) if found else None
    sequences = text_sequences(
        examples, tokenizer, max_seq_length, warn_above=warn_above, source=source
    )
    return TextFeatures(sequences, label_ids, [example.guid for example in examples])


def label_scale(label_ids: np.ndarray, path: str) -> tuple[float, float]:
    """Returns mean and standard deviation of the numbers in a file; a deviation of 0 becomes 1.

    Raises ValueError if squares of the deviation are not representable in float32.
    """
    numbers = label_ids.astype(np.float64)
    mean, deviation = float(numbers.mean()), float(numbers.std()) if np.ptp(numbers) else 1.0
    rounding = float(np.spacing(np.float32(abs(mean))))
    if not 1e-15 < deviation < 1e15:
        raise UserError(
            f"{path}: the labels of a regression must have a standard deviation between 1e-15 and "
            f"1e15. Received: {deviation:g}. Multiply or divide them by a constant."
        )
    if rounding > deviation / 100:
        text = "%s: labels with mean %.9g and deviation %g are rounded to multiples of %g (float32)"
        logging.warning(f"{text}. Subtract a constant from them.", path, mean, deviation, rounding)
    return mean, deviation


class ClassificationTask(LabelTask):
    """The training task of `run_classifier.py`; see `LabelTask`.

    `scale` contains mean and standard deviation of the numbers of a regression. The head predicts
    numbers in the unit of the labels, but is initialized and trained as if the labels were
    standardized: a new head starts at the mean, and the loss and the updates of the head have the
    unit of the deviation. If `None`, as in the original, labels are used as they are.
    """

    def __init__(self, *args: Any, scale: tuple[float, float] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scale = scale
        if scale:
            self.units = dict.fromkeys(HEAD_VARIABLES, scale[1])

    def _columns(self) -> dict[str, np.ndarray]:
        return {"label_ids": self.train.label_ids}

    def build_model(self) -> keras.Model:
        """See `Objective`."""
        model = AlbertForClassification(
            self.config,
            self.labels.num_outputs,
            self.classifier_dropout_prob,
            self.use_one_hot_embeddings,
            multi_label=self.labels.multi_label,
        )
        if self.scale:
            mean, deviation = self.scale
            weights, bias = model.classifier.output_weights, model.classifier.output_bias
            weights.assign(deviation * tf.convert_to_tensor(weights))
            bias.assign(tf.fill(bias.shape, mean))
        return model

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

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Objective`; the loss of standardized labels."""
        loss = super().total_loss(losses)
        return loss / self.scale[1] ** 2 if self.scale else loss

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
