"""Questions about contexts, from JSON files in the layout of SQuAD 1.1, SQuAD 2.0 or CMRC 2018."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from albert_tf.data.strict_json import as_whole_number, parse_json, shown
from albert_tf.data.tables import DataIssues, read_text, whole_characters

WANTED = (
    '{"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}'
)

# The older form of CMRC 2018 has names of its own.
_OTHER_NAMES = {"context": "context_text", "question": "query_text"}
Answers = tuple[tuple[str, int], ...]


def paragraphs_of(
    value: Any, source: str, wanted: str = WANTED
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the paragraphs of a file and where in it they are.

    Args:
        value: what the JSON file holds.
        source: flag and file, for errors.
        wanted: what it should hold, for errors.

    Yields:
        A place such as `data[3].paragraphs[0]`, and an object with a context and questions, or
        with a context and itself a question.

    Raises:
        ValueError: another layout.
    """
    articles, place = value, ""
    if isinstance(value, dict):
        articles, place = value.get("data"), "data"
    if not isinstance(articles, list):
        raise ValueError(
            f"{source} must hold a list of articles: {wanted}. Received: {shown(value)}"
        )
    for number, article in enumerate(articles):
        yield from paragraphs_of_article(article, f"{place}[{number}]", source, wanted)


def paragraphs_of_article(
    article: Any, place: str, source: str, wanted: str = WANTED
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the paragraphs of one entry of that list; see `paragraphs_of`.

    Args:
        article: the entry.
        place: where it is.
        source: flag and file, for errors.
        wanted: what the file should hold, for errors.
    """
    if not isinstance(article, dict):
        raise ValueError(f"{source}: {place} must be an object. Wanted is {wanted}.")
    if "paragraphs" not in article:
        yield place, article
        return
    paragraphs = article["paragraphs"]
    if isinstance(paragraphs, dict):  # not in a list, if there is one only
        paragraphs = [paragraphs]
    if not isinstance(paragraphs, list):
        raise ValueError(f"{source}: {place}.paragraphs must be a list.")
    for number, paragraph in enumerate(paragraphs):
        inner = f"{place}.paragraphs[{number}]"
        if not isinstance(paragraph, dict):
            raise ValueError(f"{source}: {inner} must be an object. Wanted is {wanted}.")
        yield inner, paragraph


def questions_of(
    place: str, paragraph: dict[str, Any], source: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the questions of a paragraph and where they are.

    Args:
        place: where the paragraph is.
        paragraph: see `paragraphs_of`; one that has its context beside it is its own question.
        source: flag and file, for errors.

    Raises:
        ValueError: the questions are no list of objects.
    """
    if "qas" not in paragraph:
        yield place, paragraph
        return
    entries = paragraph["qas"]
    if not isinstance(entries, list):
        raise ValueError(f"{source}: {place}.qas must be a list of questions.")
    for number, entry in enumerate(entries):
        inner = f"{place}.qas[{number}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{source}: {inner} must be an object: {shown(entry)}")
        yield inner, entry


def id_of(entry: dict[str, Any], where: str) -> str | int | None:
    """The id of a question; None if it has none.

    Raises:
        ValueError: it is neither a text nor a whole number; `where` begins the message.
    """
    found = entry.get("id", entry.get("query_id"))
    if found is None or isinstance(found, str):
        return found
    number = as_whole_number(found)
    if number is None:
        raise ValueError(f"{where} must have an `id`, a text or a whole number: {shown(found)}")
    return number


def text_of(entry: dict[str, Any], name: str, where: str, wanted: str = WANTED) -> str:
    """The text called `name`.

    Raises:
        ValueError: there is none, or it is no text; `where` begins the message.
    """
    text = entry.get(name, entry.get(_OTHER_NAMES[name]))
    if not isinstance(text, str):
        found = f"it is {shown(text)}" if text is not None else f"it has {shown([*entry])}"
        raise ValueError(f"{where} must have a text called `{name}`; {found}. Wanted is {wanted}.")
    return text


