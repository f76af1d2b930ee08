"""TF-Hub modules of TensorFlow 1, as the original release's exporter writes them.

Such a module is a TF1 SavedModel: assets (configuration and tokenizer), variables with the
original's names, and graphs, which are not run when the module is read. The graph with the tag
"train" has dropout, the graph without tags does not. Both are traced from this package's layers and
consist of operations of TensorFlow 1.15, so that `hub.Module` can read them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.formats.original import open_weights as open_weights
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    SENTENCEPIECE_FILE,
    SENTENCEPIECE_LIST_FILE,
    WORDPIECE_FILE,
)
from albert_tf.checkpoints.signatures import ORIGINAL_INPUTS
from albert_tf.checkpoints.stored_model import StoredModel, StoredTokenizer
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import read_file, reason_of, write_files
from albert_tf.data.strict_json import listed, shown
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import is_of_pretraining, original_names
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import require_own_rules
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, piece_list

GRAPH_FILE = "saved_model.pb"
VARIABLES = os.path.join("variables", "variables")
POSITIONS = "mlm_positions"

# TensorFlow 1 has no stateless dropout, so its operation is replaced.
_DRAW, _DRAW_OF_TF1 = "StatelessRandomUniformV2", "RandomUniform"
_MODULE_FILE, _MODULE_VERSION = "tfhub_module.pb", b"\x08\x03"  # marks a module of TF-Hub
Tensors = dict[str, tf.Tensor]

_ASSETS_FOLDER = "assets"
_ASSETS = "saved_model_assets"  # collection of assets in a SavedModel
_ASSET_PATH = b"SAVEDMODEL-ASSET"  # replaced when the module is loaded
_MASKED_LM = "cls/predictions/output_bias"
_SENTENCE_ORDER = "cls/seq_relationship/output_weights"
_ENCODER_OUTPUTS = ("sequence_output", "pooled_output")
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # variable of all SavedModels of TF2
_SHARED_LAYERS = "bert/encoder/transformer/group_0/inner_group_0/"
_EXPECTED = (
    f"Expected a TF1 module with variables of an ALBERT encoder ({_SHARED_LAYERS}...), as written "
    f"by the original release's export_to_tfhub."
)


def is_here(path: str) -> bool:
    """Returns whether a directory contains a SavedModel, except a SavedModel of TF2."""
    if not tf.io.gfile.exists(os.path.join(path, GRAPH_FILE)):
        return False
    try:
        weights = open_weights(os.path.join(path, VARIABLES))
    except LoadError:
        return True  # `read` reports the error
    return OBJECT_GRAPH not in weights


def read(path: str) -> StoredModel:
    """Reads the parts of a TF-Hub module; see `FormatModule`."""
    checkpoint = os.path.join(path, VARIABLES)
    try:
        graphs = read_graphs(read_file(os.path.join(path, GRAPH_FILE)))
        weights = open_weights(checkpoint)
        if not any(_SHARED_LAYERS in name for name in weights):
            found = listed([*weights][:8])
            raise LoadError(
                f"It is not a module of ALBERT: its variables are {found}, ... {_EXPECTED}"
            )
        # The graph without tags has no dropout.
        graph = min(graphs, key=lambda graph: len(graph.meta_info_def.tags))
        outputs = graph.signature_def["tokenization_info"].outputs
        asset = _asset_name(graph, outputs["vocab_file"].name)
    except LoadError as error:
        raise type(error)(f"{path}: {error}") from error
    except Exception as error:  # such as protobuf's DecodeError, which has no stable name
        raise LoadError(f"{path}: {GRAPH_FILE} cannot be read: {reason_of(error)}") from error
    config_file = _asset(path, CONFIG_FILE)
    return StoredModel(
        checkpoint=checkpoint,
        config=AlbertConfig.from_json_file(config_file) if config_file else None,
        config_file=config_file,
        stored_tokenizer=StoredTokenizer([*filter(None, [_asset(path, asset)])]),
        do_lower_case=_constant(graph, outputs["do_lower_case"].name),
        open_weights=lambda: weights,
    )


def read_graphs(content: bytes) -> Sequence[Any]:
    """Returns the graphs in the content of a graph file, at least one."""
    try:
        graphs = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    except Exception as error:  # such as protobuf's DecodeError, which has no stable name
        raise DamagedError(f"{GRAPH_FILE} is damaged: {reason_of(error)}") from error
    if not graphs:
        raise LoadError(f"{GRAPH_FILE} contains no graph. {_EXPECTED}")
    return graphs


def _asset(path: str, name: str | None) -> str | None:
    """Returns the path of an asset, or `None` if there is no such file."""
    if not name:
        return None
    file = os.path.join(path, _ASSETS_FOLDER, name)
    if tf.io.gfile.exists(file):
        return file
    logging.warning("%s is missing: pass this file too", file)
    return None


def _asset_name(graph: Any, tensor: str) -> str | None:
    """Returns the name of the asset whose path is in a string tensor, or `None`."""
    packed = graph.collection_def[_ASSETS].any_list.value
    assets = [meta_graph_pb2.AssetFileDef.FromString(asset.value) for asset in packed]
    names = {a.tensor_info.name: a.filename for a in [*graph.asset_file_def, *assets]}
    check_assets(names.values())
    return names.get(tensor)


def check_assets(names: Iterable[str]) -> None:
    """Rejects names of assets that lead out of the directory of assets."""
    for name in names:
        if name in ("", ".", "..") or not set("/\\\0").isdisjoint(name):
            raise LoadError(
                f"{GRAPH_FILE} contains the asset {shown(name)}; expected the name of a file in "
                f"{_ASSETS_FOLDER!r}."
            )


def _constant(graph: Any, tensor: str) -> bool | None:
    """Returns the value of a boolean constant, or `None` if the tensor is something else."""
    name = tensor.split(":")[0]
    node = next((node for node in graph.graph_def.node if node.name == name), None)
    if node is None or node.op != "Const":
        return None
    value = node.attr["value"].tensor
    if value.dtype != tf.bool.as_datatype_enum or value.tensor_shape.dim:
        return None
    return bool(value.bool_val[0] if value.bool_val else any(value.tensor_content))


def _signatures(
    model: AlbertForPretraining, weights: Mapping[str, np.ndarray], training: bool
) -> dict[str, tuple[Tensors, Tensors]]:
    """Adds a model, with zeros for missing weights, to the graph.

    Returns inputs and outputs of the encoder and of each head in the weights.
    """
    inputs = {
        name: tf.compat.v1.placeholder(tf.int32, [None, None], name)
        for name in (*ORIGINAL_INPUTS, POSITIONS)
    }
    state = [
        (variable, tf.convert_to_tensor(_variable(name, variable)))
        if name in weights
        else (variable, tf.zeros(variable.shape))
        for name, variable in original_names(model).items()
    ]
    features = {**inputs, "masked_lm_positions": inputs[POSITIONS]}
    with keras.StatelessScope(state_mapping=state):
        values = model(
            features, training=training, dropout_seed=tf.constant((1, 1)), output_hidden_states=True
        )
    encoded = {name: values[name] for name in _ENCODER_OUTPUTS}
    tokens = {name: inputs[name] for name in ORIGINAL_INPUTS}
    signatures = {"tokens": (tokens, encoded)}
    logits = tf.reshape(values["masked_lm_logits"], [-1, model.config.vocab_size])
    if _SENTENCE_ORDER in weights:
        scores = tf.nn.log_softmax(values["sentence_order_logits"])
        signatures["sop"] = (tokens, {**encoded, "sop_log_probs": scores})
    if _MASKED_LM in weights:
        signatures["mlm"] = (inputs, {**encoded, "mlm_logits": logits})
    return signatures


def _variable(name: str, variable: keras.Variable) -> tf.Variable:
    """Creates a variable of TensorFlow 1 in the same collections as the original."""
    keys = tf.compat.v1.GraphKeys
    is_norm = "/LayerNorm" in name
    starts_with = tf.ones if name.endswith("/gamma") else tf.zeros
    return tf.compat.v1.get_variable(
        name,
        variable.shape,
        tf.float32,
        initializer=lambda shape, dtype, **_: starts_with(shape, dtype),
        collections=[keys.GLOBAL_VARIABLES, *([keys.MODEL_VARIABLES] if is_norm else [])],
        use_resource=True,
    )


def _tf1_meta_graph(graph: tf.Graph, wanted: Iterable[str]) -> Any:
    """Returns a MetaGraphDef of the `wanted` tensors and the variables for TensorFlow 1.15."""
    graph_def = graph.as_graph_def()
    for node in graph_def.node:
        if node.op == _DRAW:
            node.op = _DRAW_OF_TF1
            del node.input[1:]  # only the shape remains
            node.attr["T"].CopyFrom(node.attr.pop("Tshape"))
        # Some attributes, such as custom gradients, refer to objects that exist only in Python.
        for name in list(node.attr):
            if name == "debug_name" or (name.startswith("_") and name != "_class"):
                del node.attr[name]
    _prune(graph_def, [*wanted, *_variable_parts(graph)])
    return tf.compat.v1.train.export_meta_graph(
        graph_def=graph_def, graph=graph, strip_default_attrs=True
    )


def _prune(graph_def: Any, wanted: Iterable[str]) -> None:
    """Removes the nodes that no wanted node needs."""
    inputs = {node.name: node.input for node in graph_def.node}
    kept: set[str] = set()
    reached = list(wanted)
    while reached:
        name = reached.pop().removeprefix("^").split(":")[0]
        if name not in kept:
            kept.add(name)
            reached += inputs[name]
    nodes = [node for node in graph_def.node if node.name in kept]
    del graph_def.node[:]
    graph_def.node.extend(nodes)


def _variable_parts(graph: tf.Graph) -> Iterator[str]:
    """Yields the names by which the variables are found when the graph is read."""
    for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
        parts = variable.to_proto()
        yield from (
            parts.variable_name,
            parts.initializer_name,
            parts.snapshot_name,
            parts.initial_value_name,
            f"{variable.op.name}/IsInitialized/VarIsInitializedOp",
        )


def unsupported_weights(stored: StoredModel) -> list[str]:
    """Returns the names of unsupported weights: other heads and moments."""
    _tokenizer_files(stored.tokenizer)
    return sorted(name for name in stored.weights if not is_of_pretraining(name))


def write(directory: str, stored: StoredModel) -> None:
    """Writes a module with the signatures of the original's modules; see docs/exporting.md.

    Source: export_to_tfhub.py of the original release.
    """
    config, tokenizer = stored.required_config, _tokenizer_files(stored.tokenizer)
    has_sentence_order_head = _SENTENCE_ORDER in stored.weights
    model = AlbertForPretraining(config, has_sentence_order_head=has_sentence_order_head)
    weights = {name: v for name, v in stored.weights.items() if is_of_pretraining(name)}
    saved_model = saved_model_pb2.SavedModel()
    for tag in ("train", None):
        graph = _meta_graph(model, weights, list(tokenizer), bool(stored.do_lower_case), tag)
        saved_model.meta_graphs.append(graph)
    assets = os.path.join(directory, _ASSETS_FOLDER)
    for folder in (assets, os.path.join(directory, os.path.dirname(VARIABLES))):
        tf.io.gfile.makedirs(folder)
    config.to_json_file(os.path.join(assets, CONFIG_FILE))
    write_checkpoint(os.path.join(directory, VARIABLES), weights, global_step=None)
    write_files(
        {
            **{os.path.join(assets, name): content for name, content in tokenizer.items()},
            os.path.join(directory, GRAPH_FILE): saved_model.SerializeToString(),
            os.path.join(directory, _MODULE_FILE): _MODULE_VERSION,
        }
    )


def compute(directory: str, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs the graph of a module on the inputs of `AlbertForPretraining`; returns its outputs."""
    module = tf.saved_model.load(directory, tags=[])
    tokens = {name: tf.constant(batch[name]) for name in ORIGINAL_INPUTS}
    outputs = module.signatures["tokens"](**tokens)
    arrays = {name: outputs[name].numpy() for name in _ENCODER_OUTPUTS}
    if "mlm" in module.signatures:
        positions = tf.constant(batch["masked_lm_positions"])
        flat = module.signatures["mlm"](**tokens, **{POSITIONS: positions})["mlm_logits"].numpy()
        arrays["masked_lm_logits"] = flat.reshape(*positions.shape, -1)
    if "sop" in module.signatures:
        weights = {variable.name: variable.numpy() for variable in module.variables}
        logits = arrays["pooled_output"] @ weights[f"{_SENTENCE_ORDER}:0"].T
        logits += weights["cls/seq_relationship/output_bias:0"]
        # The graph returns log-probabilities, which differ from the logits by an offset.
        above = np.logaddexp(logits[:, :1], logits[:, 1:])
        log_probabilities = module.signatures["sop"](**tokens)["sop_log_probs"].numpy()
        arrays["sentence_order_logits"] = log_probabilities + above
    return arrays


