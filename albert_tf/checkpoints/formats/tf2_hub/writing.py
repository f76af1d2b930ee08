"""Writes pretrained models as reusable SavedModels, which any TensorFlow 2 program can train.

TF-Hub defines reusable SavedModels: an object that is called with a dictionary of tensors, with
`training=True` for dropout, and that lists its variables. The computation is traced from the layers
of this package. All functions call the same encoder function, because a copy per function would
multiply the size of the SavedModel.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from albert_tf.checkpoints.signatures import (
    DEFAULT_SIGNATURE,
    HUB_INPUTS,
    ORIGINAL_INPUTS,
    POSITIONS,
    TOKENS_SIGNATURE,
)
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.data.files import raise_write_errors
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import PRETRAINING_HEADS, is_of_pretraining, original_names
from albert_tf.modeling.parameter_sharing import ENCODER_PREFIX
from albert_tf.tokenization.library import require_own_rules
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_ENCODER_OUTPUTS = ("pooled_output", "sequence_output", "encoder_outputs")
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
Tensors = Mapping[str, tf.Tensor]
Outputs = dict[str, Any]
CONFIG_ASSET = "albert_config.json"

_LISTS = ("encoder_outputs",)  # not supported in signatures
Function = Callable[..., Outputs]


class EncoderFunctions:
    """Computes encoder and heads from inputs with the original's or TF-Hub's names.

    `model` provides the layers, `variables` the values by the original's names. `dropout_state`,
    int64 [2], is a seed and the number of training calls, or `None` without dropout.
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
        """Returns `pooled_output` (also named `default`), `sequence_output`, `encoder_outputs`."""
        outputs = self._encoded(inputs, training)
        return {**outputs, "default": outputs["pooled_output"]}

    def score_tokens(self, inputs: Tensors, training: bool) -> Outputs:
        """Returns `mlm_logits` at `masked_lm_positions`, and the encoder outputs."""
        outputs = self._encoded(inputs, training)
        sequence, positions = outputs["sequence_output"], inputs[POSITIONS]
        with self._reading(PRETRAINING_HEADS[0], _WORD_EMBEDDINGS):
            words = self._model.encoder.embeddings.word_embeddings
            checked = _checked_positions(positions, sequence)
            logits = self._model.masked_lm_head(sequence, checked, words)
        return {**outputs, "mlm_logits": _with_axes(logits, positions)}

    def judge_order(self, inputs: Tensors, training: bool) -> Outputs:
        """Returns `sop_logits` and `sop_log_probs`, [B, 2], and the encoder outputs."""
        outputs = self._encoded(inputs, training)
        with self._reading(PRETRAINING_HEADS[1]):
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
            with self._reading(ENCODER_PREFIX):
                outputs = self._model.encoder(
                    checked,
                    training=training,
                    dropout_seed=seed,
                    output_hidden_states=True,
                    keras_mask=False,
                )
            hidden = [_with_axes(output, inputs[0]) for output in outputs["encoder_outputs"]]
            pooled = _with_axes(outputs["pooled_output"], inputs[0][:, 0])
            return dict(zip(_ENCODER_OUTPUTS, (pooled, hidden[-1], hidden), strict=True))

        specs = [tf.TensorSpec([None, None], tf.int32, name=name) for name in ORIGINAL_INPUTS]
        # Without a concrete function, `run` would be traced twice inside other functions.
        return tf.function(run, specs, autograph=False).get_concrete_function()

    def _reading(self, *prefixes: str) -> keras.StatelessScope:
        """Returns a context manager in which layers read the variables with these prefixes."""
        return keras.StatelessScope(
            [
                (variable, self._variables[name])
                for name, variable in original_names(self._model).items()
                if name.startswith(prefixes)
            ]
        )


def next_seed(state: tf.Variable, input_ids: tf.Tensor) -> tf.Tensor:
    """Returns the seed of a call, int32 [2]."""
    seed = tf.cast(state.assign_add([0, 1]), tf.int32)
    # Replicas have equal states, but must draw different masks.
    tokens = tf.reshape(input_ids, [-1])
    weights = 2 * tf.range(tf.size(tokens)) + 1
    return tf.random.experimental.stateless_fold_in(seed, tf.reduce_sum(tokens * weights))


