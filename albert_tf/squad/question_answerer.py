"""The Python API of question answering."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from absl import logging

from albert_tf.checkpoints.loading import build_kind, check_model, open_with_tokenizer
from albert_tf.checkpoints.stored_task import SQUAD_TASKS, THRESHOLD, StoredTask
from albert_tf.data.arguments import (
    as_list,
    as_texts,
    check_same_length,
    check_single,
    check_whole_number,
    value_of,
)
from albert_tf.data.errors import UserError
from albert_tf.data.streams import regrouped
from albert_tf.data.strict_json import JsonValue, shown
from albert_tf.finetuning.fine_tuned import FineTuned
from albert_tf.finetuning.metrics import warn_of_constant
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.labels import Labels
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.squad.answerer import (
    QUESTIONS_AT_ONCE,
    Answerer,
    PlainQuestion,
    QuestionAnswer,
    select_answers,
)
from albert_tf.squad.answers import OUTPUTS, AnswerSettings
from albert_tf.squad.data import plain_question, questions_in, read_squad
from albert_tf.squad.features import check_lengths, squad_features
from albert_tf.squad.metrics import has_references
from albert_tf.squad.run import SquadJob, best_answers, scores
from albert_tf.tokenization.base import Tokenizer


class QuestionAnswerer(Answerer, FineTuned):
    """Answers questions with whole words of their contexts, like `run_squad --predict_json`.

    Args:
        model: a model of SQuAD 1.1, which answers every question, or of SQuAD 2.0.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        max_seq_length: maximum number of tokens of a window with its question. Default: the value
            used in training; otherwise the smaller of 384 and the model's number of positions.
        doc_stride: number of tokens between the starts of two windows. Default: the value used in
            training, otherwise 128.
        max_query_length: number of tokens to which questions are truncated. Default: the value used
            in training, otherwise 64.
        n_best_size: maximum number of candidates per question.
        max_answer_length: maximum number of tokens of an answer, before it is extended to words.
        null_score_diff_threshold: minimum null odds of unanswered questions, only for SQuAD 2.0.
            Default: the best threshold of the model's evaluation, otherwise 0.
        batch_size: number of windows of `max_seq_length` per batch.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer does not match the model, or a number is out of range.
    """

    STATE = (*FineTuned.STATE, "settings", "_threshold")
    JOB = SquadJob

    def __init__(
        self,
        model: AlbertForQuestionAnswering | AlbertForQuestionAnsweringWithBeamSearch,
        tokenizer: Tokenizer | None = None,
        *,
        max_seq_length: int | None = None,
        doc_stride: int | None = None,
        max_query_length: int | None = None,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        null_score_diff_threshold: float | None = None,
        batch_size: int = 8,
    ) -> None:
        tokenizer = check_model(model, self.JOB.MODELS, tokenizer)
        trained = model.trained_task or StoredTask("")
        version = 1 if isinstance(model, AlbertForQuestionAnswering) else 2
        predictor = new_predictor(
            model,
            model.config,
            trained,
            outputs=OUTPUTS[version],
            max_seq_length=max_seq_length,
            batch_size=batch_size,
            longest=AnswerSettings.max_seq_length,
        )
        threshold = null_score_diff_threshold
        if threshold is not None and (not isinstance(threshold, Real) or math.isnan(threshold)):
            raise UserError(f"{THRESHOLD} must be a number. Received: {threshold!r}")
        if version == 1 and threshold is not None:
            logging.warning("`%s` has no effect: SQuAD 1.1 answers every question", THRESHOLD)
        settings = AnswerSettings.of_task(
            version,
            trained,
            max_seq_length=predictor.max_seq_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
            n_best_size=n_best_size,
            max_answer_length=max_answer_length,
            threshold=threshold,
        )
        for name in ("doc_stride", "max_query_length", "n_best_size", "max_answer_length"):
            check_whole_number(name, getattr(settings, name), 1)
        check_lengths(**settings.lengths)
        super().__init__(predictor, tokenizer, settings)
        self.model = model
        self._threshold = settings.threshold

    @classmethod
    def load(
        cls, path: str | os.PathLike, *, precision: str = "float32", **settings: Any
    ) -> QuestionAnswerer:
        """Loads a fine-tuned model for predictions or for `fit`.

        `path` is a model of any format; see `albert_tf.load`. For a training directory, the best
        checkpoint is used or, if there is none, the newest. For `precision` see
        `TextClassifier.load`. For the other arguments see `QuestionAnswerer`.

        Raises:
            TypeError: an argument is unknown or has the wrong type.
            ValueError: there is no model, it has no tokenizer or does not answer questions, or a
                setting is out of range.
        """
        stored = open_with_tokenizer(path, precision=precision)
        model = build_kind(
            stored, cls.JOB.MODELS, "a model that answers questions (SQuAD 1.1 or 2.0)"
        )
        return cls(model, **settings)

    def __call__(self, questions: Iterable, *, contexts: object = None) -> list[QuestionAnswer]:
        """Answers each question with a span of its context.

        Args:
            questions: N >= 1 questions, or one question; or rows of a data set with `question` and
                `context`, as dictionaries or as a dictionary of lists.
            contexts: N texts that contain the answers. `None` for rows.

        Returns:
            N answers in the order of the questions; a single one for one question.

        Raises:
            TypeError: an argument is not a list of texts.
            ValueError: there is no question, the number of contexts differs, a row has no question
                or context, or the model's output is not finite.
        """
        if isinstance(questions, str):
            check_single("questions", "contexts", contexts)
            return self([questions], contexts=[contexts])[0]  # type: ignore
        if contexts is None:
            questions, contexts = _columns_of(questions)
        asked, texts = as_texts("questions", questions), as_texts("contexts", contexts)
        check_same_length("contexts", texts, "questions", asked)
        plain = [PlainQuestion(n, *row) for n, row in enumerate(zip(texts, asked, strict=True), 1)]
        self.num_questions, self.cut_questions = 0, []
        groups = regrouped([plain], QUESTIONS_AT_ONCE)
        answers = [answer for group in groups for answer in self.answer_group(group)]
        self.log("number")
        return answers

    def fit(
        self,
        questions: Iterable[str],
        contexts: Iterable[str],
        answers: Iterable[Any],
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
        """Trains the model like `run_squad` with the same data and settings.

        Args:
            questions: N questions.
            contexts: N texts that contain the answers.
            answers: N answers: a text; a list of texts; or as in SQuAD, a dictionary with the lists
                `text` and `answer_start`. `None` for a question of SQuAD 2.0 without an answer.
            validation_data: questions, contexts and answers to evaluate after every epoch; the best
                weights are kept. If `None`, the last weights are kept.
            epochs: number of passes over the questions; default: 3, for `mini` over the windows,
                with at least 96 steps. As in the original, batches contain windows, of which a
                long context has several.
            batch_size: number of windows per step.
            learning_rate: see `TextClassifier.fit`.
            warm_start: see `TextClassifier.fit`.
            output_dir: see `TextClassifier.fit`.
            verbose: see `TextClassifier.fit`.
            **settings: further `SquadSettings`, such as `seed`.

        Returns:
            The scores of the best weights on `validation_data`, otherwise see `TextClassifier.fit`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the lists differ in length, or more than 1% of the answers do not occur in
                their contexts.
        """
        names = ("n_best_size", "max_answer_length")
        found = self._fit(
            self._examples(questions, contexts, answers),
            self._validation_examples(validation_data),
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warm_start=warm_start,
            output_dir=output_dir,
            verbose=verbose,
            **{name: getattr(self.settings, name) for name in names} | settings,
        )
        before = self.settings.threshold if warm_start else self._threshold
        threshold = self.model.trained_task.settings.get(THRESHOLD, before)
        self.settings = replace(self.settings, threshold=threshold)
        return found

    def evaluate(
        self, questions: Iterable[str], contexts: Iterable[str], answers: Iterable[Any]
    ) -> dict[str, float]:
        """Returns the scores of `run_squad --do_predict`; for SQuAD 2.0, with the best threshold.

        Args:
            questions: N questions.
            contexts: N texts that contain the answers.
            answers: N answers; see `fit`.
        """
        return self._scores(self._examples(questions, contexts, answers))

    def _task(self, known: StoredTask | None = None) -> StoredTask:
        stored: dict[str, Any] = {**self.settings.lengths}
        length = stored.pop("max_seq_length")
        if self.settings.version == 2:
            stored |= {name: getattr(self.model, name) for name in ("start_n_top", "end_n_top")}
        return StoredTask(
            SQUAD_TASKS[self.settings.version], max_seq_length=length, settings=stored
        )

    def _examples(
        self, questions: object, contexts: object, answers: object
    ) -> list[dict[str, Any]]:
        """Returns questions as the rows of a file."""
        asked, texts = as_texts("questions", questions), as_texts("contexts", contexts)
        given = [_plain(answer) for answer in as_list("answers", answers, "texts")]
        check_same_length("contexts", texts, "questions", asked)
        check_same_length("answers", given, "questions", asked)
        for index, answer in enumerate(given):
            if not isinstance(answer, str | list | dict | None):
                kinds = "a text, a list of texts, a dictionary or None"
                raise TypeError(f"answers[{index}] must be {kinds}. Received: {shown(answer)}")
        is_optional = self.settings.version == 2
        return [
            {
                "question": question,
                "context": context,
                "answers": answer,
                "is_impossible": is_optional and not answer,
            }
            for question, context, answer in zip(asked, texts, given, strict=True)
        ]

    def _scores(self, examples: Sequence[Any]) -> dict[str, float]:
        settings = self.settings
        data = read_squad(
            "examples", version=settings.version, is_training=False, examples=examples
        )
        if settings.version == 1 and not has_references(data.questions, 1):
            raise UserError("`answers` must contain at least one answer. Received: none.")
        features = squad_features(
            data, self.tokenizer, **settings.lengths, is_training=False, is_logged=False
        )
        answers = select_answers(data, features, self._predictor, settings, "evaluating")
        found = scores(data, answers)
        warn_of_constant(*best_answers(data, answers, found), Labels())
        return found


def _plain(answer: Any) -> Any:
    """Returns an answer as in JSON; `None` for missing values and empty texts."""
    answer = value_of(answer)
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items()}
    if hasattr(answer, "tolist"):  # of NumPy and pandas
        answer = answer.tolist()
    if isinstance(answer, list | tuple):
        return [value if isinstance(value, str) else _plain(value) for value in answer]
    is_missing = (answer == answer) is not True  # NaN and NA in tables
    return None if is_missing or answer == "" else answer


def _columns_of(rows: Any) -> tuple[list[str], list[str] | None]:
    """Returns the questions and contexts of rows or columns; contexts are `None` for texts."""
    content = rows if isinstance(rows, dict) else as_list("questions", rows, "texts or rows")
    if isinstance(content, list) and isinstance(value_of(content[0]), str):
        return content, None
    found = [plain_question(row, 0) for row in questions_in(JsonValue(content, "questions"))]
    return [question for _, _, question in found], [context for _, context, _ in found]
