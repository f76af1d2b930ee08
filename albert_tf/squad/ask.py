"""What a model answers to questions about texts: a JSON object a question, in their order.

Questions come as one JSON document or as JSON lines:

* a list of objects with `context`, `question` and, if wanted, `id`;
* one such object a line;
* a file in the layout of SQuAD or CMRC 2018, with or without answers.

JSON lines are read some at a time, so that an endless stream of them can be answered.

An answer is an object of

* `id`: of the question, as given, or else its number, from 1, as a text;
* `answer`: the best answer, a part of the context;
* `probability`: of it among the candidates of the question;
* `start`, `end`: its place, so that context[start:end] is the answer, in characters (Unicode code
  points) of the context as given, from 0;
* for SQuAD 2.0, `is_answered` and `null_odds`, the higher the less likely there is an answer;
* `n_best`: the best candidates, best first, as objects of `answer`, `probability`, `start`, `end`.

Where nothing is answered, because the null odds say so or no candidate is left, `answer` is "" and
`probability`, `start` and `end` are null.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from numbers import Real
from typing import IO, Any, NamedTuple

from absl import logging

from albert_tf.checkpoints.text_models import check_model, find_model
from albert_tf.checkpoints.trained_task import THRESHOLD, TrainedTask
from albert_tf.data.arguments import as_texts, check_same_length, check_whole_number
from albert_tf.data.streams import (
    can_be_read_twice,
    open_input,
    open_output,
    read_lines,
    regrouped,
)
from albert_tf.data.strict_json import JsonValue, parse_json
from albert_tf.data.tables import DataIssues
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
from albert_tf.squad.data import Question, SquadData, id_of, questions_in, text_of
from albert_tf.squad.features import SquadFeatures, check_lengths, squad_features
from albert_tf.tokenization.base import Tokenizer

_WANTED = (
    'a JSON list of {"context": "...", "question": "..."} and, if wanted, "id"; or one such '
    "object per line; or a file as of SQuAD"
)

FLAG = "--predict_json"
# Of a list as of a file: as questions are answered together, so are the batches, and the numbers to
# the last bit.
_QUESTIONS_AT_ONCE = 256
_MODELS = (AlbertForQuestionAnswering, AlbertForQuestionAnsweringWithBeamSearch)


class PlainQuestion(NamedTuple):
    """A question to answer."""

    # as given, a text or a whole number; else its number, from 1, as a text. Need not be unique.
    question_id: str | int
    context: str  # where the answer is looked for
    question: str  # its text


def read_plain_questions(
    lines: Iterable[Sequence[bytes]], path: str, flag: str
) -> Iterator[list[PlainQuestion]]:
    """Yields the questions of a file or a stream in their order, those of each group of lines.

    An object in the first line makes JSON lines; else all lines are one document. For the groups
    see `streams.read_lines`; path and flag stand in errors.

    Raises:
        ValueError: broken JSON, another layout, a text that is missing or none; names the line, or
            the keys in the document. Questions that stand before it are yielded before.
    """
    number = 0
    for values in _json_values(lines, f"{flag}: {path}"):
        questions: list[PlainQuestion] = []
        try:
            for value in values:
                for paragraph, entry in questions_in(value):
                    number += 1
                    found = id_of(entry)
                    name = str(number) if found is None else found
                    context, text = text_of(paragraph, "context"), text_of(entry, "question")
                    questions.append(PlainQuestion(name, context, text))
        except ValueError as error:
            if questions:
                yield questions
            raise ValueError(f"{error} Expected: {_WANTED}.") from error
        if questions:
            yield questions


def _json_values(lines: Iterable[Sequence[bytes]], source: str) -> Iterator[Iterable[JsonValue]]:
    """Yields the values of each group of JSON lines, or those of a document."""
    number = 1
    is_lines = False
    groups = iter(lines)
    for group in groups:
        first = next((line for line in group if line.strip()), None)
        if first is not None and not is_lines:
            is_lines = not _begins_document(first)
            if not is_lines:
                data = b"\n".join(chain(group, *groups))
                yield (JsonValue(parse_json(text, source, line=number), source) for text in [data])
                return
        yield (
            JsonValue(parse_json(line, source, line=n), f"{source}: line {n}")
            for n, line in enumerate(group, number)
            if line.strip()
        )
        number += len(group)


def _begins_document(line: bytes) -> bool:
    """Whether JSON goes on in the next line, or is complete and no object."""
    try:
        return not isinstance(parse_json(line, "the first line"), dict)
    except ValueError as error:
        # What is broken, not unfinished, is reported at once: a stream may never end.
        cause = error.__cause__
        return isinstance(cause, json.JSONDecodeError) and cause.pos >= len(cause.doc.rstrip())


class QuestionAnswer(NamedTuple):
    """What a model answers to one question.

    Attributes:
        answer: the best answer, a part of the context; "" where nothing is answered.
        probability: of it among the candidates of the question; None where nothing is answered.
        start: where it begins in the context, in characters; None where nothing is answered.
        end: behind its last character, so that context[start:end] is the answer.
        null_odds: the higher the less likely there is an answer; None for SQuAD 1.1.
        n_best: the best candidates, best first.
    """

    answer: str
    probability: float | None
    start: int | None
    end: int | None
    null_odds: float | None
    n_best: list[AnswerCandidate]

    def to_json(self, question_id: str | int) -> dict[str, Any]:
        """Returns the object that the command writes for the question of this id."""
        odds = {}
        if self.null_odds is not None:
            odds = {"is_answered": self.start is not None, "null_odds": self.null_odds}
        return {
            "id": question_id,
            **_json_of(self.answer, self.probability, self.start, self.end),
            **odds,
            "n_best": [_json_of(c.text, c.probability, c.start, c.end) for c in self.n_best],
        }


def _json_of(
    answer: str, probability: float | None, start: int | None, end: int | None
) -> dict[str, Any]:
    return {"answer": answer, "probability": probability, "start": start, "end": end}


def select_answers(
    data: SquadData,
    features: SquadFeatures,
    predictor: Predictor,
    settings: AnswerSettings,
    description: str,
) -> SquadAnswers:
    """Returns a model's answers; padding ranks, as in the original, where it pads to "max".

    Raises:
        ValueError: an output is not finite.
    """
    selector = AnswerSelector(
        data,
        features,
        version=settings.version,
        n_best_size=settings.n_best_size,
        max_answer_length=settings.max_answer_length,
        ranks_padding=predictor.padding == "max",
    )
    for rows, outputs in predictor.batches(features.sequences, description):
        selector.add(rows, outputs)
    return selector.answers()


class QuestionAnswerer:
    """Answers questions about contexts by a part of the context, or not at all.

    It tokenizes, cuts and batches as `run_squad --predict_json` does: the same questions get the
    same answers and numbers.

    Args:
        model: of SQuAD 1.1, which answers every question, or of SQuAD 2.0.
        tokenizer: that of the model. Default: `model.tokenizer`.
        max_seq_length: tokens of a window and its question. Default: as in the training, as of
            all that follow where that is known; else 384, or what the model has positions for.
        doc_stride: tokens between the beginnings of two windows of a context. Default: 128.
        max_query_length: tokens of a question; what is more is cut off. Default: 64.
        n_best_size: most candidates of a question.
        max_answer_length: longest answer, in tokens.
        null_score_diff_threshold: null odds from which on a question is not answered; of SQuAD 2.0
            alone. Default: the best of the model's evaluation, else 0.
        batch_size: windows of `max_seq_length` at once; of shorter ones more.

    Raises:
        TypeError: an argument is of another type.
        ValueError: the tokenizer does not fit the model, or a number is out of range.
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
        known = model.trained_task or TrainedTask("")

        def setting(name: str, given: float | None, default: float | None) -> Any:
            return known.settings.get(name, default) if given is None else given

        version = 1 if isinstance(model, AlbertForQuestionAnswering) else 2
        predictor = new_predictor(
            model,
            model.config,
            outputs=OUTPUTS[version],
            max_seq_length=known.max_seq_length if max_seq_length is None else max_seq_length,
            batch_size=batch_size,
            longest=AnswerSettings.max_seq_length,
        )
        length = predictor.max_seq_length
        numbers = {
            "doc_stride": setting("doc_stride", doc_stride, AnswerSettings.doc_stride),
            "max_query_length": setting(
                "max_query_length", max_query_length, AnswerSettings.max_query_length
            ),
            "n_best_size": n_best_size,
            "max_answer_length": max_answer_length,
        }
        for name, value in numbers.items():
            check_whole_number(name, value, 1)
        check_lengths(length, numbers["doc_stride"], numbers["max_query_length"])
        threshold = setting(THRESHOLD, null_score_diff_threshold, None)
        is_number = isinstance(threshold, Real) and not math.isnan(threshold)
        if threshold is not None and not is_number:
            raise ValueError(f"{THRESHOLD} must be a number. Received: {threshold!r}")
        if version == 1:
            if threshold is not None:
                logging.warning(
                    "%s has no effect: a model of SQuAD 1.1 answers every question", THRESHOLD
                )
            threshold = None
        elif threshold is None:
            threshold = 0.0
        settings = AnswerSettings(version, length, threshold=threshold, **numbers)
        self._set(predictor, tokenizer, settings)

    def _set(self, predictor: Predictor, tokenizer: Tokenizer, settings: AnswerSettings) -> None:
        self._predictor = predictor
        self._tokenizer = tokenizer
        self.settings = settings
        self.num_questions = 0  # answered so far
        self.issues = DataIssues(FLAG, "id")  # of these questions, by their ids

    @classmethod
    def _of(
        cls, predictor: Predictor, tokenizer: Tokenizer, settings: AnswerSettings
    ) -> QuestionAnswerer:
        """Makes one of what a command has already; a threshold of None always answers."""
        answerer = cls.__new__(cls)
        answerer._set(predictor, tokenizer, settings)
        return answerer

    @classmethod
    def load(
        cls, where: str | os.PathLike, *, batch_size: int = 8, **settings: Any
    ) -> QuestionAnswerer:
        """Makes one of a fine-tuned model.

        Args:
            where: a model of any format, see `load`; the directory of a training means its best
                checkpoint, else the newest.
            batch_size: see `QuestionAnswerer`.
            **settings: other arguments of `QuestionAnswerer`.

        Raises:
            TypeError: an argument is unknown or of another type.
            ValueError: there is no model, it has no tokenizer or does not answer questions, or a
                setting is out of range.
        """
        found = find_model(where)
        model = found.load(_MODELS, "a model that answers questions (SQuAD 1.1 or 2.0)")
        return cls(model, batch_size=batch_size, **settings)

    def __call__(self, questions: Iterable[str], contexts: Iterable[str]) -> list[QuestionAnswer]:
        """Answers each question by a part of its context.

        Args:
            questions: N questions, one or more.
            contexts: N texts, where the answers are looked for.

        Returns:
            N answers, in the order of the questions.

        Raises:
            TypeError: an argument is no list of texts.
            ValueError: there is no question, another number of contexts, or the model's output is
                not finite.
        """
        asked, texts = as_texts("questions", questions), as_texts("contexts", contexts)
        check_same_length("contexts", texts, "questions", asked)
        plain = [PlainQuestion(n, *row) for n, row in enumerate(zip(texts, asked, strict=True), 1)]
        self.num_questions, self.issues = 0, DataIssues("questions", "number")
        groups = regrouped([plain], _QUESTIONS_AT_ONCE)
        answers = [answer for group in groups for answer in self._answer(group)]
        self.issues.log()
        return answers

    def _answer(self, questions: Sequence[PlainQuestion]) -> list[QuestionAnswer]:
        """The answers to some questions together; memory grows with their number."""
        if not questions:
            return []
        settings = self.settings
        contexts: dict[str, int] = {}
        asked = []
        for number, question in enumerate(questions):
            index = contexts.setdefault(question.context, len(contexts))
            asked.append(Question(str(number), question.question, index, (), False))
        data = SquadData(list(contexts), asked, FLAG)
        features = squad_features(
            data,
            self._tokenizer,
            max_seq_length=settings.max_seq_length,
            doc_stride=settings.doc_stride,
            max_query_length=settings.max_query_length,
            is_training=False,
            is_logged=False,
        )
        for index in features.cut_questions:
            self.issues.add(
                f"a question longer than --max_query_length={settings.max_query_length}, cut off",
                str(questions[index].question_id),
            )
        description = f"answering from question {self.num_questions + 1}"
        answers = select_answers(data, features, self._predictor, settings, description)
        self.num_questions += len(questions)
        found = []
        for number in range(len(questions)):
            # Without any span there is one candidate that is no part of the context.
            n_best = [candidate for candidate in answers.candidates[number] if candidate.start >= 0]
            odds = None if answers.null_odds is None else float(answers.null_odds[number])
            threshold = settings.threshold
            is_null = odds is not None and threshold is not None and odds >= threshold
            best: tuple[str, Any, Any, Any] = ("", None, None, None)
            if n_best and not is_null:
                text, probability, *_, start, end = n_best[0]
                best = text, probability, start, end
            found.append(QuestionAnswer(*best, odds, n_best))
        return found


