"""Python interface for multiple choice: chooses an option for each question."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from albert_tf.checkpoints.loading import build_kind, check_model, open_with_tokenizer
from albert_tf.checkpoints.stored_task import MULTIPLE_CHOICE, StoredTask
from albert_tf.data.arguments import (
    as_list,
    as_texts,
    check_same_length,
    check_single,
    check_whole_number,
    value_of,
)
from albert_tf.data.errors import UserError
from albert_tf.finetuning import metrics
from albert_tf.finetuning.fine_tuned import FineTuned
from albert_tf.finetuning.metrics import warn_of_constant
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import LETTERS, ChoiceExample
from albert_tf.multiple_choice.run import MultipleChoiceJob, chosen_letters, rounded_scores
from albert_tf.multiple_choice.settings import MultipleChoiceSettings
from albert_tf.multiple_choice.task import (
    CLASSES,
    ChoiceFeatures,
    check_lengths,
    choice_features,
    option_logits,
    stored_qa_length,
)
from albert_tf.tokenization.base import Tokenizer

# Assumed for models without `labels.json`. Their heads have the same variables as regressions, so
# the task cannot be detected.
_UNKNOWN = StoredTask(MULTIPLE_CHOICE)


class ChosenOption(NamedTuple):
    """The option that a model chooses for a question.

    Attributes:
        index: index of the most probable option, from 0.
        option: text of the option.
        probabilities: probabilities of all options, in order.
    """

    index: int  # type: ignore[assignment]  # replaces the method of tuples
    option: str
    probabilities: list[float]


class MultipleChoice(FineTuned):
    """Chooses one of several options for each question about a context.

    `run_race --do_predict` predicts the same probabilities.

    Args:
        model: a multiple-choice model.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        max_seq_length: maximum number of tokens of a sequence. The end of a longer context is
            truncated. Default: the value used in training; otherwise the smaller of 512 and the
            model's number of positions.
        max_qa_length: maximum number of tokens of a question with an option. The start of a longer
            text is truncated. Default: the value used in training, otherwise 128.
        batch_size: number of questions per batch if their sequences have `max_seq_length` tokens;
            batches of shorter sequences are larger.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer does not match the model, or a number is out of range.
    """

    STATE = (*FineTuned.STATE, "max_qa_length", "batch_size")
    JOB = MultipleChoiceJob

    def __init__(
        self,
        model: AlbertForMultipleChoice,
        tokenizer: Tokenizer | None = None,
        *,
        max_seq_length: int | None = None,
        max_qa_length: int | None = None,
        batch_size: int = 8,
    ) -> None:
        self.tokenizer = check_model(model, AlbertForMultipleChoice, tokenizer)
        task = model.trained_task or _UNKNOWN
        if max_qa_length is None:
            max_qa_length = stored_qa_length(task)
        self._predictor = new_predictor(
            model, model.config, task, max_seq_length=max_seq_length, batch_size=batch_size
        )
        check_whole_number("max_qa_length", max_qa_length)
        check_lengths(self._predictor.max_seq_length, max_qa_length)
        self.max_qa_length = max_qa_length
        self.batch_size = batch_size
        self.model = model

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        max_seq_length: int | None = None,
        max_qa_length: int | None = None,
        batch_size: int = 8,
        precision: str = "float32",
    ) -> MultipleChoice:
        """Loads a fine-tuned model for predictions or for `fit`.

        `path` is a model of any format, see `albert_tf.load`. In a training directory, the best
        checkpoint is used, otherwise the newest. For `max_seq_length`, `max_qa_length` and
        `batch_size` see `MultipleChoice`, for `precision` see `TextClassifier.load`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, it has no tokenizer or is not a multiple-choice model, or
                a number is out of range.
        """
        stored = open_with_tokenizer(path, precision=precision)
        model = build_kind(stored, AlbertForMultipleChoice, "a multiple-choice model", _UNKNOWN)
        return cls(
            model, max_seq_length=max_seq_length, max_qa_length=max_qa_length, batch_size=batch_size
        )

    def __call__(
        self,
        questions: str | Iterable[str],
        *,
        contexts: str | Iterable[str],
        options: Iterable[str] | Iterable[Iterable[str]],
    ) -> list[ChosenOption]:
        """Chooses an option for each question.

        Args:
            questions: N questions. An option replaces each blank, "_" or "____". If there is none,
                the option is appended to the question.
            contexts: N texts that the questions are about.
            options: N lists of 2 to 26 texts. Their lengths may differ.
                For one question, one context and one list.

        Returns:
            N choices in the order of the questions; a single one for one question.

        Raises:
            TypeError: an argument is not a list of texts, or of lists of texts.
            ValueError: there is no question, the lists differ in length, a question has too few or
                too many options, or the model's output is not finite.
        """
        if isinstance(questions, str):
            check_single("questions", "contexts", contexts)
            return self([questions], contexts=[contexts], options=[options])[0]  # type: ignore
        examples = _questions(questions, contexts, options)
        _, logits = self._logits(examples, "choosing")
        shares = metrics.probabilities(logits, CLASSES).tolist()
        rows = zip(logits.argmax(axis=1).tolist(), examples, shares, strict=True)
        return [
            ChosenOption(chosen, example.options[chosen], row[: len(example.options)])
            for chosen, example, row in rows
        ]

    def fit(
        self,
        questions: Iterable[str],
        contexts: Iterable[str],
        options: Iterable[Iterable[str]],
        labels: Iterable[int],
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
        """Trains the model like `run_race` with the same data and settings.

        Args:
            questions: N questions.
            contexts: N texts that the questions are about.
            options: N lists of 2 to 26 texts.
            labels: N indices of the correct options, from 0.
            validation_data: questions, contexts, options and labels to evaluate after every epoch;
                the best weights are kept. If `None`, the last weights are kept.
            epochs: see `TextClassifier.fit`.
            batch_size: number of questions per step.
            learning_rate: see `TextClassifier.fit`.
            warm_start: see `TextClassifier.fit`.
            output_dir: see `TextClassifier.fit`.
            verbose: see `TextClassifier.fit`.
            **settings: further `MultipleChoiceSettings`, such as `seed`.

        Returns:
            The scores of the best weights on `validation_data`, otherwise see `TextClassifier.fit`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the lists differ in length, or an index is out of range.
        """
        return self._fit(
            self._examples(questions, contexts, options, labels),
            self._validation_examples(validation_data),
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warm_start=warm_start,
            output_dir=output_dir,
            verbose=verbose,
            **settings,
        )

    def evaluate(
        self,
        questions: Iterable[str],
        contexts: Iterable[str],
        options: Iterable[Iterable[str]],
        labels: Iterable[int],
    ) -> dict[str, float]:
        """Returns the scores of `run_race --do_eval`.

        Args:
            questions: N questions.
            contexts: N texts that the questions are about.
            options: N lists of 2 to 26 texts.
            labels: N indices of the correct options, from 0.
        """
        return self._scores(self._examples(questions, contexts, options, labels))

    def _task(self, known: StoredTask | None = None) -> StoredTask:
        return StoredTask(
            MULTIPLE_CHOICE,
            max_seq_length=self._predictor.max_seq_length,
            settings={"max_qa_length": self.max_qa_length},
        )

    def _examples(
        self, questions: object, contexts: object, options: object, labels: object
    ) -> list[ChoiceExample]:
        examples = _questions(questions, contexts, options)
        found = as_list("labels", labels, "indices of options")
        check_same_length("labels", found, "questions", examples)
        found = [value_of(label) for label in found]
        for index, (example, label) in enumerate(zip(examples, found, strict=True)):
            check_whole_number(f"labels[{index}]", label, 0)
            if label >= len(example.options):
                limit = f"{len(example.options)}, the number of options"
                raise UserError(f"labels[{index}] must be less than {limit}. Received: {label}")
        return [replace(e, label=int(label)) for e, label in zip(examples, found, strict=True)]

    def _scores(self, examples: Sequence[ChoiceExample]) -> dict[str, float]:
        features, logits = self._logits(examples, "evaluating")
        warn_of_constant(*chosen_letters(features, logits), Labels())
        return rounded_scores(features, logits, MultipleChoiceSettings.eval_batch_size)

    def _logits(
        self, examples: Sequence[ChoiceExample], description: str
    ) -> tuple[ChoiceFeatures, np.ndarray]:
        length = self._predictor.max_seq_length
        features = choice_features(
            examples, self.tokenizer, max_seq_length=length, max_qa_length=self.max_qa_length
        )
        self._predictor.tokens_per_batch = self.batch_size * features.num_choices * length
        return features, option_logits(features, self._predictor, description)


def _questions(questions: object, contexts: object, options: object) -> list[ChoiceExample]:
    texts, asked = as_texts("contexts", contexts), as_texts("questions", questions)
    given = []
    for index, values in enumerate(as_list("options", options, "lists of texts")):
        given.append(tuple(as_texts(f"options[{index}]", values)))
        if not 2 <= len(given[-1]) <= len(LETTERS):
            raise UserError(
                f"options[{index}] must have 2 to {len(LETTERS)} texts. Received: {len(given[-1])}"
            )
    check_same_length("questions", asked, "contexts", texts)
    check_same_length("options", given, "contexts", texts)
    rows = zip(texts, asked, given, strict=True)
    return [ChoiceExample(str(index), *row) for index, row in enumerate(rows)]
