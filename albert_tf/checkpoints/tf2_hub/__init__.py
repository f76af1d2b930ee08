"""SavedModels of TF2 that hold an ALBERT: our own exports, and encoders as published on TF-Hub.

Reading runs no graph. Our own exports keep their weights by the original's names. Those of TF-Hub
(`albert_en_*`, written by the exporter of TensorFlow's model garden) have names and layouts of
their own and no configuration: that is put together from shapes, from what Keras noted of the
encoder, and from the number of encoder outputs.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.model_contents import StoredModel, WeightsReader
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.tf2_hub.saved_object import (
    GRAPH_FILE,
    VARIABLES,
    SavedGraph,
    SavedVariables,
    is_saved_object,
)
from albert_tf.config import AlbertConfig
from albert_tf.data.files import reason_of
from albert_tf.data.strict_json import JsonError, json_values, shown

if TYPE_CHECKING:
    from albert_tf.checkpoints.model_contents import ModelContents


FORMAT = "tf2_hub"

# What our own exports call what they hold; the tokenizer's names are TF-Hub's.
WEIGHTS, CONFIG_FILE = "weights", "albert_config_file"

TOKENIZER_FILES = ("sp_model_file", "vocab_file")
LOWER_CASE = "do_lower_case"

# Where exports of a task keep what is not of the graph.
EXTRA_CONFIG = os.path.join("assets.extra", "albert_config.json")

_INPUTS, _POSITIONS = ("input_ids", "input_mask", "segment_ids"), "masked_lm_positions"

_KERAS_METADATA = "keras_metadata.pb"
_BLOCK = "bert/encoder/transformer/group_0/inner_group_0/"
_QUERY = "transformer/self_attention/query"

# Scopes of TF-Hub's encoders and of the original.
_SCOPES = {
    "word_embeddings": "bert/embeddings/word_embeddings",
    "position_embedding": "bert/embeddings/position_embeddings",
    "type_embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "embedding_projection": "bert/encoder/embedding_hidden_mapping_in",
    _QUERY: f"{_BLOCK}attention_1/self/query",
    "transformer/self_attention/key": f"{_BLOCK}attention_1/self/key",
    "transformer/self_attention/value": f"{_BLOCK}attention_1/self/value",
    "transformer/self_attention/attention_output": f"{_BLOCK}attention_1/output/dense",
    "transformer/self_attention_layer_norm": f"{_BLOCK}LayerNorm",
    "transformer/intermediate": f"{_BLOCK}ffn_1/intermediate/dense",
    "transformer/output": f"{_BLOCK}ffn_1/intermediate/output/dense",
    "transformer/output_layer_norm": f"{_BLOCK}LayerNorm_1",
    "pooler_transform": "bert/pooler/dense",
    "cls/predictions/transform/dense": "cls/predictions/transform/dense",
    "cls/predictions/transform/LayerNorm": "cls/predictions/transform/LayerNorm",
    "cls/predictions/output_bias": "cls/predictions/output_bias",
}

# Scopes with one variable in them, which is named after the scope in the original.
_SINGLE = (
    "word_embeddings",
    "position_embedding",
    "type_embeddings",
    "cls/predictions/output_bias",
)

# Activations as Keras notes them; the garden's gelu is the tanh approximation, Keras's is not.
_GARDEN_GELU = "Text>gelu"
_ACTIVATIONS = {_GARDEN_GELU: "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_EXPECTED = (
    "Expected a TF2 encoder of ALBERT, as convert_checkpoint.py --format=tf2_hub writes it or as "
    "published on TF-Hub (albert_en_*)."
)


def is_here(path: str) -> bool:
    """Whether a path is a directory with a SavedModel of TF2, of whatever it may be."""
    return is_saved_object(path)


def read(path: str, flag: str) -> StoredModel:
    """Reads what a SavedModel holds of an ALBERT.

    Args:
        path: its directory.
        flag: the flag the path came from, for messages.

    Raises:
        LoadError: it is damaged, or a SavedModel of something else.
        ValueError: its configuration cannot be used.
    """
    checkpoint = os.path.join(path, VARIABLES)
    weights = _Weights(checkpoint)
    names = sorted(filter(None, weights.get_variable_to_shape_map()))
    if not any(name.startswith(_BLOCK) for name in names):
        found = (
            f"its variables are {', '.join(names[:8])}, ..." if names else "it has no variables."
        )
        raise LoadError(f"{flag}={path} holds no ALBERT: {found} {_EXPECTED}")
    graph = SavedGraph(path, flag)
    config, config_file = _config(weights, graph, path, flag)
    tokenizer_file = next(filter(None, map(graph.asset, TOKENIZER_FILES)), None)
    return StoredModel(
        path=path,
        format=FORMAT,
        checkpoint=checkpoint,
        config=config,
        config_file=config_file,
        tokenizer_file=tokenizer_file,
        do_lower_case=_do_lower_case(weights, tokenizer_file),
    )


def open_weights(checkpoint: str) -> WeightsReader:
    """Returns a reader of the variables by the original's names.

    Args:
        checkpoint: `<SavedModel>/variables/variables`.

    Raises:
        LoadError: they cannot be read.
    """
    return _Weights(checkpoint)


def unsupported_weights(contents: ModelContents) -> list[str]:
    """Names what our own kind cannot hold; see `writing.unsupported_weights`."""
    from albert_tf.checkpoints.tf2_hub import writing as tf2_hub_encoder

    return tf2_hub_encoder.unsupported_weights(contents)


def write(directory: str, contents: ModelContents) -> list[str]:
    """Writes our own kind; see `writing.write`."""
    from albert_tf.checkpoints.tf2_hub import writing as tf2_hub_encoder  # reading needs no models

    return tf2_hub_encoder.write(directory, contents)


def compute(directory: str, batch: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Runs the graphs of our own kind, for comparison with the model they were written from.

    Args:
        directory: of the SavedModel.
        batch: what `AlbertForPretraining` takes.

    Returns:
        Outputs by the names of that model.
    """
    loaded = tf.saved_model.load(directory)
    inputs = {name: tf.constant(batch[name], tf.int32) for name in _INPUTS}
    positions = {_POSITIONS: tf.constant(batch[_POSITIONS], tf.int32)}
    outputs = loaded(inputs)
    if hasattr(loaded, "mlm"):
        outputs["masked_lm_logits"] = loaded.mlm({**inputs, **positions})["mlm_logits"]
    if hasattr(loaded, "sop"):
        outputs["sentence_order_logits"] = loaded.sop(inputs)["sop_logits"]
    return outputs


