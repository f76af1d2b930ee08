"""Reads and writes the weights of Hugging Face's ALBERT under the original's names."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.huggingface.tensors import (
    Tensors,
    open_tensors,
    write_safetensors,
)
from albert_tf.checkpoints.formats.huggingface.torch_file import EMBEDDINGS
from albert_tf.checkpoints.stored_model import (
    Weights,
    identity_projection,
    without_identity_projection,
)
from albert_tf.data.strict_json import shown
from albert_tf.modeling.parameter_sharing import TRANSFORMER_SCOPE

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
OUTPUT_BIAS = "cls/predictions/output_bias"

# Copies of other variables, which older versions store.
TIED = {"predictions.decoder.weight": WORD_EMBEDDINGS}
DECODER_BIAS = "predictions.decoder.bias"  # has priority; TensorFlow classes train only this bias
ENCODER_PREFIX = "albert."
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

# Scopes of dense layers and layer norms: Hugging Face's and the original's.
_SCOPES = {
    "encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in",
    "pooler": "bert/pooler/dense",
    "embeddings.LayerNorm": "bert/embeddings/LayerNorm",
    "predictions.dense": "cls/predictions/transform/dense",
    "predictions.LayerNorm": "cls/predictions/transform/LayerNorm",
}

_SCOPES_IN_BLOCK = {
    "attention.query": "attention_1/self/query",
    "attention.key": "attention_1/self/key",
    "attention.value": "attention_1/self/value",
    "attention.dense": "attention_1/output/dense",
    "attention.LayerNorm": "LayerNorm",
    "ffn": "ffn_1/intermediate/dense",
    "ffn_output": "ffn_1/intermediate/output/dense",
    "full_layer_layer_norm": "LayerNorm_1",
}

_BLOCK = re.compile(r"encoder\.albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.(.+)")
_ORIGINAL_BLOCK = re.compile(re.escape(TRANSFORMER_SCOPE) + r"group_(\d+)/inner_group_(\d+)/(.+)")


def _leaves(scopes: dict[str, str]) -> dict[str, str]:
    """Maps Hugging Face's names of the variables in scopes to the original's."""
    leaves = {}
    for there, here in scopes.items():
        is_norm = "LayerNorm" in here
        leaves[f"{there}.weight"] = f"{here}/{'gamma' if is_norm else 'kernel'}"
        leaves[f"{there}.bias"] = f"{here}/{'beta' if is_norm else 'bias'}"
    return leaves


_OUTSIDE = {
    "embeddings.word_embeddings.weight": WORD_EMBEDDINGS,
    "embeddings.token_type_embeddings.weight": "bert/embeddings/token_type_embeddings",
    "embeddings.position_embeddings.weight": "bert/embeddings/position_embeddings",
    DECODER_BIAS: OUTPUT_BIAS,
    "predictions.bias": OUTPUT_BIAS,
    "sop_classifier.classifier.weight": "cls/seq_relationship/output_weights",
    "sop_classifier.classifier.bias": "cls/seq_relationship/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
    **_leaves(_SCOPES),
}

_INSIDE = _leaves(_SCOPES_IN_BLOCK)
_OUTSIDE_INVERTED, _INSIDE_INVERTED = (
    {here: there for there, here in names.items()} for names in (_OUTSIDE, _INSIDE)
)


def _is_transposed(name: str, there: str) -> bool:
    return name.endswith("/kernel") and name != there


def _original_name(name: str) -> str | None:
    """Returns the original's name of a variable without the prefix "albert.", or `None`."""
    # Names of the first versions.
    name = re.sub(r"(LayerNorm|layer_norm)\.gamma$", r"\1.weight", name)
    name = re.sub(r"(LayerNorm|layer_norm)\.beta$", r"\1.bias", name)
    match = _BLOCK.fullmatch(name)
    if not match:
        return _OUTSIDE.get(name)
    group, inner, leaf = match.groups()
    found = _INSIDE.get(leaf)
    return found and f"{TRANSFORMER_SCOPE}group_{group}/inner_group_{inner}/{found}"


