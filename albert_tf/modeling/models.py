"""Encoder and heads of one job, wired together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from albert_tf.data.arguments import as_texts, check_whole_number
from albert_tf.modeling.encoder import AlbertEncoder, ConfiguredModel, named_inputs
from albert_tf.modeling.heads import (
    MASKED_LOGIT,
    ClassificationHead,
    MaskedLmHead,
    SpanBeamHead,
    SpanHead,
)
from albert_tf.modeling.layers import ConfigLike, Inputs, Seed, register
from albert_tf.modeling.losses import HeadLoss

# Folded into a call's seed for the head's own dropout; the encoder splits the seed instead.
_HEAD = 1
C = TypeVar("C", bound="LabelModel")
_OF_TOKENS = ("input_ids", "input_mask", "segment_ids")


class EncoderAndHead(ConfiguredModel):
    """A model of an encoder and one head, which may drop as well."""

    def __init__(self, config: ConfigLike, use_one_hot_embeddings: bool, **kwargs: Any) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.encoder = AlbertEncoder(
            self.config, use_one_hot_embeddings, name="encoder", dtype=self.dtype_policy
        )
        if not self.uses_pooler:
            # Marked so, it gets no moments from an optimizer, and checkpoints have none of it, as
            # those of the original.
            self.encoder.pooler.trainable = False

    def encode(
        self,
        inputs: Inputs,
        training: bool | None,
        dropout_seed: Seed,
        output_attentions: bool = False,
    ) -> tuple[dict[str, Any], tf.Tensor | None]:
        """Returns the encoder's outputs and the seed of the head's dropout (None: no training)."""
        head_seed = None
        if training:
            if dropout_seed is None:
                dropout_seed = tf.cast(self.encoder.dropout_seeds.next(), tf.int32)
            head_seed = tf.random.experimental.stateless_fold_in(dropout_seed, _HEAD)
        outputs = self.encoder(
            inputs,
            training=training,
            dropout_seed=dropout_seed,
            output_attentions=output_attentions,
        )
        return outputs, head_seed

    def default_loss(self) -> dict[str, HeadLoss]:
        """Returns the loss of each output that is trained, for `compile(loss=...)`.

        Their sum is what the commands train with. `fit` takes labels by the same names.
        """
        return {"logits": HeadLoss()}


@register
class AlbertForPretraining(EncoderAndHead):
    """The encoder with the masked-LM head and, if wanted, the sentence-order head.

    Args:
        config: the model's configuration.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
        has_sentence_order_head: whether two segments are judged as well: swapped or not, or, in a
            model of next-sentence prediction, following each other or not.
    """

    SETTINGS = ("config", "use_one_hot_embeddings", "has_sentence_order_head")

    def __init__(
        self,
        config: ConfigLike,
        use_one_hot_embeddings: bool = False,
        has_sentence_order_head: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.has_sentence_order_head = self.uses_pooler = has_sentence_order_head
        config, dtype = self.config, self.dtype_policy
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
        dropout_seed: Seed = None,
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

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`.

        Labels are `masked_lm_ids` [B, P] and `next_sentence_labels` [B]; the sample weights of
        `masked_lm_logits` are `masked_lm_weights` [B, P], of `sentence_order_logits` ones [B].
        """
        losses = {"masked_lm_logits": HeadLoss()}
        if self.has_sentence_order_head:
            losses["sentence_order_logits"] = HeadLoss()
        return losses


