"""Questions about contexts in the formats of SQuAD, CMRC 2018 and Hugging Face `datasets`."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.rows import read_text
from albert_tf.data.strict_json import JsonError, JsonValue, json_values, listed, shown
from albert_tf.data.tables import DataIssues, read_table
from albert_tf.squad.locate_answers import locate_answer

WANTED = (
    "the format of SQuAD, or one question per row (JSON or JSON Lines; in `train_file` and "
    "`predict_file` also CSV or TSV) with `context`, `question`, optionally `id`, and `answers` "
    'such as [{"text": "...", "answer_start": 0}]'
)

# Names in published data sets. If an object has several of them, the first is read.
_NAMES = {
    "context": ("context", "context_text", "passage", "paragraph"),
    "question": ("question", "query_text", "query"),
    "id": ("id", "query_id", "question_id", "qid"),
    "answers": ("answers", "answer", "answer_text", "answers.text"),
    "text": ("text", "answer_text"),
    "answer_start": ("answer_start", "answers.answer_start", "start"),
}
_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)  # as written by pandas

Answers = tuple[tuple[str, int], ...]


def questions_in(content: JsonValue) -> Iterator[tuple[JsonValue, JsonValue]]:
    """Yields two JSON objects per question: one with the context, one with the question text.

    The value is a list of articles, an object with such a list as `data`, or one article. A
    paragraph (`context` and `qas`) or a question with a `context` may replace an article. An object
    may also contain a list per column.
    """
    if isinstance(content.value, list):
        articles = content.elements()
    else:
        articles = content["data"].elements() if content.get("data") else _rows(content, "context")
    for article in articles:
        paragraphs = article.get("paragraphs")
        for paragraph in [article] if paragraphs is None else paragraphs.elements():
            questions = paragraph.get("qas")
            for question in [paragraph] if questions is None else questions.elements():
                yield paragraph, question


def _find(entry: JsonValue, name: str) -> JsonValue | None:
    """Returns the value of a key or of its other names; `None` if it is missing or null."""
    for key in _NAMES[name]:
        if found := entry.get(key):
            return found
    return None


def _rows(table: JsonValue, name: str) -> list[JsonValue]:
    """Returns the rows of an object with columns, if `name` is a column; otherwise the object."""
    found = _find(table, name)
    if found is None or not isinstance(found.value, list | dict):
        return [table]
    columns = {
        key: [*cells.values()] if isinstance(cells, dict) else cells
        for key, cells in table.value.items()
        if isinstance(cells, list | dict)
    }
    if len({*map(len, columns.values())}) > 1:
        raise table.error(f"an object with lists of the same length: {listed(columns)}")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return JsonValue(rows, table.where, table.keys).elements()


def text_of(entry: JsonValue, name: str) -> str:
    """Returns the `context` or `question` of an object; see `_NAMES`."""
    return (_find(entry, name) or entry[name]).whole_text()


def id_of(entry: JsonValue, number: int) -> str | int:
    """Returns the id of a question; the default is its number in the file, as text."""
    found = _find(entry, "id")
    if found is None:
        return str(number)
    return found.whole_text() if isinstance(found.value, str) else found.whole_number()


def _answers_of(entry: JsonValue) -> Answers:
    """Returns the text of each answer and the index of its first character, -1 if unknown.

    The answers are an object or a text, a list of them, or an object of lists as in `datasets`.
    """
    answers = _find(entry, "answers")
    if answers is None:
        return ()
    rows = answers.elements() if isinstance(answers.value, list) else [answers]
    if all(isinstance(row.value, str) for row in rows):
        start = _find(entry, "answer_start")
        columns = {"text": answers.value, "answer_start": start.value if start else None}
        rows = [JsonValue(columns, answers.where, answers.keys)]
    found = []
    for answer in chain.from_iterable(_rows(row, "text") for row in rows):
        text, start = _find(answer, "text") or answer["text"], _find(answer, "answer_start")
        found.append((text.whole_text(), start.whole_number() if start else -1))
    return tuple(found)


def _is_impossible(entry: JsonValue) -> bool:
    mark = entry.get("is_impossible")
    if mark is None or str(mark.value).lower() in ("false", "0"):
        return False
    return str(mark.value).lower() in ("true", "1") or mark.truth_value()


def _entries(path: str) -> Iterator[tuple[JsonValue, JsonValue]]:
    """Yields the objects of `questions_in` for all questions of a file."""
    if not path.lower().endswith((".csv", ".tsv")):
        values = list(json_values(read_text(path), path))
        for line, value in values:
            where = path if len(values) == 1 else f"{path}: line {line}"
            yield from questions_in(JsonValue(value, where))
        return
    table = read_table(path)
    columns = table.columns or []
    for line, cells in table.rows:
        row = JsonValue(cells, f"{path}: line {line}")
        if len(cells) > len(columns):
            raise row.error(f"at most {len(columns)} cells, as in the header {listed(columns)}")
        pairs = zip(columns, cells, strict=False)
        row.value = {name: _cell_value(name, cell) for name, cell in pairs if cell}
        yield row, row


def _cell_value(column: str, cell: str) -> Any:
    """Returns the value of a cell, which is a Python literal for some columns of answers."""
    is_list = column in _NAMES["answers"] and cell.startswith(("{", "["))
    if not is_list and column not in _NAMES["answer_start"]:
        return cell
    try:
        return ast.literal_eval(_ARRAY.sub(r"\1", cell))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return cell


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its reference answers."""

    qas_id: str  # unique in the file, except for training
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
    keys: Sequence[str] = ()  # of the first question


