"""The Python API of classification and regression."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from dataclasses import replace
from typing import Any

import numpy as np

from albert_tf.checkpoints.loading import (
    NEW_HEAD,
    build_as,
    build_kind,
    check_model,
    open_with_tokenizer,
)
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.classification.data import CustomData, metrics_for
from albert_tf.classification.run import ClassifierJob
from albert_tf.classification.settings import LABEL, TEXT_A, TEXT_B, ClassificationSettings
from albert_tf.classification.task import text_features
from albert_tf.classification.text_predictor import TEXTS_AT_ONCE, TextPrediction, TextPredictor
from albert_tf.data.arguments import (
    as_labels,
    as_list,
    check_choice,
    check_same_length,
    check_single,
    texts_and_pairs,
    value_of,
)
from albert_tf.data.errors import UserError
from albert_tf.data.sequences import check_room
from albert_tf.data.streams import regrouped
from albert_tf.data.strict_json import listed
from albert_tf.finetuning.fine_tuned import FineTuned
from albert_tf.finetuning.metrics import predictions, rounded, scores, warn_of_constant
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.finetuning.texts import TextExample, text_examples
from albert_tf.labels import LABEL_SEPARATOR, Labels, split_labels
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.tokenization.base import Tokenizer


class TextClassifier(TextPredictor, FineTuned):
    """Predicts labels or numbers for texts or pairs of texts, and can be trained.

    Predictions equal the output of `run_classifier --predict_file`.

    Args:
        model: a classifier or a regression.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        labels: names of the K classes in the order of the model's outputs; empty for regression.
            Default: `model.labels`.
        pairs: whether inputs are pairs of texts. Default: as in training. If that is unknown,
            both are accepted.
        max_seq_length: number of tokens to which sequences are truncated. Default: the value used
            in training; otherwise the smaller of 512 and the model's number of positions.
        batch_size: number of sequences of this length per batch.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer or the labels do not match the model, or a number is out of range.
    """

    STATE = (*FineTuned.STATE, "pairs")
    JOB = ClassifierJob

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
        predictor = new_predictor(
            model, model.config, task, max_seq_length=max_seq_length, batch_size=batch_size
        )
        check_room(bool(pairs), predictor.max_seq_length)
        super().__init__(predictor, tokenizer, _matching_labels(labels, model), pairs)
        self.model = model

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        labels: Sequence[str] | None = None,
        multi_label: bool = False,
        new_head: bool = False,
        rename_labels: bool = False,
        max_seq_length: int | None = None,
        batch_size: int = 8,
        precision: str = "float32",
    ) -> TextClassifier:
        """Loads a model for predictions or for `fit`.

        Args:
            path: a model of any format; see `albert_tf.load`. For a training directory, the best
                checkpoint is used or, if there is none, the newest.
            labels: names of the classes, which may be integers or Booleans; empty for a regression.
                If `None`, the labels of the stored classifier are used. If the model has no
                classifier, it gets a new head with random weights for `labels`.
            multi_label: whether a new head predicts any number of labels per text.
            new_head: whether to replace a stored classifier with a new head with random weights.
            rename_labels: whether to keep a stored classifier and rename its classes to `labels`.
            max_seq_length: see `TextClassifier`.
            batch_size: see `TextClassifier`.
            precision: precision of matrix products in predictions, "float32" or "bfloat16".

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, it has no tokenizer, labels are missing, or `labels`
                differ from the labels of the stored classifier.
        """
        labels = as_labels(labels)
        if labels is None and (multi_label or new_head or rename_labels):
            raise UserError(
                "multi_label, new_head and rename_labels require labels. Received: labels=None"
            )
        stored = open_with_tokenizer(path, precision=precision)
        if labels is None:
            model = build_kind(
                stored,
                AlbertForClassification,
                f"a model with a classifier or a regression. {NEW_HEAD}",
            )
            if stored.task is None and model.num_labels > 1:
                raise UserError(
                    f"`labels` must name the {model.num_labels} classes of {stored.path!r}, which "
                    "contains no names. Received: None"
                )
        else:
            head: dict[str, Any] = {"new_head": new_head, "rename_labels": rename_labels}
            head |= {"labels": labels} if labels else {"num_labels": 1}
            head |= {"multi_label": True} if multi_label else {}
            model = build_as(AlbertForClassification, stored, head)
        names = stored.task.labels.names if labels is None and stored.task else None
        return cls(model, labels=names, max_seq_length=max_seq_length, batch_size=batch_size)

    def __call__(
        self, texts: str | Iterable[str], text_pairs: str | Iterable[str] | None = None
    ) -> list[TextPrediction]:
        """Predicts the label of each text.

        Args:
            texts: N >= 1 texts, or one text.
            text_pairs: N second texts if the model classifies pairs.

        Returns:
            N predictions in the order of the texts; a single one for one text.

        Raises:
            TypeError: an argument is not a list of texts.
            ValueError: there is no text, second texts are missing or unexpected, or an output of
                the model is not finite.
        """
        if isinstance(texts, str):
            check_single("texts", "text_pairs", text_pairs)
            return self([texts], None if text_pairs is None else [text_pairs])[0]  # type: ignore
        first, second = texts_and_pairs(texts, text_pairs)
        if self.pairs is not None and self.pairs != (second is not None):
            raise UserError(
                "text_pairs must contain the second texts, because the model was trained on pairs. "
                "Received: None"
                if self.pairs
                else "text_pairs must be None, because the model was trained on single texts. "
                f"Received: {len(second or [])} texts"
            )
        self.num_texts = 0
        return [
            prediction
            for group in regrouped([text_examples(first, second)], TEXTS_AT_ONCE)
            for prediction in self.predict_examples(group, warn_above=0.0)
        ]

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Any],
        pairs: Iterable[str] | None = None,
        *,
        validation_data: Sequence[Iterable[Any]] | None = None,
        epochs: float | None = None,
        batch_size: int = 32,
        learning_rate: float | None = None,
        warm_start: bool = False,
        output_dir: str | os.PathLike | None = None,
        verbose: bool = True,
        **settings: Any,
    ) -> dict[str, float]:
        """Trains the model like `run_classifier` with the same data and settings.

        Args:
            texts: N texts: a list, an array or a column of a table.
            labels: N names of classes or numbers of a regression. For a multi-label model, N lists
                of names, N dictionaries of names with 0 or 1, or an array or a table [N, K] of 0
                and 1.
            pairs: N second texts.
            validation_data: texts, labels and, for pairs, second texts to evaluate after every
                epoch; the best weights are kept. If `None`, the last weights are kept.
            epochs: number of passes over the texts; default: 3, for `mini` with at least 96 steps.
                The learning rate increases during the first tenth and then decays to 0.
            batch_size: number of examples per step.
            learning_rate: highest learning rate. Default: the default of `run_classifier`, or 1e-4
                for `mini`.
            warm_start: whether to continue from the current weights. If `False`, every call starts
                from the weights that were loaded, and a new head is drawn again.
            output_dir: directory for checkpoints and logs. Repeating the call with the same
                directory resumes training. Default: a temporary directory.
            verbose: whether to show progress, and to print loss and score after every epoch.
            **settings: further `ClassificationSettings`, such as `seed` or `class_weights`.

        Returns:
            The scores of the best weights on `validation_data`, otherwise loss and, if known,
            accuracy in the last epoch of training.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no text, the numbers of texts and labels differ, or a label is
                unknown.
        """
        train = self._examples(texts, labels, pairs)
        dev = self._validation_examples(validation_data)
        is_pair = train[0].text_b is not None
        if dev and (dev[0].text_b is not None) != is_pair:
            raise UserError(
                "`validation_data` must contain second texts if and only if `pairs` is given."
            )
        columns: dict[str, str | None] = {
            "text_a_column": TEXT_A,
            "text_b_column": TEXT_B * is_pair,
            "label_column": LABEL,
        }
        found = self._fit(
            train,
            dev,
            {"is_pair": is_pair, "columns": columns},
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warm_start=warm_start,
            output_dir=output_dir,
            verbose=verbose,
            **settings,
        )
        self.pairs = is_pair
        return found

    def evaluate(
        self, texts: Iterable[str], labels: Iterable[Any], pairs: Iterable[str] | None = None
    ) -> dict[str, float]:
        """Returns the scores of `run_classifier --do_eval`.

        Args:
            texts: N texts.
            labels: N labels; see `fit`.
            pairs: N second texts if the model classifies pairs.
        """
        return self._scores(self._examples(texts, labels, pairs))

    def _scores(self, examples: Sequence[TextExample]) -> dict[str, float]:
        length = self._predictor.max_seq_length
        features = text_features(examples, self._labels, self.tokenizer, length)
        assert features.label_ids is not None
        logits = self._predictor.predict(features.sequences, "evaluating")["logits"]
        warn_of_constant(predictions(logits, self._labels), features.label_ids, self._labels)
        _, names = metrics_for(self._labels)
        batch_size = ClassificationSettings.eval_batch_size
        return rounded(scores(logits, features.label_ids, names, self._labels, batch_size))

    def _task(self, known: StoredTask | None = None) -> StoredTask:
        length = self._predictor.max_seq_length
        scale = known.scale if known else None
        return StoredTask(
            CustomData.name, self._labels, self.pairs, max_seq_length=length, scale=scale
        )

    def _examples(
        self, texts: Iterable[str], labels: Iterable[Any], pairs: Iterable[str] | None = None
    ) -> list[TextExample]:
        examples = text_examples(*texts_and_pairs(texts, pairs))
        if self._labels.multi_label and getattr(labels, "ndim", 1) == 2:
            # A table, a sparse matrix, or an array
            ways = {"to_dict": ["records"], "toarray": [], "__array__": []}
            way = next(name for name in ways if hasattr(labels, name))
            labels = getattr(labels, way)(*ways[way])
        given = as_list("labels", labels, "labels")
        check_same_length("labels", given, "texts", examples)
        return [
            replace(example, label=self._label(f"labels[{index}]", label))
            for index, (example, label) in enumerate(zip(examples, given, strict=True))
        ]

    def _label(self, name: str, label: Any) -> str:
        """Returns a label as in files; raises ValueError if it is unknown."""
        label = value_of(label)
        if self._labels.is_regression:
            try:
                number = float(label)
            except (TypeError, ValueError):
                number = math.nan
            if not math.isfinite(number):
                raise UserError(f"{name} must be a finite number. Received: {label!r}")
            return str(number)
        if isinstance(label, float) and str(label) not in self._labels.names:
            label = int(label) if label.is_integer() else label  # tables store integers as floats
        names, values = [str(label)], [1]
        if self._labels.multi_label:
            label = split_labels(label) if isinstance(label, str) else label
            names, values = self._indicators(name, label)
        if not set(names) <= set(self._labels.names):
            raise UserError(f"{name} must be {self._labels.allowed}. Received: {label!r}")
        return LABEL_SEPARATOR.join(n for n, value in zip(names, values, strict=True) if value)

    def _indicators(self, name: str, label: Any) -> tuple[list[str], list[Any]]:
        """Returns the names in a list or a dictionary, or all names for an array, with 0 or 1."""
        names, values = label, [1] * len(label) if isinstance(label, Sized) else []
        if isinstance(label, np.ndarray) and label.dtype.kind in "biuf":
            check_same_length(name, label, "the classes of the model", self._labels.names)
            names, values = self._labels.names, label.tolist()
        elif isinstance(label, Mapping):
            values = [value_of(value) for value in label.values()]
        elif not isinstance(label, list | tuple | Set | np.ndarray):
            kinds = "a list of names, or a dictionary or an array with 1 for classes and else 0"
            raise TypeError(f"{name} must be {kinds}. Received: {label!r}")
        if not all(value in (0, 1) for value in values):
            raise UserError(f"{name} must contain only the values 0 and 1. Received: {label!r}")
        return [str(value_of(one)) for one in names], values


def _matching_labels(names: object, model: AlbertForClassification) -> Labels:
    """Returns the argument `labels`, or the labels of the model; checks their number."""
    given = as_labels(model.labels if names is None else names) or ()
    if (len(given) or 1) != model.num_labels:
        wanted = f"name the {model.num_labels} outputs of the model"
        if model.num_labels == 1:
            wanted = "be empty for a regression"
        raise UserError(f"labels must {wanted}. Received: {listed(given) or None}")
    known = model.trained_task.labels if model.trained_task else Labels()
    return Labels(given, model.multi_label, known.threshold)
