r"""Predictions of a classifier for texts and files of texts.

An input line is a text, or two texts separated by a tab. An output line has tab-separated fields:
the label, then `name=probability` for each class; for regression only the number. In names a
backslash, a tab, a line feed and a carriage return are written as `\\`, `\t`, `\n` and `\r`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8
from albert_tf.data.streams import (
    can_be_read_twice,
    open_input,
    open_output,
    read_lines,
    regrouped,
    source_name,
)
from albert_tf.data.text_examples import Labels, TextExample, label_cell
from albert_tf.finetuning.metrics import label_text, predictions, probabilities
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.texts import text_sequences
from albert_tf.tokenization.base import Tokenizer

# Texts of lists and files are grouped in the same way, so batches and numbers are equal.
TEXTS_AT_ONCE = 1024


class TextPrediction(NamedTuple):
    """The prediction for one text or pair.

    Attributes:
        label: the most probable class; the predicted labels separated by "|" for multi-label
            models; the number as text for regression.
        probabilities: probability by label, in the order of the labels; empty for regression.
        value: the number of a regression. `None` for classes.
    """

    label: str
    probabilities: dict[str, float]
    value: float | None = None


class TextPredictor:
    """Predicts labels of examples, and counts them in `num_texts`."""

    def __init__(
        self, predictor: Predictor, tokenizer: Tokenizer, labels: Labels, pairs: bool | None
    ) -> None:
        self._predictor = predictor
        self._tokenizer = tokenizer
        self._labels = labels
        self.pairs = pairs
        self.num_texts = 0

    def predict_examples(
        self, examples: Sequence[TextExample], *, warns: bool = False
    ) -> list[TextPrediction]:
        """Predicts examples together; ignores their labels. For `warns` see `text_sequences`."""
        length = self._predictor.max_seq_length
        sequences = text_sequences(examples, self._tokenizer, length, warns=warns)
        description = f"predicting from text {self.num_texts + 1}"
        logits = self._predictor.predict(sequences, description)["logits"]
        self.num_texts += len(examples)
        if self._labels.is_regression:
            return [TextPrediction(str(number), {}, float(number)) for number in logits[:, 0]]
        names = self._labels.names
        rows = probabilities(logits, self._labels).tolist()
        return [
            TextPrediction(label_text(one, self._labels), dict(zip(names, row, strict=True)))
            for one, row in zip(predictions(logits, self._labels), rows, strict=True)
        ]


def check_file(path: str, is_pair: bool) -> None:
    """Raises ValueError if a file is missing or invalid; does not read standard input and pipes."""
    if can_be_read_twice(path, "a text file"):
        with open_input(path) as file:
            for _ in _parsed(read_lines(file), is_pair, source_name(path)):
                pass


def predict_file(path: str, predictor: TextPredictor, output_path: str | None = None) -> None:
    """Predicts every line of a UTF-8 file, or of the standard input, "-".

    A file is checked completely before the first prediction. Lines of the standard input and of
    pipes are predicted as soon as they arrive. The file at `output_path` appears when it is
    complete; if `None`, predictions go to the standard output.

    Raises:
        ValueError: see `predict_lines`.
    """
    is_pair = bool(predictor.pairs)
    check_file(path, is_pair)
    try:
        with open_input(path) as file, open_output(output_path) as out:
            lines: Iterable[Sequence[bytes]] = read_lines(file)
            if can_be_read_twice(path, "a text file"):
                lines = regrouped(lines, TEXTS_AT_ONCE)
            predict_lines(lines, predictor, out, source=source_name(path))
    finally:
        logging.info("Predicted %d texts", predictor.num_texts)


def predict_lines(
    lines: Iterable[Sequence[bytes]], predictor: TextPredictor, out: IO[bytes], *, source: str
) -> None:
    """Writes a line for every line of `source` and flushes after each group, see `read_lines`.

    Raises:
        ValueError: a line is not UTF-8, or not two texts separated by a tab for a model of pairs.
            The lines before it are predicted and written.
    """
    for examples in filter(None, _parsed(lines, bool(predictor.pairs), source)):
        out.writelines(map(_format, predictor.predict_examples(examples)))
        out.flush()


def _parsed(
    lines: Iterable[Sequence[bytes]], is_pair: bool, source: str
) -> Iterator[list[TextExample]]:
    """Yields groups of examples; before an error, the valid examples of its group."""
    number = 0
    for group in lines:
        examples: list[TextExample] = []
        for line in group:
            number += 1
            try:
                examples.append(_parse(line, number, is_pair, source))
            except ValueError:
                if examples:
                    yield examples
                raise
        yield examples


def _parse(line: bytes, number: int, is_pair: bool, source: str) -> TextExample:
    text = decode_utf8(line.removesuffix(b"\r"), source, line=number)
    guid = str(number)
    if not is_pair:
        return TextExample(guid, text)
    texts = text.split("\t") if text.strip() else ["", ""]
    if len(texts) != 2:
        raise UserError(
            f"{source}, line {number}: expected two texts separated by one tab, because the task "
            f"classifies pairs. Received {len(texts) - 1} tabs: {text[:80]!r}"
        )
    return TextExample(guid, *texts)


def _format(prediction: TextPrediction) -> bytes:
    fields = [label_cell(prediction.label)]
    fields += [f"{label_cell(name)}={p:.6f}" for name, p in prediction.probabilities.items()]
    return ("\t".join(fields) + "\n").encode(errors="backslashreplace")