def hugging_face_name(name: str, has_heads: bool) -> str | None:
    """Returns Hugging Face's name of a variable, or `None` if the variable is unsupported."""
    scope = ENCODER_PREFIX if has_heads and name.startswith("bert/") else ""
    names = _OUTSIDE_INVERTED
    if match := _ORIGINAL_BLOCK.fullmatch(name):
        group, inner, name = match.groups()
        scope += f"encoder.albert_layer_groups.{group}.albert_layers.{inner}."
        names = _INSIDE_INVERTED
    found = names.get(name)
    return found and scope + found


def _plain_names(names: Iterable[str]) -> dict[str, str]:
    """Maps stored names to names without the prefixes of the encoder and of its wrappers."""
    encoders = {name.removesuffix(EMBEDDINGS) for name in names if name.endswith(EMBEDDINGS)}
    parts = encoders.pop().split(".")[:-1] if len(encoders) == 1 else []
    prefixes = [".".join([*parts[:depth], ""]) for depth in range(len(parts), 0, -1)]
    plain = {}
    for name in names:
        prefix = next(filter(name.startswith, prefixes), "")
        plain[name] = name.removeprefix(prefix).removeprefix(ENCODER_PREFIX)
    return plain


def open_weights(checkpoint: str, tensors: Tensors | None = None) -> Weights:
    """Opens a file of weights in float32. `tensors` is the open file, if any.

    Raises `LoadError` if the file cannot be read, or the original does not support the model.
    """
    tensors = tensors or open_tensors(checkpoint)
    stored: dict[str, str] = {}  # Hugging Face's names by the original's
    copies: dict[str, str] = {}
    plain_names = _plain_names(tensors.shapes)
    has_decoder_bias = DECODER_BIAS in plain_names.values()
    for name, plain in plain_names.items():
        if plain == "predictions.bias" and has_decoder_bias:
            continue
        if plain in TIED:
            copies[name] = TIED[plain]
        elif plain not in _BUFFERS:
            found = _original_name(plain) or name
            if found in stored:
                raise LoadError(
                    f"{checkpoint!r} contains {shown(found)} twice: as {stored[found]!r} and "
                    f"{name!r}."
                )
            stored[found] = name

    def floats(there: str) -> np.ndarray:
        values = tensors.get(there)
        if values.dtype.kind != "f":
            raise LoadError(
                f"{checkpoint}: {there!r} must be float32, float16, bfloat16 or float64. Received: "
                f"{values.dtype}. Quantized models cannot be loaded."
            )
        return np.asarray(values, np.float32)

    def read(name: str) -> np.ndarray:
        values = floats(there := stored[name])
        return np.ascontiguousarray(values.T) if _is_transposed(name, there) else values

    for there, name in copies.items():  # used if the variable itself is missing
        if name not in stored:
            stored[name] = there
        elif not np.array_equal(floats(there), read(name)):
            raise LoadError(
                f"{checkpoint!r}: {there!r} differs from {stored[name]!r}. A masked-LM head with "
                "separate weights (tie_word_embeddings) cannot be loaded."
            )
    shapes = {
        name: tensors.shapes[there][:: -1 if _is_transposed(name, there) else 1]
        for name, there in stored.items()
    }
    return without_identity_projection(Weights(checkpoint, shapes, read))


def write_weights(path: str, weights: Mapping[str, np.ndarray]) -> None:
    """Writes weights by the original's names, float16 or float32, as a safetensors file."""
    absent = unsupported_names(weights)
    held = {name: np.asarray(values) for name, values in weights.items() if name not in absent}
    held = {**identity_projection(held[WORD_EMBEDDINGS].shape[1]), **held}
    has_heads = any(not name.startswith("bert/") for name in held)
    tensors = {}
    for name, values in held.items():
        if there := hugging_face_name(name, has_heads):
            tensors[there] = values.T if _is_transposed(name, there) else values
    write_safetensors(path, tensors)


def unsupported_names(weights: Iterable[str]) -> list[str]:
    """Returns the unsupported names."""
    return [name for name in weights if hugging_face_name(name, has_heads=True) is None]
