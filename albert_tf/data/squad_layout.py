"""Layouts of question files: SQuAD, CMRC 2018 in both of its forms, and one question an entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from albert_tf.data.strict_json import as_whole_number, shown

WANTED = (
    '{"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}'
)
# The older form of CMRC 2018 has names of its own.
_OTHER_NAMES = {"context": "context_text", "question": "query_text"}


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
