"""Lower bounds for the time of a model: the time of its matrix products.

The rate of one large float32 product is measured in the same process between the timings, so that
the load of the machine affects the ratio little.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from benchmarks.timing import seconds


def encoder_operations(config: AlbertConfig, lengths: np.ndarray) -> float:
    """Returns the floating-point operations of the matrix products of a forward pass with pooler.

    Args:
        config: configuration of the model.
        lengths: number of positions of each sequence, integer [B].
    """
    E, H, F = config.embedding_size, config.hidden_size, config.intermediate_size
    tokens, pairs = float(np.sum(lengths)), float(np.sum(np.square(lengths, dtype=np.float64)))
    block = 2 * tokens * (4 * H * H + 2 * H * F) + 4 * pairs * H
    blocks = config.num_hidden_layers * config.inner_group_num
    mapping = 2 * tokens * E * H * config.projects_embeddings
    return blocks * block + mapping + 2 * len(lengths) * H * H


def pretraining_operations(config: AlbertConfig, B: int, S: int, P: int) -> float:
    """Returns the floating-point operations of matrix products of a pretraining forward pass."""
    E, H, V = config.embedding_size, config.hidden_size, config.vocab_size
    heads = 2 * B * P * (H * E + E * V) + 2 * B * 2 * H
    return encoder_operations(config, np.full(B, S)) + heads


def matmul_rate(config: AlbertConfig, rows: int) -> Callable[[], float]:
    """Returns a function that measures operations per second of the widest product of a block.

    Args:
        config: configuration of the model. The product is [rows, H] by [H, F].
        rows: number of tokens of a batch.
    """
    H, F = config.hidden_size, config.intermediate_size
    left, right = tf.random.normal([rows, H]), tf.random.normal([H, F])
    product = tf.function(lambda: tf.matmul(left, right))
    product()
    return lambda: 2 * rows * H * F / min(seconds(lambda: product().numpy()) for _ in range(10))
