"""Encoder and pretraining heads as functions of TensorFlow, which read variables given to them.

The layers of this package say what is computed; their variables are replaced by those to be saved.
The encoder is one function, called by all others: a SavedModel with a dozen entrances then is not
a dozen times as large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from albert_tf.checkpoints.original import original_names
from albert_tf.models import AlbertForPretraining

ORIGINAL_INPUTS = ("input_ids", "input_mask", "segment_ids")
HUB_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
POSITIONS = "masked_lm_positions"
_ENCODER_OUTPUTS = ("pooled_output", "sequence_output", "encoder_outputs")
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"

Tensors = Mapping[str, tf.Tensor]
Outputs = dict[str, Any]


class EncoderFunctions:
    """Functions of a dictionary of inputs, in the original's names or TF-Hub's.

    Args:
        model: whose layers count, and not its weights.
        variables: by the original's names; the function of a head needs those of the head.

    Attributes:
        dropout_state: int64 [2], a seed and the number of training calls so far; None where the
            configuration drops nothing.
    """

    def __init__(self, model: AlbertForPretraining, variables: Mapping[str, tf.Variable]) -> None:
        self._model = model
        self._variables = variables
        config = model.config
        drops = config.hidden_dropout_prob or config.attention_probs_dropout_prob
        self.dropout_state = _dropout_state() if drops else None
        encode = self._encoder_function(training=False)
        self._encode = {
            False: encode,
            True: self._encoder_function(training=True) if drops else encode,
        }

    def encode(self, inputs: Tensors, training: bool) -> Outputs:
        """Returns `pooled_output`, also as `default`, `sequence_output` and `encoder_outputs`."""
        outputs = self._encoded(inputs, training)
        return {**outputs, "default": outputs["pooled_output"]}

    def score_tokens(self, inputs: Tensors, training: bool) -> Outputs:
        """Returns `mlm_logits` at the `masked_lm_positions` of the inputs, and encoder outputs."""
        outputs = self._encoded(inputs, training)
        sequence, positions = outputs["sequence_output"], inputs[POSITIONS]
        with self._reading("cls/predictions/", _WORD_EMBEDDINGS):
            words = self._model.encoder.embeddings.word_embeddings
            checked = _checked_positions(positions, sequence)
            logits = self._model.masked_lm_head(sequence, checked, words)
        return {**outputs, "mlm_logits": _with_axes(logits, positions)}

    def judge_order(self, inputs: Tensors, training: bool) -> Outputs:
        """Returns `sop_logits` and `sop_log_probs`, [B, 2], and the outputs of the encoder."""
        outputs = self._encoded(inputs, training)
        with self._reading("cls/seq_relationship/"):
            logits = self._model.sentence_order_head(outputs["pooled_output"])
        return {**outputs, "sop_logits": logits, "sop_log_probs": tf.nn.log_softmax(logits)}

    def _encoded(self, inputs: Tensors, training: bool) -> Outputs:
        names = ORIGINAL_INPUTS if ORIGINAL_INPUTS[0] in inputs else HUB_INPUTS
        return dict(self._encode[training](*(inputs[name] for name in names)))

    def _encoder_function(self, training: bool) -> Callable[..., Outputs]:
        def run(*inputs: tf.Tensor) -> Outputs:
            checked = dict(zip(ORIGINAL_INPUTS, _checked_inputs(inputs), strict=True))
            seed = None
            if training and self.dropout_state is not None:
                seed = next_seed(self.dropout_state, checked["input_ids"])
            with self._reading("bert/"):
                outputs = self._model.encoder(checked, training=training, dropout_seed=seed)
            hidden = [_with_axes(output, inputs[0]) for output in outputs["encoder_outputs"]]
            pooled = _with_axes(outputs["pooled_output"], inputs[0][:, 0])
            return dict(zip(_ENCODER_OUTPUTS, (pooled, hidden[-1], hidden), strict=True))

        specs = [tf.TensorSpec([None, None], tf.int32, name=name) for name in ORIGINAL_INPUTS]
        # Traced now: called within another function it would be traced twice.
        return tf.function(run, specs, autograph=False).get_concrete_function()

    def _reading(self, *prefixes: str) -> keras.StatelessScope:
        """Lets layers read the given variables instead of their own, those with such names.

        A function depends on what it reads here, so it reads nothing it does not use.
        """
        return keras.StatelessScope(
            [
                (variable, self._variables[name])
                for name, variable in original_names(self._model).items()
                if name.startswith(prefixes)
            ]
        )


def next_seed(state: tf.Variable, input_ids: tf.Tensor) -> tf.Tensor:
    """The seed of a call, int32 [2].

    The tokens count as well: replicas, which all hold the same state, draw different masks.
    """
    seed = tf.cast(state.assign_add([0, 1]), tf.int32)
    tokens = tf.reshape(input_ids, [-1])
    weights = 2 * tf.range(tf.size(tokens)) + 1
    return tf.random.experimental.stateless_fold_in(seed, tf.reduce_sum(tokens * weights))


def _dropout_state() -> tf.Variable:
    # Each replica counts for itself: all make the same number of calls.
    return tf.Variable(
        [0, 0],
        dtype=tf.int64,
        trainable=False,
        name="dropout_state",
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _checked_inputs(inputs: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
    """The inputs, once it is known that they have one shape.

    A row for all examples would be accepted, and give something else than was meant.
    """
    ids, *others = inputs
    checks = [
        tf.debugging.assert_equal(
            tf.shape(given), tf.shape(ids), f"{name} must have the shape of the token ids."
        )
        for name, given in zip(("input_mask", "segment_ids (input_type_ids)"), others, strict=True)
    ]
    with tf.control_dependencies(checks):
        values = [_without_shape(given) for given in inputs]
    # XLA leaves checks out, but not this.
    return [tf.reshape(given, tf.shape(values[0])) for given in values]


def _checked_positions(positions: tf.Tensor, sequence: tf.Tensor) -> tf.Tensor:
    """The positions, once it is known that there are as many rows and that they are in them."""
    rows, length = tf.unstack(tf.shape(sequence)[:2])
    checks = [
        tf.debugging.assert_equal(
            tf.shape(positions)[0], rows, f"{POSITIONS} must have a row for each example."
        ),
        tf.debugging.assert_less(
            positions, length, f"{POSITIONS} must be less than the length of the sequences."
        ),
        tf.debugging.assert_non_negative(positions, f"{POSITIONS} must not be negative."),
    ]
    with tf.control_dependencies(checks):
        return _without_shape(positions)


def _without_shape(ids: tf.Tensor) -> tf.Tensor:
    """Ids whose shape is known only when the graph runs.

    Else TensorFlow itself finds, before any check is run, that sequences are too long, and says so
    in terms of the inside of the graph.
    """
    return tf.raw_ops.PlaceholderWithDefault(input=ids, shape=[None] * ids.shape.rank)


def _with_axes(outputs: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Outputs [..., H] that share their first axes with the ids, as far as those are known."""
    return tf.reshape(outputs, tf.concat([tf.shape(ids), [outputs.shape[-1]]], axis=0))
