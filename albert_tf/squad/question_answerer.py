"""Answers questions about texts in lists, JSON documents or JSON Lines.

Input files contain a list of objects with `context`, `question` and optionally `id`; or one such
object per line; or questions in the format of SQuAD or CMRC 2018. `QuestionAnswer.to_json`
describes the output.
"""

from __future__ import annotations

import codecs
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from numbers import Real
from typing import Any, NamedTuple

from absl import logging

from albert_tf.checkpoints.loading import build_kind, check_model, open_with_tokenizer
from albert_tf.checkpoints.stored_task import THRESHOLD, StoredTask
from albert_tf.data.arguments import as_list, as_texts, check_same_length, check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.data.rows import count_rows
from albert_tf.data.streams import (
    is_regular_file,
    open_input,
    read_lines,
    regrouped,
    source_name,
    write_lines,
)
from albert_tf.data.strict_json import JsonValue, parse_json
from albert_tf.finetuning.predictor import Predictor, new_predictor
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.squad.answers import (
    OUTPUTS,
    AnswerCandidate,
    AnswerSelector,
    AnswerSettings,
    SquadAnswers,
)
from albert_tf.squad.data import WANTED, Question, SquadData, plain_question, questions_in
from albert_tf.squad.features import SquadFeatures, check_lengths, squad_features
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import counting

# The same value for lists and files, so that both have the same batches and rounding errors.
_QUESTIONS_AT_ONCE = 256
_MODELS = (AlbertForQuestionAnswering, AlbertForQuestionAnsweringWithBeamSearch)


class PlainQuestion(NamedTuple):
    """A question about a context."""

    question_id: str | int  # need not be unique
    context: str
    question: str


def read_plain_questions(
    lines: Iterable[Sequence[bytes]], path: str
) -> Iterator[list[PlainQuestion]]:
    """Yields the questions of each group of lines, see `streams.read_lines`.

    The default id is the number of the question from 1, as text. Raises ValueError if JSON is
    malformed or a text is missing, after the questions before the error have been yielded. The
    message names `path` and the line or the keys.
    """
    number = 0
    source = source_name(path)
    for group in _documents(lines):
        questions: list[PlainQuestion] = []
        try:
            for line, data in group:
                where = source if b"\n" in data else f"{source}: line {line}"
                content = JsonValue(parse_json(data, source, line=line), where)
                for row in questions_in(content):
                    number += 1
                    questions.append(PlainQuestion(*plain_question(row, number)))
        except ValueError as error:
            if questions:
                yield questions
            raise UserError(f"{error} Expected: {WANTED}.") from error
        if questions:
            yield questions


