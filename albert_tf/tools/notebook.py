"""What the notebooks share: where to compute, what to start from, and pictures to look at.

Pictures are PNG images as bytes. Matplotlib and TensorFlow, slow to import, come when needed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.checkpoints.archives import local_directory
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.run_records import METRICS_FILE, read_records
from albert_tf.checkpoints.shipped import NAMES
from albert_tf.config import PRESETS
from albert_tf.data.streams import discarded_standard_error
from albert_tf.training.curves import Panels, draw_curves, png

_TPU_FILES = ("/dev/accel0", "/dev/vfio/0")  # one of them is there on a machine with a TPU
_MOST_TOKENS = 60  # of a context in a picture
_INCHES_A_TOKEN = 0.19


def choose_device() -> dict[str, object]:
    """Says which devices there are, and returns the flags with which commands use the best.

    This process itself keeps to the CPU from now on: an accelerator belongs to the process that
    takes it first, and the commands need it more.

    Returns:
        Flags for `commands.run`; none where the commands find the device themselves.
    """
    # Libraries write there which drivers they looked for, and did not find.
    with discarded_standard_error():
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices([], "GPU")
    if importlib.util.find_spec("libtpu") and any(map(os.path.exists, _TPU_FILES)):
        print("The commands compute on this machine's TPU.")
        return {"use_tpu": True, "tpu_name": "local"}
    names = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
    cpu = f"this machine's CPU ({os.cpu_count()} cores)"
    print(f"The commands compute on {', '.join(map(str, names)) or cpu}.")
    return {}


def choose_model(model: str) -> str:
    """Returns what every flag and function takes for a model.

    For the size of a released model that is the name of version 2, downloaded, or, without a
    network, of the model that comes with albert_tf; any name, path or URL is returned as it is.
    """
    name = f"{model}_v2"
    if name not in PRESETS:
        return model
    try:
        local_directory(name, "MODEL")
    except LoadError as error:
        print(f"{error}\nUsing {NAMES[0]} instead, the small model bundled with albert_tf.")
        return NAMES[0]
    return name


def draw_metrics(output_dir: str, panels: Panels) -> bytes:
    """Draws what `metrics.jsonl` of a run says of the metrics asked for.

    Panels stand from left to right: what the vertical axis shows, and the names of the metrics
    drawn in it. What was not recorded is left out.

    Raises:
        ValueError: nothing of a panel was recorded.
    """
    records = read_records(os.path.join(output_dir, METRICS_FILE))
    return draw_curves(records, panels, columns=len(panels))


def attention_of(
    model: Any, tokenizer: Any, text: str, second_text: str | None = None, *, layer: int
) -> tuple[list[str], np.ndarray]:
    """Runs the encoder on a text or a pair of texts.

    Args:
        model: an `AlbertEncoder`, or a model with one as its `encoder`.
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
    encoder = getattr(model, "encoder", model)
    texts = [tokenizer.encode(part) for part in (text, second_text) if part is not None]
    ids, inputs = _inputs(encoder, tokenizer, *texts)
    layers = encoder(inputs, output_attentions=True)["attention_probs"]
    if not -len(layers) <= layer < len(layers):
        raise ValueError(f"The model has {len(layers)} layers, from 0. Received layer={layer}")
    return tokenizer.convert_ids_to_tokens(ids), layers[layer][0].numpy()


def _inputs(model: Any, tokenizer: Any, *texts: list[int]) -> tuple[list[int], dict[str, Any]]:
    """The ids of one text or two with special tokens, and the model's inputs, int32 [1, S]."""
    import tensorflow as tf

    parts = [[*text, tokenizer.sep_id] for text in texts]
    parts[0].insert(0, tokenizer.cls_id)
    ids = [i for part in parts for i in part]
    segments = [number for number, part in enumerate(parts) for _ in part]
    model.config.check_sequence_length(len(ids), "The number of tokens")
    return ids, {"input_ids": tf.constant([ids]), "segment_ids": tf.constant([segments])}


def draw_attention(
    model: Any, tokenizer: Any, text: str, second_text: str | None = None, *, layer: int = 0
) -> bytes:
    """Draws `attention_of` a text, a panel for each head."""
    tokens, attention = attention_of(model, tokenizer, text, second_text, layer=layer)
    columns = min(len(attention), 2 if len(attention) <= 4 else 4)
    lines = -(-len(attention) // columns)
    side = max(1.8, _INCHES_A_TOKEN * len(tokens))
    figure = _figure(1.5 + side * columns, 1.0 + side * lines)
    for number, values in enumerate(attention, start=1):
        axes = figure.add_subplot(lines, columns, number)
        axes.imshow(values, vmin=0, vmax=attention.max(), cmap="Blues")
        axes.set_title(f"head {number}", fontsize=9)
        _label(axes, tokens)
        axes.set_yticks(range(len(tokens)), tokens, fontsize=8, parse_math=False)
    figure.supylabel("the token that attends ...", fontsize=9)
    figure.supxlabel("... to these tokens", fontsize=9)
    return png(figure)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _label(axes: Any, tokens: Sequence[str]) -> None:
    # A $ in a text is no formula.
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8, parse_math=False)


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

    @property
    def shown(self) -> slice:
        """The part that a picture has room for, with the likeliest start in it."""
        begin = int(self.starts.argmax()) - _MOST_TOKENS // 2
        begin = max(0, min(begin, len(self.tokens) - _MOST_TOKENS))
        return slice(begin, min(begin + _MOST_TOKENS, len(self.tokens)))


