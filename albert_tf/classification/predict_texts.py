r"""What a classifier says of new texts: a line in, a line out.

A line of the input is a text, or the two texts of a pair with a tab between them. A line of the
output, its fields separated by tabs, is the label and then `name=probability` for every class, in
the order of the labels; of a regression it is the number alone. In names of labels a backslash, a
tab, a line feed and a carriage return stand as `\\`, `\t`, `\n` and `\r`; the probability
follows the last `=` of its field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
from absl import logging

from albert_tf.classification.features import text_sequences
from albert_tf.data.files import decode_utf8
from albert_tf.data.streams import can_be_read_twice, open_input, open_output, read_lines
from albert_tf.data.text_examples import Labels, TextExample, label_cell
from albert_tf.finetuning.metrics import predictions, probabilities
from albert_tf.finetuning.predictor import Predictor
from albert_tf.tokenization.base import Tokenizer


class TextPrediction(NamedTuple):
    """What a classifier says of one text or pair."""

    label: str  # the likeliest class, or the number as a decimal
    # float32 [K], in the order of the labels; of a regression the number, [1]
    probabilities: np.ndarray


class TextClassifier:
    """A fine-tuned model that takes texts; tokenizer, labels and length are those of its training.

    Attributes:
        num_texts: predicted since the classifier was made.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        predictor: Predictor,
        labels: Labels,
        max_seq_length: int,
        is_pair: bool,
    ) -> None:
        self.tokenizer = tokenizer
        self.predictor = predictor
        self.labels = labels
        self.max_seq_length = max_seq_length
        self.is_pair = is_pair
        self.num_texts = 0

    def predict(self, examples: Sequence[TextExample]) -> list[TextPrediction]:
        """Returns what the model says of each example, in their order; their labels are not read.

        Raises:
            ValueError: the model's output is not finite.
        """
        sequences = text_sequences(examples, self.tokenizer, self.max_seq_length)
        description = f"predicting from text {self.num_texts + 1}"
        logits = self.predictor.predict(sequences, description)["logits"]
        self.num_texts += len(examples)
        if self.labels.is_regression:
            names = [str(number) for number in logits[:, 0]]
        else:
            names = [self.labels.names[i] for i in predictions(logits, self.labels)]
        return list(map(TextPrediction, names, probabilities(logits, self.labels)))


def check_file(path: str, is_pair: bool) -> None:
    """Reads a file through before anything is predicted, or the model is even trained.

    The standard input and pipes, which can be read only once, pass.

    Raises:
        ValueError: there is no such file, or see `predict_lines`.
    """
    if can_be_read_twice(path, "--predict_file", "a text file"):
        with open_input(path) as file:
            for _ in _parsed(read_lines(file), is_pair, _source(path)):
                pass


def predict_file(path: str, classifier: TextClassifier, output_path: str | None = None) -> None:
    """Predicts every line of a UTF-8 file, or of the standard input, "-".

    A file is read through before the first prediction, so that a line that cannot be used stops
    the command at once. The standard input and pipes are answered as they come: as soon as a line
    is there it is predicted, together with those that came with it. The file at `output_path`,
    without which it is the standard output, appears when it is complete.

    Raises:
        ValueError: see `predict_lines`. What was predicted before a line that cannot be used is on
            the standard output; a file is not written.
    """
    check_file(path, classifier.is_pair)
    try:
        with open_input(path) as file, open_output(output_path) as out:
            predict_lines(read_lines(file), classifier, out, source=_source(path))
    finally:
        logging.info("Predicted %d texts", classifier.num_texts)


def predict_lines(
    lines: Iterable[Sequence[bytes]],
    classifier: TextClassifier,
    out: IO[bytes],
    *,
    source: str = "--predict_file",
) -> None:
    """Writes a line for every line, and flushes after each group; memory does not grow.

    Args:
        lines: groups of lines, see `read_lines`.
        classifier: see `TextClassifier`.
        out: opened in binary mode.
        source: the flag and the file, for errors.

    Raises:
        ValueError: a line is not UTF-8, or not two texts with a tab between them where pairs are
            classified; names the line. Those before it are predicted and written.
    """
    for examples in _parsed(lines, classifier.is_pair, source):
        predicted = classifier.predict(examples)
        out.writelines(_format(prediction, classifier.labels) for prediction in predicted)
        out.flush()


def _source(path: str) -> str:
    return f"--predict_file: {path}"


def _parsed(
    lines: Iterable[Sequence[bytes]], is_pair: bool, source: str
) -> Iterator[list[TextExample]]:
    """Groups of examples; before the error of a line comes what stands before that line."""
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
        raise ValueError(
            f"{source}, line {number}: expected two texts separated by one tab, because the task "
            f"classifies pairs. Received {len(texts) - 1} tabs: {text[:80]!r}"
        )
    return TextExample(guid, *texts)


def _format(prediction: TextPrediction, labels: Labels) -> bytes:
    """A line of the output, its end included."""
    fields = [label_cell(prediction.label)]
    fields += [
        f"{label_cell(name)}={probability:.6f}"
        for name, probability in zip(labels.names, prediction.probabilities, strict=False)
    ]
    return ("\t".join(fields) + "\n").encode(errors="backslashreplace")
