"""The original release's names of variables, to which all other formats are mapped."""

from collections.abc import Iterator
from itertools import chain

import keras

from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import ClassificationHead, MaskedLmHead, SpanBeamHead
from albert_tf.modeling.layers import LayerNorm, Projection, TransformerBlock
from albert_tf.modeling.parameter_sharing import (
    ENCODER_PREFIX,
    TRANSFORMER_SCOPE,
    BlockPlace,
    block_places,
    norm_name,
)

NamedVariables = Iterator[tuple[str, keras.Variable]]
SLOT_NAMES = ("adam_m", "adam_v")
PRETRAINING_HEADS = ("cls/predictions/", "cls/seq_relationship/")
# Scopes of `ClassificationHead` layers by layer name. Layers named "classifier" have no scope.
_HEAD_SCOPES = {"sentence_order_head": "cls/seq_relationship/", "span_head": "cls/squad/"}


def is_slot(name: str) -> bool:
    """Returns whether a name belongs to a moment of an optimizer."""
    return name.rsplit("/", 1)[-1] in SLOT_NAMES


def is_of_pretraining(name: str) -> bool:
    """Returns whether a name belongs to a weight of the encoder or of a pretraining head."""
    return name.startswith((ENCODER_PREFIX, *PRETRAINING_HEADS)) and not is_slot(name)


def original_names(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the variables of a model by the original's names, in the order of the original.

    With LoRA, the kernels are tensors that include the LoRA matrices.

    `model` is an `AlbertEncoder`, or a model with an `encoder` and heads.
    """
    if isinstance(model, AlbertEncoder):
        return dict(_encoder(model))
    return dict([*_encoder(model.encoder), *chain.from_iterable(map(_head, model.layers))])


def _encoder(encoder: AlbertEncoder) -> NamedVariables:
    embeddings = encoder.embeddings
    yield "bert/embeddings/word_embeddings", embeddings.word_embeddings
    yield "bert/embeddings/token_type_embeddings", embeddings.token_type_embeddings
    yield "bert/embeddings/position_embeddings", embeddings.position_embeddings
    yield from _layer_norm("bert/embeddings/LayerNorm", embeddings.layer_norm)
    if encoder.embedding_projection is not None:
        yield from _projection(
            "bert/encoder/embedding_hidden_mapping_in", encoder.embedding_projection
        )
    for place, block in zip(block_places(encoder.config), encoder.blocks, strict=True):
        yield from _block(place, block)
    yield from _projection("bert/pooler/dense", encoder.pooler)


def _block(place: BlockPlace, block: TransformerBlock) -> NamedVariables:
    scope = f"{TRANSFORMER_SCOPE}{place.scope}"
    attention, attention_scope = block.attention, f"{scope}/attention_{place.attention}"
    yield from _projection(f"{attention_scope}/self/query", attention.query)
    yield from _projection(f"{attention_scope}/self/key", attention.key)
    yield from _projection(f"{attention_scope}/self/value", attention.value)
    yield from _projection(f"{attention_scope}/output/dense", attention.output_projection)
    name = norm_name("attention", place.attention)
    yield from _layer_norm(f"{scope}/{name}", block.attention_norm)
    feed_forward, ffn_scope = block.feed_forward, f"{scope}/ffn_{place.feed_forward}"
    yield from _projection(f"{ffn_scope}/intermediate/dense", feed_forward.intermediate)
    yield from _projection(f"{ffn_scope}/intermediate/output/dense", feed_forward.output_projection)
    name = norm_name("ffn", place.feed_forward)
    yield from _layer_norm(f"{scope}/{name}", block.feed_forward_norm)


def _head(layer: keras.layers.Layer) -> NamedVariables:
    if isinstance(layer, MaskedLmHead):
        yield from _projection("cls/predictions/transform/dense", layer.transform)
        yield from _layer_norm("cls/predictions/transform/LayerNorm", layer.layer_norm)
        yield "cls/predictions/output_bias", layer.output_bias
    elif isinstance(layer, ClassificationHead):
        scope = _HEAD_SCOPES.get(layer.name, "")
        yield f"{scope}output_weights", layer.output_weights
        yield f"{scope}output_bias", layer.output_bias
    elif isinstance(layer, SpanBeamHead):
        yield from _projection("start_logits/dense", layer.start_dense)
        yield from _projection("end_logits/dense_0", layer.end_dense_0)
        yield from _layer_norm("end_logits/LayerNorm", layer.end_layer_norm)
        yield from _projection("end_logits/dense_1", layer.end_dense_1)
        yield from _projection("answer_class/dense_0", layer.answer_dense_0)
        yield "answer_class/dense_1/kernel", layer.answer_weights


def _projection(scope: str, layer: Projection) -> NamedVariables:
    yield f"{scope}/kernel", layer.merged_kernel
    yield f"{scope}/bias", layer.bias


def _layer_norm(scope: str, layer: LayerNorm) -> NamedVariables:
    yield f"{scope}/beta", layer.beta
    yield f"{scope}/gamma", layer.gamma
