"""TF-Hub modules as the original release's exporter writes them.

Such a module is a TF1 SavedModel: assets (configuration and tokenizer), variables under the
original's names, and graphs that compute what our own model computes. Only what the graphs cannot
change is read: they are never run, and nothing here needs a device. (`hub.KerasLayer` shows Keras 3
no trainable variables: an encoder read that way would stay as it is while a head is trained.)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert_tf.checkpoints.model_contents import StoredModel, WeightsReader
from albert_tf.checkpoints.original.files import open_tensorflow_checkpoint
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.tf1_hub.writing import (
    CONFIG_ASSET,
    GRAPH_FILE,
    TOKENIZATION_INFO,
    VARIABLES,
    compute,
    unsupported_weights,
    write,
)
from albert_tf.config import AlbertConfig
from albert_tf.data.files import reason_of

__all__ = ["compute", "is_here", "open_weights", "read", "unsupported_weights", "write"]
FORMAT = "tf1_hub"
_OF_TF2 = "_CHECKPOINTABLE_OBJECT_GRAPH"  # among the variables of every SavedModel of TF2
_SHARED_LAYERS = "bert/encoder/transformer/group_0/inner_group_0/"
_EXPECTED = (
    f"Expected a TF1 module with variables of an ALBERT encoder ({_SHARED_LAYERS}...), as the "
    f"original release's export_to_tfhub writes it; a directory with {CONFIG_ASSET}, tokenizer "
    "and checkpoint is accepted as well."
)


def is_here(path: str) -> bool:
    """Whether a path is a directory with a SavedModel that is not known to be TF2's."""
    if not tf.io.gfile.exists(os.path.join(path, GRAPH_FILE)):
        return False
    try:
        variables = open_tensorflow_checkpoint(os.path.join(path, VARIABLES))
    except LoadError:
        return True  # what is wrong with it, `read` says
    return _OF_TF2 not in variables.get_variable_to_shape_map()


def read(path: str, flag: str) -> StoredModel:
    """Reads what a TF-Hub module holds of a model, without running it.

    Args:
        path: a module's directory.
        flag: the flag the path came from, for messages.

    Raises:
        LoadError: there is no such module, or it is of another kind.
        ValueError: its configuration cannot be used.
    """
    checkpoint = os.path.join(path, VARIABLES)
    try:
        with tf.io.gfile.GFile(os.path.join(path, GRAPH_FILE), "rb") as file:
            saved_model = saved_model_pb2.SavedModel.FromString(file.read())
        shapes = open_tensorflow_checkpoint(checkpoint).get_variable_to_shape_map()
        graph = _inference_graph(saved_model)
        _check_variables(shapes, graph)
        outputs = graph.signature_def[TOKENIZATION_INFO].outputs
        asset = _asset_name(graph, outputs["vocab_file"].name)
    except LoadError as error:
        raise type(error)(f"{flag}={path}: {error}") from error
    except Exception as error:  # protobuf's DecodeError is public under no stable name
        raise LoadError(
            f"{flag}={path}: {GRAPH_FILE} cannot be read: {reason_of(error)}"
        ) from error
    config_file = _asset(path, CONFIG_ASSET)
    return StoredModel(
        path=path,
        format=FORMAT,
        checkpoint=checkpoint,
        config=AlbertConfig.from_json_file(config_file) if config_file else None,
        config_file=config_file,
        tokenizer_file=_asset(path, asset),
        do_lower_case=_constant(graph, outputs["do_lower_case"].name),
    )


def open_weights(checkpoint: str) -> WeightsReader:
    """Returns a reader of a module's variables, which have the original's names.

    Args:
        checkpoint: `<module>/variables/variables`.

    Raises:
        LoadError: they cannot be read.
    """
    return open_tensorflow_checkpoint(checkpoint)


def _inference_graph(saved_model: Any) -> Any:
    """The graph without tags, which is that without dropout; of TF2 there is none."""
    graphs = list(saved_model.meta_graphs)
    tags = [sorted(graph.meta_info_def.tags) for graph in graphs]
    if not graphs or any(graph.HasField("object_graph_def") for graph in graphs):
        raise LoadError(
            "It is a SavedModel of another kind: a "
            f"{'TF2 object' if graphs else 'file without graphs'} with the tags "
            f"{tags} and the signatures {_signatures(graphs)}. {_EXPECTED}"
        )
    return min(graphs, key=lambda graph: len(graph.meta_info_def.tags))


def _signatures(graphs: list[Any]) -> list[str]:
    return sorted({name for graph in graphs for name in graph.signature_def})


def _check_variables(shapes: Mapping[str, Any], graph: Any) -> None:
    """Refuses a TF1 module of something else, such as BERT or an image model."""
    if not any(_SHARED_LAYERS in name for name in shapes):
        raise LoadError(
            f"It is not a module of ALBERT: its signatures are {_signatures([graph])}, its "
            f"variables {', '.join(sorted(shapes)[:8])}, ... {_EXPECTED}"
        )


def _asset(path: str, name: str | None) -> str | None:
    """The path of an asset, None where there is no such file."""
    if not name:
        return None
    file = os.path.join(path, "assets", name)
    if tf.io.gfile.exists(file):
        return file
    logging.warning("%s is missing: it must be passed by a flag", file)
    return None


def _asset_name(graph: Any, tensor: str) -> str | None:
    """The name of the asset whose path a string tensor gives, None where it gives none.

    TF-Hub lists assets in a collection, SavedModel's builder in a field.
    """
    packed = graph.collection_def["saved_model_assets"].any_list.value
    assets = [meta_graph_pb2.AssetFileDef.FromString(asset.value) for asset in packed]
    names = {a.tensor_info.name: a.filename for a in [*graph.asset_file_def, *assets]}
    return names.get(tensor)


def _constant(graph: Any, tensor: str) -> bool | None:
    """The value of a boolean constant of the graph, None where it is computed or missing."""
    nodes = {node.name: node for node in graph.graph_def.node}
    node = nodes.pop(tensor.split(":")[0], None)
    while node is not None and node.op == "Identity" and node.input:
        node = nodes.pop(node.input[0].split(":")[0], None)  # none is passed twice
    if node is None or node.op != "Const":
        return None
    value = node.attr["value"].tensor
    if value.dtype != tf.bool.as_datatype_enum or value.tensor_shape.dim:
        return None
    return bool(value.bool_val[0] if value.bool_val else any(value.tensor_content))
