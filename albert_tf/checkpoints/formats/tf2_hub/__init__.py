"""SavedModels of TF2: exports of this package, and encoders that were published on TF-Hub.

Reading runs no graph. Encoders of TF-Hub (`albert_en_*`, written by TensorFlow's model garden) have
other names and layouts of weights, and no configuration file: the configuration is derived from
shapes, Keras metadata and the number of encoder outputs.
"""

import math
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.facts import Meeting, config_facts, settle
from albert_tf.checkpoints.formats import original, tf1_hub
from albert_tf.checkpoints.formats.tf1_hub import GRAPH_FILE, OBJECT_GRAPH, VARIABLES
from albert_tf.checkpoints.formats.tf2_hub.writing import unsupported_weights, write
from albert_tf.checkpoints.signatures import ORIGINAL_INPUTS, POSITIONS
from albert_tf.checkpoints.stored_model import StoredModel, StoredTokenizer, Weights
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.data.files import read_file, reason_of
from albert_tf.data.strict_json import JsonError, json_values, listed, shown

__all__ = ["compute", "is_here", "open_weights", "read", "unsupported_weights", "write"]

_VALUE = "VARIABLE_VALUE"

# Attributes of exports.
WEIGHTS, CONFIG_FILE, LOWER_CASE = "weights", "albert_config_file", "do_lower_case"
TOKENIZER_FILES = ("sp_model_file", "vocab_file")

# Files that exports of a task add to the SavedModel.
EXTRA_CONFIG = os.path.join("assets.extra", "albert_config.json")
EXTRA_TASK = os.path.join("assets.extra", "task")  # directory of labels.json

_KERAS_METADATA = "keras_metadata.pb"
_BLOCK = "bert/encoder/transformer/group_0/inner_group_0/"

