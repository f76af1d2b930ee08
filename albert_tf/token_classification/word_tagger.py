"""Predicts labels of words, and entities of texts."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, overload

import numpy as np
from scipy import special

from albert_tf.data.arguments import as_list, as_texts, value_of
from albert_tf.data.streams import is_regular_file, parse_lines, regrouped, write_lines
from albert_tf.finetuning.metrics import rounded
from albert_tf.finetuning.predictor import Predictor
from albert_tf.labels import Labels, label_cell
from albert_tf.token_classification.data import (
    DEFAULT_READING,
    SENTENCES_AT_ONCE,
    Prediction,
    Reading,
    lines_with_predictions,
    split_words,
    text_entities,
)
from albert_tf.token_classification.features import TokenFeatures, WordTokenizer, token_features
from albert_tf.token_classification.labels import PLAIN, scheme_of, scores
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import counting


class TaggedWord(NamedTuple):
    """A word with its predicted label.

    Attributes:
        text: the word.
        start, end: characters `start` to `end` of the text, end exclusive. If words were given,
            indices of words.
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
        text: text of the entity. If words were passed, they are joined by blanks.
        start, end: see `TaggedWord`.
        probability: mean probability of the labels of its words.
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
        entities: entities in the order of the text; empty if labels are plain.
    """

    words: list[TaggedWord]
    entities: list[TaggedEntity]


class Predicted(NamedTuple):
    """Predictions for W words."""

    label_ids: np.ndarray  # int32 [W]; the most probable labels
    probabilities: np.ndarray  # float32 [W]; probabilities of these labels
    losses: np.ndarray | None  # float32 [W]; cross entropy of the correct labels, if known


def predict_labels(
    features: TokenFeatures, predictor: Predictor, description: str = "predicting"
) -> Predicted:
    """Predicts labels of all words; raises ValueError if an output of the model is not finite."""
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


def answers(features: TokenFeatures, predicted: Predicted) -> tuple[np.ndarray, np.ndarray]:
    """Returns the predicted and the correct labels of the words with a label."""
    assert features.label_ids is not None
    is_labelled = features.label_ids >= 0
    return predicted.label_ids[is_labelled], features.label_ids[is_labelled]


def evaluation_scores(
    features: TokenFeatures, predicted: Predicted, labels: Labels, scheme: str
) -> dict[str, float]:
    """Returns `labels.scores` and `eval_loss`, the mean loss of words, rounded to float32.

    Words without a label are omitted.
    """
    assert features.label_ids is not None
    assert predicted.losses is not None
    names, is_labelled = np.array(labels.names, object), features.label_ids >= 0

    def sentences(ids: np.ndarray) -> Iterator[list[str]]:
        for start, end in pairwise(features.sentence_starts.tolist()):
            yield names[ids[start:end][is_labelled[start:end]]].tolist()

    found = scores(sentences(features.label_ids), sentences(predicted.label_ids), scheme)
    found["eval_loss"] = float(predicted.losses[is_labelled].mean(dtype=np.float64))
    return rounded({label_cell(name): value for name, value in found.items()})


class WordTagger:
    """Labels the words of texts.

    Attributes:
        num_sentences: number of predicted sentences.
        reading: how files are read, and texts are split.
    """

    def __init__(
        self,
        predictor: Predictor,
        tokenizer: Tokenizer,
        labels: Labels,
        reading: Reading = DEFAULT_READING,
    ) -> None:
        self._predictor = predictor
        self.tokenizer = tokenizer
        self._tokenize = WordTokenizer(tokenizer)
        self._labels = labels
        self.reading = reading
        self.num_sentences = 0

    @property
    def scheme(self) -> str:
        """Scheme of the labels."""
        return scheme_of(self._labels.names, self.reading.label_scheme)

    @overload
    def __call__(self, texts: str) -> TaggedText: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, texts: Iterable[str] | Iterable[Sequence[str]]) -> list[TaggedText]: ...

    def __call__(
        self, texts: str | Iterable[str] | Iterable[Sequence[str]]
    ) -> TaggedText | list[TaggedText]:
        """Labels the words of a text, of texts, or of lists of words.

        Args:
            texts: a text, N >= 1 texts, or N >= 1 lists of words.

        Returns:
            The predictions for a text, otherwise a list of N predictions.

        Raises:
            TypeError: `texts` has the wrong type.
            ValueError: there is no text, or an output of the model is not finite.
        """
        if isinstance(texts, str):
            return self([texts])[0]
        rows = as_list("texts", texts, "texts")
        if isinstance(value_of(rows[0]), str):
            rows = as_texts("texts", rows)
        else:
            rows = [as_words(f"texts[{index}]", row) for index, row in enumerate(rows)]
        self.num_sentences = 0
        return [tag for group in regrouped([rows], SENTENCES_AT_ONCE) for tag in self._tag(group)]

    def _tag(self, rows: Sequence[Any]) -> Iterator[TaggedText]:
        for row, offsets, words, labels, probabilities in self.predict_rows(rows):
            columns = zip(words, offsets, labels, probabilities, strict=True)
            tagged = [
                TaggedWord(word, start, end, label, probability)
                for word, (start, end), label, probability in columns
            ]
            found = []
            if self.scheme != PLAIN:
                for entity in text_entities(offsets, labels, probabilities, self.scheme):
                    part = row[entity["start"] : entity["end"]]
                    text = part if isinstance(row, str) else " ".join(part)
                    found.append(TaggedEntity(entity.pop("label"), text, **entity))
            yield TaggedText(tagged, found)

    def predict_rows(self, rows: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yields each row, a text or list of words, with offsets, words, labels, probabilities."""
        unit = self.reading.word_unit
        spans = [
            split_words(row, unit)
            if isinstance(row, str)
            else [(i, i + 1) for i in range(len(row))]
            for row in rows
        ]
        words = [
            [row[start:end] for start, end in offsets] if isinstance(row, str) else row
            for row, offsets in zip(rows, spans, strict=True)
        ]
        for *columns, found in zip(rows, spans, words, self.predict_words(words), strict=True):
            yield (*columns, *found)

    def predict_words(self, sentences: Sequence[Sequence[str]]) -> list[Prediction]:
        """Returns the labels and probabilities of the words of each sentence."""
        length = self._predictor.max_seq_length
        rows = ((words, None) for words in sentences)
        with counting(self.tokenizer) as self._tokenize.counts:
            features = token_features(rows, self._tokenize, length)
        description = f"predicting from sentence {self.num_sentences + 1}"
        predicted = predict_labels(features, self._predictor, description)
        self.num_sentences += len(sentences)
        names = [self._labels.names[i] for i in predicted.label_ids.tolist()]
        probabilities = predicted.probabilities.tolist()
        bounds = features.sentence_starts.tolist()
        return [(names[start:end], probabilities[start:end]) for start, end in pairwise(bounds)]


