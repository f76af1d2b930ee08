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
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any, NamedTuple

from absl import logging

from albert_tf.data.streams import can_be_read_twice, open_input, open_output, read_lines
from albert_tf.data.strict_json import JsonValue, parse_json
from albert_tf.data.tables import DataIssues
from albert_tf.finetuning.predictor import Predictor
from albert_tf.squad.answers import AnswerCandidate, AnswerSelector, AnswerSettings, SquadAnswers
from albert_tf.squad.data import Question, SquadData, id_of, questions_in, text_of
from albert_tf.squad.features import SquadFeatures, squad_features
from albert_tf.tokenization.base import Tokenizer

_WANTED = (
    'a JSON list of {"context": "...", "question": "..."} and, if wanted, "id"; or one such '
    "object per line; or a file as of SQuAD"
)

FLAG = "--predict_json"
_QUESTIONS_AT_ONCE = 256


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
    """What a model answers to one question."""

    question_id: str | int  # of the question
    best: AnswerCandidate | None  # the answer; None if there is none
    n_best: list[AnswerCandidate]  # all candidates, best first
    null_odds: float | None  # the higher the less likely there is an answer; None for SQuAD 1.1

    def to_json(self) -> dict[str, Any]:
        """Returns the object that is written."""
        odds = {}
        if self.null_odds is not None:
            odds = {"is_answered": self.best is not None, "null_odds": self.null_odds}
        return {
            "id": self.question_id,
            **_json_of(self.best),
            **odds,
            "n_best": [_json_of(found) for found in self.n_best],
        }


def _json_of(found: AnswerCandidate | None) -> dict[str, Any]:
    if found is None:
        return {"answer": "", "probability": None, "start": None, "end": None}
    return {
        "answer": found.text,
        "probability": found.probability,
        "start": found.start,
        "end": found.end,
    }


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
    """A fine-tuned model that takes questions and contexts.

    Attributes:
        num_questions: answered since it was made.
        issues: of these questions, by their ids.
    """

    def __init__(
        self, tokenizer: Tokenizer, predictor: Predictor, settings: AnswerSettings
    ) -> None:
        self.tokenizer = tokenizer
        self.predictor = predictor
        self.settings = settings
        self.num_questions = 0
        self.issues = DataIssues(FLAG, "id")

    def answer(self, questions: Sequence[PlainQuestion]) -> list[QuestionAnswer]:
        """Returns the answers to some questions, in their order; memory grows with their number.

        Raises:
            ValueError: the model's output is not finite.
        """
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
            self.tokenizer,
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
        answers = select_answers(data, features, self.predictor, settings, description)
        self.num_questions += len(questions)
        found = []
        for number, question in enumerate(questions):
            # Without any span there is one candidate that is no part of the context.
            n_best = [candidate for candidate in answers.candidates[number] if candidate.start >= 0]
            odds = None if answers.null_odds is None else float(answers.null_odds[number])
            threshold = settings.threshold
            is_null = odds is not None and threshold is not None and odds >= threshold
            best = n_best[0] if n_best and not is_null else None
            found.append(QuestionAnswer(question.question_id, best, n_best, odds))
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
            answer_questions(read_plain_questions(read_lines(file), path, FLAG), answerer, out)
    finally:
        logging.info("Answered %d questions", answerer.num_questions)
        answerer.issues.log()


def answer_questions(
    groups: Iterable[Sequence[PlainQuestion]], answerer: QuestionAnswerer, out: IO[bytes]
) -> None:
    """Writes a line for every question into a binary file, flushed after each group."""
    for group in groups:
        for begin in range(0, len(group), _QUESTIONS_AT_ONCE):
            for answer in answerer.answer(group[begin : begin + _QUESTIONS_AT_ONCE]):
                out.write(json.dumps(answer.to_json(), ensure_ascii=False).encode() + b"\n")
            out.flush()
