"""Where KerasHub keeps each weight of an ALBERT, and what it calls it there.

KerasHub's files know no names of variables: a key is made of the class of a layer, its number among
the layers of that class, and the number of the variable in the layer. So the configuration decides
what a key means, and every shape has to be checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from albert_tf.checkpoints.report import TRANSFORMER_SCOPE
from albert_tf.config import AlbertConfig

PROJECTION = "bert/encoder/embedding_hidden_mapping_in"
CLASSIFIER = ("output_weights", "output_bias")
MASKED_LM = "cls/predictions"

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One weight, here and there.

    Attributes:
        name: the original release's.
        key: of the data set in KerasHub's file.
        layer: what KerasHub calls the layer; newer files say it beside the weights.
        shape: as the original has it.
        stored_shape: as KerasHub has it: heads are an axis of their own.
        is_transposed: whether KerasHub keeps the matrix the other way round.
    """

    name: str
    key: str
    layer: str
    shape: Shape
    stored_shape: Shape
    is_transposed: bool = False

    def to_stored(self, value: np.ndarray) -> np.ndarray:
        """Returns a value in KerasHub's layout, float32."""
        value = value.T if self.is_transposed else value
        return np.ascontiguousarray(value, np.float32).reshape(self.stored_shape)

    def to_original(self, value: np.ndarray) -> np.ndarray:
        """Returns a value in the original's layout, float32."""
        value = value.T if self.is_transposed else value
        return np.ascontiguousarray(value, np.float32).reshape(self.shape)


def backbone_entries(config: AlbertConfig) -> list[Entry]:
    """Returns the weights of `model.weights.h5`.

    KerasHub always maps E to H, even where they are equal and the original has no `PROJECTION`.
    """
    return list(_backbone(config))


def masked_lm_entries(config: AlbertConfig) -> list[Entry]:
    """Returns the weights of the `task.weights.h5` of an `AlbertMaskedLM`."""
    H, E, V = config.hidden_size, config.embedding_size, config.vocab_size
    transform, head = f"{MASKED_LM}/transform", "layers/masked_lm_head"
    return [
        *_dense(
            f"{transform}/dense", f"{head}/_intermediate_dense", "intermediate_dense", (H, E), (E,)
        ),
        *_layer_norm(
            f"{transform}/LayerNorm",
            f"{head}/_intermediate_layer_norm",
            "intermediate_layer_norm",
            E,
        ),
        _table(f"{MASKED_LM}/output_bias", head, "mlm_head", (V,)),
    ]


def classifier_entries(config: AlbertConfig, num_labels: int) -> list[Entry]:
    """Returns the weights of the `task.weights.h5` of an `AlbertTextClassifier`."""
    H, K = config.hidden_size, num_labels
    weights, bias = CLASSIFIER
    return [
        Entry(weights, "layers/dense/vars/0", "logits", (K, H), (H, K), is_transposed=True),
        Entry(bias, "layers/dense/vars/1", "logits", (K,), (K,)),
    ]


def _backbone(config: AlbertConfig) -> Iterator[Entry]:
    H, E = config.hidden_size, config.embedding_size
    tables = {
        "word": ("reversible_embedding", "token_embedding", config.vocab_size),
        "position": ("position_embedding", "position_embedding", config.max_position_embeddings),
        "token_type": ("embedding", "segment_embedding", config.type_vocab_size),
    }
    for kind, (key, layer, rows) in tables.items():
        yield _table(f"bert/embeddings/{kind}_embeddings", f"layers/{key}", layer, (rows, E))
    yield from _layer_norm(
        "bert/embeddings/LayerNorm", "layers/layer_normalization", "embeddings_layer_norm", E
    )
    yield from _dense(PROJECTION, "layers/dense", "embedding_projection", (E, H), (H,))
    for number in range(config.num_hidden_groups * config.inner_group_num):
        yield from _block(config, number)
    yield from _dense("bert/pooler/dense", "layers/dense_1", "pooled_dense", (H, H), (H,))


def _block(config: AlbertConfig, number: int) -> Iterator[Entry]:
    """A block: those of one group follow each other, and the groups do."""
    H, F = config.hidden_size, config.intermediate_size
    N, D = config.num_attention_heads, config.head_size
    group, inner = divmod(number, config.inner_group_num)
    scope = f"{TRANSFORMER_SCOPE}group_{group}/inner_group_{inner}"
    block = _numbered("layers/transformer_encoder", number)
    attention = f"{block}/_self_attention_layer"
    for part in ("query", "key", "value"):
        yield from _dense(
            f"{scope}/attention_1/self/{part}", f"{attention}/{part}_dense", part, (H, N, D), (N, D)
        )
    yield from _dense(
        f"{scope}/attention_1/output/dense",
        f"{attention}/output_dense",
        "attention_output",
        (N, D, H),
        (H,),
    )
    ffn = f"{scope}/ffn_1/intermediate"
    for name, layer, rows, columns in (
        (f"{ffn}/dense", "feedforward_intermediate_dense", H, F),
        (f"{ffn}/output/dense", "feedforward_output_dense", F, H),
    ):
        yield from _dense(name, f"{block}/_{layer}", layer, (rows, columns), (columns,))
    for name, layer in (
        ("LayerNorm", "self_attention_layer_norm"),
        ("LayerNorm_1", "feedforward_layer_norm"),
    ):
        yield from _layer_norm(f"{scope}/{name}", f"{block}/_{layer}", layer, H)


def _numbered(key: str, number: int) -> str:
    """The first layer of a class has no number."""
    return f"{key}_{number}" if number else key


def _table(name: str, key: str, layer: str, shape: Shape) -> Entry:
    return Entry(name, f"{key}/vars/0", layer, shape, shape)


def _dense(
    name: str, key: str, layer: str, kernel_shape: Shape, bias_shape: Shape
) -> Iterator[Entry]:
    """Kernel and bias; the original has one axis for all heads where KerasHub has two."""
    outputs = int(np.prod(bias_shape))
    inputs = int(np.prod(kernel_shape)) // outputs
    yield Entry(f"{name}/kernel", f"{key}/vars/0", layer, (inputs, outputs), kernel_shape)
    yield Entry(f"{name}/bias", f"{key}/vars/1", layer, (outputs,), bias_shape)


def _layer_norm(name: str, key: str, layer: str, size: int) -> Iterator[Entry]:
    for number, part in enumerate(("gamma", "beta")):
        yield Entry(f"{name}/{part}", f"{key}/vars/{number}", layer, (size,), (size,))