def span_probabilities(
    model: Any, tokenizer: Any, question: str, context: str
) -> SpanProbabilities:
    """Asks a model about one text.

    Args:
        model: an `AlbertForQuestionAnswering` or `AlbertForQuestionAnsweringWithBeamSearch`.
        tokenizer: the one it was trained with.
        question: what is asked.
        context: where the answer is looked for.

    Returns:
        Probabilities as in training: in SQuAD 1.1 the question's tokens have some as well, in 2.0
        the first token of all has, so that those of the context may sum to less than 1.

    Raises:
        ValueError: the two together are too long for the model.
    """
    import tensorflow as tf

    asked, read = tokenizer.encode(question), tokenizer.encode(context)
    _, inputs = _inputs(model, tokenizer, asked, read)
    outputs = model(inputs)
    if "start_logits" in outputs:
        scores = [tf.nn.log_softmax(outputs[name]) for name in ("start_logits", "end_logits")]
    else:
        outputs = model({**inputs, "start_positions": outputs["start_top_index"][:, 0]})
        scores = [outputs[name] for name in ("start_log_probs", "end_log_probs")]
    first = len(asked) + 2
    starts, ends = (np.exp(values[0, first : first + len(read)]) for values in scores)
    return SpanProbabilities(tokenizer.convert_ids_to_tokens(read), starts, ends)


def draw_spans(model: Any, tokenizer: Any, question: str, context: str) -> bytes:
    """Draws `span_probabilities`; of a long context the part with the likeliest start."""
    found = span_probabilities(model, tokenizer, question, context)
    tokens = found.tokens[found.shown]
    figure = _figure(2.5 + _INCHES_A_TOKEN * len(tokens), 3.2)
    axes = figure.subplots()
    numbers = range(len(tokens))
    axes.bar(numbers, found.starts[found.shown], color="tab:blue", label="the answer starts here")
    axes.bar(numbers, -found.ends[found.shown], color="tab:orange", label="the answer ends here")
    axes.set_title(question, parse_math=False)
    axes.set_ylabel("probability")
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    _label(axes, tokens)
    axes.legend(fontsize="small")
    return png(figure)


def draw_question_attention(
    model: Any, tokenizer: Any, question: str, context: str, *, layer: int = -1
) -> bytes:
    """Draws how much question and context attend to each other, on average over the heads.

    Of a long context the part with the likeliest start is shown. The likeliest answer is marked.
    Arguments are those of `span_probabilities` and `attention_of`.

    Raises:
        ValueError: the two together are too long for the model, or there is no such layer.
    """
    found = span_probabilities(model, tokenizer, question, context)
    tokens, attention = attention_of(model, tokenizer, question, context, layer=layer)
    mean = attention.mean(axis=0)
    first, part = len(tokens) - len(found.tokens) - 1, found.shown
    asked, read = slice(1, first - 1), slice(first + part.start, first + part.stop)
    start = int(found.starts.argmax())
    end = start + int(found.ends[start:].argmax())
    width, height = 2.5 + _INCHES_A_TOKEN * (part.stop - part.start), 1.6 + 0.4 * (first - 2)
    figure = _figure(width, height)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, values, title in zip(
        panels,
        (mean[asked, read], mean[read, asked].T),
        ("from the question's tokens to the text's", "from the text's tokens to the question's"),
        strict=True,
    ):
        axes.imshow(values, vmin=0, cmap="Blues", aspect="auto")
        axes.set_title(f"attention {title}", fontsize=9)
        axes.set_yticks(range(first - 2), tokens[asked], fontsize=8, parse_math=False)
        for side in (start - 0.5, end + 0.5):
            axes.axvline(side - part.start, color="tab:orange", linewidth=1)
    _label(panels[1], tokens[read])
    return png(figure)


def similarities(vectors: np.ndarray) -> np.ndarray:
    """Returns the cosines, float64 [T, T], of vectors [T, H] from which their mean was taken.

    Those of a vector that is the mean itself are 0.
    """
    centered = np.asarray(vectors, np.float64)
    centered = centered - centered.mean(axis=0)
    lengths = np.linalg.norm(centered, axis=1, keepdims=True)
    directions = centered / np.where(lengths > 0, lengths, 1)
    return directions @ directions.T


def draw_similarity(vectors: np.ndarray, texts: Sequence[str]) -> bytes:
    """Draws `similarities` of vectors, with the texts they are of at the side."""
    side = max(2.5, 0.36 * len(texts))
    figure = _figure(side + 0.09 * max(map(len, texts)) + 1.5, side + 0.4)
    axes = figure.subplots()
    values = similarities(vectors)
    picture = axes.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r")
    names = [f"{text}  {number}" for number, text in enumerate(texts, 1)]
    axes.set_yticks(range(len(texts)), names, parse_math=False)
    axes.set_xticks(range(len(texts)), range(1, len(texts) + 1))
    for row, column in np.ndindex(values.shape):
        text = f"{values[row, column]:.1f}"
        axes.text(column, row, text, ha="center", va="center", fontsize=7)
    figure.colorbar(picture, ax=axes, label="cosine")
    return png(figure)