def read_squad(path: str, *, version: int, is_training: bool) -> SquadData:
    """Reads all questions of a file; see `questions_in` for the format.

    The default id is the number of the question from 1. For training, only the first answer of a
    question is kept; see `locate_answer` for its position. Questions that cannot be used are
    skipped. They and unusual answers are counted and logged. For evaluation, answers are optional.

    Raises:
        ValueError: the format is invalid, there are no questions, or more than 1% of them cannot be
            used. For training: no question has an answer. For evaluation: an id occurs twice. The
            message names the file and the keys in it.
    """
    issues = DataIssues(path, "id")
    try:
        data = _read(path, version, is_training, issues)
    except JsonError as error:
        raise UserError(f"{error} Expected: {WANTED}.") from error
    if is_training and all(question.is_impossible for question in data.questions):
        raise UserError(
            f"{path}: no question has an answer, so there is nothing to learn. Train on a file "
            "with answers, such as SQuAD 1.1 (`squad_version`=1) or 2.0 (`squad_version`=2). The "
            f"keys of the first question: {listed(data.keys)}."
        )
    issues.log()
    return data


def _read(path: str, version: int, is_training: bool, issues: DataIssues) -> SquadData:
    questions: list[Question] = []
    contexts: dict[str, int] = {}
    places: dict[str, str] = {}  # by id
    keys: list[str] = []
    number, problem = 0, ""
    for number, (paragraph, entry) in enumerate(_entries(path), 1):
        if number == 1:
            keys = [*entry.members()]
            layout = "one question per row" if entry is paragraph else "paragraphs with questions"
            ids = "" if _find(entry, "id") else "; the ids are numbers from 1"
            logging.info("Reading %s as SQuAD (%s: %s%s)", path, layout, listed(keys), ids)
        qas_id, place = str(number), f"{entry.where}: {entry.keys}".removesuffix(": ")
        try:
            qas_id = str(id_of(entry, number))
            context, asked = text_of(paragraph, "context"), text_of(entry, "question")
            answers, is_impossible = _answers_of(entry), _is_impossible(entry)
            if is_training and not is_impossible:
                where = f"{place} (id {qas_id[:60]!r})"
                answers, remarks = _answer_to_train(answers, context, where, version)
                for remark in remarks:
                    issues.add(remark, qas_id)
        except UserError as error:
            done = "skipped" if is_training else "neither answered nor scored"
            wanted = f" Expected: {WANTED}." if isinstance(error, JsonError) else ""
            first = str(error).removeprefix(f"{path}: ").removesuffix(".")
            problem = problem or f"an error, {done}; the first: {first}"
            issues.add(problem, qas_id, f"{error}{wanted}")
            continue
        if places.setdefault(qas_id, place) != place:
            if not is_training:  # answers are written by id
                raise JsonError(f"{places[qas_id]} and {place} have the same id, {shown(qas_id)}.")
            issues.add("the id of another question, kept", qas_id)
        if is_training and (is_impossible or not answers):
            answers, is_impossible = (), True
        index = contexts.setdefault(context, len(contexts))
        questions.append(Question(qas_id, asked, index, answers, is_impossible))
        if version == 1 and is_impossible:
            done = "; the target is position 0" * is_training
            kind = f"no answer in the context, although `squad_version`=1 needs answers{done}"
            issues.add(kind, qas_id)
    if not number:
        raise JsonError(f"{path} contains no question.")
    issues.check(number)
    return SquadData([*contexts], questions, path, keys)


def _answer_to_train(
    answers: Answers, context: str, where: str, version: int
) -> tuple[Answers, list[str]]:
    """Returns the first answer with its position in the context, or none, and remarks about it."""
    remarks = ["several answers; using the first"] if len(answers) > 1 else []
    text, start = answers[0] if answers else ("", -1)
    if not text.strip():
        if version == 1:
            raise UserError(
                f"{where} has no answer, but `squad_version`=1 needs one for training, as one of "
                f"{listed(_NAMES['answers'])}. Use `squad_version`=2 if some questions have none."
            )
        return (), [*remarks, "no answer; treated as unanswerable"]
    found = locate_answer(context, text, start)
    if found is None:
        given = f", neither at `answer_start`={start} nor elsewhere" if start >= 0 else ""
        raise UserError(
            f"{where}: the answer {shown(text)} does not occur in the context of {len(context)} "
            f"characters{given}. Correct or remove such questions."
        )
    (begin, end), more = found
    return ((context[begin:end], begin),), remarks + more
