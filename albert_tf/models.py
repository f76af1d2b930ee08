"""Encoder and heads of one job, wired together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.encoder import AlbertEncoder, ConfiguredModel
from albert_tf.heads import MASKED_LOGIT, ClassificationHead, MaskedLmHead
from albert_tf.layers import register

# Folded into a call's seed for the head's own dropout; the encoder splits the seed instead.
_HEAD = 1


class EncoderAndHead(ConfiguredModel):
    """A model of an encoder and one head, which may drop as well.

    Args:
        config: the model's configuration.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
    """

    def __init__(
        self, config: AlbertConfig | dict[str, Any], use_one_hot_embeddings: bool, **kwargs: Any
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.encoder = AlbertEncoder(
            self.config, use_one_hot_embeddings, name="encoder", dtype=self.dtype_policy
        )

    def seeds(
        self, training: bool | None, dropout_seed: tf.Tensor | None
    ) -> tuple[tf.Tensor | None, tf.Tensor | None]:
        """Returns the seeds of encoder and head, int32 [2]; the head's is None outside training."""
        if not training:
            return dropout_seed, None
        if dropout_seed is None:
            dropout_seed = tf.cast(self.encoder.dropout_seeds.next(), tf.int32)
        return dropout_seed, tf.random.experimental.stateless_fold_in(dropout_seed, _HEAD)


@register
class AlbertForPretraining(ConfiguredModel):
    """The encoder with the masked-LM head and, if wanted, the sentence-order head.

    Args:
        config: the model's configuration.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
        has_sentence_order_head: whether two segments are judged as well: swapped or not, or, in a
            model of next-sentence prediction, following each other or not.
    """

    position_inputs = ("masked_lm_positions",)

    def __init__(
        self,
        config: AlbertConfig | dict[str, Any],
        use_one_hot_embeddings: bool = False,
        has_sentence_order_head: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.has_sentence_order_head = has_sentence_order_head
        config, dtype = self.config, self.dtype_policy
        self.encoder = AlbertEncoder(config, use_one_hot_embeddings, name="encoder", dtype=dtype)
        self.masked_lm_head = MaskedLmHead(config, name="masked_lm_head", dtype=dtype)
        if has_sentence_order_head:
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
            The encoder's outputs, `masked_lm_logits` float32 [B, P, V] and, with that head,
            `sentence_order_logits` float32 [B, 2].
        """
        outputs = self.encoder(inputs, training=training, dropout_seed=dropout_seed)
        masked_lm_logits = self.masked_lm_head(
            outputs["sequence_output"],
            tf.cast(inputs["masked_lm_positions"], tf.int32),
            self.encoder.embeddings.word_embeddings,
        )
        outputs = {**outputs, "masked_lm_logits": masked_lm_logits}
        if self.has_sentence_order_head:
            outputs["sentence_order_logits"] = self.sentence_order_head(outputs["pooled_output"])
        return outputs

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "has_sentence_order_head": self.has_sentence_order_head}


@register
class AlbertForClassification(EncoderAndHead):
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
        self.num_labels = num_labels
        self.classifier_dropout_prob = classifier_dropout_prob
        self.classifier = ClassificationHead(
            self.config,
            num_labels,
            classifier_dropout_prob,
            name="classifier",
            dtype=self.dtype_policy,
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
            The encoder's outputs, and `logits` float32 [B, K].
        """
        dropout_seed, head_seed = self.seeds(training, dropout_seed)
        outputs = self.encoder(inputs, training=training, dropout_seed=dropout_seed)
        return {**outputs, "logits": self.classifier(outputs["pooled_output"], head_seed)}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_labels": self.num_labels,
            "classifier_dropout_prob": self.classifier_dropout_prob,
        }


@register
class AlbertForMultipleChoice(EncoderAndHead):
    """The encoder with one score for each of the options of an example.

    Args:
        config: the model's configuration.
        dropout_prob: dropout of the pooled output in training.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
    """

    def __init__(
        self,
        config: AlbertConfig | dict[str, Any],
        dropout_prob: float = 0.1,
        use_one_hot_embeddings: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.dropout_prob = dropout_prob
        self.classifier = ClassificationHead(
            self.config, 1, dropout_prob, name="classifier", dtype=self.dtype_policy
        )
        self.built = True

    def call(
        self,
        inputs: Mapping[str, tf.Tensor] | tf.Tensor,
        training: bool | None = None,
        dropout_seed: tf.Tensor | None = None,
    ) -> dict[str, Any]:
        """Scores the options of every example, or options one by one.

        Args:
            inputs: what the encoder takes, but [B, C, S], C options an example. Where an
                example has fewer, the `input_mask` of the missing ones is all zeros. Inputs
                [B, S] are B options, scored alone: options can be sorted by length this way.
            training: whether to apply dropout.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.

        Returns:
            The encoder's outputs, of B * C sequences, and `logits` float32 [B, C], -1e30 for an
            option that is missing; from [B, S] `logits` float32 [B].

        Source: race_utils.py of the original release, create_model.
        """
        if not isinstance(inputs, Mapping):
            inputs = {"input_ids": inputs}
        dropout_seed, head_seed = self.seeds(training, dropout_seed)
        outputs = self.encoder(_one_by_one(inputs), training=training, dropout_seed=dropout_seed)
        logits = self.classifier(outputs["pooled_output"], head_seed)
        return {**outputs, "logits": _by_example(logits, inputs)}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "dropout_prob": self.dropout_prob}


_OF_TOKENS = ("input_ids", "input_mask", "segment_ids")


def _one_by_one(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The inputs with the options [B, C, S] of all examples one below the other, [B * C, S].

    Raises:
        ValueError: neither [B, C, S] nor [B, S].
    """
    flat = dict(inputs)
    for name in _OF_TOKENS:
        if inputs.get(name) is None:
            continue
        rank = len(inputs[name].shape)
        if rank not in (2, 3):
            raise ValueError(
                f"The options are {name!r} [B, C, S], or [B, S] one by one. Received: "
                f"{inputs[name].shape}"
            )
        if rank == 3:
            flat[name] = tf.reshape(inputs[name], [-1, tf.shape(inputs[name])[-1]])
    return flat


def _by_example(logits: tf.Tensor, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Scores [B * C, 1] as [B, C], those of missing options put out of reach; or as [B]."""
    ids = tf.convert_to_tensor(inputs["input_ids"])
    if ids.shape.rank == 2:
        return logits[:, 0]
    logits = tf.reshape(logits, tf.shape(ids)[:2])
    logits = tf.ensure_shape(logits, ids.shape[:2])
    mask = inputs.get("input_mask")
    if mask is None:
        return logits
    is_there = tf.reduce_any(tf.not_equal(mask, 0), axis=-1)
    return tf.where(is_there, logits, MASKED_LOGIT)
