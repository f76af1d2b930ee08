"""The Python API of token classification."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from albert_tf.checkpoints.loading import (
    NEW_HEAD,
    build_as,
    build_kind,
    check_model,
    open_with_tokenizer,
)
from albert_tf.checkpoints.stored_task import TOKENS, StoredTask
from albert_tf.data.arguments import as_labels, as_list, check_same_length
from albert_tf.data.errors import UserError
from albert_tf.data.sequences import check_room
from albert_tf.data.strict_json import listed
from albert_tf.finetuning.fine_tuned import FineTuned
from albert_tf.finetuning.metrics import warn_of_constant
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.token_classification.data import Reading
from albert_tf.token_classification.features import token_features
from albert_tf.token_classification.labels import NO_LABEL, WITHOUT_LABEL, Sentence
from albert_tf.token_classification.run import TokenClassificationJob
from albert_tf.token_classification.word_tagger import (
    WordTagger,
    answers,
    as_words,
    evaluation_scores,
    predict_labels,
)
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import counting


class TokenClassifier(WordTagger, FineTuned):
    """Predicts labels of words and finds entities, and can be trained.

    Texts are split into words at blanks and punctuation. Words that are passed as lists are not
    split. Long inputs are split into overlapping windows, and each word is predicted in the window
    with the most context. Predictions equal the output of `run_token_classifier --predict_file`.

    Args:
        model: a token classifier.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        labels: names of the K labels in the order of the model's outputs. Default: `model.labels`.
        max_seq_length: maximum number of tokens of a window. Default: the value used in
            training; otherwise the smaller of 512 and the model's number of positions.
        batch_size: number of windows of this length per batch.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer or the labels do not match the model, or a number is out of range.
    """

    JOB = TokenClassificationJob

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
        predictor = new_predictor(
            model, model.config, task, max_seq_length=max_seq_length, batch_size=batch_size
        )
        check_room(False, predictor.max_seq_length)
        names = model.labels if labels is None else as_labels(labels)
        if names is None or len(names) != model.num_labels:
            raise UserError(
                f"labels must name the {model.num_labels} outputs of the model. Received: "
                f"{None if names is None else listed(names)}"
            )
        reading = Reading.stored(task.columns if task else {})
        super().__init__(predictor, tokenizer, Labels(tuple(names)), reading)
        self.model = model

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        labels: Sequence[str] | None = None,
        new_head: bool = False,
        rename_labels: bool = False,
        max_seq_length: int | None = None,
        batch_size: int = 8,
        precision: str = "float32",
    ) -> TokenClassifier:
        """Loads a model for predictions or for `fit`.

        Args:
            path: a model of any format; see `albert_tf.load`. For a training directory, the best
                checkpoint is used or, if there is none, the newest.
            labels: names of the labels, such as `["O", "B-person", "I-person"]`. If `None`, the
                labels of the stored classifier are used. If the model has no token classifier, it
                gets a new head with random weights for `labels`.
            new_head: whether to replace a stored classifier with a new head with random weights.
            rename_labels: whether to keep a stored classifier and rename its labels to `labels`.
            max_seq_length: see `TokenClassifier`.
            batch_size: see `TokenClassifier`.
            precision: see `TextClassifier.load`.

        For errors see `TextClassifier.load`.
        """
        labels = as_labels(labels)
        if labels is None and (new_head or rename_labels):
            raise UserError("new_head and rename_labels require labels. Received: labels=None")
        stored = open_with_tokenizer(path, precision=precision)
        if labels is None:
            model = build_kind(
                stored, AlbertForTokenClassification, f"a model that classifies tokens. {NEW_HEAD}"
            )
            labels = stored.task.labels.names if stored.task and model.labels is None else None
        else:
            settings = {"labels": labels, "new_head": new_head, "rename_labels": rename_labels}
            model = build_as(AlbertForTokenClassification, stored, settings)
        return cls(model, labels=labels, max_seq_length=max_seq_length, batch_size=batch_size)

    def fit(
        self,
        sentences: Iterable[Sequence[str]],
        labels: Iterable[Sequence[str]],
        *,
        validation_data: Sequence[Iterable[Sequence[str]]] | None = None,
        epochs: float | None = None,
        batch_size: int = 32,
        learning_rate: float | None = None,
        warm_start: bool = False,
        output_dir: str | os.PathLike | None = None,
        verbose: bool = True,
        **settings: Any,
    ) -> dict[str, float]:
        """Trains the model like `run_token_classifier` with the same data and settings.

        Args:
            sentences: N lists of words.
            labels: N lists of labels, a label per word. Words with `None`, -100 or "-" are context:
                they are not trained or scored.
            validation_data: sentences and labels to evaluate after every epoch; the best weights
                are kept. If `None`, the last weights are kept.
            epochs: see `TextClassifier.fit`; default for `mini`: 6, with at least 96 steps.
            batch_size: number of sentences per step.
            learning_rate: see `TextClassifier.fit`.
            warm_start: see `TextClassifier.fit`.
            output_dir: see `TextClassifier.fit`.
            verbose: see `TextClassifier.fit`.
            **settings: further `TokenClassificationSettings`, such as `seed` or `precision`.

        Returns:
            The scores of the best weights on `validation_data`, otherwise see `TextClassifier.fit`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no sentence, `labels` does not have one list per sentence and one
                label per word, or a label is unknown.
        """
        scores = self._fit(
            self._examples(sentences, labels),
            self._validation_examples(validation_data),
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warm_start=warm_start,
            output_dir=output_dir,
            verbose=verbose,
            **settings,
        )
        self.reading = Reading.stored(self.model.trained_task.columns)
        return scores

    def evaluate(
        self, sentences: Iterable[Sequence[str]], labels: Iterable[Sequence[str]]
    ) -> dict[str, float]:
        """Returns the scores of `run_token_classifier --do_eval`.

        Args:
            sentences: N lists of words.
            labels: N lists with a label for each word.
        """
        return self._scores(self._examples(sentences, labels))

    def _scores(self, examples: Sequence[Sentence]) -> dict[str, float]:
        ids = {NO_LABEL: -1} | {name: index for index, name in enumerate(self._labels.names)}
        labelled = ((row.words, [ids[label] for label in row.labels or ()]) for row in examples)
        length = self._predictor.max_seq_length
        with counting(self.tokenizer) as self._tokenize.counts:
            features = token_features(labelled, self._tokenize, length)
        predicted = predict_labels(features, self._predictor, "evaluating")
        warn_of_constant(*answers(features, predicted), self._labels)
        return evaluation_scores(features, predicted, self._labels, self.scheme)

    def _task(self, known: StoredTask | None = None) -> StoredTask:
        length = self._predictor.max_seq_length
        stored = known.columns if known else {}
        columns = {**stored, "token_column": "0", "label_column": "-1"}
        return StoredTask(TOKENS, self._labels, False, columns, length)

    def _examples(
        self, sentences: Iterable[Sequence[str]], labels: Iterable[Sequence[str]]
    ) -> list[Sentence]:
        rows = as_list("sentences", sentences, "lists of words")
        given_labels = as_list("labels", labels, "lists of labels")
        check_same_length("labels", given_labels, "sentences", rows)
        examples = []
        for index, pair in enumerate(zip(rows, given_labels, strict=True)):
            words = as_words(f"sentences[{index}]", pair[0])
            found = as_labels(pair[1], f"labels[{index}]", missing="-") or ()
            names = tuple(NO_LABEL if name in WITHOUT_LABEL else name for name in found)
            check_same_length(f"labels[{index}]", names, f"sentences[{index}]", words)
            for name in names:
                if name and name not in self._labels.names:
                    raise UserError(
                        f"labels[{index}] contains an unknown label. Expected one of "
                        f"{self._labels.allowed}. Received: {name!r}"
                    )
            if any(names):
                examples.append(Sentence(f"sentences[{index}]", tuple(words), names))
        if not examples:
            raise UserError("labels must contain a label. Received: only empty lists or None.")
        return examples
