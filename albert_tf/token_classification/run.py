"""The job of `run_token_classifier`: training, evaluation, prediction and export."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from absl import logging

from albert_tf.checkpoints.stored_task import TOKENS, StoredTask
from albert_tf.data.errors import UserError
from albert_tf.data.rows import JSON_LINES
from albert_tf.data.schema import log_counts
from albert_tf.data.sequences import check_room
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.data.streams import is_regular_file, source_name
from albert_tf.data.strict_json import listed, shown
from albert_tf.finetuning import flow
from albert_tf.finetuning.class_weights import class_weights
from albert_tf.finetuning.job import Job, RunContext, check_predictions
from albert_tf.finetuning.metrics import confusion_matrix
from albert_tf.labels import Labels, label_cell, warn_of_doubtful_labels
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.token_classification.data import (
    COLUMNS,
    READING_SETTINGS,
    Reading,
    read_sentences,
    recognize_kind,
)
from albert_tf.token_classification.export import (
    check_word_unit,
    export_text_token_classifier,
    export_token_classifier,
)
from albert_tf.token_classification.features import TokenFeatures, WordTokenizer, token_features
from albert_tf.token_classification.labels import (
    NO_LABEL,
    OUTSIDE,
    PLAIN,
    Sentence,
    best_metric,
    recognize_scheme,
    scheme_of,
    score_names,
    split_label,
)
from albert_tf.token_classification.settings import TokenClassificationSettings
from albert_tf.token_classification.task import TokenClassificationTask
from albert_tf.token_classification.word_tagger import (
    WordTagger,
    answers,
    evaluation_scores,
    predict_file,
    predict_labels,
)
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import counting
from albert_tf.training.settings import JobResult

_ACTIONS = {TRAIN: "do_train", DEV: "do_eval", TEST: "do_predict"}  # the action for each split


class TokenClassificationJob(Job[TokenClassificationSettings]):
    """Classification of words; see `Job`."""

    MODELS = (AlbertForTokenClassification,)
    SETTINGS = TokenClassificationSettings
    ACTIONS = ("do_train", "do_eval", "do_predict", "predict_file", "export_dir")
    DROPOUT = "classifier_dropout_prob"
    TASK = TOKENS

    @classmethod
    def check(cls, settings: TokenClassificationSettings) -> None:
        """See `Job`."""
        super().check(settings)
        check_predictions(settings, "predict_file")
        for split, action in _ACTIONS.items():
            if getattr(settings, action) and not getattr(settings, f"{split}_file"):
                raise UserError(f"`{action}` needs `{split}_file`.")

    @classmethod
    def task_name(cls, settings: TokenClassificationSettings, trained: StoredTask | None) -> str:
        """See `Job`."""
        return TOKENS

    @classmethod
    def trained_settings(
        cls, settings: TokenClassificationSettings, trained: StoredTask
    ) -> dict[str, Any]:
        """See `Job`."""
        reading = Reading.stored(trained.columns)
        columns = {name: getattr(reading, name) for name in trained.columns}
        return {**super().trained_settings(settings, trained), **columns}

    def __init__(self, context: RunContext[TokenClassificationSettings]) -> None:
        super().__init__(context)
        settings, trained = context.settings, context.trained
        check_room(False, settings.max_seq_length)
        if settings.export_text_model:
            check_word_unit(settings.word_unit)
        self.labels = trained.labels if trained else Labels()
        is_new = not self.labels.names
        if is_new and not settings.train_file:
            raise UserError(
                "The labels are unknown. Pass `train_file` to read them, or an `output_dir` that "
                "contains a model with labels."
            )
        self.kinds: dict[str, str] = {}  # of files to predict
        self.sentences: dict[str, list[Sentence]] = {}  # by split, until they become features
        schemes = {}
        self.class_weights = None
        if settings.do_train or is_new:
            counts, schemes[TRAIN] = self._check_labels(TRAIN)
            if is_new:
                self.labels = self._new_labels(counts)
            if settings.do_train and settings.class_weights is not None:
                names = self.labels.names
                occurrences = np.array([counts[name] for name in names])
                self.class_weights = class_weights(settings.class_weights, names, occurrences)
        if settings.do_eval:
            _, schemes[DEV] = self._check_labels(DEV)
        if len({*schemes.values()} - {PLAIN}) > 1:
            raise UserError(
                "`dev_file` and `train_file` must use the same scheme. Received: "
                f"{schemes[DEV]} in {settings.dev_file}, {schemes[TRAIN]} in {settings.train_file}"
            )
        self.scheme = scheme_of(self.labels.names, settings.label_scheme)
        if settings.do_predict and settings.test_file:
            self._check_words(settings.test_file)
        if settings.predict_file and is_regular_file(settings.predict_file, "a file of words"):
            self._check_words(settings.predict_file)
        given = {name: getattr(settings, name) for name in READING_SETTINGS}
        columns = {name: str(value) for name, value in given.items() if value is not None}
        self.task = StoredTask(TOKENS, self.labels, False, columns, settings.max_seq_length)
        scored = map(label_cell, score_names(self.labels.names, self.scheme))
        self.choose_metric(best_metric(self.scheme), [*scored, "eval_loss"])
        self.evaluates = settings.do_eval

    def _read(self, path: str, *, has_labels: bool = True) -> Iterator[Sentence]:
        if path in self.context.examples:
            return iter(self.context.examples[path])
        if not is_regular_file(path, "a file of words"):
            raise UserError(f"{source_name(path)} must be a file, because it is read twice.")
        given = {name: getattr(self.settings, name) for name in READING_SETTINGS}
        reading = Reading(**given, labels=self.labels.names, kind=self.kinds.get(path))
        reading = reading._replace(reads_labels=has_labels)
        return read_sentences(path, reading, needs_labels=has_labels)

    def _check_words(self, path: str) -> None:
        label_column = self.settings.label_column
        self.kinds[path] = recognize_kind(path, self.labels.names, label_column)
        tokenize = WordTokenizer(self.tokenizer)
        with counting(self.tokenizer, path) as tokenize.counts:
            for sentence in self._read(path, has_labels=False):
                tokenize(sentence.words)

    def _check_labels(self, split: str) -> tuple[Counter[str], str]:
        """Reads a split and checks its labels. Returns their counts and their scheme."""
        path = getattr(self.settings, f"{split}_file")
        names = {*self.labels.names}
        sentences = self.sentences[split] = [*self._read(path)]
        counts: Counter[str] = Counter()
        for sentence in sentences:
            labels = sentence.labels or ()
            counts.update(labels)
            if names and not (names | {NO_LABEL}).issuperset(labels):
                index = next(i for i, name in enumerate(labels) if name and name not in names)
                raise UserError(
                    f"{sentence.where(index)} has an unknown label. Expected one of "
                    f"{self.labels.allowed}. Received: {shown(labels[index])}"
                )
        scheme = recognize_scheme(sentences, self.settings.label_scheme)
        message = "%s: %d sentences (%s), scheme %s (`label_scheme` sets another)"
        logging.info(message, path, len(sentences), split, scheme)
        if num_unlabelled := counts.pop(NO_LABEL, 0):
            message = f"{path}: {num_unlabelled} words have no label (null, -100 or -)"
            if scheme != PLAIN and OUTSIDE not in counts and any(split_label(n)[1] for n in counts):
                raise UserError(
                    f"{message}, but no word has the label O. Use O outside of entities."
                )
            logging.warning("%s and are only context", message)
        log_counts(path, split, "word", counts.total(), dict(counts.most_common()))
        return counts, scheme

    def _new_labels(self, counts: Counter[str]) -> Labels:
        """Returns the labels of the training file: `O` first, the others sorted by code points."""
        path = str(self.settings.train_file)
        if len(counts) < 2:
            raise UserError(
                f"`train_file` must contain at least two labels. Received: {path}, in which all "
                f"words have the label {listed(counts)}. `label_column` selects the column."
            )
        names = sorted(counts, key=lambda name: (name != OUTSIDE, name))
        warn_of_doubtful_labels(path, names)
        return Labels(tuple(names))

    def make_task(self) -> TokenClassificationTask:
        """See `Job`."""
        settings = self.settings
        tokenize = WordTokenizer(self.tokenizer)
        self.features = {
            split: self._features(split, tokenize)
            for split in (TRAIN, DEV)
            if getattr(settings, _ACTIONS[split])
        }
        return TokenClassificationTask(
            self.config,
            self.labels,
            self.features.get(TRAIN),
            classifier_dropout_prob=settings.classifier_dropout_prob,
            class_weights=self.class_weights,
            **self.inputs,
        )

    def _features(self, split: str, tokenize: WordTokenizer) -> TokenFeatures:
        path, length = getattr(self.settings, f"{split}_file"), self.settings.max_seq_length
        ids = {NO_LABEL: -1} | {name: i for i, name in enumerate(self.labels.names)}
        sentences = self.sentences.pop(split)
        rows = ((s.words, [ids[label] for label in s.labels or ()]) for s in sentences)
        with counting(self.tokenizer, path) as tokenize.counts:
            features = token_features(rows, tokenize, length)
        logging.debug("%s: windows=%d max_seq_length=%d", path, len(features.sequences), length)
        return features

    def evaluate(self) -> dict[str, float]:
        """See `Job`."""
        features = self.features[DEV]
        predictor = self.predictor(self.settings.eval_batch_size)
        predicted = predict_labels(features, predictor, "evaluating")
        self.evaluated = answers(features, predicted)
        self.confusions = confusion_matrix(*self.evaluated, len(self.labels.names))
        return evaluation_scores(features, predicted, self.labels, self.scheme)

    def predict(self, step: int) -> None:
        """See `Job`."""
        settings = self.settings
        if settings.do_predict or settings.predict_file:
            predictor = self.predictor(settings.predict_batch_size)
            reading = Reading.stored(self.task.columns)
            tagger = WordTagger(predictor, self.tokenizer, self.labels, reading)
        if settings.do_predict and settings.test_file:
            kind = self.kinds[settings.test_file]
            is_copied = kind in (COLUMNS, JSON_LINES)
            ending = os.path.splitext(settings.test_file)[1] if is_copied else ".jsonl"
            path = os.path.join(settings.output_dir, f"test_results{ending}")
            predict_file(settings.test_file, tagger, path, kind)
            logging.info("Wrote predictions for %s to %s", settings.test_file, path)
        if settings.predict_file:
            path, output = settings.predict_file, settings.predict_output_file
            try:
                predict_file(path, tagger, output, self.kinds.get(path))
            finally:
                logging.info("Predicted %d sentences", tagger.num_sentences)

    @staticmethod
    def export_model(
        model: Any, task: StoredTask, tokenizer: Tokenizer, export_dir: str, *, texts: bool
    ) -> str:
        """See `Job`."""
        if not texts:
            return export_token_classifier(model, task.labels, export_dir)
        length = task.max_seq_length
        assert length is not None
        reading = Reading.stored(task.columns)
        return export_text_token_classifier(
            model, task.labels, tokenizer, export_dir, length, reading
        )


def run_token_classification(
    settings: TokenClassificationSettings, on_log: Callable[[Mapping[str, Any]], None] | None = None
) -> JobResult:
    """Trains, evaluates and applies a token classifier, as `run_token_classifier.py` does.

    For `settings` see `TokenClassificationSettings`. For `on_log` and the result see
    `run_classification`.
    """
    return flow.run(TokenClassificationJob, settings, on_log)