def as_words(name: str, value: object) -> list[str]:
    """Returns an argument as a list of words; raises TypeError if it is of another type."""
    value = value_of(value)
    return as_texts(name, value) if not isinstance(value, list | tuple) or value else []


def predict_file(
    path: str,
    tagger: WordTagger,
    output_path: str | None,
    kind: str | None = None,
) -> None:
    """Labels the words of a file, or of the lines of the standard input, "-".

    Predictions for files have the format of the file, see `lines_with_predictions`. For `kind`, see
    `recognize_kind`. Lines of the standard input and of pipes are texts. Their predictions are JSON
    Lines with `text` and `predicted_entities`, and are written immediately. If `output_path` is
    `None`, predictions are written to the standard output. Raises ValueError, with the line, if the
    input is invalid.
    """
    predict, scheme = tagger.predict_words, tagger.scheme

    def answers(texts: list[str]) -> Iterator[str]:
        for text, offsets, _, labels, probabilities in tagger.predict_rows(texts):
            entities = text_entities(offsets, labels, probabilities, scheme)
            yield json.dumps({"text": text, "predicted_entities": entities}, ensure_ascii=False)

    groups: Iterable[Iterable[str]]
    if is_regular_file(path, "a file of words"):
        reading = tagger.reading._replace(kind=kind, labels=tagger._labels.names)
        groups = lines_with_predictions(path, predict, scheme, reading)
    else:
        groups = map(answers, parse_lines(path, lambda text, number: text))
    write_lines(output_path, groups)
