"""A small model whose sizes differ pairwise, and a ragged batch."""

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.original_names import original_names

BATCH, LENGTH, PREDICTIONS = 3, 7, 2
ONE_BLOCK = {"num_hidden_layers": 1, "num_hidden_groups": 1, "inner_group_num": 1}
REAL_TOKENS = (7, 4, 5)  # per row; the rest is padding


def small_config(**changes) -> AlbertConfig:
    """Returns a configuration with four layers in two groups of two blocks, without dropout."""
    sizes = {
        "vocab_size": 31,
        "embedding_size": 8,
        "hidden_size": 12,
        "num_hidden_layers": 4,
        "num_hidden_groups": 2,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "inner_group_num": 2,
        "max_position_embeddings": 16,
        "type_vocab_size": 5,
        "initializer_range": 0.2,
    }
    return AlbertConfig(**{**sizes, **changes})


def dropping_config(**changes) -> AlbertConfig:
    """Returns the same configuration with all kinds of dropout."""
    return small_config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3, **changes)


def encoder_inputs() -> dict[str, tf.Tensor]:
    """Returns `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]."""
    random = np.random.default_rng(7)
    shape = (BATCH, LENGTH)
    inputs = {
        "input_ids": random.integers(0, 31, shape),
        "input_mask": np.arange(LENGTH) < np.reshape(REAL_TOKENS, (-1, 1)),
        "segment_ids": random.integers(0, 5, shape),
    }
    return {name: tf.constant(values, tf.int32) for name, values in inputs.items()}


def pretraining_inputs() -> dict[str, tf.Tensor]:
    """Returns the inputs of the encoder and `masked_lm_positions`, int32 [B, P]."""
    return {**encoder_inputs(), "masked_lm_positions": tf.constant([[1, 6], [3, 0], [4, 2]])}


def weights_of(model: tf.Module) -> dict[str, np.ndarray]:
    """Returns the weights of a model by the names of the original."""
    return {name: variable.numpy() for name, variable in original_names(model).items()}