# Scopes of TF-Hub's encoders, and the original's scopes.
_SCOPES = {
    "word_embeddings": "bert/embeddings/word_embeddings",
    "position_embedding": "bert/embeddings/position_embeddings",
    "type_embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "embedding_projection": "bert/encoder/embedding_hidden_mapping_in",
    "transformer/self_attention/query": f"{_BLOCK}attention_1/self/query",
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

# Scopes with a single variable, which has the name of the scope in the original.
_SINGLE = (
    "word_embeddings",
    "position_embedding",
    "type_embeddings",
    "cls/predictions/output_bias",
)

# Activations in Keras metadata. The model garden's gelu is the tanh approximation.
_GARDEN_GELU = "Text>gelu"
_ACTIVATIONS = {_GARDEN_GELU: "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear"}
_EXPECTED = (
    "Expected a TF2 encoder of ALBERT, as convert_checkpoint.py --format=tf2_hub writes it or as "
    "published on TF-Hub (albert_en_*)."
)


def is_here(path: str) -> bool:
    """Returns whether a directory contains a SavedModel of TF2."""
    return tf.io.gfile.exists(os.path.join(path, GRAPH_FILE)) and not tf1_hub.is_here(path)


def read(path: str) -> StoredModel:
    """Reads the parts of an ALBERT model in a SavedModel; see `FormatModule`."""
    try:
        return _read(path)
    except LoadError as error:
        raise type(error)(f"{path}: {error}") from error
    except (LookupError, ValueError) as error:
        raise DamagedError(
            f"{path}: {GRAPH_FILE} and variables cannot be loaded as a model: {reason_of(error)}"
        ) from error


def _read(path: str) -> StoredModel:
    checkpoint = os.path.join(path, VARIABLES)
    variables = _Variables(checkpoint)
    weights = variables.weights()
    names = [*filter(None, weights)]
    if not any(name.startswith(_BLOCK) for name in names):
        found = f"{listed(names[:8])}, ..." if names else "none."
        raise LoadError(f"It contains no ALBERT encoder. Its variables are: {found} {_EXPECTED}")
    content = read_file(os.path.join(path, GRAPH_FILE))
    graph = tf1_hub.read_graphs(content)[0]
    tf1_hub.check_assets(asset.filename for asset in graph.asset_file_def)
    config, config_file = _config(variables, path, content, graph)
    tokenizer_files = [*filter(None, (_asset(path, graph, name) for name in TOKENIZER_FILES))]
    do_lower_case = variables.attribute(LOWER_CASE)
    if do_lower_case is None and tokenizer_files:
        do_lower_case = True  # TF-Hub's exporter stores the setting only for WordPiece
    return StoredModel(
        checkpoint=checkpoint,
        config=config,
        config_file=config_file,
        stored_tokenizer=StoredTokenizer(tokenizer_files),
        do_lower_case=None if do_lower_case is None else bool(do_lower_case),
        task=StoredTask.read(os.path.join(path, EXTRA_TASK)),
        open_weights=lambda: weights,
    )


def compute(directory: str, batch: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Runs the graphs of an export of this package on inputs of `AlbertForPretraining`."""
    loaded = tf.saved_model.load(directory)
    inputs = {name: tf.constant(batch[name], tf.int32) for name in ORIGINAL_INPUTS}
    positions = {POSITIONS: tf.constant(batch[POSITIONS], tf.int32)}
    outputs = loaded(inputs)
    if hasattr(loaded, "mlm"):
        outputs["masked_lm_logits"] = loaded.mlm({**inputs, **positions})["mlm_logits"]
    if hasattr(loaded, "sop"):
        outputs["sentence_order_logits"] = loaded.sop(inputs)["sop_logits"]
    return outputs


class _Variable(NamedTuple):
    key: str  # in the checkpoint
    stored_shape: tuple[int, ...]
    shape: tuple[int, ...]  # in the original


class _Variables:
    """The variables of a SavedModel."""

    def __init__(self, checkpoint: str) -> None:
        self._stored = original.open_weights(checkpoint)  # by the keys of the checkpoint
        shapes = self._stored.shapes
        try:
            graph: Any = self._stored[OBJECT_GRAPH]
            self._objects = trackable_object_graph_pb2.TrackableObjectGraph.FromString(graph)
            self.keys = {
                attribute.full_name: attribute.checkpoint_key
                for node in self._objects.nodes
                for attribute in node.attributes
                if attribute.name == _VALUE
            }
            # Only exports of this package have the attribute `WEIGHTS`.
            of_weights = _children(self._objects, 0).get(WEIGHTS)
            keys = self._keys_in(of_weights) or _without_slots(self.keys)
            self.by_name = {  # the original's names
                _original_name(name): _Variable(
                    key, tuple(shapes[key]), _original_shape(name, tuple(shapes[key]))
                )
                for name, key in keys.items()
            }
        except LoadError:
            raise
        except Exception as error:  # such as protobuf's DecodeError, which has no stable name
            raise DamagedError(
                f"The checkpoint {checkpoint!r} is damaged: {reason_of(error)}"
            ) from error

    def weights(self) -> Weights:
        """Returns the variables by the original's names."""

        def read(name: str) -> np.ndarray:
            variable = self.by_name[name]
            return np.reshape(self._stored[variable.key], variable.shape)

        shapes = {name: variable.shape for name, variable in self.by_name.items()}
        return Weights(self._stored.source, shapes, read)

    def attribute(self, name: str) -> Any:
        """Returns the value of a variable by the name of its attribute, or `None`."""
        key = self._keys_in(0).get(name)
        return None if key is None else self._stored[key]

    def _keys_in(self, number: int | None) -> dict[str, str]:
        """Maps the attributes of an object that are variables to their checkpoint keys."""
        children = {} if number is None else _children(self._objects, number)
        return {
            name: attribute.checkpoint_key
            for name, child in children.items()
            for attribute in self._objects.nodes[child].attributes
            if attribute.name == _VALUE
        }


def open_weights(checkpoint: str) -> Weights:
    """Opens the variables of a SavedModel by the original's names."""
    return _Variables(checkpoint).weights()


def _children(graph: Any, number: int) -> dict[str, int]:
    """Returns the numbers of an object's children by name."""
    return {child.local_name: child.node_id for child in graph.nodes[number].children}


def _without_slots(keys: Mapping[str, str]) -> dict[str, str]:
    """Removes the optimizer variables that Keras 2 saves with a model."""
    slot_of = {name: re.sub(r"^.+?/(?=bert/)", "", name) for name in keys}
    return {
        name: key
        for name, key in keys.items()
        if slot_of[name] == name or slot_of[name] not in keys
    }


def _original_name(name: str) -> str:
    """Returns the original's name of a variable. Unknown names are unchanged."""
    # The model garden adds a scope to the masked-LM head.
    scope, _, last = re.sub(r"^.*/(?=cls/predictions/)", "", name).rpartition("/")
    if scope not in _SCOPES:
        return name
    return f"{_SCOPES[scope]}/{last}" if scope not in _SINGLE else _SCOPES[scope]


def _original_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape in the original, which has no axis for heads."""
    is_kernel = name.endswith("/kernel")
    if not name.startswith("transformer/self_attention/") or (is_kernel and not shape):
        return shape
    if name.endswith("attention_output/kernel"):  # [N, D, H]
        return (math.prod(shape[:-1]), shape[-1])
    if is_kernel:  # [H, N, D]
        return (shape[0], math.prod(shape[1:]))
    return (math.prod(shape),)  # [N, D], or [H] of the output


def _asset(path: str, graph: Any, name: str) -> str | None:
    """Returns the path of a file by the name of its attribute, or `None`."""
    objects = graph.object_graph_def
    number = _children(objects, 0).get(name)
    if number is None:
        return None
    index = objects.nodes[number].asset.asset_file_def_index
    file = os.path.join(path, "assets", graph.asset_file_def[index].filename)
    if not tf.io.gfile.exists(file):
        raise LoadError(
            f"It is incomplete: its {name}, {file[-200:]!r}, is missing. Copy the whole directory "
            "again."
        )
    return file


def _number_of_layers(graph: Any) -> int:
    """Returns the length of the output `encoder_outputs`, or 0 if it does not exist."""
    objects = graph.object_graph_def
    call = objects.nodes[_children(objects, 0).get("__call__", 0)]
    for function in call.function.concrete_functions:
        outputs = objects.concrete_functions[function].output_signature.dict_value.fields
        if "encoder_outputs" in outputs:
            return len(outputs["encoder_outputs"].list_value.values)
    return 0


def _config(
    variables: _Variables, path: str, content: bytes, graph: Any
) -> tuple[AlbertConfig, str] | tuple[None, None]:
    """Returns the configuration and its file; `None` if it cannot be derived."""
    extra = os.path.join(path, EXTRA_CONFIG)
    file = _asset(path, graph, CONFIG_FILE) or (extra if tf.io.gfile.exists(extra) else None)
    if file is not None:
        config = AlbertConfig.from_json_file(file)
        query = variables.by_name[f"{_BLOCK}attention_1/self/query/kernel"].stored_shape
        blocks = config.num_hidden_layers * config.inner_group_num
        stated = {**config_facts(config), "num_blocks": blocks}
        found: dict[str, Any] = {"num_attention_heads": query[1]} if len(query) == 3 else {}
        found["num_blocks"] = _number_of_layers(graph) or None
        settle({file: stated, GRAPH_FILE: found}, Meeting.LOAD)
        return config, file
    derived = _derived_config(variables.by_name, _keras_settings(path, content), graph)
    return (derived, os.path.join(path, GRAPH_FILE)) if derived else (None, None)


def _derived_config(
    variables: Mapping[str, _Variable], settings: Mapping[str, Any], graph: Any
) -> AlbertConfig | None:
    """Derives the configuration of an encoder; `None` if the number of layers is unknown."""
    query = variables[f"{_BLOCK}attention_1/self/query/kernel"].stored_shape
    num_layers = settings.get("num_layers") or _number_of_layers(graph)
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
        hidden_act=_activation(settings),
        hidden_dropout_prob=settings.get("dropout_rate", 0.0),
        attention_probs_dropout_prob=settings.get("attention_dropout_rate", 0.0),
        max_position_embeddings=variables[_SCOPES["position_embedding"]].shape[0],
        type_vocab_size=variables[_SCOPES["type_embeddings"]].shape[0],
    )


def _keras_settings(path: str, content: bytes) -> Mapping[str, Any]:
    """Returns the encoder's arguments from the metadata file of Keras, or from the graph file."""
    file = os.path.join(path, _KERAS_METADATA)
    if tf.io.gfile.exists(file):
        content = read_file(file)
    match = re.search(rb'"class_name": "(?:\w+>)?AlbertEncoder", "config": (?=\{)', content)
    if match is None:
        return {}
    text = content[match.end() :].decode("utf-8", errors="replace")
    try:
        return next(json_values(text, path))[1]
    except JsonError:
        return {}


def _activation(settings: Mapping[str, Any]) -> str:
    name = settings.get("activation", _GARDEN_GELU)
    if isinstance(name, Mapping):
        name = name.get("config")
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise LoadError(
            f"The activation must be one of {', '.join(_ACTIVATIONS)}. Received: {shown(name)}. "
            f"({_GARDEN_GELU} is the tanh approximation of GELU; Keras's 'gelu' is not.)"
        )
    return _ACTIVATIONS[name]
