"""The model as a graph of TensorFlow 1: our layers, in operations that TensorFlow 1.15 knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.original import original_names
from albert_tf.models import AlbertForPretraining

INPUTS = ("input_ids", "input_mask", "segment_ids")
POSITIONS = "mlm_positions"

# TensorFlow 1 has neither stateless dropout nor its seeds. The draws become ordinary random ones,
# anew in every run of a session, as the original's are; seeds then lead nowhere and fall away.
_DRAW, _DRAW_OF_TF1 = "StatelessRandomUniformV2", "RandomUniform"
_SEED = (1, 1)

Tensors = dict[str, tf.Tensor]


def build_outputs(
    model: AlbertForPretraining, weights: Mapping[str, np.ndarray], training: bool
) -> tuple[Tensors, Tensors]:
    """Adds inputs, variables and a model to the current graph.

    Args:
        model: gives the arithmetic; its own variables are left out.
        weights: what of it there are variables for, by the original's names, which they get; what
            comes of others means nothing.
        training: whether there is dropout.

    Returns:
        The inputs and the outputs by the names of the original's module: `sequence_output`
        [B, S, H], `pooled_output` [B, H], `mlm_logits` [B * P, V] and, with that head,
        `sop_log_probs` [B, 2].
    """
    inputs = {
        name: tf.compat.v1.placeholder(tf.int32, [None, None], name)
        for name in (*INPUTS, POSITIONS)
    }
    state = [
        (variable, tf.convert_to_tensor(_variable(name, variable)))
        if name in weights
        else (variable, tf.zeros(variable.shape))
        for name, variable in original_names(model).items()
    ]
    features = {**inputs, "masked_lm_positions": inputs[POSITIONS]}
    with keras.StatelessScope(state_mapping=state):
        values = model(features, training=training, dropout_seed=tf.constant(_SEED))
    outputs = {name: values[name] for name in ("sequence_output", "pooled_output")}
    outputs["mlm_logits"] = tf.reshape(values["masked_lm_logits"], [-1, model.config.vocab_size])
    if model.has_sentence_order_head:
        outputs["sop_log_probs"] = tf.nn.log_softmax(values["sentence_order_logits"])
    return inputs, outputs


def _variable(name: str, variable: keras.Variable) -> tf.Variable:
    """A variable of TensorFlow 1, in the collections the original's is in."""
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


def tf1_meta_graph(graph: tf.Graph, wanted: Iterable[str]) -> Any:
    """Returns a graph with its collections, as TensorFlow 1.15 and later can read it.

    Args:
        graph: holds variables and what was computed with them.
        wanted: names of tensors; they, the variables, and what they need, are kept.

    Returns:
        A MetaGraphDef.
    """
    graph_def = graph.as_graph_def()
    for node in graph_def.node:
        if node.op == _DRAW:
            node.op = _DRAW_OF_TF1
            del node.input[1:]  # what is left is the shape
            node.attr["T"].CopyFrom(node.attr.pop("Tshape"))
        # Gradients of our own live in Python: elsewhere the ordinary ones are taken.
        for attribute in [name for name in node.attr if _is_unknown(name)]:
            del node.attr[attribute]
    _prune(graph_def, [*wanted, *_variable_parts(graph)])
    return tf.compat.v1.train.export_meta_graph(
        graph_def=graph_def, graph=graph, strip_default_attrs=True
    )


def _is_unknown(attribute: str) -> bool:
    """Whether an attribute means nothing, or is an error, to other versions of TensorFlow."""
    return attribute == "debug_name" or (attribute.startswith("_") and attribute != "_class")


def _prune(graph_def: Any, wanted: Iterable[str]) -> None:
    """Removes the nodes that the wanted ones do not need."""
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
    """The names that the variables of a graph are known by when it is read again."""
    for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
        parts = variable.to_proto()
        yield from (
            parts.variable_name,
            parts.initializer_name,
            parts.snapshot_name,
            parts.initial_value_name,
            f"{variable.op.name}/IsInitialized/VarIsInitializedOp",
        )