class LabelModel(EncoderAndHead):
    """The encoder with a score for each of K labels, which may have names."""

    multi_label = False  # whether any number of them is given at once

    def __init__(
        self,
        config: ConfigLike,
        num_labels: int | None,
        dropout_prob: float,
        use_one_hot_embeddings: bool,
        labels: Sequence[str] | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        if labels is not None:
            labels = _label_names(labels)
            num_labels = len(labels) if num_labels is None else num_labels
            if num_labels != len(labels):
                raise ValueError(
                    f"labels has {len(labels)} names for num_labels={num_labels} classes: {labels}"
                )
        if num_labels is None:
            raise ValueError(
                'labels is needed for a new head: names of the classes, as in labels=["no", "yes"];'
                " or num_labels, which is 1 for a regression."
            )
        check_whole_number("num_labels", num_labels)
        self.labels = labels
        self.num_labels = num_labels
        self.classifier = ClassificationHead(
            self.config, num_labels, dropout_prob, name="classifier", dtype=self.dtype_policy
        )
        self.built = True

    @classmethod
    def load(
        cls: type[C],
        path: str | os.PathLike,
        labels: Sequence[str] | None = None,
        *,
        num_labels: int | None = None,
        albert_config_file: str | None = None,
        allow_partial: bool = False,
        **settings: Any,
    ) -> C:
        """Makes a model with the weights that lie at a path; see `AlbertEncoder.load`.

        Args:
            path: see `albert_tf.load`.
            labels: names of the classes. The head is new unless it was trained for these labels,
                or has as many without names. Default: those of the stored model.
            num_labels: number of classes without names; 1 for a regression.
            albert_config_file: as of `AlbertEncoder.load`.
            allow_partial: as well.
            **settings: of the constructor, as well.

        Raises:
            ValueError: see `AlbertEncoder.load`; `labels` is needed for a new head.
        """
        given = {"labels": labels, "num_labels": num_labels}
        settings |= {name: value for name, value in given.items() if value is not None}
        return super().load(
            path,
            albert_config_file=albert_config_file,
            allow_partial=allow_partial,
            **settings,
        )


@register
class AlbertForClassification(LabelModel):
    """The encoder with a classifier, or a regression, on its pooled output.

    Args:
        config: the model's configuration.
        num_labels: K, number of classes; 1 for a regression. Default: that of `labels`.
        classifier_dropout_prob: dropout of the pooled output in training.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
        labels: names of the classes, in the order of their ids; None where they have none.
        multi_label: whether a text has any number of the classes, each with a probability of its
            own, the sigmoid of its logit. The loss takes 0 or 1 for each class, float [B, K].

    Raises:
        TypeError: `labels` is no list of texts, or `num_labels` no whole number.
        ValueError: neither labels nor their number is given, or they contradict each other, or
            `multi_label`.
    """

    SETTINGS = (
        "config",
        "use_one_hot_embeddings",
        "num_labels",
        "classifier_dropout_prob",
        "labels",
        "multi_label",
    )

    def __init__(
        self,
        config: ConfigLike,
        num_labels: int | None = None,
        classifier_dropout_prob: float = 0.1,
        use_one_hot_embeddings: bool = False,
        labels: Sequence[str] | None = None,
        multi_label: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config, num_labels, classifier_dropout_prob, use_one_hot_embeddings, labels, **kwargs
        )
        if multi_label and self.num_labels < 2:
            raise ValueError(f"multi_label needs at least two labels. Received: {self.num_labels}")
        self.multi_label = multi_label
        self.classifier_dropout_prob = classifier_dropout_prob

    def call(
        self,
        inputs: Inputs,
        training: bool | None = None,
        dropout_seed: Seed = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> dict[str, Any]:
        """Runs encoder and classifier.

        Args:
            inputs: what the encoder takes.
            training: whether to apply dropout.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.
            output_hidden_states: whether to return the encoder's outputs as well.
            output_attentions: whether to return `attention_probs` as well; see `AlbertEncoder`.

        Returns:
            `logits`, float32 [B, K], and what else was asked for.
        """
        outputs, head_seed = self.encode(inputs, training, dropout_seed, output_attentions)
        logits = self.classifier(outputs["pooled_output"], head_seed)
        return {**_wanted(outputs, output_hidden_states), "logits": logits}

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`; of numbers (K = 1) the squared error."""
        kind = "multi_label" if self.multi_label else "cross_entropy"
        return {"logits": HeadLoss("squared_error" if self.num_labels == 1 else kind)}


def _label_names(labels: Sequence[str]) -> tuple[str, ...]:
    names = tuple(as_texts("labels", labels))
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            f"labels must be a list of at least two different texts. Received: {names}"
        )
    return names


@register
class AlbertForTokenClassification(LabelModel):
    """The encoder with a classifier on each of its tokens.

    Args:
        config: the model's configuration.
        num_labels: K, number of classes, at least 2. Default: that of `labels`.
        dropout_prob: dropout of the encoder's output in training.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
        labels: names of the classes, in the order of their ids; None where they have none.

    Raises:
        TypeError: `labels` is no list of texts, or `num_labels` no whole number.
        ValueError: neither labels nor their number is given, they contradict each other, or there
            are fewer than 2.

    Differs: the original has no such model.
    """

    uses_pooler = False
    SETTINGS = ("config", "use_one_hot_embeddings", "num_labels", "dropout_prob", "labels")

    def __init__(
        self,
        config: ConfigLike,
        num_labels: int | None = None,
        dropout_prob: float = 0.1,
        use_one_hot_embeddings: bool = False,
        labels: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, num_labels, dropout_prob, use_one_hot_embeddings, labels, **kwargs)
        if self.num_labels < 2:
            raise ValueError(f"Tokens need at least 2 labels. Received: num_labels={num_labels}")
        self.dropout_prob = dropout_prob

    def call(
        self,
        inputs: Inputs,
        training: bool | None = None,
        dropout_seed: Seed = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> dict[str, Any]:
        """Runs encoder and classifier.

        Args:
            inputs: what the encoder takes.
            training: whether to apply dropout.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.
            output_hidden_states: whether to return the encoder's outputs as well.
            output_attentions: whether to return `attention_probs` as well; see `AlbertEncoder`.

        Returns:
            `logits`, float32 [B, S, K], and what else was asked for. Padding and special tokens
            have logits, too.
        """
        outputs, head_seed = self.encode(inputs, training, dropout_seed, output_attentions)
        logits = self.classifier(outputs["sequence_output"], head_seed)
        return {**_wanted(outputs, output_hidden_states), "logits": logits}

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`.

        Labels are class ids [B, S]. Tokens without one have a class all the same, such as 0, and
        the sample weight 0, of [B, S].
        """
        return super().default_loss()


@register
class AlbertForMultipleChoice(EncoderAndHead):
    """The encoder with one score for each of the options of an example.

    Args:
        config: the model's configuration.
        dropout_prob: dropout of the pooled output in training.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
    """

    SETTINGS = ("config", "use_one_hot_embeddings", "dropout_prob")

    def __init__(
        self,
        config: ConfigLike,
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
        inputs: Inputs,
        training: bool | None = None,
        dropout_seed: Seed = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> dict[str, Any]:
        """Scores the options of every example, or options one by one.

        Args:
            inputs: what the encoder takes, but [B, C, S], C options an example. Where an
                example has fewer, the `input_mask` of the missing ones is all zeros. Inputs
                [B, S] are B options, scored alone: options can be sorted by length this way.
            training: whether to apply dropout.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.
            output_hidden_states: whether to return the encoder's outputs as well.
            output_attentions: whether to return `attention_probs` as well; see `AlbertEncoder`.

        Returns:
            `logits`, float32 [B, C], -1e30 for an option that is missing, or from [B, S] float32
            [B]; and what else was asked for, of B * C sequences.

        Source: race_utils.py of the original release, create_model.
        """
        inputs = named_inputs(inputs)
        outputs, head_seed = self.encode(
            _one_by_one(inputs), training, dropout_seed, output_attentions
        )
        logits = _by_example(self.classifier(outputs["pooled_output"], head_seed), inputs)
        return {**_wanted(outputs, output_hidden_states), "logits": logits}


def _wanted(outputs: dict[str, Any], output_hidden_states: bool) -> dict[str, Any]:
    """All of the encoder's outputs, or only the attention where it is among them.

    With the logits alone `compile` takes one loss, as of any Keras model.
    """
    if output_hidden_states:
        return outputs
    return {name: value for name, value in outputs.items() if name == "attention_probs"}


def _one_by_one(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The inputs with all options one below the other, [B * C, S]; ValueError for other ranks."""
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


@register
class AlbertForQuestionAnswering(EncoderAndHead):
    """The encoder with scores of where the answer starts and ends: SQuAD 1.1.

    Args:
        config: the model's configuration.
        use_one_hot_embeddings: see `FactorizedEmbedding`.
    """

    uses_pooler = False

    def __init__(
        self, config: ConfigLike, use_one_hot_embeddings: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.span_head = SpanHead(self.config, name="span_head", dtype=self.dtype_policy)
        self.built = True

    def call(
        self, inputs: Inputs, training: bool | None = None, dropout_seed: Seed = None
    ) -> dict[str, Any]:
        """Runs encoder and head.

        Args:
            inputs: what the encoder takes.
            training: whether to apply dropout.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.

        Returns:
            The encoder's outputs, and `start_logits` and `end_logits` float32 [B, S]. Question
            and padding have scores like the context: nothing is masked, as in the original.
        """
        outputs = self.encoder(inputs, training=training, dropout_seed=dropout_seed)
        start_logits, end_logits = self.span_head(outputs["sequence_output"])
        return {**outputs, "start_logits": start_logits, "end_logits": end_logits}

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`; labels are `start_positions` and `end_positions` [B]."""
        return {name: HeadLoss(factor=0.5) for name in ("start_logits", "end_logits")}


@register
class AlbertForQuestionAnsweringWithBeamSearch(EncoderAndHead):
    """The encoder with the best spans, and how likely there is no answer: SQuAD 2.0.

    Args:
        config: the model's configuration.
        start_n_top: K, the best starts for which ends are looked for.
        end_n_top: M, the best ends for each of them.
        dropout_prob: dropout before the score of having no answer, in training.
        use_one_hot_embeddings: see `FactorizedEmbedding`.

    Raises:
        ValueError: beams wider than the position table.
    """

    uses_pooler = False
    SETTINGS = ("config", "use_one_hot_embeddings", "start_n_top", "end_n_top", "dropout_prob")

    def __init__(
        self,
        config: ConfigLike,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_prob: float = 0.1,
        use_one_hot_embeddings: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        longest = self.config.max_position_embeddings
        if max(start_n_top, end_n_top) > longest:
            raise ValueError(
                f"Beams cannot be wider than the {longest} positions of the model "
                f"(max_position_embeddings). Received: --start_n_top={start_n_top}, "
                f"--end_n_top={end_n_top}"
            )
        self.start_n_top = start_n_top
        self.end_n_top = end_n_top
        self.dropout_prob = dropout_prob
        self.span_head = SpanBeamHead(
            self.config,
            start_n_top,
            end_n_top,
            dropout_prob,
            name="span_head",
            dtype=self.dtype_policy,
        )
        self.built = True

    def call(
        self,
        inputs: Mapping[str, tf.Tensor],
        training: bool | None = None,
        dropout_seed: Seed = None,
    ) -> dict[str, Any]:
        """Scores given starts and the ends after them, or looks for the best spans.

        Args:
            inputs: what the encoder takes, and any of `start_positions`, int32 [B], the true
                starts, for which ends are scored; `p_mask`, int32 [B, S]; 1 = no answer starts or
                ends here. Without it, answers are in segment 1, its last token left out, or the
                first token of all, as the original makes its features.
            training: whether to apply dropout; then the starts must be given.
            dropout_seed: int32 [2]; see `AlbertEncoder.call`.

        Returns:
            The encoder's outputs, and those of `SpanBeamHead.call`. Where spans are looked for,
            sequences shorter than a beam is wide are padded first: no result depends on how
            much padding there is.

        Raises:
            ValueError: an input that is needed is not there.
        """
        inputs = named_inputs(inputs)
        self._check_inputs(inputs, training)
        start_positions = inputs.get("start_positions")
        inputs = _completed(inputs)
        if start_positions is None:
            inputs = _padded(inputs, max(self.start_n_top, self.end_n_top))
        outputs, head_seed = self.encode(inputs, training, dropout_seed)
        spans = self.span_head(
            outputs["sequence_output"], inputs["p_mask"], start_positions, head_seed
        )
        return {**outputs, **spans}

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`.

        Labels are `start_positions`, `end_positions` [B] and, of `cls_logits`, 1 for a question
        without an answer, else 0 [B]. `start_positions` are an input as well.
        """
        losses = {name: HeadLoss(factor=0.5) for name in ("start_log_probs", "end_log_probs")}
        return {**losses, "cls_logits": HeadLoss("binary", factor=0.5)}

    def _check_inputs(self, inputs: Mapping[str, tf.Tensor], training: bool | None) -> None:
        if "input_ids" not in inputs or not {"segment_ids", "p_mask"} & inputs.keys():
            raise ValueError(
                "The model needs a dictionary of 'input_ids' and 'segment_ids' (or 'p_mask'), to "
                f"distinguish the context from the question. Received: {sorted(inputs)}"
            )
        if training and "start_positions" not in inputs:
            raise ValueError(
                "Training needs 'start_positions': ends are learnt given the true start. "
                f"Received: {sorted(inputs)}"
            )


def _completed(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The inputs with `input_mask` and `p_mask`, where they were left out."""
    completed = dict(inputs)
    if completed.get("input_mask") is None:
        completed["input_mask"] = tf.ones_like(inputs["input_ids"])
    if completed.get("p_mask") is None:
        completed["p_mask"] = position_mask(completed["input_mask"], inputs["segment_ids"])
    return completed


def position_mask(input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
    """Marks where no answer can start or end, int32 [B, S]: 0 at the first token and the context's.

    Of `input_mask` 0 is padding; of `segment_ids` 1 is the context and the separator after it.
    """
    next_is_real = tf.pad(tf.not_equal(input_mask[:, 1:], 0), [[0, 0], [0, 1]])
    is_context = tf.equal(segment_ids, 1) & next_is_real
    is_first = tf.equal(tf.range(tf.shape(segment_ids)[1]), 0)
    return tf.cast(~(is_context | is_first), tf.int32)


def _padded(inputs: Mapping[str, tf.Tensor], length: int) -> dict[str, tf.Tensor]:
    """The inputs of a token each, [B, S], padded until S is at least `length`."""
    missing = tf.maximum(0, length - tf.shape(inputs["input_ids"])[1])
    padded = dict(inputs)
    for name in ("input_ids", "input_mask", "segment_ids", "p_mask"):
        if padded.get(name) is not None:
            # `p_mask` marks what is left out, all others mark what is there.
            filling = tf.cast(name == "p_mask", inputs[name].dtype)
            padded[name] = tf.pad(inputs[name], [[0, 0], [0, missing]], constant_values=filling)
    return padded


# Former names. Models saved under them as `.keras` still load.
AlbertForSpans = AlbertForQuestionAnswering
AlbertForSpanBeams = AlbertForQuestionAnsweringWithBeamSearch
keras.saving.get_custom_objects().update(
    {
        "albert_tf>AlbertForSpans": AlbertForQuestionAnswering,
        "albert_tf>AlbertForSpanBeams": AlbertForQuestionAnsweringWithBeamSearch,
    }
)
