"""Questions as people have them: a context and a question, nothing else needed.

They come as one JSON document or as JSON lines:

* a list of objects with `context`, `question` and, if wanted, `id`;
* one such object a line;
* a file in a layout of SQuAD or CMRC 2018, answers or not (`squad_layout`).

JSON lines are read some at a time, so that an endless stream of them can be answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from albert_tf.data.squad_layout import (
    id_of,
    paragraphs_of,
    paragraphs_of_article,
    questions_of,
    text_of,
)
from albert_tf.data.streams import BYTE_ORDER_MARK
from albert_tf.data.strict_json import JsonError, parse_json, shown
from albert_tf.data.utf8 import EncodingError

WANTED = (
    'a JSON list of {"context": "...", "question": "..."} and, if wanted, "id"; or one such '
    "object a line; or a file as of SQuAD"
)


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
