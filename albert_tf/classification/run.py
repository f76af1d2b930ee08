"""The job of `run_classifier`: training, evaluation, prediction and export."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from absl import logging

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.checkpoints.stored_task import QUESTION_TASKS, TOKENS, StoredTask
from albert_tf.classification.data import (
    CustomData,
    GlueData,
    log_labels,
    read_prediction_file,
)
from albert_tf.classification.export import export_classifier, export_text_classifier
from albert_tf.classification.settings import ClassificationSettings
from albert_tf.classification.task import ClassificationTask, label_scale, text_features
from albert_tf.classification.text_predictor import TextPredictor, check_file, predict_file
from albert_tf.data.errors import UserError
from albert_tf.data.files import write_files
from albert_tf.data.rows import RowReport
from albert_tf.data.sequences import MANY_TRUNCATED, check_room
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.data.streams import is_regular_file
from albert_tf.finetuning import flow
from albert_tf.finetuning.class_weights import class_weights
from albert_tf.finetuning.job import Job, RunContext, check_predictions
from albert_tf.finetuning.metrics import (
    confusion_matrix,
    label_text,
    predictions,
    probabilities,
    rounded,
    score_names,
    scores,
)
from albert_tf.finetuning.texts import TextExample
from albert_tf.glue import GLUE_TASKS, glue_task_name
from albert_tf.labels import Labels, label_cell
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.settings import JobResult

_HEADER = ("index", "prediction")
_COLUMNS = ("text_a_column", "text_b_column", "label_column")


class ClassifierJob(Job[ClassificationSettings]):
    """Classification and regression of texts or pairs of texts; see `Job`."""

    MODELS = (AlbertForClassification,)
    SETTINGS = ClassificationSettings
    ACTIONS = ("do_train", "do_eval", "do_predict", "predict_file", "export_dir")
    DROPOUT = "classifier_dropout_prob"

    @classmethod
    def check(cls, settings: ClassificationSettings) -> None:
        """See `Job`."""
        super().check(settings)
        check_predictions(settings, "predict_file")

    @classmethod
    def task_name(cls, settings: ClassificationSettings, trained: StoredTask | None) -> str:
        """See `Job`."""
        known = trained.name if trained else ""
        if known in (*QUESTION_TASKS, TOKENS):
            known = CustomData.name  # rejected later, with the names of both tasks
        name = settings.task_name or known
        if not name:
            raise UserError(
                f"`task_name` must be a GLUE task, or custom for other files, because "
                f"{settings.output_dir!r} contains no model with a known task."
            )
        return name.lower() if name.lower() == CustomData.name else glue_task_name(name)

    @classmethod
    def trained_settings(
        cls, settings: ClassificationSettings, trained: StoredTask
    ) -> dict[str, Any]:
        """See `Job`; ignores stored column numbers if given columns are names, and vice versa."""
        known = {**super().trained_settings(settings, trained), **trained.columns}
        known["regression"] = trained.labels.is_regression
        known["multi_label"] = trained.labels.multi_label
        known["multi_label_threshold"] = trained.labels.threshold
        is_numbered = (trained.columns.get(_COLUMNS[0]) or "").isdecimal()
        given = [getattr(settings, name) for name in _COLUMNS]
        if any(column.isdecimal() != is_numbered for column in given if column):
            known = {name: value for name, value in known.items() if name not in _COLUMNS}
        return known

    def __init__(self, context: RunContext[ClassificationSettings]) -> None:
        super().__init__(context)
        settings, name, trained = context.settings, context.task_name, context.trained
        is_custom = name == CustomData.name
        columns = {flag: getattr(settings, flag) for flag in _COLUMNS} if is_custom else {}
        self.data = self._data(columns)
        self.examples = self.for_splits(self._read)
        if self.examples:
            is_pair = any(e.text_b is not None for rows in self.examples.values() for e in rows)
        elif trained and trained.is_pair is not None:
            is_pair = trained.is_pair
        elif is_custom:
            is_pair = bool(settings.text_b_column)
        else:
            is_pair = len(GLUE_TASKS[name].text_names) == 2
        check_room(is_pair, settings.max_seq_length)
        self.examples_to_predict = None
        if settings.predict_file and is_regular_file(settings.predict_file, "a text file"):
            path = settings.predict_file
            self.examples_to_predict = read_prediction_file(self.data, path, is_pair)
            check_file(path, is_pair, self.tokenizer, self.examples_to_predict)
        self.is_pair = is_pair
        self.labels = self.data.labels
        self.task = StoredTask(
            name, self.labels, is_pair, columns, settings.max_seq_length, scale=self._scale()
        )
        self.choose_metric(self.data.best_metric, score_names(self.data.metrics, self.labels))
        self.evaluates = settings.do_eval
        self.class_weights = self._class_weights() if settings.do_train else None

    def _read(self, split: str) -> list[TextExample]:
        path = self.data.file(split)
        if path not in self.context.examples:
            return self.data.read(split)
        examples, issues = [*self.context.examples[path]], RowReport(path, "number")
        for example in examples:
            if not all(text.strip() for text in (example.text_a, example.text_b or "-")):
                issues.add("an empty text, kept", example.guid)
        issues.log()
        log_labels(path, split, examples, self.data.labels)
        return examples

    def _scale(self) -> tuple[float, float] | None:
        """Returns the scale of the regression, from the trained model or the training set."""
        context, settings = self.context, self.settings
        is_custom = self.labels.is_regression and context.task_name == CustomData.name
        known = context.trained.scale if context.trained else None
        if not (is_custom and settings.do_train):
            return known
        path = self.data.file(TRAIN)
        scale = label_scale(self.labels.encode([e.label or "" for e in self.examples[TRAIN]]), path)
        settle(stated("scale", {context.trained_in: known, path: scale}), Meeting.RESUME)
        return known or scale

    def _class_weights(self) -> np.ndarray | None:
        setting, labels = self.settings.class_weights, self.labels
        if setting is None:
            return None
        if labels.is_regression:
            raise UserError(
                f"`class_weights` needs classes, but `task_name`={self.context.task_name} predicts "
                f"numbers. Received: {setting!r}"
            )
        ids = labels.encode([example.label or "" for example in self.examples[TRAIN]])
        if labels.multi_label:
            counts = ids.sum(axis=0, dtype=np.int64)
        else:
            counts = np.bincount(ids, minlength=labels.num_outputs)
        return class_weights(setting, labels.names, counts)

    def _data(self, columns: Mapping[str, Any]) -> GlueData | CustomData:
        context = self.context
        settings, name, trained = context.settings, context.task_name, context.trained
        if settings.multi_label and name != CustomData.name:
            raise UserError(
                f"`multi_label` needs `task_name`={CustomData.name}. Received: `task_name`={name}"
            )
        threshold = settings.multi_label_threshold
        is_multi_label = settings.multi_label or (trained and trained.labels.multi_label)
        if threshold != Labels.threshold and not is_multi_label:
            raise UserError(f"`multi_label_threshold`={threshold} needs `multi_label`.")
        if name == CustomData.name:
            return CustomData(
                settings.train_file,
                settings.dev_file,
                settings.test_file,
                **columns,
                regression=settings.regression,
                labels=trained.labels if trained else None,
                multi_label=settings.multi_label,
                threshold=settings.multi_label_threshold,
            )
        needs_data = settings.do_train or settings.do_eval or settings.do_predict
        if needs_data and not settings.data_dir:
            raise UserError(f"`task_name`={name} needs `data_dir`, GLUE's download directory.")
        return GlueData(name, settings.data_dir or "")

    def make_task(self) -> ClassificationTask:
        """See `Job`."""
        settings = self.settings
        self.features = {}
        for split, examples in self.examples.items():
            data = examples, self.labels, self.tokenizer, settings.max_seq_length
            limit = MANY_TRUNCATED if split == TRAIN else 1.0
            source = self.data.file(split)
            self.features[split] = text_features(*data, warn_above=limit, source=source)
        return ClassificationTask(
            self.config,
            self.labels,
            self.features.get(TRAIN),
            classifier_dropout_prob=settings.classifier_dropout_prob,
            class_weights=self.class_weights,
            scale=self.task.scale,
            **self.inputs,
        )

    def evaluate(self) -> dict[str, float]:
        """See `Job`."""
        batch_size, features = self.settings.eval_batch_size, self.features[DEV]
        label_ids = features.label_ids
        assert label_ids is not None, "rows without a label are skipped"
        predictor = self.predictor(batch_size)
        logits = predictor.predict(features.sequences, "evaluating")["logits"]
        predicted = predictions(logits, self.labels)
        self.evaluated = predicted, label_ids
        if self.labels.is_regression:
            self.arrays = {"label_ids": label_ids, "pred": predicted}
        elif not self.labels.multi_label:
            self.confusions = confusion_matrix(predicted, label_ids, self.labels.num_outputs)
        return rounded(scores(logits, label_ids, self.data.metrics, self.labels, batch_size))

    def predict(self, step: int) -> None:
        """See `Job`."""
        settings = self.settings
        if settings.do_predict:
            self._predict()
        if settings.predict_file:
            predictor = self.predictor(settings.predict_batch_size)
            text_predictor = TextPredictor(predictor, self.tokenizer, self.labels, self.is_pair)
            path, output = settings.predict_file, settings.predict_output_file
            predict_file(path, text_predictor, output, self.examples_to_predict)

    def export(self, export_dir: str, *, texts: bool) -> None:
        """See `Job`."""
        parts = self.model, self.task, self.tokenizer, export_dir
        self.export_model(*parts, texts=texts, threshold=self.settings.threshold_to_export)

    @staticmethod
    def export_model(
        model: Any,
        task: StoredTask,
        tokenizer: Tokenizer,
        export_dir: str,
        *,
        texts: bool,
        threshold: float | None = None,
    ) -> str:
        """See `Job`. For `threshold` see `export_classifier`."""
        length = task.max_seq_length
        assert length is not None
        if not texts:
            return export_classifier(model, task.labels, export_dir, length, threshold)
        return export_text_classifier(
            model, task.labels, tokenizer, export_dir, length, bool(task.is_pair), threshold
        )

    def _predict(self) -> None:
        features, labels, output_dir = self.features[TEST], self.labels, self.settings.output_dir
        predictor = self.predictor(self.settings.predict_batch_size)
        logits = predictor.predict(features.sequences)["logits"]
        as_text = str if labels.is_regression else partial(label_text, labels=labels)
        names = [as_text(one) for one in predictions(logits, labels)]
        write_predictions(output_dir, features.guids, probabilities(logits, labels), names)
        logging.info("Predicted %d rows of %s", len(names), self.data.file(TEST))
        if self.data.submission_file:
            path = os.path.join(output_dir, self.data.submission_file)
            submitted = clip_similarity(logits[:, 0]) if labels.is_regression else names
            rows = [_HEADER, *zip(features.guids, submitted, strict=True)]
            write_files({path: _table(rows)})


def write_predictions(
    output_dir: str, guids: Sequence[str], scores: np.ndarray, predictions: Sequence[str]
) -> None:
    """Writes `test_results.tsv` and `submit_results.tsv`, each with a row per example.

    `scores` are probabilities, float [N, K], or numbers of a regression, [N, 1].
    """
    numbers = [list(map(str, row)) for row in scores.astype(np.float32)]
    rows = [_HEADER, *zip(map(label_cell, guids), map(label_cell, predictions), strict=True)]
    tables = {"test_results.tsv": _table(numbers), "submit_results.tsv": _table(rows)}
    write_files({os.path.join(output_dir, name): text for name, text in tables.items()})


def clip_similarity(values: np.ndarray) -> list[str]:
    """Clips numbers [N] to [0, 5], the range of STS-B, and formats them with three decimals."""
    return [f"{value:.3f}" for value in np.clip(values, 0.0, 5.0)]


def _table(rows: Iterable[Iterable[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def run_classification(
    settings: ClassificationSettings, on_log: Callable[[Mapping[str, Any]], None] | None = None
) -> JobResult:
    """Trains, evaluates and applies a classifier, as `run_classifier.py` does.

    Args:
        settings: see `ClassificationSettings`.
        on_log: called with each record of `JobResult.history`, for example for W&B or MLflow. If it
            raises an error, the job ends; checkpoints are kept.

    Returns:
        The scores, the best checkpoint and the logged records.

    Raises:
        ValueError: settings or data are missing, invalid or contradictory, which is detected before
            anything is written; or training diverged.
        OSError: another run uses `output_dir`, or a file cannot be read or written.
        KeyboardInterrupt: Ctrl-C, or the stop button of a notebook. The finished steps are saved,
            and the same call resumes. Other signals raise `SystemExit` after saving. Signals are
            only handled in the main thread.
    """
    return flow.run(ClassifierJob, settings, on_log)
