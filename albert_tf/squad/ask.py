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

from albert_tf.data.files import EncodingError
from albert_tf.data.streams import (
    BYTE_ORDER_MARK,
    can_be_read_twice,
    open_input,
    open_output,
    read_lines,
)
from albert_tf.data.strict_json import JsonError, parse_json, shown
from albert_tf.data.tables import DataIssues, whole_characters
from albert_tf.finetuning.predictor import Predictor
from albert_tf.squad.answers import AnswerSelector, SquadAnswers
from albert_tf.squad.data import (
    Question,
    SquadData,
    id_of,
    paragraphs_of,
    paragraphs_of_article,
    questions_of,
    text_of,
)
from albert_tf.squad.features import SquadFeatures, cut_questions, squad_features
from albert_tf.tokenization.base import Tokenizer

WANTED = (
    'a JSON list of {"context": "...", "question": "..."} and, if wanted, "id"; or one such '
    "object a line; or a file as of SQuAD"
)

FLAG = "--predict_json"
_QUESTIONS_AT_ONCE = 1024
_CHARACTERS_AT_ONCE = 1 << 20  # of their contexts, each counted as often as it is asked about


class PlainQuestion(NamedTuple):
    """A question to answer.

    Attributes:
        question_id: as given, a text or a whole number; else its number, from 1, as a text. Need
            not be unique.
        context: where the answer is looked for, as given.
        question: its text.
    """

    question_id: str | int
    context: str
    question: str


def read_plain_questions(
    lines: Iterable[Sequence[bytes]], path: str, flag: str
) -> Iterator[list[PlainQuestion]]:
    """Yields the questions of a file or a stream, in their order.

    Args:
        lines: groups of lines, see `streams.read_lines`.
        path: the file, for errors.
        flag: the flag it came from, for errors.

    Yields:
        The questions of one group of JSON lines, or those of a document.

    Raises:
        ValueError: broken JSON, another layout, a text that is missing or none; names the line, or
            the place in the document. Questions that stand before it are yielded before.
    """
    reader = _Reader(f"{flag}: {path}")
    for group in reader.values(lines):
        questions: list[PlainQuestion] = []
        try:
            for value, place in group:
                questions.extend(reader.questions(value, place))
        except ValueError:
            if questions:
                yield questions
            raise
        if questions:
            yield questions