def check_questions(path: str) -> None:
    """Reads a file through before anything is answered, or the model is even trained.

    The standard input and pipes, which can be read only once, pass.

    Raises:
        ValueError: there is no such file, or see `read_plain_questions`.
    """
    if can_be_read_twice(path, FLAG, "a file of questions"):
        with open_input(path) as file:
            for _ in read_plain_questions(read_lines(file), path, FLAG):
                pass


def answer_file(path: str, answerer: QuestionAnswerer, output_path: str | None = None) -> None:
    """Answers every question of a file ("-": the standard input); logs how many were odd.

    A file is read through before the first answer, so that an entry that cannot be used stops the
    command at once. JSON lines are answered as they come, also from the standard input and pipes,
    and need no memory for what was answered; a JSON document is read whole. The file at
    `output_path`, without which it is the standard output, appears when it is complete.

    Raises:
        ValueError: see `check_questions`. What was answered before an entry that cannot be used is
            on the standard output; a file is not written.
    """
    check_questions(path)
    try:
        with open_input(path) as file, open_output(output_path) as out:
            groups = read_plain_questions(read_lines(file), path, FLAG)
            if can_be_read_twice(path, FLAG, "a file of questions"):
                groups = regrouped(groups, _QUESTIONS_AT_ONCE)
            answer_questions(groups, answerer, out)
    finally:
        logging.info("Answered %d questions", answerer.num_questions)
        answerer.issues.log()


def answer_questions(
    groups: Iterable[Sequence[PlainQuestion]], answerer: QuestionAnswerer, out: IO[bytes]
) -> None:
    """Writes a line for every question into a binary file, flushed after each group."""
    for group in groups:
        for begin in range(0, len(group), _QUESTIONS_AT_ONCE):
            some = group[begin : begin + _QUESTIONS_AT_ONCE]
            for question, answer in zip(some, answerer._answer(some), strict=True):
                line = json.dumps(answer.to_json(question.question_id), ensure_ascii=False)
                out.write(line.encode() + b"\n")
            out.flush()
