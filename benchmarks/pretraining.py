"""Trainers without record files, and random batches, for benchmarks of pretraining."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.strategies import create_strategy
from albert_tf.training.trainer import Trainer


def pretraining_trainer(
    config: AlbertConfig, S: int, P: int, *, optimizer: str = "lamb", **settings: Any
) -> Trainer:
    """Returns a trainer on one device with random weights. It writes no files.

    Args:
        config: configuration of the model.
        S: sequence length.
        P: number of prediction slots per sequence.
        optimizer: name of the optimizer.
        **settings: other fields of `TrainerConfig`.
    """
    with tempfile.TemporaryDirectory() as directory:
        return Trainer(
            PretrainingTask(config, max_seq_length=S, max_predictions_per_seq=P),
            TrainerConfig(output_dir=directory, **settings),
            OptimizerConfig(optimizer=optimizer),
            create_strategy("one_device"),
        )


def random_batch(config: AlbertConfig, B: int, S: int, P: int) -> dict[str, tf.Tensor]:
    """Returns a batch of random tokens without padding, with the features of records."""
    rng = np.random.default_rng(0)
    columns = {
        "input_ids": rng.integers(5, config.vocab_size, (B, S)),
        "input_mask": np.ones((B, S)),
        "segment_ids": np.arange(S) >= rng.integers(1, S, (B, 1)),
        "masked_lm_positions": np.sort(rng.integers(1, S, (B, P))),
        "masked_lm_ids": rng.integers(5, config.vocab_size, (B, P)),
        "next_sentence_labels": rng.integers(0, 2, (B, 1)),
    }
    batch = {name: tf.constant(values.astype(np.int32)) for name, values in columns.items()}
    return {**batch, "masked_lm_weights": tf.ones([B, P]), "example_weights": tf.ones([B])}
