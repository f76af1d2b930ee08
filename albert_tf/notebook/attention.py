"""Pictures of what a model attends to: a heat map for each head, with the tokens at its sides."""

from __future__ import annotations

from typing import Any

import numpy as np

from albert_tf.pictures import png

_FEW_HEADS, _FEW_COLUMNS, _COLUMNS = 4, 2, 4
_INCHES_A_TOKEN = 0.19


def draw_attention(
    model: Any, tokenizer: Any, text: str, second_text: str | None = None, *, layer: int = 0
) -> bytes:
    """Draws how much each token of a text attends to each other one, in every head of a layer.

    Args:
        model: an `AlbertEncoder`, or a model with one as its `encoder`.
        tokenizer: the one it was trained with.
        text: a text.
        second_text: the other one of a pair.
        layer: 0 is the first, -1 the last.

    Returns:
        A PNG image.

    Raises:
        ValueError: the text is too long for the model, or there is no such layer.
    """
    tokens, attention = attention_of(model, tokenizer, text, second_text, layer=layer)
    return draw_heads(attention, tokens)


def attention_of(
    model: Any, tokenizer: Any, text: str, second_text: str | None = None, *, layer: int
) -> tuple[list[str], np.ndarray]:
    """Runs the encoder on a text.

    Args:
        model: see `draw_attention`.
        tokenizer: the one it was trained with.
        text: a text.
        second_text: the other one of a pair.
        layer: which run of a block; 0 is the first, -1 the last.

    Returns:
        The tokens, and float32 [N, S, S]: how much the token of a row attends to that of a column,
        in each head. Rows sum to 1.

    Raises:
        ValueError: the text is too long for the model, or there is no such layer.
    """
    import tensorflow as tf

    encoder = getattr(model, "encoder", model)
    ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
    segments = [0] * len(ids)
    if second_text is not None:
        ids += [*tokenizer.encode(second_text), tokenizer.sep_id]
        segments += [1] * (len(ids) - len(segments))
    encoder.config.check_sequence_length(len(ids), "The number of tokens of the text")
    inputs = {"input_ids": tf.constant([ids]), "segment_ids": tf.constant([segments])}
    outputs = encoder(inputs, output_attentions=True)
    layers = outputs["attention_probs"]
    if not -len(layers) <= layer < len(layers):
        raise ValueError(f"The model has {len(layers)} layers, from 0. Received layer={layer}")
    return tokenizer.convert_ids_to_tokens(ids), layers[layer][0].numpy()


def draw_heads(attention: np.ndarray, tokens: list[str]) -> bytes:
    """Draws the heads of one layer.

    Args:
        attention: float32 [N, S, S].
        tokens: of the sequence, S.

    Returns:
        A PNG image.
    """
    from matplotlib.figure import Figure  # slow to import

    columns = _FEW_COLUMNS if len(attention) <= _FEW_HEADS else _COLUMNS
    columns = min(len(attention), columns)
    rows = -(-len(attention) // columns)
    side = max(1.8, _INCHES_A_TOKEN * len(tokens))
    figure = Figure(figsize=(1.5 + side * columns, 1.0 + side * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for number, axes in enumerate(panels.flat):
        if number >= len(attention):
            axes.set_visible(False)
            continue
        picture = axes.imshow(attention[number], vmin=0, vmax=attention.max(), cmap="Blues")
        axes.set_title(f"head {number + 1}", fontsize=9)
        axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8, parse_math=False)
        axes.set_yticks(range(len(tokens)), tokens, fontsize=8, parse_math=False)
        axes.tick_params(length=0)
    figure.colorbar(picture, ax=panels, label="attention probability", shrink=0.8)
    figure.supylabel("the token that attends ...", fontsize=9)
    figure.supxlabel("... to these tokens", fontsize=9)
    return png(figure)