class _Variable(NamedTuple):
    """A variable in the file: its key, and its shapes there and in the original."""

    key: str
    stored_shape: tuple[int, ...]
    shape: tuple[int, ...]


class _Weights:
    """The variables of a SavedModel by the original's names; see `WeightsReader`."""

    def __init__(self, checkpoint: str) -> None:
        self.saved = SavedVariables(checkpoint)
        keys = self.saved.keys_of_dictionary(WEIGHTS) or _without_slots(self.saved.keys)
        self.variables = {}
        for name, key in keys.items():
            shape = self.saved.shapes[key]
            self.variables[_original_name(name)] = _Variable(
                key, shape, _original_shape(name, shape)
            )

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: list(variable.shape) for name, variable in self.variables.items()}

    def get_tensor(self, name: str) -> np.ndarray:
        variable = self.variables[name]
        return np.reshape(self.saved.value(variable.key), variable.shape)


def _without_slots(keys: Mapping[str, str]) -> dict[str, str]:
    """Without what Keras 2 keeps of an optimizer when a model with our encoder in it is saved."""
    slot_of = {name: re.sub(r"^.+?/(?=bert/)", "", name) for name in keys}
    return {
        name: key
        for name, key in keys.items()
        if slot_of[name] == name or slot_of[name] not in keys
    }


def _original_name(name: str) -> str:
    """The original's name for a variable of TF-Hub's encoders; every other name as it is."""
    scope, _, last = _without_model(name).rpartition("/")
    if scope not in _SCOPES:
        return name
    return f"{_SCOPES[scope]}/{last}" if scope not in _SINGLE else _SCOPES[scope]


def _without_model(name: str) -> str:
    """The name without the scope that the garden puts before its masked-LM head."""
    return re.sub(r"^.*/(?=cls/predictions/)", "", name)


