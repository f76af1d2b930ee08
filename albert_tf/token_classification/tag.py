"""Entities and labels of words that a token classifier predicts for new texts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import IO, Any, NamedTuple, overload

import numpy as np
from absl import logging
from scipy import special

from albert_tf.checkpoints.text_models import check_model, find_model
from albert_tf.data.arguments import as_list, as_texts, renamed_arguments
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
from albert_tf.data.text_examples import Labels
from albert_tf.finetuning.predictor import Predictor, new_predictor
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.token_classification.data import (
    Sentence,
    read_sentences,
    split_words,
    text_entities,
    write_predictions,
)
from albert_tf.token_classification.features import TokenFeatures, WordTokenizer, token_features
from albert_tf.token_classification.labels import PLAIN, scheme_of
from albert_tf.tokenization.base import Tokenizer

# Sentences of lists and files are grouped in the same way, so batches and numbers are equal.
_SENTENCES_AT_ONCE = 1024
FLAG = "--predict_file"


class TaggedWord(NamedTuple):
    """The label of `text[start:end]`, or of `words[start:end]` if words were given.

    Attributes:
        text: the word.
        start: index of its first character, or of the word.
        end: index after its last character, or after the word.
        label: the most probable label.
        probability: probability of the label.
    """

    text: str
    start: int
    end: int
    label: str
    probability: float


class TaggedEntity(NamedTuple):
    """An entity: `text[start:end]`, or `words[start:end]` if words were given.

    Attributes:
        type: type, such as "person".
        text: the text, or its words separated by blanks.
        start: index of its first character or word.
        end: index after its last character or word.
        probability: mean over the labels of its words.
    """

    type: str
    text: str
    start: int
    end: int
    probability: float


class TaggedText(NamedTuple):
    """The predictions for a text.

    Attributes:
        words: all words with their labels.
        entities: entities in the labels, as in conlleval; empty if labels are plain.
    """

    words: list[TaggedWord]
    entities: list[TaggedEntity]


class Predicted(NamedTuple):
    """Predictions for the W words of features.

    Attributes:
        label_ids: int32 [W]; the most probable labels.
        probabilities: float32 [W]; their probabilities.
        losses: float32 [W]; cross entropy of the correct labels. `None` without labels.
    """

    label_ids: np.ndarray
    probabilities: np.ndarray
    losses: np.ndarray | None


def predict_labels(
    features: TokenFeatures, predictor: Predictor, description: str = "predicting"
) -> Predicted:
    """Runs a model on windows; each word is answered by its window.

    Raises:
        ValueError: the model's output is not finite.
    """
    label_ids = np.zeros(len(features.positions), np.int32)
    probabilities, losses = np.zeros((2, len(label_ids)), np.float32)
    for rows, outputs in predictor.batches(features.sequences, description):
        words, owners = features.words_of(rows)
        logits = outputs["logits"][owners, features.positions[words]].astype(np.float64)
        chosen = logits.argmax(axis=1)
        log_probs = special.log_softmax(logits, axis=1)
        each = np.arange(len(words))
        label_ids[words] = chosen
        probabilities[words] = np.exp(log_probs[each, chosen])
        if features.label_ids is not None:
            losses[words] = -log_probs[each, features.label_ids[words]]
    return Predicted(label_ids, probabilities, None if features.label_ids is None else losses)


class TokenClassifier:
    """Finds entities in texts, or labels their words.

    Texts are split into words at blanks and punctuation; given words are not changed. Longer inputs
    are split into overlapping windows, and every word is predicted once, in the window with most
    context. Predictions are those of `run_token_classifier --predict_file`: the same texts give the
    same numbers.

    Args:
        model: a token classifier.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        labels: names of the K labels in the order of the model's outputs. Default: `model.labels`.
        max_seq_length: maximum number of tokens of a window. Default: as in the training; otherwise
            512, or the number of positions of the model if smaller.
        batch_size: windows of that length per batch; batches of shorter ones are larger.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer or the labels do not match the model, or a number is out of range.
    """

    def __init__(
        self,
        model: AlbertForTokenClassification,
        tokenizer: Tokenizer | None = None,
        *,
        labels: Sequence[str] | None = None,
        max_seq_length: int | None = None,
        batch_size: int = 8,
    ) -> None:
        tokenizer = check_model(model, AlbertForTokenClassification, tokenizer)
        task = model.trained_task
        if max_seq_length is None and task is not None:
            max_seq_length = task.max_seq_length
        predictor = new_predictor(
            model, model.config, max_seq_length=max_seq_length, batch_size=batch_size
        )
        check_room(False, predictor.max_seq_length, "max_seq_length")
        names = model.labels if labels is None else as_texts("labels", labels)
        if names is None or len(names) != model.num_labels:
            raise UserError(
                f"labels must name the {model.num_labels} outputs of the model. Received: "
                f"{None if names is None else listed(names)}"
            )
        self._set(predictor, tokenizer, Labels(tuple(names)))

    def _set(self, predictor: Predictor, tokenizer: Tokenizer, labels: Labels) -> None:
        self._predictor = predictor
        self._tokenize = WordTokenizer(tokenizer)
        self._labels = labels
        self.scheme = scheme_of(labels.names)
        self.num_sentences = 0  # number of predicted sentences

    @classmethod
    def _of(cls, predictor: Predictor, tokenizer: Tokenizer, labels: Labels) -> TokenClassifier:
        """Creates a classifier from the parts that a command has."""
        classifier = cls.__new__(cls)
        classifier._set(predictor, tokenizer, labels)
        return classifier

    @classmethod
    @renamed_arguments(where="path")
    def load(
        cls,
        path: str | os.PathLike,
        *,
        labels: Sequence[str] | None = None,
        max_seq_length: int | None = None,
        batch_size: int = 8,
    ) -> TokenClassifier:
        """Loads a fine-tuned model.

        Args:
            path: a model of any format, see `load`. For a training directory, its best checkpoint
                is used, otherwise the newest.
            labels: see `TokenClassifier`. If `None`, the labels of the training (labels.json) are
                used.
            max_seq_length: see `TokenClassifier`.
            batch_size: see `TokenClassifier`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, it is not a token classifier, it has no tokenizer or
                labels, or they do not match.
        """
        found = find_model(path)
        model = found.load(AlbertForTokenClassification, "a model that classifies tokens")
        if labels is None and model.labels is None and found.task is not None:
            labels = found.task.labels.names
        return cls(model, labels=labels, max_seq_length=max_seq_length, batch_size=batch_size)

    @overload
    def __call__(self, texts: str) -> TaggedText: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, texts: Iterable[str] | Iterable[Sequence[str]]) -> list[TaggedText]: ...

    def __call__(
        self, texts: str | Iterable[str] | Iterable[Sequence[str]]
    ) -> TaggedText | list[TaggedText]:
        """Labels the words of a text, of texts, or of lists of words.

        Args:
            texts: a text; or N >= 1 texts; or N lists of words.

        Returns:
            The predictions, a list in the same order if `texts` is a list.

        Raises:
            TypeError: `texts` has another type.
            ValueError: there is no text, or the model's output is not finite.
        """
        if isinstance(texts, str):
            return self([texts])[0]
        rows = as_list("texts", texts, "texts")
        if isinstance(rows[0], str):
            rows = as_texts("texts", rows)
        else:
            rows = [_words(f"texts[{index}]", row) for index, row in enumerate(rows)]
        self.num_sentences = 0
        return [
            tagged for group in regrouped([rows], _SENTENCES_AT_ONCE) for tagged in self._tag(group)
        ]

    def _tag(self, rows: Sequence[Any]) -> Iterator[TaggedText]:
        """Labels texts, or lists of words, together."""
        spans = [
            split_words(row) if isinstance(row, str) else [(i, i + 1) for i in range(len(row))]
            for row in rows
        ]
        words = [
            [row[start:end] for start, end in found] if isinstance(row, str) else row
            for row, found in zip(rows, spans, strict=True)
        ]
        predicted = self._predict(words)
        for row, found, own, (labels, probabilities) in zip(
            rows, spans, words, predicted, strict=True
        ):
            found_entities = []
            if self.scheme != PLAIN:
                found_entities = text_entities(found, labels, probabilities, self.scheme)
            tagged = []
            for entity in found_entities:
                part = row[entity["start"] : entity["end"]]
                text = part if isinstance(row, str) else " ".join(part)
                tagged.append(TaggedEntity(entity.pop("label"), text, **entity))
            columns = zip(own, found, labels, probabilities, strict=True)
            yield TaggedText(
                [TaggedWord(word, *span, label, value) for word, span, label, value in columns],
                tagged,
            )

    def _predict(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[str], list[float]]]:
        """Returns labels and probabilities of the words of sentences, predicted together."""
        length = self._predictor.max_seq_length
        features = token_features(((words, None) for words in sentences), self._tokenize, length)
        description = f"predicting from sentence {self.num_sentences + 1}"
        predicted = predict_labels(features, self._predictor, description)
        self.num_sentences += len(sentences)
        names = [self._labels.names[i] for i in predicted.label_ids.tolist()]
        probabilities = predicted.probabilities.tolist()
        bounds = features.sentence_starts.tolist()
        return [(names[start:end], probabilities[start:end]) for start, end in pairwise(bounds)]


def _words(name: str, value: object) -> list[str]:
    """Returns the words of a row of the argument `texts`, which may be empty."""
    return as_texts(name, value) if not isinstance(value, list | tuple) or value else []


def predict_sentences(
    sentences: Iterable[Sentence], classifier: TokenClassifier
) -> Iterator[tuple[list[str], list[float]]]:
    """Yields labels and probabilities of the words of each sentence; memory use is constant."""
    rest = iter(sentences)
    while group := list(islice(rest, _SENTENCES_AT_ONCE)):
        yield from classifier._predict([sentence.words for sentence in group])


def is_text(path: str) -> bool:
    """Returns whether --predict_file has a text per line: the standard input, or a pipe."""
    return not can_be_read_twice(path, "a file of words")


def predict_file(
    path: str, classifier: TokenClassifier, output_path: str | None, token_column: int
) -> None:
    """Labels a file, or the lines of the standard input, "-".

    Files are written in their own format, see `write_predictions`. The standard input and pipes
    contain texts, which are written as JSON Lines with `text` and `predicted_entities` as soon as
    they arrive. The file at `output_path` appears when it is complete; if `None`, predictions go to
    the standard output.

    Raises:
        ValueError: the file is invalid; names the line.
    """
    try:
        with open_output(output_path) as out:
            if is_text(path):
                _predict_texts(path, classifier, out)
            else:
                predict_in_form(path, classifier, out, token_column)
    finally:
        logging.info("Predicted %d sentences", classifier.num_sentences)


def predict_in_form(
    path: str, classifier: TokenClassifier, out: IO[bytes], token_column: int
) -> None:
    """Writes a file of sentences with predictions, see `write_predictions`."""
    sentences = read_sentences(path, token_column=token_column, label_column=None)
    predicted = predict_sentences(sentences, classifier)
    write_predictions(path, out, predicted, classifier.scheme, token_column=token_column)


def _predict_texts(path: str, classifier: TokenClassifier, out: IO[bytes]) -> None:
    with open_input(path) as file:
        for texts in _texts(read_lines(file), path):
            spans = [split_words(text) for text in texts]
            words = [
                [text[start:end] for start, end in found]
                for text, found in zip(texts, spans, strict=True)
            ]
            for text, found, predicted in zip(
                texts, spans, classifier._predict(words), strict=True
            ):
                answer = {
                    "text": text,
                    "predicted_entities": text_entities(found, *predicted, classifier.scheme),
                }
                out.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
            out.flush()


def _texts(lines: Iterable[Sequence[bytes]], path: str) -> Iterator[list[str]]:
    """Yields groups of texts; before an error, the valid texts of its group."""
    number = 0
    for group in lines:
        texts: list[str] = []
        for line in group:
            number += 1
            try:
                texts.append(decode_utf8(line.removesuffix(b"\r"), source_name(path), line=number))
            except ValueError:
                if texts:
                    yield texts
                raise
        yield texts
