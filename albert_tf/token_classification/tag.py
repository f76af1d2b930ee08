"""Entities and labels of words that a token classifier predicts for new texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import IO, Any, NamedTuple, overload

import numpy as np
from absl import logging
from scipy import special

from albert_tf.data.arguments import as_list, as_texts
from albert_tf.data.files import decode_utf8
from albert_tf.data.streams import (
    can_be_read_twice,
    open_input,
    open_output,
    read_lines,
    regrouped,
    source_name,
)
from albert_tf.data.text_examples import Labels, label_cell
from albert_tf.finetuning.predictor import Predictor
from albert_tf.token_classification.data import (
    Sentence,
    read_sentences,
    split_words,
    text_entities,
    write_predictions,
)
from albert_tf.token_classification.features import TokenFeatures, WordTokenizer, token_features
from albert_tf.token_classification.labels import PLAIN, scheme_of
from albert_tf.token_classification.metrics import scores
from albert_tf.tokenization.base import Tokenizer

# Sentences of lists and files are grouped in the same way, so batches and numbers are equal.
_SENTENCES_AT_ONCE = 1024
FLAG = "`predict_file`"


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


def evaluation_scores(
    features: TokenFeatures, predicted: Predicted, labels: Labels, scheme: str
) -> dict[str, float]:
    """Returns the scores of predictions for features with labels, rounded to float32.

    They are those of `metrics.scores`, and `eval_loss`, a mean over words.
    """
    assert features.label_ids is not None
    assert predicted.losses is not None
    names = np.array(labels.names, object)

    def sentences(ids: np.ndarray) -> Iterator[list[str]]:
        for start, end in pairwise(features.sentence_starts.tolist()):
            yield names[ids[start:end]].tolist()

    found = scores(sentences(features.label_ids), sentences(predicted.label_ids), scheme)
    found["eval_loss"] = float(predicted.losses.mean(dtype=np.float64))
    return {label_cell(name): float(np.float32(value)) for name, value in found.items()}


class WordTagger:
    """Labels the words of texts.

    Args:
        predictor: runs the model.
        tokenizer: the tokenizer of the model.
        labels: labels of the model.

    Attributes:
        num_sentences: number of predicted sentences.
        scheme: scheme of the labels.
    """

    def __init__(self, predictor: Predictor, tokenizer: Tokenizer, labels: Labels) -> None:
        self._predictor = predictor
        self._tokenizer = tokenizer
        self._tokenize = WordTokenizer(tokenizer)
        self._labels = labels
        self.scheme = scheme_of(labels.names)
        self.num_sentences = 0

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
            rows = [as_words(f"texts[{index}]", row) for index, row in enumerate(rows)]
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


def as_words(name: str, value: object) -> list[str]:
    """Returns a list of words, which may be empty; TypeError names it."""
    return as_texts(name, value) if not isinstance(value, list | tuple) or value else []


def predict_sentences(
    sentences: Iterable[Sentence], tagger: WordTagger
) -> Iterator[tuple[list[str], list[float]]]:
    """Yields labels and probabilities of the words of each sentence; memory use is constant."""
    rest = iter(sentences)
    while group := list(islice(rest, _SENTENCES_AT_ONCE)):
        yield from tagger._predict([sentence.words for sentence in group])


def is_text(path: str) -> bool:
    """Returns whether --predict_file has a text per line: the standard input, or a pipe."""
    return not can_be_read_twice(path, "a file of words")


def predict_file(path: str, tagger: WordTagger, output_path: str | None, token_column: int) -> None:
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
                _predict_texts(path, tagger, out)
            else:
                predict_in_form(path, tagger, out, token_column)
    finally:
        logging.info("Predicted %d sentences", tagger.num_sentences)


def predict_in_form(path: str, tagger: WordTagger, out: IO[bytes], token_column: int) -> None:
    """Writes a file of sentences with predictions, see `write_predictions`."""
    sentences = read_sentences(path, token_column=token_column, label_column=None)
    predicted = predict_sentences(sentences, tagger)
    write_predictions(path, out, predicted, tagger.scheme, token_column=token_column)


def _predict_texts(path: str, tagger: WordTagger, out: IO[bytes]) -> None:
    with open_input(path) as file:
        for texts in _texts(read_lines(file), path):
            spans = [split_words(text) for text in texts]
            words = [
                [text[start:end] for start, end in found]
                for text, found in zip(texts, spans, strict=True)
            ]
            for text, found, predicted in zip(texts, spans, tagger._predict(words), strict=True):
                answer = {
                    "text": text,
                    "predicted_entities": text_entities(found, *predicted, tagger.scheme),
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