class _Reader:
    """Finds out how questions are laid out, and numbers them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._num_questions = 0

    def values(self, lines: Iterable[Sequence[bytes]]) -> Iterator[Iterable[tuple[Any, str]]]:
        """Yields groups of JSON values and what to call their place.

        An object in the first line makes JSON lines; else all lines are one document.
        """
        is_lines = False
        groups = _numbered(lines)
        for group in groups:
            first = next((line for line in group if line[1].strip()), None)
            if not is_lines and first is not None and _begins_document(first[1]):
                text = b"\n".join(line for _, line in chain(group, *groups))
                yield [(self._parsed(text, group[0][0]), "the object")]
                return
            is_lines |= first is not None
            yield (self._object(line, number) for number, line in group if line.strip())

    def questions(self, value: Any, place: str) -> Iterator[PlainQuestion]:
        """Yields the questions in a value.

        Args:
            value: a question, a paragraph or an article with questions, or a list of these.
            place: what to call it in errors.
        """
        for inner, paragraph in self._paragraphs(value, place):
            context = text_of(paragraph, "context", f"{self._source}: {inner}", WANTED)
            for innermost, entry in questions_of(inner, paragraph, self._source):
                where = f"{self._source}: {innermost}"
                question = text_of(entry, "question", where, WANTED)
                self._num_questions += 1
                found = id_of(entry, where)
                question_id = str(self._num_questions) if found is None else found
                yield PlainQuestion(question_id, context, question)

    def _paragraphs(self, value: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(value, dict) and "data" not in value:
            return paragraphs_of_article(value, place, self._source, WANTED)
        return paragraphs_of(value, self._source, WANTED)

    def _object(self, data: bytes, line: int) -> tuple[dict[str, Any], str]:
        value = self._parsed(data, line)
        if not isinstance(value, dict):
            raise ValueError(
                f"{self._source}: line {line} must be a JSON object; wanted is {WANTED}. "
                f"Received: {shown(value)}"
            )
        return value, f"line {line}"

    def _parsed(self, data: bytes, line: int) -> Any:
        """What JSON text means that begins at a line."""
        try:
            return parse_json(data, self._source, line=line)
        except JsonError as error:
            raise ValueError(f"{error} Wanted is {WANTED}.") from error


def _numbered(lines: Iterable[Sequence[bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """The groups with the number of each line, without byte order mark."""
    number = 0
    for group in lines:
        numbered = list(enumerate(group, number + 1))
        if not number:
            numbered[0] = 1, numbered[0][1].removeprefix(BYTE_ORDER_MARK)
        number += len(group)
        yield numbered


def _begins_document(line: bytes) -> bool:
    """Whether JSON goes on in the next line, or is complete and no object."""
    try:
        return not isinstance(parse_json(line, "the first line"), dict)
    except JsonError as error:
        # What is broken, not unfinished, is named at once: a stream may never end.
        return error.is_unfinished
    except EncodingError:
        return False


class FoundAnswer(NamedTuple):
    """A part of a context.

    Attributes:
        text: context[start:end].
        probability: among the candidates of the question.
        start: first character.
        end: behind its last character.
    """

    text: str
    probability: float
    start: int
    end: int


class QuestionAnswer(NamedTuple):
    """What a model answers to one question.

    Attributes:
        question_id: of the question.
        best: the answer; None if there is none.
        n_best: all candidates, best first.
        null_odds: the higher the less likely there is an answer; None for SQuAD 1.1.
    """

    question_id: str | int
    best: FoundAnswer | None
    n_best: list[FoundAnswer]
    null_odds: float | None

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


def _json_of(found: FoundAnswer | None) -> dict[str, Any]:
    if found is None:
        return {"answer": "", "probability": None, "start": None, "end": None}
    return {
        "answer": found.text,
        "probability": found.probability,
        "start": found.start,
        "end": found.end,
    }


class QuestionAnswerer:
    """A fine-tuned model that takes questions and contexts.

    Args:
        tokenizer: the one the model was trained with.
        predictor: gives the model's outputs, those of `squad.answers.OUTPUTS`; its
            `max_seq_length` is that of the windows. Where it pads to "max", padding takes part in
            the choice as in the original, see `AnswerSelector`.
        version: 1 or 2, of SQuAD.
        doc_stride: see `squad_features`.
        max_query_length: see `squad_features`.
        n_best_size: see `AnswerSelector`.
        max_answer_length: see `AnswerSelector`.
        threshold: null odds from which on a question is not answered; None always takes the best
            candidate. For SQuAD 2.0 alone.

    Attributes:
        num_questions: answered since it was made.
        issues: of these questions, by their ids.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        predictor: Predictor,
        *,
        version: int,
        doc_stride: int = 128,
        max_query_length: int = 64,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        threshold: float | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.predictor = predictor
        self.version = version
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        self.n_best_size = n_best_size
        self.max_answer_length = max_answer_length
        self.threshold = threshold
        self.num_questions = 0
        self.issues = DataIssues(FLAG, "id")

    def answer(self, questions: Sequence[PlainQuestion]) -> list[QuestionAnswer]:
        """Returns the answers to some questions, in their order; memory grows with their number.

        Raises:
            ValueError: the model's output is not finite.
        """
        if not questions:
            return []
        data = self._data(questions)
        features = squad_features(
            data,
            self.tokenizer,
            max_seq_length=self.predictor.max_seq_length,
            doc_stride=self.doc_stride,
            max_query_length=self.max_query_length,
            is_training=False,
            is_logged=False,
        )
        self._count_cut(questions, data, features)
        selector = AnswerSelector(
            data,
            features,
            version=self.version,
            n_best_size=self.n_best_size,
            max_answer_length=self.max_answer_length,
            ranks_padding=self.predictor.padding == "max",
        )
        description = f"answering from question {self.num_questions + 1}"
        for rows, outputs in self.predictor.batches(features.sequences, description):
            selector.add(rows, outputs)
        self.num_questions += len(questions)
        return list(self._answers(questions, selector.answers()))

    def _data(self, questions: Sequence[PlainQuestion]) -> SquadData:
        """The questions with numbers for ids, and every context once."""
        contexts: dict[str, int] = {}
        asked = []
        for number, question in enumerate(questions):
            place = str(question.question_id)
            text, context = (
                whole_characters(text, self.issues, place)
                for text in (question.question, question.context)
            )
            for name, value in (("question", text), ("context", context)):
                if not value.strip():
                    self.issues.add(f"an empty {name}, kept", place)
            paragraph = contexts.setdefault(context, len(contexts))
            asked.append(Question(str(number), text, paragraph, (), False))
        return SquadData(list(contexts), asked, FLAG)

    def _count_cut(
        self, questions: Sequence[PlainQuestion], data: SquadData, features: SquadFeatures
    ) -> None:
        """Counts the questions that were cut off."""
        kind = f"a question longer than --max_query_length={self.max_query_length}, cut off"
        for place in cut_questions(data, features, self.tokenizer, self.max_query_length):
            self.issues.add(kind, str(questions[place].question_id))

    def _answers(
        self, questions: Sequence[PlainQuestion], answers: SquadAnswers
    ) -> Iterator[QuestionAnswer]:
        for number, question in enumerate(questions):
            # Without any span there is one candidate that is no part of the context.
            found = [
                FoundAnswer(
                    question.context[candidate.start : candidate.end],
                    candidate.probability,
                    candidate.start,
                    candidate.end,
                )
                for candidate in answers.candidates(number)
                if candidate.start >= 0
            ]
            best = found[0] if found else None
            odds = None
            if answers.null_odds is not None:
                odds = float(answers.null_odds[number])
                if self.threshold is not None and odds >= self.threshold:
                    best = None
            yield QuestionAnswer(question.question_id, best, found, odds)


