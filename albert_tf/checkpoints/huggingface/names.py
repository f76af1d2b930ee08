"""The names of Hugging Face's ALBERT, and what they are called in the original release."""

from __future__ import annotations

import re
from typing import NamedTuple

from albert_tf.checkpoints.report import TRANSFORMER_SCOPE

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
MAPPING_KERNEL = "bert/encoder/embedding_hidden_mapping_in/kernel"
MAPPING_BIAS = "bert/encoder/embedding_hidden_mapping_in/bias"
OUTPUT_BIAS = "cls/predictions/output_bias"
# Copies that older versions store of values that the model has once.
TIED = {"predictions.decoder.weight": WORD_EMBEDDINGS, "predictions.decoder.bias": OUTPUT_BIAS}
ENCODER_PREFIX = "albert."
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

# Dense layers and layer norms: their scopes here and there.
_DENSE = {
    "encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in",
    "pooler": "bert/pooler/dense",
    "predictions.dense": "cls/predictions/transform/dense",
}
_DENSE_IN_BLOCK = {
    "attention.query": "attention_1/self/query",
    "attention.key": "attention_1/self/key",
    "attention.value": "attention_1/self/value",
    "attention.dense": "attention_1/output/dense",
    "ffn": "ffn_1/intermediate/dense",
    "ffn_output": "ffn_1/intermediate/output/dense",
}
_NORMS = {
    "embeddings.LayerNorm": "bert/embeddings/LayerNorm",
    "predictions.LayerNorm": "cls/predictions/transform/LayerNorm",
}
_NORMS_IN_BLOCK = {"attention.LayerNorm": "LayerNorm", "full_layer_layer_norm": "LayerNorm_1"}
# What has the same shape in both.
_AS_IT_IS = {
    "embeddings.word_embeddings.weight": WORD_EMBEDDINGS,
    "embeddings.token_type_embeddings.weight": "bert/embeddings/token_type_embeddings",
    "embeddings.position_embeddings.weight": "bert/embeddings/position_embeddings",
    "predictions.bias": OUTPUT_BIAS,
    "sop_classifier.classifier.weight": "cls/seq_relationship/output_weights",
    "sop_classifier.classifier.bias": "cls/seq_relationship/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
}
_BLOCK = re.compile(r"encoder\.albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.(.+)")
_ORIGINAL_BLOCK = re.compile(re.escape(TRANSFORMER_SCOPE) + r"group_(\d+)/inner_group_(\d+)/(.+)")


class Counterpart(NamedTuple):
    """What a variable is called in the other library, and whether it is transposed there."""

    name: str
    is_transposed: bool = False


def _leaves(dense: dict[str, str], norms: dict[str, str]) -> dict[str, Counterpart]:
    """The variables of scopes: the original's by Hugging Face's names."""
    leaves = {}
    for there, here in dense.items():
        leaves[f"{there}.weight"] = Counterpart(f"{here}/kernel", is_transposed=True)
        leaves[f"{there}.bias"] = Counterpart(f"{here}/bias")
    for there, here in norms.items():
        leaves[f"{there}.weight"] = Counterpart(f"{here}/gamma")
        leaves[f"{there}.bias"] = Counterpart(f"{here}/beta")
    return leaves


_OUTSIDE = {
    **{there: Counterpart(here) for there, here in _AS_IT_IS.items()},
    **_leaves(_DENSE, _NORMS),
}
_INSIDE = _leaves(_DENSE_IN_BLOCK, _NORMS_IN_BLOCK)


def _inverted(names: dict[str, Counterpart]) -> dict[str, Counterpart]:
    return {here: Counterpart(there, turned) for there, (here, turned) in names.items()}


_OUTSIDE_INVERTED, _INSIDE_INVERTED = _inverted(_OUTSIDE), _inverted(_INSIDE)


def plain_name(name: str) -> str:
    """Returns Hugging Face's name as it is today, without the prefix that heads bring.

    A bare encoder is saved without "albert."; the first versions called the variables of layer
    norms gamma and beta.
    """
    name = name.removeprefix(ENCODER_PREFIX)
    name = re.sub(r"(LayerNorm|layer_norm)\.gamma$", r"\1.weight", name)
    return re.sub(r"(LayerNorm|layer_norm)\.beta$", r"\1.bias", name)


def is_buffer(name: str) -> bool:
    """Whether a (plain) name is of a constant that some versions store: ids counted up."""
    return name in _BUFFERS


def original_name(name: str) -> Counterpart | None:
    """Returns what a variable with this (plain) name is in the original; None if it is nothing."""
    match = _BLOCK.fullmatch(name)
    if not match:
        return _OUTSIDE.get(name)
    group, inner, leaf = match.groups()
    found = _INSIDE.get(leaf)
    if found is None:
        return None
    scope = f"{TRANSFORMER_SCOPE}group_{group}/inner_group_{inner}/"
    return Counterpart(scope + found.name, found.is_transposed)


def hugging_face_name(name: str, has_heads: bool) -> Counterpart | None:
    """Returns what a variable of the original is called there; None if there is no place for it.

    Args:
        name: the original's.
        has_heads: whether anything but the encoder is stored: its names have a prefix then.
    """
    match = _ORIGINAL_BLOCK.fullmatch(name)
    if match:
        group, inner, leaf = match.groups()
        found = _INSIDE_INVERTED.get(leaf)
        scope = f"encoder.albert_layer_groups.{group}.albert_layers.{inner}."
    else:
        found, scope = _OUTSIDE_INVERTED.get(name), ""
    if found is None:
        return None
    prefix = ENCODER_PREFIX if has_heads and name.startswith("bert/") else ""
    return Counterpart(f"{prefix}{scope}{found.name}", found.is_transposed)
