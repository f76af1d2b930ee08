"""Predictions of a classifier for texts and files of texts.

A line of raw texts is a text, or two texts separated by a tab. An output line has tab-separated
fields: the label, then `name=probability` for each class; for regression only the number. Names are
escaped by `label_cell`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.streams import is_regular_file, parse_lines, regrouped, source_name, write_lines
from albert_tf.finetuning.metrics import label_text, predictions, probabilities
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.texts import TextExample, text_sequences
from albert_tf.labels import Labels, label_cell
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import counting

# The same value for lists and files, so that both have the same batches and rounding errors.
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
        self.tokenizer = tokenizer
        self._labels = labels
        self.pairs = pairs
        self.num_texts = 0

    def predict_examples(
        self, examples: Sequence[TextExample], *, warn_above: float = 1.0
    ) -> list[TextPrediction]:
        """Predicts examples together. For `warn_above` see `log_truncated`."""
        length = self._predictor.max_seq_length
        sequences = text_sequences(examples, self.tokenizer, length, warn_above=warn_above)
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


def check_file(
    path: str, is_pair: bool, tokenizer: Tokenizer, examples: list[TextExample] | None = None
) -> None:
    """Counts the pieces of `examples` or of a file. Skips standard input and pipes.

    Raises ValueError if the file is missing or a line is invalid. A line of a file of pairs must
    consist of two texts separated by a tab.
    """
    if is_regular_file(path, "a text file"):
        with counting(tokenizer, path) as counts:
            for group in _read_examples(path, is_pair) if examples is None else [examples]:
                texts = [text for e in group for text in (e.text_a, e.text_b) if text]
                counts.add(tokenizer, texts, tokenizer.encode_batch(texts))


def predict_file(
    path: str,
    predictor: TextPredictor,
    output_path: str | None = None,
    examples: list[TextExample] | None = None,
) -> None:
    """Predicts `examples` or every line of a UTF-8 file, or of the standard input, "-".

    Lines of the standard input and of pipes are predicted as soon as they arrive, including lines
    before an invalid line. If `output_path` is `None`, predictions are written to the standard
    output. For errors see `check_file`.
    """
    is_pair = bool(predictor.pairs)
    groups = _read_examples(path, is_pair) if examples is None else [examples]
    is_live = not is_regular_file(path, "a text file")
    parts = map(predictor.predict_examples, regrouped(groups, TEXTS_AT_ONCE, is_live=is_live))
    try:
        write_lines(output_path, (map(_format, predicted) for predicted in parts))
    finally:
        logging.info("Predicted %d texts", predictor.num_texts)


def _read_examples(path: str, is_pair: bool) -> Iterator[list[TextExample]]:
    def parse(text: str, number: int) -> TextExample:
        if not is_pair:
            return TextExample(str(number), text)
        texts = text.split("\t") if text.strip() else ["", ""]
        if len(texts) != 2:
            raise UserError(
                f"{source_name(path)}, line {number}: expected two texts separated by one tab, "
                "because the task classifies pairs. Received "
                f"{len(texts) - 1} tabs: {text[:80]!r}"
            )
        return TextExample(str(number), *texts)

    return parse_lines(path, parse)


def _format(prediction: TextPrediction) -> str:
    fields = [label_cell(prediction.label)]
    fields += [f"{label_cell(name)}={p:.6f}" for name, p in prediction.probabilities.items()]
    return "\t".join(fields)
