"""What stands on the encoder, one class a job."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.layers import (
    ConfiguredLayer,
    activation_function,
    matrix_initializer,
    register,
)


@register
class MaskedLmHead(ConfiguredLayer):
    """Scores the whole vocabulary at the masked positions, with the word embeddings as weights.

    Source: run_pretraining.py of the original release, get_masked_lm_output.
    """

    def __init__(self, config: AlbertConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        H, E = self.config.hidden_size, self.config.embedding_size
        self.transform = self._projection(H, E, "transform")
        self.activation = activation_function(self.config.hidden_act)
        self.layer_norm = self._layer_norm(E, "LayerNorm")
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.config.vocab_size,), initializer="zeros"
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
            Logits, float [B, P, V].
        """
        gathered = tf.gather(sequence_output, masked_lm_positions, batch_dims=1)
        rows = tf.reshape(gathered, [-1, self.config.hidden_size])
        transformed = self.layer_norm(self.activation(self.transform(rows)))
        logits = tf.matmul(transformed, tf.convert_to_tensor(word_embeddings), transpose_b=True)
        logits += self.output_bias
        shape = tf.concat([tf.shape(masked_lm_positions), [self.config.vocab_size]], axis=0)
        return tf.reshape(logits, shape)


@register
class SentenceOrderHead(ConfiguredLayer):
    """Scores "in order" (0) against "swapped" (1) from the pooled output.

    Source: paper section 3.1, "Inter-sentence coherence loss"; run_pretraining.py of the original
    release, get_sentence_order_output.
    """

    def __init__(self, config: AlbertConfig | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        # [2, H]: the original keeps this matrix transposed, and so do its checkpoints.
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(2, self.config.hidden_size),
            initializer=matrix_initializer(self.config.initializer_range),
        )
        self.output_bias = self.add_weight(name="output_bias", shape=(2,), initializer="zeros")
        self.built = True

    def call(self, pooled_output: tf.Tensor) -> tf.Tensor:
        """Maps float [B, H] to logits, float [B, 2]."""
        logits = tf.matmul(pooled_output, self.output_weights, transpose_b=True)
        return logits + self.output_bias
