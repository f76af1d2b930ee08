"""Multiple choice: which option answers a question about a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.finetuning.task import InMemoryTask, TrainingData
from albert_tf.modeling.losses import LossSum, accuracy, classification_loss
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.features import ChoiceFeatures
from albert_tf.training.task import EXAMPLE_WEIGHTS, Features

LOSS = "loss"  # the total is reported under this name, too


class MultipleChoiceTask(InMemoryTask):
    """The training task of `run_race.py`.

    Args:
        config: configuration of the model.
        train: training data. If `None`, the task cannot be trained.
        max_seq_length: maximum length S of a sequence.
        dropout_prob: dropout rate of the pooled output.
        padding: see `training_batches`.
        use_one_hot_embeddings: see `FactorizedEmbedding`.

    Raises:
        ValueError: `max_seq_length` exceeds the positions of the model, or no question has a label.
    """

    def __init__(
        self,
        config: AlbertConfig,
        train: ChoiceFeatures | None = None,
        *,
        max_seq_length: int,
        dropout_prob: float = 0.1,
        padding: str = "longest",
        use_one_hot_embeddings: bool = False,
    ) -> None:
        super().__init__(
            config,
            max_seq_length=max_seq_length,
            padding=padding,
            use_one_hot_embeddings=use_one_hot_embeddings,
        )
        self.train = train
        self.dropout_prob = dropout_prob
        if train is not None:
            self._training_data()
            self.sequences_per_example = train.num_choices

    def _training_data(self) -> TrainingData:
        if self.train is None:
            raise UserError("This task has no training data.")
        sequences, label_ids = self.train.sequences, self.train.label_ids
        if label_ids is None or not len(label_ids) or self.train.num_choices < 2:
            raise UserError(
                "Training needs questions with labels, and 2 options to choose from. Received: "
                f"{len(self.train.example_ids)} questions"
                f"{'' if label_ids is not None else ' without labels'}, at most "
                f"{self.train.num_choices} options"
            )
        return sequences, {"label_ids": label_ids}

    def build_model(self) -> keras.Model:
        """See `Task`."""
        return AlbertForMultipleChoice(self.config, self.dropout_prob, self.use_one_hot_embeddings)

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Task`."""
        return {LOSS: tf.reduce_sum(features[EXAMPLE_WEIGHTS])}

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`."""
        weights = features[EXAMPLE_WEIGHTS]
        return {LOSS: classification_loss(outputs["logits"], features["label_ids"], weights)}

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Task`."""
        return losses[LOSS].mean()

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`."""
        weights = features[EXAMPLE_WEIGHTS]
        return {"accuracy": accuracy(outputs["logits"], features["label_ids"], weights)}