def _tokenizer_files(tokenizer: Tokenizer | None) -> dict[str, bytes]:
    """Returns the contents of the tokenizer's assets; `tokenization_info` names the first one."""
    if tokenizer is None:
        raise UserError(
            "A TF1 module (`format`=tf1_hub) needs the model's tokenizer. Pass `spm_model_file` or "
            "`vocab_file`."
        )
    require_own_rules(tokenizer, "A TF1 module")
    if isinstance(tokenizer, SentencePieceTokenizer):
        pieces = piece_list(tokenizer.model_proto).encode()
        return {SENTENCEPIECE_FILE: tokenizer.model_proto, SENTENCEPIECE_LIST_FILE: pieces}
    return {WORDPIECE_FILE: read_file(tokenizer.files[0])}


def _meta_graph(
    model: AlbertForPretraining,
    weights: Mapping[str, Any],
    tokenizer_files: Iterable[str],
    do_lower_case: bool,
    tag: str | None,
) -> Any:
    with tf.Graph().as_default() as graph:
        signatures = _signatures(model, weights, tag == "train")
        assets = {name: _asset_path(name) for name in (CONFIG_FILE, *tokenizer_files)}
        tokenizer = next(path for name, path in assets.items() if name != CONFIG_FILE)
        info = {"vocab_file": tokenizer, "do_lower_case": tf.constant(do_lower_case)}
        signatures["tokenization_info"] = ({}, info)
        groups = [group.values() for signature in signatures.values() for group in signature]
        wanted = {tensor.name for tensor in chain(*groups, assets.values())}
        meta_graph = _tf1_meta_graph(graph, wanted)
    meta_graph.meta_info_def.tags.extend([tag] if tag else [])
    for name, (inputs, outputs) in signatures.items():
        signature = meta_graph.signature_def[name]
        for infos, tensors in ((signature.inputs, inputs), (signature.outputs, outputs)):
            for key, tensor in tensors.items():
                infos[key].name = tensor.name
                infos[key].dtype = tensor.dtype.as_datatype_enum
                infos[key].tensor_shape.CopyFrom(tensor.shape.as_proto())
    for name, path in assets.items():
        asset = meta_graph_pb2.AssetFileDef(filename=name)
        asset.tensor_info.name = path.name
        meta_graph.collection_def[_ASSETS].any_list.value.add().Pack(asset)
    return meta_graph


def _asset_path(name: str) -> tf.Tensor:
    """Adds a constant that contains the path of an asset, named as in the original."""
    node = {CONFIG_FILE: "config_file", SENTENCEPIECE_FILE: "vocab_model"}.get(name, "vocab_file")
    path = tf.constant(_ASSET_PATH, name=node)
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS, path)
    return path