def check_questions(path: str) -> None:
    """Reads a file through before anything is answered, or the model is even trained.

    Args:
        path: --predict_json; the standard input and pipes, which can be read only once, pass.

    Raises:
        ValueError: there is no such file, or see `read_plain_questions`.
    """
    if can_be_read_twice(path, FLAG, "a file of questions"):
        with open_input(path) as file:
            for _ in read_plain_questions(read_lines(file), path, FLAG):
                pass


def answer_file(path: str, answerer: QuestionAnswerer, output_path: str | None = None) -> None:
    """Answers every question of a file, and logs how many of them were odd.

    A file is read through before the first answer, so that an entry that cannot be used stops the
    command at once. JSON lines are answered as they come, also from the standard input and pipes,
    and need no memory for what was answered; a JSON document is read whole.

    Args:
        path: the questions (--predict_json), see above; "-" is the standard input.
        answerer: see `QuestionAnswerer`.
        output_path: file that appears when it is complete; None is the standard output. JSON
            lines, see above.

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
    """Writes a line for every question, group by group; memory does not grow with their number.

    Args:
        groups: questions, those of a group having come together.
        answerer: see `QuestionAnswerer`.
        out: opened in binary mode; flushed after each group.
    """
    for group in groups:
        for portion in _portions(group):
            out.writelines(_line(answer) for answer in answerer.answer(portion))
            out.flush()


def _portions(questions: Sequence[PlainQuestion]) -> Iterator[Sequence[PlainQuestion]]:
    """The questions, some at a time: at least one, and no more than fit into little memory."""
    begin, characters = 0, 0
    for number, question in enumerate(questions):
        characters += len(question.context)
        is_full = characters > _CHARACTERS_AT_ONCE or number - begin == _QUESTIONS_AT_ONCE
        if is_full and number > begin:
            yield questions[begin:number]
            begin, characters = number, len(question.context)
    yield questions[begin:]


def _line(answer: QuestionAnswer) -> bytes:
    """A line of the output, its end included."""
    text = json.dumps(answer.to_json(), ensure_ascii=False)
    # Halves of characters (lone surrogates), which UTF-8 has not, are escaped as JSON does it.
    return f"{text}\n".encode(errors="backslashreplace")
