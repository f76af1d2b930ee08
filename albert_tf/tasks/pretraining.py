"""Pretraining: masked-LM and sentence-order prediction on records of sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.batching import EXAMPLE_WEIGHTS, evaluation_batches, training_batches
from albert_tf.data.files import file_size
from albert_tf.data.pretraining import pretraining_feature_specs
from albert_tf.data.records import check_record_files, explain_read_errors
from albert_tf.losses import (
    LossSum,
    accuracy,
    classification_loss,
    masked_lm_loss,
    pretraining_loss,
)
from albert_tf.models import AlbertForPretraining
from albert_tf.tasks.base import Features

BEST_METRIC = "masked_lm_accuracy"


class PretrainingTask:
    """The task of `run_pretraining.py`.

    Args:
        config: the model.
        train_files: records to train on; may be empty where nothing is trained.
        eval_files: records to evaluate on; may be empty where nothing is evaluated.
        max_seq_length: S of the records.
        max_predictions_per_seq: P of the records.
        shuffle_buffer_size: records among which the next training example is drawn.
        use_one_hot_embeddings: see `FactorizedEmbedding`.

    Raises:
        ValueError: sequences longer than the model's position table.
        RecordError: the first record of a file is not what the other arguments say.
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        train_files: Sequence[str] = (),
        eval_files: Sequence[str] = (),
        max_seq_length: int = 512,
        max_predictions_per_seq: int = 20,
        shuffle_buffer_size: int = 1000,
        use_one_hot_embeddings: bool = False,
    ) -> None:
        config.check_sequence_length(max_seq_length, "--max_seq_length")
        self.config = config
        self.train_files = list(train_files)
        self.eval_files = list(eval_files)
        self.shuffle_buffer_size = shuffle_buffer_size
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.specs = [
            spec
            for spec in pretraining_feature_specs(
                max_seq_length, max_predictions_per_seq, config.vocab_size, config.type_vocab_size
            )
            if spec.name != "token_boundary"  # for masking while training; others leave it out
        ]
        for files in filter(None, (self.train_files, self.eval_files)):
            check_record_files(files, self.specs)

    def train_dataset(self, batch_size: int, seed: int) -> tf.data.Dataset:
        """See `Task`."""
        return training_batches(
            self.train_files,
            self.specs,
            batch_size,
            seed=seed,
            shuffle_buffer_size=self.shuffle_buffer_size,
        )

    def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
        """See `Task`."""
        return evaluation_batches(self.eval_files, self.specs, batch_size)

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """See `Task`."""
        return explain_read_errors([*self.train_files, *self.eval_files], self.specs)

    def describe_input(self) -> dict[str, Any]:
        """See `Task`."""
        return {
            "files": [[path, file_size(path)] for path in self.train_files],
            "shuffle_buffer_size": self.shuffle_buffer_size,
            "features": [[spec.name, spec.length] for spec in self.specs],
        }

    def build_model(self) -> keras.Model:
        """See `Task`."""
        return AlbertForPretraining(self.config, self.use_one_hot_embeddings)

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Task`."""
        return {
            "masked_lm_loss": tf.reduce_sum(features["masked_lm_weights"]),
            "sentence_order_loss": tf.reduce_sum(features[EXAMPLE_WEIGHTS]),
        }

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`."""
        return {
            "masked_lm_loss": masked_lm_loss(
                outputs["masked_lm_logits"],
                features["masked_lm_ids"],
                features["masked_lm_weights"],
            ),
            "sentence_order_loss": classification_loss(
                outputs["sentence_order_logits"],
                features["next_sentence_labels"][:, 0],
                features[EXAMPLE_WEIGHTS],
            ),
        }

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Task`."""
        return pretraining_loss(losses["masked_lm_loss"], losses["sentence_order_loss"])

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Task`."""
        return {
            "masked_lm_accuracy": accuracy(
                outputs["masked_lm_logits"],
                features["masked_lm_ids"],
                features["masked_lm_weights"],
            ),
            "sentence_order_accuracy": accuracy(
                outputs["sentence_order_logits"],
                features["next_sentence_labels"][:, 0],
                features[EXAMPLE_WEIGHTS],
            ),
        }
