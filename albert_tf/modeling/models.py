"""Models: an encoder with the heads of one task."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

import keras
import tensorflow as tf
from absl import logging

from albert_tf.data.arguments import as_labels, check_whole_number, value_of
from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import listed
from albert_tf.modeling.base import ConfiguredModel
from albert_tf.modeling.encoder import AlbertEncoder, attach_keras_mask
from albert_tf.modeling.heads import (
    MASKED_LOGIT,
    ClassificationHead,
    MaskedLmHead,
    SpanBeamHead,
    SpanHead,
)
from albert_tf.modeling.layers import ConfigLike, Inputs, Seed, register
from albert_tf.modeling.layouts import PADDED, Read
from albert_tf.modeling.losses import HeadLoss, expects_probabilities
from albert_tf.modeling.ops import PLAIN, Ops

_HEAD = 1  # folded into the dropout seed, so that head and encoder have different seeds
C = TypeVar("C", bound="LabelModel")
Tensors: TypeAlias = dict[str, Any]


class EncoderAndHead(ConfiguredModel):
    """Base class of models with an encoder and heads. Subclasses define `_head_outputs`."""

    def __init__(self, config: ConfigLike, use_one_hot_embeddings: bool, **kwargs: Any) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.encoder = AlbertEncoder(
            self.config, use_one_hot_embeddings, name="encoder", dtype=self.dtype_policy
        )
        if not self.uses_pooler:
            # As in the original, the optimizer creates no moments for the pooler.
            self.encoder.pooler.trainable = False

    def call(
        self,
        inputs: Inputs,
        training: bool | None = None,
        dropout_seed: Seed = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        ops: Ops = PLAIN,
    ) -> dict[str, Any]:
        """Runs the encoder and the head. Returns the outputs that the class describes.

        `inputs` are the inputs of the encoder, and the further inputs that the class describes. For
        the other arguments see `AlbertEncoder.call`. With `output_hidden_states`, all outputs of
        the encoder are also returned.
        """
        inputs = self._prepare(self.complete_inputs(inputs), training)
        head_seed = None
        if training:
            if dropout_seed is None:
                dropout_seed = tf.cast(self.encoder.dropout_seeds.next(), tf.int32)
            head_seed = tf.random.experimental.stateless_fold_in(dropout_seed, _HEAD)
        encoder_inputs = _flatten_options(inputs) if self.input_rank == 3 else inputs
        read = self._read(inputs)
        outputs = self.encoder(
            encoder_inputs,
            training=training,
            dropout_seed=dropout_seed,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            ops=ops,
            keras_mask=False,
            read=read,
        )
        states = outputs["sequence_output"]
        if output_hidden_states or output_attentions:  # the states of all positions
            states = PADDED.read(states, read)
        scores = self._head_outputs({**outputs, "read": states}, inputs, head_seed, ops)
        if output_hidden_states:
            attach_keras_mask(outputs["sequence_output"], encoder_inputs["input_mask"])
            return {**outputs, **scores}
        return {**{k: v for k, v in outputs.items() if k == "attention_probs"}, **scores}

    def _prepare(self, inputs: Tensors, training: bool | None) -> Tensors:
        """Checks the inputs, and adds inputs that are missing."""
        del training
        return inputs

    def _read(self, inputs: Tensors) -> Read:
        """Returns the positions that the head reads, by default the first for the pooler."""
        del inputs
        return "first"

    def _head_outputs(self, outputs: Tensors, inputs: Tensors, seed: Seed, ops: Ops) -> Tensors:
        """Maps the outputs of the encoder, and `read`, float [B, R, H], to scores."""
        raise NotImplementedError

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = "auto", *args: Any, **kwargs: Any
    ) -> None:
        """See `keras.Model.compile`. The loss "auto" is `default_loss()`.

        Logs a warning if a loss expects probabilities, because all heads return logits.
        """
        if isinstance(loss, str) and loss == "auto":
            loss = self.default_loss()
        for one in filter(expects_probabilities, tf.nest.flatten(loss)):
            logging.warning(
                "%s expects probabilities, but %s returns logits. Omit `loss` for the default, or "
                "pass a loss with from_logits=True",
                getattr(one, "__name__", one if isinstance(one, str) else type(one).__name__),
                type(self).__name__,
            )
        super().compile(optimizer, loss, *args, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """See `keras.Model.compile_from_config`, which does not call a custom `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def default_loss(self) -> dict[str, HeadLoss]:
        """Returns the losses by output, which `compile` uses by default.

        The commands minimize the sum of these losses. `fit` takes labels with the same names.
        """
        return {"logits": HeadLoss()}


@register
class AlbertForPretraining(EncoderAndHead):
    """The encoder with the masked-LM head and an optional sentence-order head.

    A call returns `masked_lm_logits`, float32 [B, P, V], for the positions in the input
    `masked_lm_positions`, int32 [B, P]. Without this input, all positions are scored: [B, S, V].
    With the sentence-order head, a call also returns `sentence_order_logits`, float32 [B, 2].

    Args:
        config, use_one_hot_embeddings: see `AlbertEncoder`.
        has_sentence_order_head: whether the model has a head that predicts whether two segments are
            in the original order or, in next-sentence prediction, whether they are adjacent.
    """

    SETTINGS = ("config", "use_one_hot_embeddings", "has_sentence_order_head")
    head_weights = ("cls/predictions/",)  # the sentence-order head is optional

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

    def _read(self, inputs: Tensors) -> Read:
        positions = inputs.get("masked_lm_positions")
        return "all" if positions is None else tf.cast(positions, tf.int32)

    def _head_outputs(self, outputs: Tensors, inputs: Tensors, seed: Seed, ops: Ops) -> Tensors:
        states, words = outputs["read"], self.encoder.embeddings.word_embeddings
        if inputs.get("masked_lm_positions") is not None:
            states = states[:, 1:]
        scores = {"masked_lm_logits": self.masked_lm_head(states, None, words, ops=ops)}
        if self.has_sentence_order_head:
            scores["sentence_order_logits"] = self.sentence_order_head(outputs["pooled_output"])
        return scores

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`.

        The labels of `masked_lm_logits` are `masked_lm_ids` [B, P], with the sample weights
        `masked_lm_weights` [B, P]. The labels of `sentence_order_logits` are `next_sentence_labels`
        [B].
        """
        losses = {"masked_lm_logits": HeadLoss()}
        if self.has_sentence_order_head:
            losses["sentence_order_logits"] = HeadLoss()
        return losses


class LabelModel(EncoderAndHead):
    """Base class of classifiers with K labels, which may have names."""

    SETTINGS: ClassVar[tuple[str, ...]] = (
        "config",
        "use_one_hot_embeddings",
        "num_labels",
        "dropout_prob",
        "labels",
    )
    head_weights = ("output_weights",)
    multi_label = False  # whether an example can have any number of labels
    min_labels: ClassVar[int] = 1

    def __init__(
        self,
        config: ConfigLike,
        num_labels: int | None = None,
        dropout_prob: float = 0.1,
        use_one_hot_embeddings: bool = False,
        labels: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        labels = as_labels(labels)
        if labels is not None:
            if len(labels) < 2 or len(set(labels)) < len(labels):
                raise UserError(f"labels must be at least two different texts. Received: {labels}")
            num_labels = len(labels) if num_labels is None else num_labels
            if num_labels != len(labels):
                raise UserError(f"labels must be num_labels={num_labels} names. Received: {labels}")
        if num_labels is None:
            raise UserError(
                "A new head needs labels, the names of the classes, such as "
                'labels=["no", "yes"], or num_labels, which is 1 for a regression.'
            )
        check_whole_number("num_labels", num_labels)
        if num_labels < self.min_labels:
            raise UserError(
                f"num_labels must be at least {self.min_labels}. Received: num_labels={num_labels}"
            )
        self.labels = labels
        self.num_labels = num_labels
        self.dropout_prob = dropout_prob
        self.classifier = ClassificationHead(
            self.config, num_labels, dropout_prob, name="classifier", dtype=self.dtype_policy
        )
        self.built = True

    def fit(
        self, *args: Any, class_weight: Mapping[Any, float] | None = None, **kwargs: Any
    ) -> Any:
        """Trains as `keras.Model.fit`. Keys of `class_weight` are ids or names of classes.

        Raises ValueError if a key is neither.
        """
        if class_weight is not None:
            ids = {name: index for index, name in enumerate(self.labels or ())}
            weights = {value_of(key): weight for key, weight in class_weight.items()}
            class_weight = {ids.get(key, key): weight for key, weight in weights.items()}
            if not class_weight.keys() <= {*range(self.num_labels)}:
                raise UserError(
                    f"class_weight must map ids, or the names {listed(ids)}, to weights. Received: "
                    f"{weights}"
                )
        return super().fit(*args, class_weight=class_weight, **kwargs)

    @classmethod
    def load(
        cls: type[C],
        path: str | os.PathLike,
        labels: Sequence[str] | None = None,
        *,
        num_labels: int | None = None,
        new_head: bool = False,
        rename_labels: bool = False,
        albert_config_file: str | None = None,
        allow_partial: bool = False,
        **settings: Any,
    ) -> C:
        """Creates a model with stored weights; see `AlbertEncoder.load`.

        Args:
            path: see `albert_tf.load`.
            labels: names of the classes. If `None`, the labels of the stored model are used. A
                stored head is kept if it has these labels in this order, or if its classes have no
                names and their number matches.
            num_labels: number of classes without names; 1 for a regression.
            new_head: whether to replace a stored head with a head with random weights.
            rename_labels: whether to keep a stored head and rename its classes to `labels`.
            albert_config_file: see `AlbertEncoder.load`.
            allow_partial: see `AlbertEncoder.load`.
            **settings: see `AlbertEncoder.load`.

        Raises:
            ValueError: see `AlbertEncoder.load`; or a stored head has other labels.
        """
        given = {"labels": as_labels(labels), "num_labels": num_labels}
        settings |= {name: value for name, value in given.items() if value is not None}
        settings |= {"new_head": new_head, "rename_labels": rename_labels}
        return super().load(
            path, albert_config_file=albert_config_file, allow_partial=allow_partial, **settings
        )


@register
class AlbertForClassification(LabelModel):
    """The encoder with a classifier or regression on its pooled output.

    A call returns `logits`, float32 [B, K].

    Args:
        config, use_one_hot_embeddings: see `AlbertEncoder`.
        num_labels: K, number of classes; 1 for a regression. Default: the number of `labels`.
        dropout_prob: dropout of the pooled output in training.
        labels: names of the classes, in the order of their ids; `None` if they have no names.
        multi_label: whether a text can have any number of classes. The probability of a class is
            the sigmoid of its logit. The labels of the loss are 0 or 1, float [B, K].

    Raises:
        TypeError: `labels` is not a list of texts, or `num_labels` is not a whole number.
        ValueError: neither `labels` nor `num_labels` is passed, they do not match, or a multi-label
            model has fewer than two labels.
    """

    SETTINGS = (*LabelModel.SETTINGS, "multi_label")

    def __init__(
        self,
        config: ConfigLike,
        num_labels: int | None = None,
        dropout_prob: float = 0.1,
        use_one_hot_embeddings: bool = False,
        labels: Sequence[str] | None = None,
        multi_label: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, num_labels, dropout_prob, use_one_hot_embeddings, labels, **kwargs)
        if multi_label and self.num_labels < 2:
            raise UserError("multi_label needs at least two labels. Received: num_labels=1")
        self.multi_label = multi_label

    def _head_outputs(self, outputs: Tensors, inputs: Tensors, seed: Seed, ops: Ops) -> Tensors:
        return {"logits": self.classifier(outputs["pooled_output"], seed)}

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`; squared error for a regression (K = 1)."""
        kind = "multi_label" if self.multi_label else "cross_entropy"
        return {"logits": HeadLoss("squared_error" if self.num_labels == 1 else kind)}


