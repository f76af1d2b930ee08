"""Training tasks with token sequences in memory."""

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.finetuning.batches import training_batches
from albert_tf.labels import Labels
from albert_tf.modeling.losses import LossSum, accuracy, classification_loss
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.training.objective import EXAMPLE_WEIGHTS, WHOLE, Features, Objective, Shard

LOSS = "loss"  # also the name of the total loss
HEAD_VARIABLES = ("output_weights", "output_bias")  # of classifiers, by the original's names


class InMemoryTask(Objective, ABC):
    """A task with N training examples in memory, by default with the cross entropy of the logits.

    `train` contains labels and N * C `sequences`; if it is `None`, the task cannot be trained.
    `padded_length` describes `padding`, `FactorizedEmbedding` `use_one_hot_embeddings`. Raises
    ValueError if `max_seq_length` exceeds the positions of the model.
    """

    sequences_per_example = 1  # C

    def __init__(
        self,
        config: AlbertConfig,
        train: Any = None,
        *,
        max_seq_length: int,
        padding: str = "longest",
        use_one_hot_embeddings: bool = False,
    ) -> None:
        config.check_sequence_length(max_seq_length)
        self.config = config
        self.train = train
        if train is not None:
            self.mean_tokens = self.sequences_per_example * float(train.sequences.lengths.mean())
        self.max_seq_length = max_seq_length
        self.padding = padding
        self.use_one_hot_embeddings = use_one_hot_embeddings

    @abstractmethod
    def _columns(self) -> dict[str, np.ndarray]:
        """Returns labels by name, [N, ...] each."""

    @property
    def num_examples(self) -> int:
        """Number of training examples."""
        return len(self.train.sequences) // self.sequences_per_example

    def train_dataset(self, batch_size: int, seed: int, shard: Shard = WHOLE) -> tf.data.Dataset:
        """See `Objective`."""
        return training_batches(
            self.train.sequences,
            self._columns(),
            batch_size,
            seed=seed,
            max_seq_length=self.max_seq_length,
            padding=self.padding,
            sequences_per_example=self.sequences_per_example,
            shard=shard,
        )

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """See `Objective`."""
        return nullcontext()

    def describe_input(self) -> dict[str, Any]:
        """See `Objective`."""
        sequences, columns = self.train.sequences, self._columns().values()
        return {
            "examples": self.num_examples,
            "digest": data_digest(sequences, *columns),
            "max_seq_length": self.max_seq_length,
            "padding": self.padding,
        }

    def _targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the label ids and their weights in the accuracy."""
        return features["label_ids"], features[EXAMPLE_WEIGHTS]

    def _loss_targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the labels and their weights in the loss."""
        return self._targets(features)

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Objective`."""
        return {LOSS: tf.reduce_sum(self._loss_targets(features)[1])}

    def losses(
        self, outputs: Mapping[str, Any], features: Features, ops: Ops = PLAIN
    ) -> dict[str, LossSum]:
        """See `Objective`."""
        return {LOSS: classification_loss(outputs["logits"], *self._loss_targets(features), ops)}

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Objective`."""
        return losses[LOSS].mean()

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Objective`."""
        return {"accuracy": accuracy(outputs["logits"], *self._targets(features))}


def data_digest(*values: Any) -> str:
    """Returns a digest of arrays, data classes and other values with a complete `repr`."""
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                add(getattr(value, field.name))
        else:
            digest.update(repr(value).encode())

    for value in values:
        add(value)
    return digest.hexdigest()


class LabelTask(InMemoryTask):
    """A task that predicts labels of texts or of words; see `InMemoryTask`.

    `classifier_dropout_prob` is the dropout rate of the input of the head. `class_weights`, float32
    [K], are the weights of the classes in the loss. If `None`, all are 1.
    """

    def __init__(
        self,
        config: AlbertConfig,
        labels: Labels,
        train: Any = None,
        *,
        classifier_dropout_prob: float = 0.1,
        class_weights: np.ndarray | None = None,
        **inputs: Any,
    ) -> None:
        super().__init__(config, train, **inputs)
        self.labels = labels
        self.classifier_dropout_prob = classifier_dropout_prob
        self.class_weights = class_weights

    def describe_input(self) -> dict[str, Any]:
        """See `Objective`."""
        return {**super().describe_input(), "labels": list(self.labels.names)}

    def _loss_targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        label_ids, weights = self._targets(features)
        if self.class_weights is not None:
            weights *= tf.gather(tf.constant(self.class_weights), label_ids)
        return label_ids, weights
