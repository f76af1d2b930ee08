r"""Predictions of a classifier for texts and files of texts.

An input line is a text, or two texts separated by a tab. An output line has tab-separated fields:
the label, then `name=probability` for each class in the order of the labels. For regression it is
only the number. In names a backslash, a tab, a line feed and a carriage return are written as `\\`,
`\t`, `\n` and `\r`; the probability follows the last `=` of its field.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

from absl import logging

from albert_tf.checkpoints.text_models import check_model, find_model
from albert_tf.data.arguments import as_texts, check_choice, texts_and_pairs
from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8
from albert_tf.data.sequences import check_room
from albert_tf.data.streams import (
    can_be_read_twice,
    open_input,
    open_output,
    read_lines,
    regrouped,
    source_name,
)
from albert_tf.data.strict_json import listed
from albert_tf.data.text_examples import Labels, TextExample, label_cell
from albert_tf.finetuning.metrics import label_text, predictions, probabilities
from albert_tf.finetuning.predictor import Predictor, new_predictor
from albert_tf.finetuning.texts import text_examples, text_sequences
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.tokenization.base import Tokenizer

# Texts of a list or lines of a file are grouped in the same way, so batches and numbers are equal.
_TEXTS_AT_ONCE = 1024


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


class TextClassifier:
    """Predicts labels or numbers for texts or pairs of texts.

    Texts are tokenized, truncated and batched as by `run_classifier --predict_file`: the same texts
    give the same numbers.

    Args:
        model: a classifier or a regression.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        labels: names of the K classes in the order of the model's outputs; empty for regression.
            Default: `model.labels`.
        pairs: whether inputs are pairs of texts. Default: as in the training, or both if unknown.
        max_seq_length: maximum number of tokens of a sequence; longer ones are truncated. Default:
            as in the training; otherwise 512, or the number of positions of the model if smaller.
        batch_size: sequences of that length per batch; batches of shorter ones are larger.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer or the labels do not match the model, or a number is out of range.
    """

    def __init__(
        self,
        model: AlbertForClassification,
        tokenizer: Tokenizer | None = None,
        *,
        labels: Sequence[str] | None = None,
        pairs: bool | None = None,
        max_seq_length: int | None = None,
        batch_size: int = 8,
    ) -> None:
        tokenizer = check_model(model, AlbertForClassification, tokenizer)
        check_choice("pairs", pairs)
        task = model.trained_task
        if pairs is None and task is not None:
            pairs = task.is_pair
        if max_seq_length is None and task is not None:
            max_seq_length = task.max_seq_length
        predictor = new_predictor(
            model, model.config, max_seq_length=max_seq_length, batch_size=batch_size
        )
        check_room(bool(pairs), predictor.max_seq_length, "max_seq_length")
        self._set(predictor, tokenizer, _labels_of(labels, model), pairs)

    def _set(
        self, predictor: Predictor, tokenizer: Tokenizer, labels: Labels, pairs: bool | None
    ) -> None:
        self._predictor = predictor
        self._tokenizer = tokenizer
        self._labels = labels
        self.pairs = pairs
        self.num_texts = 0  # number of predicted texts

    @classmethod
    def _of(
        cls, predictor: Predictor, tokenizer: Tokenizer, labels: Labels, pairs: bool | None
    ) -> TextClassifier:
        """Creates a classifier from the parts that a command has."""
        classifier = cls.__new__(cls)
        classifier._set(predictor, tokenizer, labels, pairs)
        return classifier

    @classmethod
    def load(
        cls,
        where: str | os.PathLike,
        *,
        labels: Sequence[str] | None = None,
        max_seq_length: int | None = None,
        batch_size: int = 8,
    ) -> TextClassifier:
        """Loads a fine-tuned model.

        Args:
            where: a model of any format, see `load`. For a training directory, its best checkpoint
                is used, otherwise the newest.
            labels: see `TextClassifier`. If `None`, the labels of the training are used. A model
                with a single output and without labels is a regression.
            max_seq_length: see `TextClassifier`.
            batch_size: see `TextClassifier`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, it has no classifier, tokenizer or labels, or they do not
                match.
        """
        found = find_model(where)
        model = found.load(AlbertForClassification, "a model with a classifier or a regression")
        if labels is None and found.task is not None:
            labels = found.task.labels.names
        elif labels is None and model.num_labels > 1:
            raise UserError(
                f"labels must name the {model.num_labels} outputs of {found.where!r}, which has no "
                "labels. Received: None"
            )
        return cls(model, labels=labels, max_seq_length=max_seq_length, batch_size=batch_size)

    def __call__(
        self, texts: Iterable[str], text_pairs: Iterable[str] | None = None
    ) -> list[TextPrediction]:
        """Predicts the label of each text.

        Args:
            texts: N >= 1 texts.
            text_pairs: N second texts, for a model of pairs.

        Returns:
            N predictions in the order of the texts.

        Raises:
            TypeError: an argument is not a list of texts.
            ValueError: there is no text, the number of second texts differs, second texts are
                missing or unexpected, or the model's output is not finite.
        """
        first, second = texts_and_pairs(texts, text_pairs)
        if self.pairs is not None and self.pairs != (second is not None):
            raise UserError(
                "text_pairs must have the second texts: the model was trained on pairs of texts. "
                "Received: None"
                if self.pairs
                else "text_pairs must be None: the model was trained on single texts. Received: "
                f"{len(second or [])} texts"
            )
        self.num_texts = 0
        return [
            prediction
            for group in regrouped([text_examples(first, second)], _TEXTS_AT_ONCE)
            for prediction in self._predict(group)
        ]

    def _predict(self, examples: Sequence[TextExample]) -> list[TextPrediction]:
        """Predicts examples together; their labels are ignored."""
        sequences = text_sequences(examples, self._tokenizer, self._predictor.max_seq_length)
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


def _labels_of(names: object, model: AlbertForClassification) -> Labels:
    """Returns the argument `labels`, or the labels of the model."""
    num_outputs = model.num_labels
    names = model.labels if names is None else names
    if names is None and num_outputs == 1:
        return Labels()
    if names is None:
        raise UserError(
            f"labels must name the {num_outputs} outputs of the model, which has no labels. "
            "Received: None"
        )
    is_empty = isinstance(names, list | tuple) and not names
    known = model.trained_task.labels if model.trained_task else Labels()
    names = () if is_empty else tuple(as_texts("labels", names))
    labels = Labels(names, model.multi_label, known.threshold)
    if labels.num_outputs != num_outputs:
        wanted = "none for a regression" if num_outputs == 1 else f"{num_outputs} names"
        raise UserError(
            f"labels must have a name for each output of the model: {wanted}. Received: "
            f"{listed(labels.names)}"
        )
    return labels


def check_file(path: str, is_pair: bool) -> None:
    """Checks all lines of a file, except of the standard input and pipes.

    Raises:
        ValueError: the file does not exist, or see `predict_lines`.
    """
    if can_be_read_twice(path, "a text file"):
        with open_input(path) as file:
            for _ in _parsed(read_lines(file), is_pair, source_name(path)):
                pass


def predict_file(path: str, classifier: TextClassifier, output_path: str | None = None) -> None:
    """Predicts every line of a UTF-8 file, or of the standard input, "-".

    A file is checked completely before the first prediction. Lines of the standard input and of
    pipes are predicted as soon as they arrive. The file at `output_path` appears when it is
    complete; if `None`, predictions go to the standard output.

    Raises:
        ValueError: see `predict_lines`. Predictions before an invalid line are on the standard
            output; a file is not written.
    """
    is_pair = bool(classifier.pairs)
    check_file(path, is_pair)
    try:
        with open_input(path) as file, open_output(output_path) as out:
            lines: Iterable[Sequence[bytes]] = read_lines(file)
            if can_be_read_twice(path, "a text file"):
                lines = regrouped(lines, _TEXTS_AT_ONCE)
            predict_lines(lines, classifier, out, source=source_name(path))
    finally:
        logging.info("Predicted %d texts", classifier.num_texts)


def predict_lines(
    lines: Iterable[Sequence[bytes]],
    classifier: TextClassifier,
    out: IO[bytes],
    *,
    source: str,
) -> None:
    """Writes a line for every line and flushes after each group; memory use is constant.

    Args:
        lines: groups of lines, see `read_lines`.
        classifier: see `TextClassifier`.
        out: a binary file.
        source: the file, for errors.

    Raises:
        ValueError: a line is not UTF-8, or not two texts separated by a tab for a classifier of
            pairs; names the line. The lines before it are predicted and written.
    """
    for examples in _parsed(lines, bool(classifier.pairs), source):
        out.writelines(map(_format, classifier._predict(examples)))
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
    """Returns a line of the output, with its line feed."""
    fields = [label_cell(prediction.label)]
    fields += [f"{label_cell(name)}={p:.6f}" for name, p in prediction.probabilities.items()]
    return ("\t".join(fields) + "\n").encode(errors="backslashreplace")
