"""Pictures of how a model finds an answer: where it may start and end, and what looks where."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from albert_tf.notebook.attention import attention_of
from albert_tf.pictures import png

_MOST_TOKENS = 60  # of a context in a picture
_INCHES_A_TOKEN = 0.19


class SpanProbabilities(NamedTuple):
    """Where in a context an answer may start and end.

    Attributes:
        tokens: of the context, C of them.
        starts: float32 [C]; how likely the answer starts here.
        ends: float32 [C]; how likely it ends here; for SQuAD 2.0, if it starts where that is
            likeliest.
    """

    tokens: list[str]
    starts: np.ndarray
    ends: np.ndarray


def span_probabilities(
    model: Any, tokenizer: Any, question: str, context: str
) -> SpanProbabilities:
    """Asks a model about one text.

    Args:
        model: an `AlbertForSpans` or `AlbertForSpanBeams`.
        tokenizer: the one it was trained with.
        question: what is asked.
        context: where the answer is looked for.

    Returns:
        Probabilities as in training: in SQuAD 1.1 the question's tokens have some as well, in 2.0
        the first token of all has, so that those of the context may sum to less than 1.

    Raises:
        ValueError: the two together are too long for the model.
    """
    import tensorflow as tf  # slow to import

    asked, read = tokenizer.encode(question), tokenizer.encode(context)
    ids = [tokenizer.cls_id, *asked, tokenizer.sep_id, *read, tokenizer.sep_id]
    model.config.check_sequence_length(len(ids), "The number of tokens of question and context")
    first = len(asked) + 2
    segments = [0] * first + [1] * (len(read) + 1)
    inputs = {"input_ids": tf.constant([ids]), "segment_ids": tf.constant([segments])}
    outputs = model(inputs)
    if "start_logits" in outputs:
        scores = [tf.nn.log_softmax(outputs[name]) for name in ("start_logits", "end_logits")]
    else:
        outputs = model({**inputs, "start_positions": outputs["start_top_index"][:, 0]})
        scores = [outputs[name] for name in ("start_log_probs", "end_log_probs")]
    starts, ends = (np.exp(values[0, first : first + len(read)]) for values in scores)
    return SpanProbabilities(tokenizer.convert_ids_to_tokens(read), starts, ends)


def draw_spans(model: Any, tokenizer: Any, question: str, context: str) -> bytes:
    """Draws how likely an answer starts, and how likely it ends, at each token of a context.

    Args:
        model: see `span_probabilities`.
        tokenizer: the one it was trained with.
        question: what is asked.
        context: where the answer is looked for; of a long one the most interesting part is shown.

    Returns:
        A PNG image.

    Raises:
        ValueError: the two together are too long for the model.
    """
    found = span_probabilities(model, tokenizer, question, context)
    part = _shown(found)
    tokens = found.tokens[part]
    figure = _figure(len(tokens), height=3.2)
    axes = figure.subplots()
    places = np.arange(len(tokens))
    axes.bar(places, found.starts[part], color="tab:blue", label="the answer starts here")
    axes.bar(places, -found.ends[part], color="tab:orange", label="the answer ends here")
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_title(question, parse_math=False)
    axes.set(ylabel="probability", xlim=(-1, len(tokens)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    _label_tokens(axes, tokens)
    axes.legend(fontsize="small", frameon=False)
    return png(figure)


def draw_question_attention(
    model: Any, tokenizer: Any, question: str, context: str, *, layer: int = -1
) -> bytes:
    """Draws how much question and context attend to each other, on average over the heads.

    Args:
        model: see `span_probabilities`.
        tokenizer: the one it was trained with.
        question: what is asked.
        context: where the answer is looked for; of a long one the most interesting part is shown.
            The likeliest answer is marked.
        layer: 0 is the first, -1 the last.

    Returns:
        A PNG image.

    Raises:
        ValueError: the two together are too long for the model, or there is no such layer.
    """
    found = span_probabilities(model, tokenizer, question, context)
    tokens, attention = attention_of(model, tokenizer, question, context, layer=layer)
    mean = attention.mean(axis=0)
    first, part = len(tokens) - len(found.tokens) - 1, _shown(found)
    asked, read = slice(1, first - 1), slice(first + part.start, first + part.stop)
    figure = _figure(part.stop - part.start, height=1.6 + 0.4 * (first - 2))
    panels = figure.subplots(2, 1, sharex=True)
    titles = (
        "how much the question's tokens attend to the text's",
        "how much the text's tokens attend to the question's",
    )
    start = int(found.starts.argmax())
    end = start + int(found.ends[start:].argmax())
    for axes, values, title in zip(
        panels, (mean[asked, read], mean[read, asked].T), titles, strict=True
    ):
        picture = axes.imshow(values, vmin=0, cmap="Blues", aspect="auto")
        axes.set_title(title, fontsize=9)
        axes.set_yticks(range(first - 2), tokens[asked], fontsize=8, parse_math=False)
        for side in (start - 0.5, end + 0.5):
            axes.axvline(side - part.start, color="tab:orange", linewidth=1)
        figure.colorbar(picture, ax=axes, pad=0.01)
    _label_tokens(panels[1], tokens[read])
    return png(figure)


def _shown(found: SpanProbabilities) -> slice:
    """The part of a context that a picture has room for, with the likeliest start in it."""
    begin = int(found.starts.argmax()) - _MOST_TOKENS // 2
    begin = max(0, min(begin, len(found.tokens) - _MOST_TOKENS))
    return slice(begin, min(begin + _MOST_TOKENS, len(found.tokens)))


def _figure(num_tokens: int, height: float) -> Any:
    from matplotlib.figure import Figure  # slow to import

    return Figure(figsize=(2.5 + _INCHES_A_TOKEN * num_tokens, height), layout="constrained")


def _label_tokens(axes: Any, tokens: list[str]) -> None:
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8, parse_math=False)
    axes.tick_params(length=0)