def _dropout_state() -> tf.Variable:
    # Each replica has its own counter; all make the same number of calls.
    return tf.Variable(
        [0, 0],
        dtype=tf.int64,
        trainable=False,
        name="dropout_state",
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _checked_inputs(inputs: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
    """Checks that the inputs have equal shapes; otherwise they would be broadcast."""
    ids, *others = inputs
    checks = [
        tf.debugging.assert_equal(
            tf.shape(given), tf.shape(ids), f"{name} must have the shape of the token ids."
        )
        for name, given in zip(("input_mask", "segment_ids (input_type_ids)"), others, strict=True)
    ]
    with tf.control_dependencies(checks):
        values = [_without_shape(given) for given in inputs]
    # XLA omits checks, but not this reshape.
    return [tf.reshape(given, tf.shape(values[0])) for given in values]


def _checked_positions(positions: tf.Tensor, sequence: tf.Tensor) -> tf.Tensor:
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
    """Hides the static shape of ids, because TensorFlow's own checks have unclear messages."""
    return tf.raw_ops.PlaceholderWithDefault(input=ids, shape=[None] * ids.shape.rank)


def _with_axes(outputs: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Reshapes outputs [..., H] to the axes of the ids."""
    return tf.reshape(outputs, tf.concat([tf.shape(ids), [outputs.shape[-1]]], axis=0))


class Reusable(tf.Module):
    """A reusable SavedModel of TF-Hub."""

    # The properties of `tf.Module` would not be saved.
    variables: Sequence[tf.Variable] = ()
    trainable_variables: Sequence[tf.Variable] = ()


def unsupported_weights(stored: StoredModel) -> list[str]:
    """Returns the names of unsupported weights: other heads and moments."""
    require_own_rules(stored.tokenizer, "A TF-Hub module")
    return [name for name in stored.weights if not is_of_pretraining(name)]


def write(directory: str, stored: StoredModel) -> None:
    """Writes encoder and pretraining heads as a reusable SavedModel; see docs/exporting.md."""
    model = AlbertForPretraining(stored.required_config, dtype="float32")
    variables = {
        name: tf.Variable(value, name=name, dtype=tf.float32)
        for name, value in stored.weights.items()
        if is_of_pretraining(name)
    }
    functions = EncoderFunctions(model, variables)
    encoder = [v for name, v in variables.items() if name.startswith(ENCODER_PREFIX)]
    root = _reusable(functions.encode, (), encoder, functions.dropout_state)
    root.weights = variables  # by name, for the reader of checkpoints
    _add_endpoints(root, functions.encode, (), "")
    signatures = {
        DEFAULT_SIGNATURE: _signature(functions.encode, HUB_INPUTS),
        TOKENS_SIGNATURE: _signature(functions.encode, ORIGINAL_INPUTS),
    }
    masked_lm, order = PRETRAINING_HEADS
    for head, scope, function, extra in (
        ("mlm", masked_lm, functions.score_tokens, (POSITIONS,)),
        ("sop", order, functions.judge_order, ()),
    ):
        own = [variable for name, variable in variables.items() if name.startswith(scope)]
        if own:
            part = _reusable(function, extra, encoder + own, functions.dropout_state)
            setattr(root, head, part)
            _add_endpoints(root, function, extra, f"_{head}")
            signatures[head] = _signature(function, (*ORIGINAL_INPUTS, *extra))
    with tempfile.TemporaryDirectory() as folder:
        with raise_write_errors(folder):
            _add_assets(root, stored, folder)
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
        tf.saved_model.save(root, directory, signatures, options)


def _reusable(
    function: Function,
    extra: tuple[str, ...],
    trainable: Iterable[tf.Variable],
    dropout_state: tf.Variable | None,
) -> Reusable:
    """Returns a callable object that lists its variables."""
    saved = Reusable()

    def call(inputs: Outputs, training: bool = False) -> Outputs:
        return function(inputs, training)

    saved.__call__ = tf.function(call, autograph=False)
    for names in (ORIGINAL_INPUTS, HUB_INPUTS):
        for training in (False, True):
            saved.__call__.get_concrete_function(_specs((*names, *extra)), training=training)
    saved.trainable_variables = list(trainable)
    saved.variables = list(trainable) + ([] if dropout_state is None else [dropout_state])
    saved.regularization_losses = []
    if dropout_state is not None:
        saved.dropout_state = dropout_state
    return saved


def _add_endpoints(root: Any, function: Function, extra: tuple[str, ...], suffix: str) -> None:
    """Adds functions of one argument for Keras 3."""
    for name, training in (("serve", False), ("train", True)):
        traced = tf.function(partial(_call, function, training), autograph=False)
        for names in (ORIGINAL_INPUTS, HUB_INPUTS):
            traced.get_concrete_function(_specs((*names, *extra)))
        setattr(root, name + suffix, traced)


def _call(function: Function, training: bool, inputs: Outputs) -> Outputs:
    return function(inputs, training)


def _specs(names: Iterable[str]) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in names}


def _signature(function: Function, names: tuple[str, ...]) -> Function:
    def serve(**inputs: tf.Tensor) -> Outputs:
        outputs = function(inputs, False)
        return {name: value for name, value in outputs.items() if name not in _LISTS}

    return tf.function(serve, autograph=False).get_concrete_function(**_specs(names))


def _add_assets(root: Any, stored: StoredModel, folder: str) -> None:
    """Adds files, which are copied when `root` is saved."""
    config_file = os.path.join(folder, CONFIG_ASSET)
    stored.required_config.to_json_file(config_file)
    root.albert_config_file = tf.saved_model.Asset(config_file)
    tokenizer = stored.tokenizer
    if tokenizer is not None and tokenizer.files:
        is_spm = isinstance(tokenizer, SentencePieceTokenizer)
        asset = tf.saved_model.Asset(tokenizer.files[0])
        setattr(root, "sp_model_file" if is_spm else "vocab_file", asset)
    root.do_lower_case = tf.Variable(
        bool(stored.do_lower_case), trainable=False, name="do_lower_case"
    )
