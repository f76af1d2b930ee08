"""Answers questions about texts in lists, JSON documents or JSON Lines.

Input files contain a list of objects with `context`, `question` and optionally `id`; or one such
object per line; or questions in the format of SQuAD or CMRC 2018. `QuestionAnswer.to_json`
describes the output.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from absl import logging

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
from albert_tf.finetuning.predictor import Predictor
from albert_tf.squad.answers import (
    AnswerCandidate,
    AnswerSelector,
    AnswerSettings,
    SquadAnswers,
)
from albert_tf.squad.data import WANTED, Question, SquadData, plain_question, questions_in
from albert_tf.squad.features import SquadFeatures, squad_features
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import counting

# The same value for lists and files, so that both have the same batches and rounding errors.
QUESTIONS_AT_ONCE = 256


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
            parts = regrouped(groups, QUESTIONS_AT_ONCE, is_live=is_live)
            write_lines(output_path, map(answers, parts))
    finally:
        logging.info("Answered %d questions", answerer.num_questions)
        answerer.log("id")