def _documents(lines: Iterable[Sequence[bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yields the numbers and contents of the lines of each group. A document becomes one line."""
    number = 1
    groups = iter(lines)
    is_first = True
    for group in groups:
        found = [(n, line) for n, line in enumerate(group, number) if line.strip()]
        if found and is_first:
            is_first = False
            first = found[0][1].strip().removeprefix(codecs.BOM_UTF8)
            if first.startswith(b"[") or (first.startswith(b"{") and not first.endswith(b"}")):
                found = [(number, b"\n".join(chain(group, *groups)))]
        yield found
        number += len(group)


class QuestionAnswer(NamedTuple):
    """The answer to a question.

    Attributes:
        answer: the best answer, a part of the context; "" if there is no answer.
        probability: probability among the candidates. `None` if there is no answer.
        start, end: context[start:end] is the answer, in characters. `None` if there is no answer.
        null_odds: higher if an answer is less likely. `None` for SQuAD 1.1.
        n_best: the candidates, best first.
    """

    answer: str
    probability: float | None
    start: int | None
    end: int | None
    null_odds: float | None
    n_best: list[AnswerCandidate]

    def to_json(self, question_id: str | int) -> dict[str, Any]:
        """Returns the object that the command writes for the question with this id.

        It contains `id`, `answer`, `probability`, `start`, `end`; for SQuAD 2.0 `is_answered` and
        `null_odds`; and `n_best`, a list of objects with the keys from `answer` to `end`.
        """
        keys = ("answer", "probability", "start", "end")
        written = {"id": question_id, **dict(zip(keys, self[:4], strict=True))}
        if self.null_odds is not None:
            written |= {"is_answered": self.start is not None, "null_odds": self.null_odds}
        n_best = [(c.text, c.probability, c.start, c.end) for c in self.n_best]
        return {**written, "n_best": [dict(zip(keys, row, strict=True)) for row in n_best]}


def select_answers(
    data: SquadData,
    features: SquadFeatures,
    predictor: Predictor,
    settings: AnswerSettings,
    description: str,
    **options: bool,
) -> SquadAnswers:
    """Returns the answers of a model."""
    options["ranks_padding"] = predictor.padding == "max"  # like the original, which pads all
    selector = AnswerSelector(data, features, settings, **options)
    for rows, outputs in predictor.batches(features.sequences, description):
        selector.add(rows, outputs)
    return selector.answers()


class Answerer:
    """Answers groups of questions."""

    def __init__(
        self, predictor: Predictor, tokenizer: Tokenizer, settings: AnswerSettings
    ) -> None:
        self._predictor = predictor
        self.tokenizer = tokenizer
        self.settings = settings
        self.num_questions = 0
        self.cut_questions: list[str] = []  # ids of truncated questions

    def answer_group(self, questions: Sequence[PlainQuestion]) -> list[QuestionAnswer]:
        """Answers questions in shared batches; memory use grows with their number."""
        settings = self.settings
        contexts: dict[str, int] = {}
        asked = []
        for number, question in enumerate(questions):
            index = contexts.setdefault(question.context, len(contexts))
            asked.append(Question(str(number), question.question, index, (), False))
        data = SquadData(list(contexts), asked, "questions")
        features = squad_features(
            data, self.tokenizer, **settings.lengths, is_training=False, is_logged=False
        )
        self.cut_questions += [str(questions[n].question_id) for n in features.cut_questions]
        description = f"answering from question {self.num_questions + 1}"
        answers = select_answers(
            data, features, self._predictor, settings, description, whole_words=True
        )
        self.num_questions += len(questions)
        found = []
        for number in range(len(questions)):
            # Without spans, the only candidate is not in the context.
            n_best = [candidate for candidate in answers.candidates[number] if candidate.start >= 0]
            odds = None if answers.null_odds is None else float(answers.null_odds[number])
            threshold = settings.threshold
            best: tuple[str, Any, Any, Any] = ("", None, None, None)
            if n_best and (odds is None or threshold is None or odds < threshold):
                text, probability, *_, start, end = n_best[0]
                best = text, probability, start, end
            found.append(QuestionAnswer(*best, odds, n_best))
        return found

    def log(self, unit: str) -> None:
        """Logs truncated questions."""
        if self.cut_questions:
            limit = f"`max_query_length`={self.settings.max_query_length}"
            what = f"a question longer than {limit}, truncated"
            logging.warning("questions: %s", count_rows(unit, what, self.cut_questions))


class QuestionAnswerer(Answerer):
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
        tokenizer = check_model(model, _MODELS, tokenizer)
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
        lengths: dict[str, Any] = {"doc_stride": doc_stride, "max_query_length": max_query_length}
        for name, value in lengths.items():
            default = trained.settings.get(name, getattr(AnswerSettings, name))
            lengths[name] = default if value is None else value
        threshold = null_score_diff_threshold
        if threshold is None:
            threshold = trained.settings.get(THRESHOLD, None if version == 1 else 0.0)
        if threshold is not None and (not isinstance(threshold, Real) or math.isnan(threshold)):
            raise UserError(f"{THRESHOLD} must be a number. Received: {threshold!r}")
        if version == 1 and threshold is not None:
            logging.warning("`%s` has no effect: SQuAD 1.1 answers every question", THRESHOLD)
            threshold = None
        settings = AnswerSettings(
            version,
            predictor.max_seq_length,
            n_best_size=n_best_size,
            max_answer_length=max_answer_length,
            threshold=threshold,
            **lengths,
        )
        for name in ("doc_stride", "max_query_length", "n_best_size", "max_answer_length"):
            check_whole_number(name, getattr(settings, name), 1)
        check_lengths(**settings.lengths)
        super().__init__(predictor, tokenizer, settings)

    @classmethod
    def load(
        cls, path: str | os.PathLike, *, precision: str = "float32", **settings: Any
    ) -> QuestionAnswerer:
        """Loads a fine-tuned model.

        `path` is a model of any format; see `albert_tf.load`. For a training directory, the best
        checkpoint is used or, if there is none, the newest. For `precision` see
        `TextClassifier.load`. For the other arguments see `QuestionAnswerer`.

        Raises:
            TypeError: an argument is unknown or has the wrong type.
            ValueError: there is no model, it has no tokenizer or does not answer questions, or a
                setting is out of range.
        """
        stored = open_with_tokenizer(path, precision=precision)
        model = build_kind(stored, _MODELS, "a model that answers questions (SQuAD 1.1 or 2.0)")
        return cls(model, **settings)

    def __call__(self, questions: Iterable, *, contexts: object = None) -> list[QuestionAnswer]:
        """Answers each question with a span of its context.

        Args:
            questions: N >= 1 questions, or rows of a data set with `question` and `context`, as
                dictionaries or as a dictionary of lists.
            contexts: N texts that contain the answers. `None` for rows.

        Returns:
            N answers in the order of the questions.

        Raises:
            TypeError: an argument is not a list of texts.
            ValueError: there is no question, the number of contexts differs, a row has no question
                or context, or the model's output is not finite.
        """
        if contexts is None:
            questions, contexts = _columns_of(questions)
        asked, texts = as_texts("questions", questions), as_texts("contexts", contexts)
        check_same_length("contexts", texts, "questions", asked)
        plain = [PlainQuestion(n, *row) for n, row in enumerate(zip(texts, asked, strict=True), 1)]
        self.num_questions, self.cut_questions = 0, []
        groups = regrouped([plain], _QUESTIONS_AT_ONCE)
        answers = [answer for group in groups for answer in self.answer_group(group)]
        self.log("number")
        return answers


def _columns_of(rows: Any) -> tuple[list[str], list[str] | None]:
    """Returns the questions and contexts of rows or columns; contexts are `None` for texts."""
    content = rows if isinstance(rows, dict) else as_list("questions", rows, "texts or rows")
    if isinstance(content, list) and isinstance(content[0], str):
        return content, None
    found = [plain_question(row, 0) for row in questions_in(JsonValue(content, "questions"))]
    return [question for _, _, question in found], [context for _, context, _ in found]


def check_questions(path: str, tokenizer: Tokenizer) -> None:
    """Checks all questions of a file, but not of a pipe, and logs the counts of their pieces.

    For errors see `read_plain_questions`.
    """
    if is_regular_file(path, "a file of questions"):
        with open_input(path) as file, counting(tokenizer, path) as counts:
            for group in read_plain_questions(read_lines(file), path):
                texts = [*dict.fromkeys(text for _, *texts in group for text in texts)]
                counts.add(tokenizer, texts, tokenizer.encode_batch(texts))


def answer_file(path: str, answerer: Answerer, output_path: str | None = None) -> None:
    """Answers every question of a file, or of the standard input if `path` is "-".

    JSON Lines are answered as soon as they arrive, with constant memory; a JSON document is read
    completely. If `output_path` is `None`, the answers are written to the standard output. For
    errors see `read_plain_questions`.
    """

    def answers(questions: list[PlainQuestion]) -> Iterator[str]:
        for question, found in zip(questions, answerer.answer_group(questions), strict=True):
            yield json.dumps(found.to_json(question.question_id), ensure_ascii=False)

    is_live = not is_regular_file(path, "a file of questions")
    try:
        with open_input(path) as file:
            groups = read_plain_questions(read_lines(file), path)
            parts = regrouped(groups, _QUESTIONS_AT_ONCE, is_live=is_live)
            write_lines(output_path, map(answers, parts))
    finally:
        logging.info("Answered %d questions", answerer.num_questions)
        answerer.log("id")
