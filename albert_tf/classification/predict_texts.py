r"""What a classifier says of new texts: a line in, a line out.

A line of the input is a text, or the two texts of a pair with a tab between them. A line of the
output, its fields separated by tabs, is the label and then `name=probability` for every class, in
the order of the labels; of a regression it is the number alone. In names of labels a backslash, a
tab, a line feed and a carriage return stand as `\\`, `\t`, `\n` and `\r`; the probability
follows the last `=` of its field.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

from absl import logging

from albert_tf.checkpoints.text_models import check_model, find_model
from albert_tf.data.arguments import as_texts, check_choice, texts_and_pairs
from albert_tf.data.files import decode_utf8
from albert_tf.data.sequences import check_room
from albert_tf.data.streams import (
    can_be_read_twice,
    open_input,
    open_output,
    read_lines,
    regrouped,
)
from albert_tf.data.strict_json import listed
from albert_tf.data.text_examples import Labels, TextExample, label_cell
from albert_tf.finetuning.metrics import label_text, predictions, probabilities
from albert_tf.finetuning.predictor import Predictor, new_predictor
from albert_tf.finetuning.texts import text_examples, text_sequences
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.tokenization.base import Tokenizer

# Texts of a list, or lines of a file, that are predicted together: as they are the same, so are the
# batches, and the numbers to the last bit.
_TEXTS_AT_ONCE = 1024


class TextPrediction(NamedTuple):
    """What a classifier says of one text or pair.

    Attributes:
        label: the likeliest class; of any number of labels a text, those predicted, with "|"
            between them; of a regression the number as text.
        probabilities: of each class by its label, in the order of the labels; of a regression none.
        value: the number of a regression; None of classes.
    """

    label: str
    probabilities: dict[str, float]
    value: float | None = None


class TextClassifier:
    """Predicts the labels, or the numbers, of texts or pairs of texts.

    It tokenizes, cuts and batches as `run_classifier --predict_file` does: the same texts get the
    same numbers.

    Args:
        model: a classifier or a regression.
        tokenizer: that of the model. Default: `model.tokenizer`.
        labels: names of the K classes, in the order of the model's outputs; none for a regression.
            Default: `model.labels`.
        pairs: whether the model takes pairs of texts. Default: as in its training, else both.
        max_seq_length: tokens of a sequence at most; what is longer is cut as in training. Default:
            as in its training, else 512, or what the model has positions for.
        batch_size: sequences of that length at once; of shorter ones more.

    Raises:
        TypeError: an argument is of another type.
        ValueError: the tokenizer or the labels do not fit the model, or a number is out of range.
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
        self.num_texts = 0  # predicted so far

    @classmethod
    def _of(
        cls, predictor: Predictor, tokenizer: Tokenizer, labels: Labels, pairs: bool | None
    ) -> TextClassifier:
        """Makes one of what a command has already."""
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
        """Makes one of a fine-tuned model.

        Args:
            where: a model of any format, see `load`; the directory of a training means its best
                checkpoint, else the newest.
            labels: see `TextClassifier`. If `None`, the labels of the training are used. A model
                with a single output and without labels is a regression.
            max_seq_length: as well.
            batch_size: see `TextClassifier`.

        Raises:
            TypeError: an argument is of another type.
            ValueError: there is no model, it has no classifier, tokenizer or labels, or they do not
                fit each other.
        """
        found = find_model(where)
        model = found.load(AlbertForClassification, "a model with a classifier or a regression")
        if labels is None and found.task is not None:
            labels = found.task.labels.names
        elif labels is None and model.num_labels > 1:
            raise ValueError(
                f"labels must name the {model.num_labels} outputs of {found.where!r}, which has no "
                "labels. Received: None"
            )
        return cls(model, labels=labels, max_seq_length=max_seq_length, batch_size=batch_size)

    def __call__(
        self, texts: Iterable[str], text_pairs: Iterable[str] | None = None
    ) -> list[TextPrediction]:
        """Predicts what each text is.

        Args:
            texts: N texts, one or more.
            text_pairs: N second texts, for a model of pairs.

        Returns:
            N predictions, in the order of the texts.

        Raises:
            TypeError: an argument is no list of texts.
            ValueError: there is no text, another number of second texts, none where the model takes
                pairs, some where it does not, or the model's output is not finite.
        """
        first, second = texts_and_pairs(texts, text_pairs)
        if self.pairs is not None and self.pairs != (second is not None):
            raise ValueError(
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
        """Predicts some examples together; their labels are not read."""
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
    """The argument `labels` for a model, or its own; raises TypeError or ValueError."""
    num_outputs = model.num_labels
    names = model.labels if names is None else names
    if names is None and num_outputs == 1:
        return Labels()
    if names is None:
        raise ValueError(
            f"labels must name the {num_outputs} outputs of the model, which has no labels. "
            "Received: None"
        )
    is_empty = isinstance(names, list | tuple) and not names
    known = model.trained_task.labels if model.trained_task else Labels()
    names = () if is_empty else tuple(as_texts("labels", names))
    labels = Labels(names, model.multi_label, known.threshold)
    if labels.num_outputs != num_outputs:
        wanted = "none for a regression" if num_outputs == 1 else f"{num_outputs} names"
        raise ValueError(
            f"labels must have a name for each output of the model: {wanted}. Received: "
            f"{listed(labels.names)}"
        )
    return labels


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
    is_pair = bool(classifier.pairs)
    check_file(path, is_pair)
    try:
        with open_input(path) as file, open_output(output_path) as out:
            lines: Iterable[Sequence[bytes]] = read_lines(file)
            if can_be_read_twice(path, "--predict_file", "a text file"):
                lines = regrouped(lines, _TEXTS_AT_ONCE)
            predict_lines(lines, classifier, out, source=_source(path))
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
    for examples in _parsed(lines, bool(classifier.pairs), source):
        out.writelines(map(_format, classifier._predict(examples)))
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


def _format(prediction: TextPrediction) -> bytes:
    """A line of the output, its end included."""
    fields = [label_cell(prediction.label)]
    fields += [f"{label_cell(name)}={p:.6f}" for name, p in prediction.probabilities.items()]
    return ("\t".join(fields) + "\n").encode(errors="backslashreplace")
