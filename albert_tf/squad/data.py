"""Questions about contexts, from JSON files in the format of SQuAD 1.1, SQuAD 2.0 or CMRC 2018."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import JsonError, JsonValue, parse_json, shown
from albert_tf.data.tables import DataIssues, read_text

_WANTED = (
    '{"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}'
)

Answers = tuple[tuple[str, int], ...]


def questions_in(content: JsonValue) -> Iterator[tuple[JsonValue, JsonValue]]:
    """Yields two JSON objects per question: one with the context, one with the question text.

    The value is a list of articles, an object with such a list as `data`, or one article. A
    paragraph (`context` and `qas`) or a question with a `context` may replace an article.
    """
    articles = [content]
    if isinstance(content.value, list):
        articles = content.elements()
    elif content.get("data"):
        articles = content["data"].elements()
    for article in articles:
        paragraphs = article.get("paragraphs")
        for paragraph in [article] if paragraphs is None else paragraphs.elements():
            questions = paragraph.get("qas")
            for question in [paragraph] if questions is None else questions.elements():
                yield paragraph, question


def text_of(entry: JsonValue, name: str) -> str:
    """Returns the context or question of an object, also in the older format of CMRC 2018."""
    other = {"context": "context_text", "question": "query_text"}[name]
    return (entry.get(other) or entry[name]).whole_text()


def id_of(entry: JsonValue) -> str | int | None:
    """Returns the id of a question, or `None`."""
    found = entry.get("id") or entry.get("query_id")
    if found is None:
        return None
    return found.whole_text() if isinstance(found.value, str) else found.whole_number()


def _answers_of(entry: JsonValue) -> Answers:
    """Returns the text of each answer and the index of its first character, -1 if unknown."""
    answers = entry.get("answers")
    found = []
    for answer in answers.elements() if answers else []:
        if isinstance(answer.value, str):  # as in the older format of CMRC 2018
            found.append((answer.whole_text(), -1))
        else:
            start = answer.get("answer_start")
            found.append((answer["text"].whole_text(), start.whole_number() if start else -1))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its reference answers."""

    qas_id: str  # unique in the file
    question: str
    paragraph: int  # index in `SquadData.contexts`
    answers: Answers  # text and first character, -1 if unknown; for training at most one answer
    is_impossible: bool  # whether the context does not contain the answer


@dataclass(frozen=True)
class SquadData:
    """The distinct contexts and the questions of a file, in file order."""

    contexts: list[str]
    questions: list[Question]
    path: str


def read_squad(path: str, *, version: int, is_training: bool) -> SquadData:
    """Reads all questions of a file; see `questions_in` for the format.

    For training, only the first answer of a question is kept. If its text is not at `answer_start`,
    its nearest occurrence is used. If it does not occur in the context, the text at `answer_start`
    is used. Malformed answers are counted and logged. For evaluation, answers are optional.

    Raises:
        ValueError: the format is invalid, there are no questions, or an id occurs twice. For
            training: a question of SQuAD 1.1 has no answer, or an answer is outside of its context.
            The message names the file and the keys in it.
    """
    content = JsonValue(parse_json(read_text(path), path), path)
    data, issues = SquadData([], [], path), DataIssues(path, "id")
    contexts: dict[str, int] = {}
    keys: dict[str, str] = {}  # by id
    try:
        for paragraph, entry in questions_in(content):
            context = text_of(paragraph, "context")
            found = id_of(entry)
            if found is None:
                raise entry.error("an object with an `id`")
            qas_id = str(found)
            if qas_id in keys:
                raise JsonError(
                    f"{path}: {keys[qas_id]} and {entry.keys} have the same id, {shown(qas_id)}."
                )
            keys[qas_id] = entry.keys
            mark = entry.get("is_impossible")
            is_impossible = mark is not None and mark.truth_value()
            answers = _answers_of(entry)
            if is_training:
                where = f"{path}: {entry.keys} (id {shown(qas_id)})"
                if not (answers or is_impossible or version == 2):
                    raise JsonError(
                        f"{where} has no answer, but `squad_version`=1 needs one for training."
                    )
                if is_impossible:
                    answers = ()
                else:
                    answers = _answer_to_train(answers, context, qas_id, where, issues)
                is_impossible = not answers
            index = contexts.setdefault(context, len(contexts))
            asked = text_of(entry, "question")
            data.questions.append(Question(qas_id, asked, index, answers, is_impossible))
    except JsonError as error:
        raise UserError(f"{error} Expected: {_WANTED}.") from error
    if not data.questions:
        raise UserError(f"{path} contains no question. Expected: {_WANTED}.")
    data.contexts.extend(contexts)
    done = "; the target is position 0" * is_training
    for question in data.questions:
        if version == 1 and question.is_impossible:
            kind = f"no answer in the context, although `squad_version`=1 needs answers{done}"
            issues.add(kind, question.qas_id)
    issues.log()
    return data


def _locate_answer(context: str, text: str, start: int) -> int:
    """Returns the index of the occurrence of `text` that is nearest to `start`, or -1."""
    start = max(start, 0)
    if context.startswith(text, start):
        return start
    places = (match.start() for match in re.finditer(f"(?={re.escape(text)})", context))
    return min(places, key=lambda place: abs(place - start), default=-1)


def _answer_to_train(
    answers: Answers, context: str, qas_id: str, where: str, issues: DataIssues
) -> Answers:
    """Returns the first answer with its position in the context, or no answer."""
    if len(answers) > 1:
        issues.add("several answers; using the first", qas_id)
    text, start = answers[0] if answers else ("", -1)
    if not text:
        issues.add("no answer; treated as unanswerable", qas_id)
        return ()
    found = _locate_answer(context, text, start)
    if found >= 0:
        if start < 0:
            issues.add("no answer_start; using the first occurrence", qas_id)
        elif found != start:
            issues.add("an incorrect answer_start, corrected", qas_id)
        return ((text, found),)
    if not 0 <= start <= len(context) - len(text):
        raise JsonError(
            f"{where}: the answer {shown(text)} does not occur in the context, and the range from "
            f"`answer_start`={shown(start)} is outside of the context of {len(context)} characters."
        )
    issues.add("an answer that does not occur in the context; using its answer_start", qas_id)
    return ((text, start),)
