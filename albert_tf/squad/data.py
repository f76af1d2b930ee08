"""Questions about contexts in the formats of SQuAD, CMRC 2018 and Hugging Face `datasets`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from albert_tf.data.errors import UserError
from albert_tf.data.rows import JSON_LINES, Row, Rows, find_value, literal, read_rows, rows_of
from albert_tf.data.schema import Field, Schema
from albert_tf.data.splits import TEST, TRAIN
from albert_tf.data.strict_json import JsonValue, listed, shown
from albert_tf.squad.locate_answers import locate_answer

WANTED = (
    "the format of SQuAD, or one question per row (JSON or JSON Lines; in `train_file` and "
    "`predict_file` also CSV or TSV) with `context`, `question`, optionally `id`, and `answers` "
    'such as [{"text": "...", "answer_start": 0}]'
)
_NESTED = ("paragraphs", "qas")

Answers = tuple[tuple[str, int], ...]


def _id(value: JsonValue) -> str | int:
    return value.whole_text() if isinstance(value.value, str) else value.whole_number()


def _answers(value: JsonValue) -> JsonValue:
    is_list = isinstance(value.value, str) and value.value.startswith(("{", "["))
    return literal(value) if is_list else value


def _is_true(value: JsonValue) -> bool:
    text = str(value.value).lower()
    return text in ("true", "1") or (text not in ("false", "0") and value.truth_value())


_TEXT = ("text", "answer_text")
_START = ("answer_start", "answers.answer_start", "start")
# The names of values in this package, and in published data sets.
_FIELDS = {
    "context": Field(("context", "context_text", "passage", "paragraph")),
    "question": Field(("question", "query_text", "query")),
    "id": Field(("id", "query_id", "question_id", "qid"), _id, is_required=False),
    "answers": Field(("answers", "answer", "answer_text", "answers.text"), _answers, False),
    "starts": Field(_START, literal, is_required=False),
    "is_impossible": Field(("is_impossible",), _is_true, is_required=False),
}


def questions_in(content: JsonValue) -> Iterator[JsonValue]:
    """Yields one JSON object per question, with its context.

    The value is a list of articles, an object with such a list as `data`, or one article. A
    paragraph (`context` and `qas`) or a question with a `context` may replace an article. For
    tables see `rows_of`.
    """
    table = rows_of(content.value)
    content = content if table is None else JsonValue(table, content.where, content.keys)
    rows = content.elements() if isinstance(content.value, list) else [content]
    return chain.from_iterable(map(_unfolded, rows))


def _unfolded(row: JsonValue) -> Iterator[JsonValue]:
    """Yields the questions in a value; values that are not objects as they are."""
    inner = find_value(row, _NESTED) if isinstance(row.value, dict) else None
    if inner is None:
        yield row
        return
    names = _FIELDS["context"].names
    context = {name: row.value[name] for name in names if name in row.value}
    parts = inner.elements() if isinstance(inner.value, list) else [inner]
    for part in chain.from_iterable(map(_unfolded, parts)):
        if context and isinstance(part.value, dict):
            part.value = {**part.value, **context}
        yield part


def plain_question(row: JsonValue, number: int) -> tuple[str | int, str, str]:
    """Returns the id, the context and the text of a question. The default id is its number."""
    found = find_value(row, _FIELDS["id"].names)
    context, question = (
        (find_value(row, _FIELDS[name].names) or row[name]).whole_text()
        for name in ("context", "question")
    )
    return str(number) if found is None else _id(found), context, question


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
    keys: Sequence[str] = ()  # of the questions


def _located(answers: JsonValue | None, starts: JsonValue | None) -> Answers:
    """Returns the text of each answer and the index of its first character, -1 if unknown.

    The answers are an object or a text, a list of them, or an object of lists as in `datasets`.
    """
    if answers is None:
        return ()
    rows = answers.elements() if isinstance(answers.value, list) else [answers]
    if all(isinstance(row.value, str) for row in rows):
        given = {} if starts is None else {"answer_start": starts.value}
        rows = [JsonValue({"text": answers.value, **given}, answers.where, answers.keys)]
    found = []
    for row in rows:
        members = row.value.items() if isinstance(row.value, dict) else ()
        table = rows_of({k: v for k, v in members if isinstance(v, list)} or row.value)
        for answer in [row] if table is None else JsonValue(table, row.where, row.keys).elements():
            start = find_value(answer, _START)
            text = (find_value(answer, _TEXT) or answer["text"]).whole_text()
            found.append((text, -1 if start is None else start.whole_number()))
    return tuple(found)


def _question_rows(path: str, examples: Sequence[Mapping[str, Any]] | None) -> Rows:
    """Returns a row per question, whose number is its id. Empty cells of tables are missing."""
    if examples is not None:
        given = (
            (number, JsonValue(row, f"{path}: question {number}"), None)
            for number, row in enumerate(examples, 1)
        )
        return Rows(path, "a list", [*examples[0]], given, "number")
    is_json = not path.lower().endswith((".csv", ".tsv"))
    rows = read_rows(path, kind=JSON_LINES if is_json else None, wanted=WANTED)
    found: Iterable[Row] = rows.rows
    if any(key in rows.columns for key in _NESTED):
        found = [*found]
        keys = (row.value for _, row, _ in _each_question(found, is_json))
        rows.columns = [*dict.fromkeys(chain.from_iterable(keys))] or [*_FIELDS]
    rows.rows, rows.report.unit = _each_question(found, is_json), "id"
    return rows


def _each_question(rows: Iterable[Row], is_json: bool) -> Iterator[Row]:
    count = 0
    for _, row, problem in rows:
        for question in _unfolded(row):
            count += 1
            values, error = question.value, problem
            if not isinstance(values, dict):
                values, error = {}, question.error("an object")
            if not is_json:
                values = {name: cell for name, cell in values.items() if cell}
            where = f"{question.where}: {question.keys}" if question.keys else question.where
            yield str(values.get("id", count)), JsonValue(values, where), error


def read_squad(
    path: str,
    *,
    version: int,
    is_training: bool,
    examples: Sequence[Mapping[str, Any]] | None = None,
) -> SquadData:
    """Reads all questions of a file; see `questions_in` for the format.

    The default id is the number of the question from 1. For training, only the first answer of a
    question is kept; see `locate_answer` for its position. Questions that cannot be used are
    skipped. They and unusual answers are counted and logged. For evaluation, answers are optional.
    If `examples` is given, these rows are read instead of the file.

    Raises:
        ValueError: the format is invalid, there are no questions, or more than 1% of them cannot be
            used. For training: no question has an answer. For evaluation: an id occurs twice. The
            message names the file and the keys in it.
    """
    rows = _question_rows(path, examples)
    report = rows.report
    contexts: dict[str, int] = {}

    def make(index: int, number: object, **row: Any) -> Question:
        qas_id = str(index + 1 if row["id"] is None else row["id"])
        for name in ("question", "context"):
            if not row[name].strip():
                report.add(f"an empty {name}, kept", qas_id)
        answers, is_impossible = _located(row["answers"], row["starts"]), bool(row["is_impossible"])
        if is_training:
            place = rows, number, qas_id
            answers = () if is_impossible else _trained(answers, row["context"], version, *place)
            is_impossible = not answers
        paragraph = contexts.setdefault(row["context"], len(contexts))
        return Question(qas_id, row["question"], paragraph, answers, is_impossible)

    questions: list[Question] = []
    ids: set[str] = set()
    done = "; the target is position 0" * is_training
    unanswerable = f"no answer in the context, although `squad_version`=1 needs answers{done}"
    for question in Schema(make, [_FIELDS]).each(rows, TRAIN if is_training else TEST):
        if question.qas_id in ids:
            if not is_training:
                raise UserError(
                    f"{path}: two questions have the same id, {shown(question.qas_id)}. Answers "
                    "are written by id. Change one of them."
                )
            report.add("the id of another question, kept", question.qas_id)
        if version == 1 and question.is_impossible:
            report.add(unanswerable, question.qas_id)
        ids.add(question.qas_id)
        questions.append(question)
    if not questions:
        raise UserError(f"{path} contains no question. Expected: {WANTED}.")
    if is_training and all(question.is_impossible for question in questions):
        raise UserError(
            f"{path}: no question has an answer, so there is nothing to learn. Train on a file "
            "with answers, such as SQuAD 1.1 (`squad_version`=1) or 2.0 (`squad_version`=2). The "
            f"keys of the questions: {listed(rows.columns)}."
        )
    return SquadData([*contexts], questions, path, rows.columns)


def _trained(
    answers: Answers, context: str, version: int, rows: Rows, number: object, qas_id: str
) -> Answers:
    """Returns the first answer with its position in the context, or none; counts remarks."""
    where = f"{rows.path}: the question with the {rows.report.unit} {str(number)[:60]!r}"
    remarks = ["several answers; using the first"] if len(answers) > 1 else []
    text, start = answers[0] if answers else ("", -1)
    found: Answers = ()
    if text.strip():
        place = locate_answer(context, text, start)
        if place is None:
            given = f", neither at `answer_start`={start} nor elsewhere" if start >= 0 else ""
            raise UserError(
                f"{where}: the answer {shown(text)} does not occur in the context of "
                f"{len(context)} characters{given}. Correct or remove such questions."
            )
        (begin, end), more = place
        found, remarks = ((context[begin:end], begin),), remarks + more
    elif version == 1:
        raise UserError(
            f"{where} has no answer, but `squad_version`=1 needs one for training, in "
            f"{listed(_FIELDS['answers'].names)}. If some have none, use `squad_version`=2, or "
            "AlbertForQuestionAnsweringWithBeamSearch in Python."
        )
    else:
        remarks.append("no answer; treated as unanswerable")
    for remark in remarks:
        rows.report.add(remark, qas_id)
    return found
