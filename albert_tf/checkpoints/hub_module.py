"""TF-Hub modules as the original release's exporter writes them.

Such a module is a TF1 SavedModel: assets (configuration and tokenizer), variables under the
original's names, and graphs that compute what our own model computes. Only what the graphs cannot
change is read: they are never run, and nothing here needs a device. (`hub.KerasLayer` shows Keras 3
no trainable variables: an encoder read that way would stay as it is while a head is trained.)
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert_tf.checkpoints.original import open_checkpoint
from albert_tf.checkpoints.report import LoadError

HANDLE_FLAG = "--albert_hub_module_handle"
GRAPH_FILE = "saved_model.pb"
CONFIG_ASSET = "albert_config.json"
TOKENIZATION_INFO = "tokenization_info"
_SHARED_LAYERS = "bert/encoder/transformer/group_0/inner_group_0/"
_EXPECTED = (
    f"Expected a TF1 module with variables of an ALBERT encoder ({_SHARED_LAYERS}...), as the "
    "original release's export_to_tfhub writes it; a directory with "
    f"{CONFIG_ASSET}, tokenizer and checkpoint is taken as well."
)


@dataclasses.dataclass(frozen=True)
class HubModule:
    """What a module holds of a model.

    Attributes:
        path: the module's directory.
        config_file: its `albert_config.json`, None where it has none.
        tokenizer_file: its SentencePiece model or vocabulary, None where it names none.
        do_lower_case: whether its text was lower-cased, None where it does not say.
        checkpoint: prefix of its variables, for `load_weights`.
    """

    path: str
    config_file: str | None
    tokenizer_file: str | None
    do_lower_case: bool | None
    checkpoint: str


def is_hub_module(path: str) -> bool:
    """Whether a path is a URL, which only TF-Hub can resolve, or a directory with a SavedModel."""
    return _is_url(path) or tf.io.gfile.exists(os.path.join(path, GRAPH_FILE))


def read_hub_module(handle: str, flag: str = HANDLE_FLAG) -> HubModule:
    """Reads what a TF-Hub module holds of a model, without running it.

    Args:
        handle: a module's directory, or its URL, which `tensorflow_hub` fetches into its cache
            (TFHUB_CACHE_DIR).
        flag: the flag the handle came from, for messages.

    Raises:
        LoadError: there is no such module, it cannot be fetched, or it is of another kind.
    """
    path = _fetch(handle, flag) if _is_url(handle) else handle
    graph = _inference_graph(_read_saved_model(path, handle, flag), handle, flag)
    checkpoint = os.path.join(path, "variables", "variables")
    _check_variables(checkpoint, graph, handle, flag)
    outputs = graph.signature_def[TOKENIZATION_INFO].outputs
    return HubModule(
        path=path,
        config_file=_asset(path, CONFIG_ASSET),
        tokenizer_file=_asset(path, _asset_name(graph, outputs["vocab_file"].name)),
        do_lower_case=_constant(graph, outputs["do_lower_case"].name),
        checkpoint=checkpoint,
    )


def _is_url(handle: str) -> bool:
    return re.match(r"https?://", handle) is not None


def _fetch(handle: str, flag: str) -> str:
    """The directory of a module that is given by its URL."""
    import tensorflow_hub  # seconds to import, and needed for URLs only

    try:
        return tensorflow_hub.resolve(handle)
    except Exception as error:  # whatever the network, the archive or the server does
        raise LoadError(
            f"{flag}={handle} cannot be fetched: {error}. On a machine without network, fetch the "
            "module elsewhere, unpack it, and give its directory."
        ) from error


def _read_saved_model(path: str, handle: str, flag: str) -> Any:
    file = os.path.join(path, GRAPH_FILE)
    if not tf.io.gfile.exists(file):
        raise LoadError(f"{flag}={handle} is not a TF-Hub module: there is no file {file!r}.")
    saved_model = saved_model_pb2.SavedModel()
    try:
        with tf.io.gfile.GFile(file, "rb") as opened:
            saved_model.ParseFromString(opened.read())
    except Exception as error:  # protobuf's DecodeError is public under no stable name
        raise LoadError(f"{flag}={handle}: {file!r} is damaged: {error}") from error
    return saved_model


def _inference_graph(saved_model: Any, handle: str, flag: str) -> Any:
    """The graph without tags, which is that without dropout; of TF2 there is none."""
    graphs = list(saved_model.meta_graphs)
    tags = [sorted(graph.meta_info_def.tags) for graph in graphs]
    if not graphs or any(graph.HasField("object_graph_def") for graph in graphs):
        raise LoadError(
            f"{flag}={handle} is a SavedModel of another kind: a "
            f"{'TF2 object' if graphs else 'file without graphs'} with the tags "
            f"{tags} and the signatures {_signatures(graphs)}. {_EXPECTED}"
        )
    return min(graphs, key=lambda graph: len(graph.meta_info_def.tags))


def _signatures(graphs: list[Any]) -> list[str]:
    return sorted({name for graph in graphs for name in graph.signature_def})


def _check_variables(checkpoint: str, graph: Any, handle: str, flag: str) -> None:
    """Refuses a TF1 module of something else, such as BERT or an image model."""
    if not tf.io.gfile.exists(checkpoint + ".index"):
        raise LoadError(f"{flag}={handle} has no variables: no file {checkpoint + '.index'!r}.")
    _, shapes = open_checkpoint(checkpoint)
    if not any(_SHARED_LAYERS in name for name in shapes):
        raise LoadError(
            f"{flag}={handle} is not a module of ALBERT: its signatures are "
            f"{_signatures([graph])}, its variables {', '.join(sorted(shapes)[:8])}, ... "
            f"{_EXPECTED}"
        )


def _asset(path: str, name: str | None) -> str | None:
    """The path of an asset, None where there is no such file."""
    file = os.path.join(path, "assets", name or "")
    return file if name and tf.io.gfile.exists(file) else None


def _asset_name(graph: Any, tensor: str) -> str | None:
    """The name of the asset whose path a string tensor gives, None where it gives none."""
    names = {asset.tensor_info.name: asset.filename for asset in _assets(graph)}
    return names.get(tensor)


def _assets(graph: Any) -> Iterator[Any]:
    """All assets of a graph; TF-Hub lists them in a collection, SavedModel's builder as a field."""
    yield from graph.asset_file_def
    for packed in graph.collection_def["saved_model_assets"].any_list.value:
        asset = meta_graph_pb2.AssetFileDef()
        packed.Unpack(asset)
        yield asset


def _constant(graph: Any, tensor: str) -> bool | None:
    """The value of a boolean constant of the graph, None where it is computed or missing."""
    nodes = {node.name: node for node in graph.graph_def.node}
    node = nodes.get(tensor.split(":")[0])
    while node is not None and node.op == "Identity":
        node = nodes.get(node.input[0].split(":")[0])
    if node is None or node.op != "Const":
        return None
    return bool(tf.make_ndarray(node.attr["value"].tensor))
