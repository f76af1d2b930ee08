"""Encoder and heads of one job, wired together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.encoder import AlbertEncoder, ConfiguredModel
from albert_tf.heads import ClassificationHead, MaskedLmHead
from albert_tf.layers import register

# Folded into a call's seed for the head's own dropout; the encoder splits the seed instead.
_CLASSIFIER = 1


@register
class AlbertForPretraining(ConfiguredModel):
    """The encoder with the masked-LM and the sentence-order head.

    Args:
        config: the model's configuration.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
    """

    def __init__(
        self,
        config: AlbertConfig | dict[str, Any],
        use_one_hot_embeddings: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.encoder = AlbertEncoder(config, use_one_hot_embeddings, name="encoder", dtype=dtype)
        self.masked_lm_head = MaskedLmHead(config, name="masked_lm_head", dtype=dtype)
        self.sentence_order_head = ClassificationHead(
            config,
            num_labels=2,
            initializer_range=config.initializer_range,
            name="sentence_order_head",
            dtype=dtype,
        )
        self.built = True

    def call(
        self,
        inputs: Mapping[str, tf.Tensor],
        training: bool | None = None,
        dropout_seed: tf.Tensor | None = None,
    ) -> dict[str, Any]:
        """Runs encoder and heads.

        Args:
            inputs: what the encoder takes, and `masked_lm_positions`, int32 [B, P].
            training: whether to apply dropout.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.

        Returns:
            The encoder's outputs, `masked_lm_logits` float [B, P, V] and `sentence_order_logits`
            float [B, 2].
        """
        outputs = self.encoder(inputs, training=training, dropout_seed=dropout_seed)
        masked_lm_logits = self.masked_lm_head(
            outputs["sequence_output"],
            tf.cast(inputs["masked_lm_positions"], tf.int32),
            self.encoder.embeddings.word_embeddings,
        )
        sentence_order_logits = self.sentence_order_head(outputs["pooled_output"])
        return {
            **outputs,
            "masked_lm_logits": masked_lm_logits,
            "sentence_order_logits": sentence_order_logits,
        }


@register
class AlbertForClassification(ConfiguredModel):
    """The encoder with a classifier, or a regression, on its pooled output.

    Args:
        config: the model's configuration.
        num_labels: K, number of classes; 1 for a regression.
        classifier_dropout_prob: dropout of the pooled output in training.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
    """

    def __init__(
        self,
        config: AlbertConfig | dict[str, Any],
        num_labels: int,
        classifier_dropout_prob: float = 0.1,
        use_one_hot_embeddings: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.num_labels = num_labels
        self.classifier_dropout_prob = classifier_dropout_prob
        self.encoder = AlbertEncoder(config, use_one_hot_embeddings, name="encoder", dtype=dtype)
        self.classifier = ClassificationHead(
            config, num_labels, classifier_dropout_prob, name="classifier", dtype=dtype
        )
        self.built = True

    def call(
        self,
        inputs: Mapping[str, tf.Tensor] | tf.Tensor,
        training: bool | None = None,
        dropout_seed: tf.Tensor | None = None,
    ) -> dict[str, Any]:
        """Runs encoder and classifier.

        Args:
            inputs: what the encoder takes.
            training: whether to apply dropout.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.

        Returns:
            The encoder's outputs, and `logits` float [B, K].
        """
        head_seed = None
        if training:
            if dropout_seed is None:
                dropout_seed = tf.cast(self.encoder.dropout_seeds.next(), tf.int32)
            head_seed = tf.random.experimental.stateless_fold_in(dropout_seed, _CLASSIFIER)
        outputs = self.encoder(inputs, training=training, dropout_seed=dropout_seed)
        return {**outputs, "logits": self.classifier(outputs["pooled_output"], head_seed)}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_labels": self.num_labels,
            "classifier_dropout_prob": self.classifier_dropout_prob,
        }