@register
class AlbertForTokenClassification(LabelModel):
    """The encoder with a classifier on each token.

    A call returns `logits`, float32 [B, S, K], also for padding and special tokens. The labels of
    the loss are class ids [B, S]. Tokens without a label need a valid class id, such as 0, and a
    weight of 0 in the sample weights [B, S].

    Args:
        config, use_one_hot_embeddings, labels: see `AlbertForClassification`.
        num_labels: K, number of classes, at least 2. Default: the number of `labels`.
        dropout_prob: dropout of the sequence output in training.

    Raises:
        TypeError: see `AlbertForClassification`.
        ValueError: see `AlbertForClassification`; or there are fewer than 2 classes.

    Differs: the original has no such model.
    """

    uses_pooler = False
    min_labels = 2

    def _read(self, inputs: Tensors) -> Read:
        return tf.not_equal(inputs["input_mask"], 0)

    def _head_outputs(self, outputs: Tensors, inputs: Tensors, seed: Seed, ops: Ops) -> Tensors:
        return {"logits": self.classifier(outputs["read"], seed)}


@register
class AlbertForMultipleChoice(EncoderAndHead):
    """The encoder with one score per option of an example.

    The inputs of a call have the shape [B, C, S] for C options per example. Missing options of an
    example have an `input_mask` of zeros. A call returns `logits`, float32 [B, C], which are -1e30
    for missing options. Inputs [B, S] are single options; their `logits` are float32 [B]. The
    outputs of the encoder have B * C sequences.

    Args:
        config, use_one_hot_embeddings: see `AlbertEncoder`.
        dropout_prob: dropout of the pooled output in training.

    Source: race_utils.py of the original release, create_model.
    """

    SETTINGS = ("config", "use_one_hot_embeddings", "dropout_prob")
    head_weights = ("output_weights",)
    input_rank = 3

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

    def _head_outputs(self, outputs: Tensors, inputs: Tensors, seed: Seed, ops: Ops) -> Tensors:
        logits = self.classifier(outputs["pooled_output"], seed)
        ids = tf.convert_to_tensor(inputs["input_ids"])
        if ids.shape.rank == 2:
            return {"logits": logits[:, 0]}
        logits = tf.ensure_shape(tf.reshape(logits, tf.shape(ids)[:2]), ids.shape[:2])
        is_option = tf.reduce_any(tf.not_equal(inputs["input_mask"], 0), axis=-1)
        return {"logits": tf.where(is_option, logits, MASKED_LOGIT)}