def _original_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in the original, where the heads of an attention are no axis."""
    is_kernel = name.endswith("/kernel")
    if not name.startswith("transformer/self_attention/") or (is_kernel and not shape):
        return shape
    if name.endswith("attention_output/kernel"):  # [N, D, H]
        return (math.prod(shape[:-1]), shape[-1])
    if is_kernel:  # [H, N, D]
        return (shape[0], math.prod(shape[1:]))
    return (math.prod(shape),)  # [N, D], or [H] of the output


def _config(
    weights: _Weights, graph: SavedGraph, path: str, flag: str
) -> tuple[AlbertConfig, str] | tuple[None, None]:
    """The configuration and where it comes from; Nones where the file does not say enough."""
    extra = os.path.join(path, EXTRA_CONFIG)
    file = graph.asset(CONFIG_FILE) or (extra if tf.io.gfile.exists(extra) else None)
    if file is not None:
        return AlbertConfig.from_json_file(file), file
    try:
        config = _derived_config(weights, graph, path, flag)
    except LoadError:
        raise
    except (LookupError, ValueError) as error:
        raise LoadError(
            f"{flag}={path} is damaged: its variables and notes make no configuration: "
            f"{reason_of(error)}"
        ) from error
    return (config, os.path.join(path, GRAPH_FILE)) if config else (None, None)


def _derived_config(
    weights: _Weights, graph: SavedGraph, path: str, flag: str
) -> AlbertConfig | None:
    """The configuration of an encoder of TF-Hub; None where the number of layers is not known."""
    variables = weights.variables
    query = variables[f"{_BLOCK}attention_1/self/query/kernel"].stored_shape
    noted = _noted_by_keras(graph, path)
    num_layers = noted.get("num_layers") or graph.length_of_output("encoder_outputs")
    if len(query) != 3 or not num_layers:
        return None
    vocab_size, embedding_size = variables[_SCOPES["word_embeddings"]].shape
    return AlbertConfig(
        vocab_size=vocab_size,
        embedding_size=embedding_size,
        hidden_size=query[0],
        num_hidden_layers=num_layers,
        num_attention_heads=query[1],
        intermediate_size=variables[f"{_BLOCK}ffn_1/intermediate/dense/bias"].shape[0],
        hidden_act=_activation(noted, path, flag),
        hidden_dropout_prob=noted.get("dropout_rate", 0.0),
        attention_probs_dropout_prob=noted.get("attention_dropout_rate", 0.0),
        max_position_embeddings=variables[_SCOPES["position_embedding"]].shape[0],
        type_vocab_size=variables[_SCOPES["type_embeddings"]].shape[0],
    )


def _noted_by_keras(graph: SavedGraph, path: str) -> Mapping[str, Any]:
    """What the encoder was made with: JSON in a file beside the graph or, long ago, within it."""
    file = os.path.join(path, _KERAS_METADATA)
    content = graph.content
    if tf.io.gfile.exists(file):
        with tf.io.gfile.GFile(file, "rb") as opened:
            content = opened.read()
    match = re.search(rb'"class_name": "(?:\w+>)?AlbertEncoder", "config": (?=\{)', content)
    if match is None:
        return {}
    text = content[match.end() :].decode("utf-8", errors="replace")
    try:
        return next(json_values(text, path))[1]
    except JsonError:
        return {}


def _activation(noted: Mapping[str, Any], path: str, flag: str) -> str:
    """The activation the encoder was made with; all that are published have the garden's GELU."""
    name = noted.get("activation", _GARDEN_GELU)
    if isinstance(name, Mapping):
        name = name.get("config")
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise LoadError(
            f"{flag}={path} is an encoder with the activation {shown(name)}, which no model of the "
            f"original has. Expected one of {', '.join(_ACTIVATIONS)}. ({_GARDEN_GELU} is the tanh "
            "approximation of GELU; 'gelu' of Keras is the exact function.)"
        )
    return _ACTIVATIONS[name]


def _do_lower_case(weights: _Weights, tokenizer_file: str | None) -> bool | None:
    """Whether text is lower-cased; TF-Hub's exporter says so only of word pieces."""
    value = weights.saved.attribute(LOWER_CASE)
    if value is not None:
        return bool(value)
    return True if tokenizer_file else None
