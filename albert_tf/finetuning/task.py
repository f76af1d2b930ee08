"""What tasks have in common whose token sequences are all in memory."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.sequences import TokenSequences
from albert_tf.finetuning.batching import training_batches
from albert_tf.training.task import WHOLE, Shard, Task

# N * C sequences and what else the N examples have, by name, [N, ...] each.
TrainingData = tuple[TokenSequences, dict[str, np.ndarray]]


class InMemoryTask(Task, ABC):
    """The input half of `Task`.

    Args:
        config: the model.
        max_seq_length: S that no sequence exceeds.
        padding: see `training_batches`.
        use_one_hot_embeddings: see `FactorizedEmbedding`.

    Attributes:
        sequences_per_example: C.

    Raises:
        ValueError: sequences longer than the model's position table.
    """

    sequences_per_example = 1

    def __init__(
        self,
        config: AlbertConfig,
        *,
        max_seq_length: int,
        padding: str,
        use_one_hot_embeddings: bool,
    ) -> None:
        config.check_sequence_length(max_seq_length, "--max_seq_length")
        self.config = config
        self.max_seq_length = max_seq_length
        self.padding = padding
        self.use_one_hot_embeddings = use_one_hot_embeddings

    @abstractmethod
    def _training_data(self) -> TrainingData:
        """What is trained on.

        Raises:
            ValueError: nothing is.
        """

    def train_dataset(self, batch_size: int, seed: int, shard: Shard = WHOLE) -> tf.data.Dataset:
        """See `Task`."""
        sequences, columns = self._training_data()
        return training_batches(
            sequences,
            columns,
            batch_size,
            seed=seed,
            max_seq_length=self.max_seq_length,
            padding=self.padding,
            sequences_per_example=self.sequences_per_example,
            shard=shard,
        )

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """See `Task`; features are in memory, where nothing is read."""
        return nullcontext()

    def describe_input(self) -> dict[str, Any]:
        """See `Task`."""
        sequences, columns = self._training_data()
        return {
            "examples": len(sequences) // self.sequences_per_example,
            "digest": _digest(
                sequences.tokens, sequences.starts, sequences.first_lengths, *columns.values()
            ),
            "max_seq_length": self.max_seq_length,
            "padding": self.padding,
        }


def _digest(*arrays: np.ndarray) -> str:
    """The SHA-256 of arrays, their types and their shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