def _flatten_options(inputs: Tensors) -> Tensors:
    """Reshapes inputs [B, C, S] to [B * C, S]."""
    flat = dict(inputs)
    for name in ("input_ids", "input_mask", "segment_ids"):
        if inputs.get(name) is None:
            continue
        rank = len(inputs[name].shape)
        if rank not in (2, 3):
            raise UserError(
                f"{name!r} must have the shape [B, C, S], or [B, S] for single options. Received: "
                f"{inputs[name].shape}"
            )
        if rank == 3:
            flat[name] = tf.reshape(inputs[name], [-1, tf.shape(inputs[name])[-1]])
    return flat


@register
class AlbertForQuestionAnswering(EncoderAndHead):
    """The encoder with scores for the start and the end of the answer, as in SQuAD 1.1.

    A call returns `start_logits` and `end_logits`, float32 [B, S]. As in the original, the question
    and padding are not masked. For `config` and `use_one_hot_embeddings` see `AlbertEncoder`.
    """

    uses_pooler = False
    head_weights = ("cls/squad/",)

    def __init__(
        self, config: ConfigLike, use_one_hot_embeddings: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.span_head = SpanHead(self.config, name="span_head", dtype=self.dtype_policy)
        self.built = True

    def _read(self, inputs: Tensors) -> Read:
        return "all"  # as in the original, probabilities depend on the scores of padding

    def _head_outputs(self, outputs: Tensors, inputs: Tensors, seed: Seed, ops: Ops) -> Tensors:
        logits = self.span_head(outputs["read"])
        start_logits, end_logits = tf.unstack(logits, axis=-1)
        return {"start_logits": start_logits, "end_logits": end_logits}

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`; the labels are `start_positions` and `end_positions` [B]."""
        return {name: HeadLoss(factor=0.5) for name in ("start_logits", "end_logits")}


@register
class AlbertForQuestionAnsweringWithBeamSearch(EncoderAndHead):
    """The encoder with the best spans and a score for no answer, as in SQuAD 2.0.

    A call accepts two more inputs. `start_positions`, int32 [B], are the true starts for which ends
    are scored; training requires them. `p_mask`, int32 [B, S], is 1 where an answer must not start
    or end. By default, an answer may start and end at the first token, and at the tokens of segment
    1 except the last [SEP].

    A call returns the outputs of `SpanBeamHead.call`, which do not depend on padding.

    Args:
        config, use_one_hot_embeddings: see `AlbertEncoder`.
        start_n_top: K, number of best starts for which ends are scored.
        end_n_top: M, number of best ends per start.
        dropout_prob: dropout rate of the hidden layer of the no-answer score, in training.

    Raises:
        ValueError: a beam is wider than the position table. In a call: an input is missing.
    """

    uses_pooler = False
    head_weights = ("start_logits/", "end_logits/", "answer_class/")
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
            raise UserError(
                f"Beams cannot be wider than the {longest} positions of the model "
                f"(max_position_embeddings). Received: `start_n_top`={start_n_top}, "
                f"`end_n_top`={end_n_top}"
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

    def _prepare(self, inputs: Tensors, training: bool | None) -> Tensors:
        received = sorted(inputs.keys() - {"input_mask"})  # the mask may be derived
        if not {"segment_ids", "p_mask"} & inputs.keys():
            raise UserError(
                "To distinguish the context from the question, the model needs a dictionary of "
                f"'input_ids' and 'segment_ids' (or 'p_mask'). Received: {received}"
            )
        if training and "start_positions" not in inputs:
            raise UserError(f"Training needs 'start_positions' (true starts). Received: {received}")
        if inputs.get("p_mask") is None:
            inputs["p_mask"] = position_mask(inputs["input_mask"], inputs["segment_ids"])
        if inputs.get("start_positions") is None:
            return _pad(inputs, max(self.start_n_top, self.end_n_top))
        return inputs

    def _read(self, inputs: Tensors) -> Read:
        return tf.not_equal(inputs["input_mask"], 0) | ~tf.cast(inputs["p_mask"], tf.bool)

    def _head_outputs(self, outputs: Tensors, inputs: Tensors, seed: Seed, ops: Ops) -> Tensors:
        states, p_mask = outputs["read"], inputs["p_mask"]
        return self.span_head(states, p_mask, inputs.get("start_positions"), seed, ops=ops)

    def default_loss(self) -> dict[str, HeadLoss]:
        """See `EncoderAndHead`.

        `start_positions` [B] are labels and an input, `end_positions` [B] are labels. The label of
        `cls_logits` [B] is 1 if there is no answer, otherwise 0.
        """
        losses = {name: HeadLoss(factor=0.5) for name in ("start_log_probs", "end_log_probs")}
        return {**losses, "cls_logits": HeadLoss("binary", factor=0.5)}


def position_mask(input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
    """Returns 0 for the first token and the context, and 1 elsewhere, int32 [B, S].

    Segment 1 consists of the context and the separator after it.
    """
    next_is_real = tf.pad(tf.not_equal(input_mask[:, 1:], 0), [[0, 0], [0, 1]])
    is_context = tf.equal(segment_ids, 1) & next_is_real
    is_first = tf.equal(tf.range(tf.shape(segment_ids)[1]), 0)
    return tf.cast(~(is_context | is_first), tf.int32)


def _pad(inputs: Tensors, length: int) -> Tensors:
    missing = tf.maximum(0, length - tf.shape(inputs["input_ids"])[1])
    padded = dict(inputs)
    for name in ("input_ids", "input_mask", "segment_ids", "p_mask"):
        if padded.get(name) is not None:
            # `p_mask` is 1 for padding.
            filling = tf.cast(name == "p_mask", inputs[name].dtype)
            padded[name] = tf.pad(inputs[name], [[0, 0], [0, missing]], constant_values=filling)
    return padded
