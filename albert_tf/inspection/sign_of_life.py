"""What a model says to a sample text: the shortest proof that all its parts belong together."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from albert_tf.data.plain_questions import PlainQuestion
from albert_tf.data.text_examples import Labels, TextExample
from albert_tf.model_files.contents import ModelContents
from albert_tf.model_files.trained_task import TrainedTask
from albert_tf.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
)
from albert_tf.prediction.fill_mask import MASK, MaskFiller
from albert_tf.prediction.questions import QuestionAnswerer
from albert_tf.prediction.sequences import Predictor
from albert_tf.prediction.squad_answers import OUTPUTS
from albert_tf.prediction.texts import TextClassifier
from albert_tf.span_models import AlbertForSpanBeams, AlbertForSpans
from albert_tf.tokenization import Tokenizer

_LENGTH = 128
_BLANK = {"en": "The capital of France is the [MASK] of Paris.", "zh": "北京是中国的首[MASK]。"}
_TEXTS = {
    "en": ("The film was a joy from start to end.", "I would watch it again."),
    "zh": ("这部电影从头到尾都很好看。", "我还想再看一次。"),
}
_QUESTION = {
    "en": ("Who wrote the book?", "The book was written by Anna in 1921."),
    "zh": ("这本书是谁写的？", "这本书是安娜在1921年写的。"),
}


def sign_of_life(model: keras.Model, contents: ModelContents) -> Iterator[str]:
    """Yields lines on what a model makes of a sample text of its language.

    Args:
        model: what `loading.build_model` makes of the contents.
        contents: with a tokenizer.

    Raises:
        ValueError: the model cannot take the text, or its outputs are not finite.
    """
    tokenizer = contents.tokenizer
    if tokenizer is None:
        yield "none: without a tokenizer there are no ids to give the model"
        return
    language = _language(tokenizer)
    task = contents.task or TrainedTask("unknown", is_pair=False)
    if isinstance(model, AlbertForPretraining):
        yield from _blanks(MaskFiller.of(model, tokenizer), _BLANK[language])
    elif isinstance(model, AlbertForSpans | AlbertForSpanBeams):
        yield from _answer(model, tokenizer, task, *_QUESTION[language])
    elif isinstance(model, AlbertForMultipleChoice):
        yield from _choice(model, tokenizer, *_TEXTS[language])
    elif isinstance(model, AlbertForClassification):
        yield from _label(model, tokenizer, task, *_TEXTS[language])
    else:
        yield from _likeness(model, tokenizer, *_TEXTS[language])


def _language(tokenizer: Tokenizer) -> str:
    """Chinese where a third of the vocabulary is; all others are taken for English."""
    chinese = sum(any("一" <= c <= "鿿" for c in token) for token in tokenizer.tokens)
    return "zh" if 3 * chinese > tokenizer.vocab_size else "en"


def _blanks(filler: MaskFiller, text: str) -> Iterator[str]:
    room = filler.model.config.max_position_embeddings
    if len(filler.tokenizer.encode(text)) > room - len(MASK):
        text = MASK  # of a toy
    yield text
    for candidates in filler.fill(text):
        yield "  " + "  ".join(f"{c.token} {c.probability:.1%}" for c in candidates)


def _answer(
    model: AlbertForSpans | AlbertForSpanBeams,
    tokenizer: Tokenizer,
    task: TrainedTask,
    question: str,
    context: str,
) -> Iterator[str]:
    version = 2 if isinstance(model, AlbertForSpanBeams) else 1
    answerer = QuestionAnswerer(
        tokenizer,
        _predictor(model, task.max_seq_length, OUTPUTS[version]),
        version=version,
        max_query_length=min(64, model.config.max_position_embeddings // 2),
    )
    answer = answerer.answer([PlainQuestion("1", context, question)])[0]
    yield f"{question}  {context}"
    odds = "" if answer.null_odds is None else f"  (null odds {answer.null_odds:.2f})"
    best = answer.best
    yield f"  {best.text} {best.probability:.1%}{odds}" if best else f"  no answer{odds}"


def _label(
    model: AlbertForClassification, tokenizer: Tokenizer, task: TrainedTask, first: str, second: str
) -> Iterator[str]:
    names = tuple(f"label {i}" for i in range(model.num_labels))
    labels = task.labels if task.labels.num_outputs == model.num_labels else Labels(names)
    if model.num_labels == 1:
        labels = Labels()
    predictor = _predictor(model, task.max_seq_length, ("logits",))
    is_pair = bool(task.is_pair)
    classifier = TextClassifier(tokenizer, predictor, labels, predictor.max_seq_length, is_pair)
    found = classifier.predict([TextExample("1", first, second if is_pair else None)])[0]
    yield first + (f"  {second}" if is_pair else "")
    if labels.is_regression:
        yield f"  {found.probabilities[0]:.3f}"
        return
    shares = zip(labels.names, found.probabilities, strict=True)
    yield "  " + "  ".join(f"{name} {probability:.1%}" for name, probability in shares)


def _choice(
    model: AlbertForMultipleChoice, tokenizer: Tokenizer, context: str, option: str
) -> Iterator[str]:
    options = (option, context)
    rows = [_ids(tokenizer, context, text) for text in options]
    ids, mask, segments = (tf.constant(part)[tf.newaxis] for part in _padded(rows))
    outputs = model({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
    shares = _finite(tf.nn.softmax(outputs["logits"])[0])
    yield context
    yield "  " + "  ".join(f"{o} {share:.1%}" for o, share in zip(options, shares, strict=True))


def _likeness(model: keras.Model, tokenizer: Tokenizer, first: str, second: str) -> Iterator[str]:
    """Of an encoder alone there is nothing to read; its vectors must at least be numbers."""
    ids, mask, segments = _padded([_ids(tokenizer, first), _ids(tokenizer, second)])
    outputs = model({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
    vectors = _finite(outputs["pooled_output"])
    norms = np.linalg.norm(vectors, axis=1)
    cosine = float(vectors[0] @ vectors[1] / max(norms[0] * norms[1], 1e-30))
    yield f"{first}  {second}"
    yield f"  cosine of their pooled outputs {cosine:.3f}, norms {norms[0]:.3f} and {norms[1]:.3f}"


def _predictor(
    model: keras.Model, max_seq_length: int | None, outputs: tuple[str, ...]
) -> Predictor:
    length = min(max_seq_length or _LENGTH, model.config.max_position_embeddings)
    return Predictor(
        model,
        tf.distribute.get_strategy(),
        outputs=outputs,
        max_seq_length=length,
        tokens_per_batch=length,
    )


def _ids(tokenizer: Tokenizer, *texts: str) -> tuple[list[int], list[int]]:
    """Ids with special tokens, and segments."""
    ids, segments = [tokenizer.cls_id], [0]
    for number, text in enumerate(texts):
        part = [*tokenizer.encode(text), tokenizer.sep_id]
        ids += part
        segments += [number] * len(part)
    return ids, segments


def _padded(rows: list[tuple[list[int], list[int]]]) -> tuple[np.ndarray, ...]:
    """`input_ids`, `input_mask` and `segment_ids`, int32 [B, S]."""
    length = max(len(ids) for ids, _ in rows)
    arrays = [np.zeros((len(rows), length), np.int32) for _ in range(3)]
    for row, (ids, segments) in enumerate(rows):
        for array, values in zip(arrays, (ids, [1] * len(ids), segments), strict=True):
            array[row, : len(ids)] = values
    return tuple(arrays)


def _finite(tensor: tf.Tensor) -> np.ndarray:
    values = np.asarray(tensor)
    if not np.isfinite(values).all():
        raise ValueError("The model's output is not finite: its weights are damaged or diverged.")
    return values
