"""What stands on the encoder, one class a job. Scores are float32, whatever comes before them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from albert_tf import kernels
from albert_tf.config import AlbertConfig
from albert_tf.layers import (
    ConfiguredLayer,
    dropout,
    matrix_initializer,
    register,
)

# What a position that cannot be chosen scores; half precision has no such number.
MASKED_LOGIT = -1e30


@register
class MaskedLmHead(ConfiguredLayer):
    """Scores the whole vocabulary at the masked positions, with the word embeddings as weights.

    Source: run_pretraining.py of the original release, get_masked_lm_output.
    """

    def __init__(self, config: AlbertConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        H, E = self.config.hidden_size, self.config.embedding_size
        self.transform = self._projection(H, E, "transform", self.config.hidden_act)
        self.layer_norm = self._layer_norm(E, "LayerNorm")
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.config.vocab_size,),
            initializer="zeros",
            autocast=False,
        )
        self.built = True

    def call(
        self,
        sequence_output: tf.Tensor,
        masked_lm_positions: tf.Tensor,
        word_embeddings: tf.Tensor,
    ) -> tf.Tensor:
        """Computes the scores of every token at the given positions.

        Args:
            sequence_output: float [B, S, H].
            masked_lm_positions: int32 [B, P], in 0..S-1; padding reads position 0.
            word_embeddings: float [V, E], the embedding table of the encoder.

        Returns:
            Logits, float32 [B, P, V].
        """
        gathered = tf.gather(sequence_output, masked_lm_positions, batch_dims=1)
        rows = tf.reshape(gathered, [-1, self.config.hidden_size])
        transformed = self.layer_norm(self.transform(rows))
        logits = tf.matmul(transformed, tf.convert_to_tensor(word_embeddings), transpose_b=True)
        logits = kernels.widened(logits) + kernels.widened(self.output_bias)
        shape = tf.concat([tf.shape(masked_lm_positions), [self.config.vocab_size]], axis=0)
        return tf.reshape(logits, shape)


@register
class ClassificationHead(ConfiguredLayer):
    """Scores K labels from the pooled output: classes, a number (K = 1), the order of segments.

    Args:
        config: the model's configuration.
        num_labels: K.
        dropout_prob: dropout of the pooled output.
        initializer_range: standard deviation of the truncated normal the weights start from; the
            original's classifiers take 0.02 whatever the configuration says.

    Source: classifier_utils.py of the original release, create_model; run_pretraining.py,
    get_sentence_order_output.
    """

    def __init__(
        self,
        config: AlbertConfig | dict[str, Any],
        num_labels: int,
        dropout_prob: float = 0.0,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        if num_labels < 1:
            raise ValueError(f"A head needs at least 1 label. Received: num_labels={num_labels}")
        if not 0 <= dropout_prob < 1:
            raise ValueError(f"A dropout rate must be in [0, 1). Received: {dropout_prob!r}")
        self.num_labels = num_labels
        self.dropout_prob = dropout_prob
        self.initializer_range = initializer_range
        # [K, H]: the original keeps this matrix transposed, and so do its checkpoints.
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(num_labels, self.config.hidden_size),
            initializer=matrix_initializer(initializer_range),
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(num_labels,), initializer="zeros", autocast=False
        )
        self.built = True

    def call(self, pooled_output: tf.Tensor, dropout_seed: tf.Tensor | None = None) -> tf.Tensor:
        """Scores the labels.

        Args:
            pooled_output: float [B, H].
            dropout_seed: int32 [2], or None for no dropout.

        Returns:
            Logits, float32 [B, K].
        """
        kept = dropout(pooled_output, self.dropout_prob, dropout_seed)
        logits = tf.matmul(kept, self.output_weights, transpose_b=True)
        return kernels.widened(logits) + kernels.widened(self.output_bias)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_labels": self.num_labels,
            "dropout_prob": self.dropout_prob,
            "initializer_range": self.initializer_range,
        }