def is_marked_impossible(entry: dict[str, Any], where: str) -> bool:
    """Whether a question is marked as one that its context does not answer.

    Raises:
        ValueError: the mark is neither true nor false.
    """
    mark = entry.get("is_impossible", False)
    if not isinstance(mark, bool):
        raise ValueError(f"{where}.is_impossible must be true or false: {shown(mark)}")
    return mark


def answers_of(entry: dict[str, Any], where: str) -> Iterator[tuple[str, int]]:
    """Yields text and first character of each answer; -1 where that is not said.

    Answers are objects, texts alone, or, as in tables, one object of two lists.

    Raises:
        ValueError: an answer is none of these.
    """
    answers = entry.get("answers")
    if answers is None:
        return
    if isinstance(answers, dict) and isinstance(answers.get("text"), list):
        texts = answers["text"]
        starts = answers.get("answer_start", [-1] * len(texts))
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise ValueError(f"{where}.answers must have one `answer_start` for each `text`.")
        answers = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    if not isinstance(answers, list):
        raise ValueError(f"{where}.answers must be a list: {shown(answers)}")
    for number, answer in enumerate(answers):
        yield _answer(answer, f"{where}.answers[{number}]")


def _answer(answer: Any, where: str) -> tuple[str, int]:
    if isinstance(answer, str):
        return answer, -1
    text, start = None, None
    if isinstance(answer, dict):
        text, start = answer.get("text"), as_whole_number(answer.get("answer_start", -1))
    if not isinstance(text, str) or start is None:
        raise ValueError(
            f"{where} must have a `text` and, in characters from 0, an `answer_start`: "
            f"{shown(answer)}"
        )
    return text, start


@dataclass(frozen=True, slots=True)
class Question:
    """A question and what the file says of its answer.

    Attributes:
        qas_id: its id, which no other question of the file has.
        question: its text.
        paragraph: which context it is about, a place in `SquadData.contexts`.
        answers: text and first character of each reference answer; -1 where the file does not
            say where it begins. To train on: at most one, and it begins where it says.
        is_impossible: whether the context does not answer it.
    """

    qas_id: str
    question: str
    paragraph: int
    answers: Answers
    is_impossible: bool


@dataclass(frozen=True)
class SquadData:
    """A file of questions.

    Attributes:
        contexts: every context once, in the order of the file.
        questions: in the order of the file.
        path: the file.
    """

    contexts: list[str]
    questions: list[Question]
    path: str


def read_squad(path: str, *, version: int, is_training: bool, flag: str) -> SquadData:
    """Reads a file of questions.

    To train on, a question has one answer: the first, if there are several. It is taken from
    where the file says it begins; if another text stands there, from where it stands nearest to
    that place; if it stands nowhere, the text that stands there is the answer. What is odd is
    counted, and the log names the first questions of each kind.

    Args:
        path: a JSON file: a list of articles, of paragraphs, or of questions with a context each,
            or an object with such a list as `data`.
        version: 1 (every question has an answer) or 2.
        is_training: whether answers are needed; the others are for scores, and optional.
        flag: the flag the path came from, for errors.

    Returns:
        All questions, none left out.

    Raises:
        ValueError: no JSON, another layout, no question, two questions with one id; to train on: a
            question without an answer for SQuAD 1.1, an answer that lies outside its context.
            Names the file and the place in it.
    """
    reader = _Reader(path, version, is_training, flag)
    content = parse_json(read_text(path, flag), f"{flag}: {path}")
    for place, paragraph in paragraphs_of(content, f"{flag}: {path}"):
        reader.add(place, paragraph)
    if not reader.data.questions:
        raise ValueError(f"{flag}: {path} holds no question.")
    reader.check_version()
    reader.issues.log()
    return reader.data


def locate_answer(context: str, text: str, start: int) -> int:
    """Where `text` stands in `context` nearest to `start`; -1 if nowhere."""
    start = max(start, 0)
    if context.startswith(text, start):
        return start
    before = context.rfind(text, 0, start + len(text))
    after = context.find(text, start)
    if min(before, after) < 0:
        return max(before, after)
    return before if start - before <= after - start else after


class _Reader:
    """Turns paragraphs into `data`, and counts what is odd in them."""

    def __init__(self, path: str, version: int, is_training: bool, flag: str) -> None:
        self.data = SquadData([], [], path)
        self.issues = DataIssues(path, "id")
        self._version = version
        self._is_training = is_training
        self._flag = flag
        self._source = f"{flag}: {path}"
        self._contexts: dict[str, int] = {}
        self._places: dict[str, str] = {}  # of each id

    def add(self, place: str, paragraph: dict[str, Any]) -> None:
        """Takes the questions of a paragraph."""
        context = text_of(paragraph, "context", f"{self._source}: {place}")
        for number, (inner, entry) in enumerate(questions_of(place, paragraph, self._source)):
            where = f"{self._source}: {inner}"
            qas_id = self._new_id(entry, inner, where)
            if not number:
                context = whole_characters(context, self.issues, qas_id)
                paragraph_index = self._contexts.setdefault(context, len(self._contexts))
                if paragraph_index == len(self.data.contexts):
                    self.data.contexts.append(context)
            question = whole_characters(text_of(entry, "question", where), self.issues, qas_id)
            self._count_empty(qas_id, question, context)
            is_impossible = is_marked_impossible(entry, where)
            answers = tuple(
                (whole_characters(text, self.issues, qas_id), start)
                for text, start in answers_of(entry, where)
            )
            if self._is_training:
                answers = () if is_impossible else self._trained(answers, context, qas_id, where)
                is_impossible = not answers
            self.data.questions.append(
                Question(qas_id, question, paragraph_index, answers, is_impossible)
            )

    def check_version(self) -> None:
        """Counts what shows that the file is of the other version."""
        impossible = [q.qas_id for q in self.data.questions if q.is_impossible]
        if self._version == 1:
            done = ", trained towards position 0" * self._is_training
            for qas_id in impossible:
                self.issues.add(
                    f"no answer in their context, as in SQuAD 2.0{done}; --squad_version=1 answers "
                    "every question",
                    qas_id,
                )
        elif self._is_training and not impossible:
            self.issues.add(
                "an answer in their context, which is all of them: the file looks like SQuAD 1.1; "
                "--squad_version=2 has no question to learn from that none can be given",
                self.data.questions[0].qas_id,
            )

    def _new_id(self, entry: dict[str, Any], place: str, where: str) -> str:
        found = id_of(entry, where)
        if found is None:
            raise ValueError(f"{where} must have an `id`, a text or a whole number.")
        qas_id = whole_characters(str(found), self.issues, str(found))
        if qas_id in self._places:
            raise ValueError(
                f"{where} has the id {shown(qas_id)}, which {self._places[qas_id]} has as well. "
                "Ids tell the answers apart, so each may be there once."
            )
        self._places[qas_id] = place
        return qas_id

    def _count_empty(self, qas_id: str, question: str, context: str) -> None:
        for name, text in (("question", question), ("context", context)):
            if not text.strip():
                self.issues.add(f"an empty {name}, kept", qas_id)

    def _trained(self, answers: Answers, context: str, qas_id: str, where: str) -> Answers:
        """The answer to train towards; none if the question has none."""
        if not answers and self._version == 1:
            raise ValueError(
                f"{where} (id {shown(qas_id)}) has no answer, and with --squad_version=1 "
                f"{self._flag} needs one for every question. Is this a file to predict from, or "
                "SQuAD 2.0?"
            )
        if len(answers) > 1:
            self.issues.add("several answers, the first of them taken", qas_id)
        text, start = answers[0] if answers else ("", -1)
        if not text:
            self.issues.add("no answer, taken as unanswerable", qas_id)
            return ()
        found = locate_answer(context, text, start)
        if found >= 0:
            if start < 0:
                self.issues.add("no place of the answer, the first place taken", qas_id)
            elif found != start:
                self.issues.add("another text where the answer should be, moved to it", qas_id)
            return ((text, found),)
        if not 0 <= start <= len(context) - len(text):
            raise ValueError(
                f"{where} (id {shown(qas_id)}): the answer {shown(text)} is nowhere in the context,"
                f" and its place, from character {shown(start)} on, lies outside of it "
                f"({len(context)} characters)."
            )
        self.issues.add("an answer that is nowhere in its context, its place trusted", qas_id)
        return ((text, start),)
