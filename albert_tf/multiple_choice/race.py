"""The RACE data set: passages of English examinations, four options a question.

The folder of a split and level, such as `RACE/train/middle`, holds the download's files, one
passage each, or an `all.txt` with one passage a line, as the original release wants it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from absl import logging
from tqdm import tqdm

from albert_tf.data.files import folder_names
from albert_tf.data.strict_json import as_whole_number, json_values, shown
from albert_tf.data.tables import DataIssues, read_text, whole_characters
from albert_tf.multiple_choice.data import (
    LETTERS,
    ChoiceExample,
    count_empty,
    finish,
    label_or_none,
)

FLAG = "--data_dir"

MIDDLE, HIGH = "middle", "high"

LEVELS = (MIDDLE, HIGH)
NUM_OPTIONS = 4
_FOLDER = "RACE"
_ALL = "all.txt"
_KEYS = ("article", "questions", "options")
_SECONDS_WITHOUT_BAR = 3


class _Passage(NamedTuple):
    """A passage as its file has it; `place` names it within the folder of its split."""

    place: str
    level: str
    content: dict[str, Any]


def chosen_levels(high_only: bool, middle_only: bool) -> tuple[str, ...]:
    """Turns the two flags into levels.

    Raises:
        ValueError: both are set.
    """
    if high_only and middle_only:
        raise ValueError(
            "--high_only and --middle_only exclude each other; set neither to take both levels."
        )
    return (HIGH,) if high_only else (MIDDLE,) if middle_only else LEVELS


def read_race(data_dir: str, split: str, *, levels: Sequence[str] = LEVELS) -> list[ChoiceExample]:
    """Reads a split: middle before high, passages as in `all.txt` or by the number of their file.

    Where there is an `all.txt`, it alone is read. It may also be what `cat *.txt > all.txt` makes
    of the download, whose files do not end in a line feed.

    Args:
        data_dir: what holds the folder RACE, or that folder itself.
        split: train, dev or test.
        levels: any of `LEVELS`; in that order they are read.

    Returns:
        The questions, called by the `id` of their passage. Those of train and dev without an answer
        are left out and counted; those of test have answers only if all of them do.

    Raises:
        ValueError: there are no passages, or one is broken: no JSON, keys missing, not four options
            a question, an answer that is none of A to D. Names the file and the line.
    """
    folder = _split_folder(data_dir, split)
    issues = DataIssues(folder, "passage")
    rows: list[tuple[str, ChoiceExample]] = []
    ids: set[str] = set()
    for level in filter(levels.__contains__, LEVELS):
        for passage in _passages(folder, level, data_dir):
            try:
                examples = _examples(passage, split, issues)
            except ValueError as error:
                raise ValueError(
                    f"{FLAG}: {os.path.join(folder, passage.place)} {error}"
                ) from error
            rows += [(passage.place, example) for example in examples]
            if not examples:
                issues.add("no question", passage.place)
            elif examples[0].example_id in ids:
                issues.add("the id of another passage, kept", passage.place)
            ids.update(example.example_id for example in examples[:1])
    return finish(rows, split, issues, FLAG)


def _split_folder(data_dir: str, split: str) -> str:
    inner = os.path.join(data_dir, _FOLDER, split)
    own = os.path.join(data_dir, split)
    return own if not folder_names(inner) and folder_names(own) else inner


def _passages(folder: str, level: str, data_dir: str) -> Iterator[_Passage]:
    """The passages of a level, wherever they are."""
    level_folder = os.path.join(folder, level)
    names = [n for n in folder_names(level_folder) if n.endswith(".txt") and not n.startswith(".")]
    if not names:
        other = LEVELS[1 - LEVELS.index(level)]
        raise ValueError(
            f"{FLAG}: there are no passages (*.txt) in {level_folder!r}. {FLAG} is the folder that "
            f"holds {_FOLDER}/, or that folder itself; --{other}_only reads {other} alone. "
            f"Received: {data_dir!r}"
        )
    files = [_ALL] if _ALL in names else sorted(names, key=_by_number)
    count = 0
    delay = _SECONDS_WITHOUT_BAR
    for name in tqdm(files, level, unit="file", disable=None, leave=False, delay=delay):
        path = os.path.join(level_folder, name)
        for line, content in _objects(path):
            count += 1
            place = f"{level}/{name}" + (f":{line}" if name == _ALL else "")
            yield _Passage(place, level, content)
    beside = len(names) - 1
    if files == [_ALL] and beside and beside != count:
        logging.warning(
            "%s holds %d passages, but %d other files lie beside it, which are not read; remove "
            "%s to read them",
            os.path.join(level_folder, _ALL),
            count,
            beside,
            _ALL,
        )


def _by_number(name: str) -> tuple[bool, int, str]:
    """Sorts names that are numbers by their size, before any other ones."""
    stem = name.removesuffix(".txt")
    is_number = stem.isascii() and stem.isdecimal()
    return not is_number, int(stem) if is_number else 0, name


def _objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every JSON object of a file with the line it begins at, whatever blanks are between."""
    where = f"{FLAG}: {path}"
    for line, value in json_values(read_text(path, FLAG), where):
        if not isinstance(value, dict):
            raise ValueError(
                f"{where}: line {line} must be a JSON object with the keys {', '.join(_KEYS)} and "
                f"answers. Received: {shown(value)}"
            )
        yield line, value


def _examples(passage: _Passage, split: str, issues: DataIssues) -> list[ChoiceExample]:
    """The questions of a passage.

    Raises:
        ValueError: it is not as it should be.
    """
    article, questions, options, answers = _checked(passage.content)

    def whole(text: str) -> str:
        return whole_characters(text, issues, passage.place)

    name = passage.content.get("id")
    if name is not None and not isinstance(name, str) and as_whole_number(name) is None:
        raise ValueError(f"needs text in 'id'. Received: {shown(name)}")
    example_id = whole(str(name)) if name is not None else _made_up_id(passage.place)
    context = whole(article)
    examples = []
    for number, (question, texts, answer) in enumerate(
        zip(questions, options, answers, strict=True)
    ):
        example = ChoiceExample(
            example_id, context, whole(question), tuple(map(whole, texts)), None, passage.level
        )
        count_empty(example, issues, passage.place)
        try:
            label = label_or_none(_label, answer, example, split, issues, passage.place)
        except ValueError as error:
            raise ValueError(f"question {number + 1} {error}") from error
        examples.append(replace(example, label=label))
    return examples


def _made_up_id(place: str) -> str:
    """What the download calls a passage: `middle/13.txt` is middle13.txt."""
    return place.replace("/", "", 1)


def _checked(content: dict[str, Any]) -> tuple[str, list[str], list[list[str]], list[Any]]:
    """Article, questions, options and answers; the latter None where there are none.

    Raises:
        ValueError: keys are missing, not as many of one as of the other, or not of their kind.
    """
    missing = [key for key in _KEYS if key not in content]
    if missing:
        raise ValueError(f"has no {missing[0]!r}; it has {shown(sorted(content))}.")
    article, questions, options = (content[key] for key in _KEYS)
    if not isinstance(article, str):
        raise ValueError(f"needs text in 'article'. Received: {type(article).__name__}")
    answers = content.get("answers") or []
    lists = {"questions": questions, "options": options, "answers": answers}
    for key, values in lists.items():
        if not isinstance(values, list):
            raise ValueError(f"needs a list in {key!r}. Received: {type(values).__name__}")
    answers = answers or [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise ValueError(
            f"has {len(questions)} questions, {len(options)} lists of options and {len(answers)} "
            "answers; there must be as many of each (or no answers at all)."
        )
    for number, (question, texts) in enumerate(zip(questions, options, strict=True), start=1):
        if not isinstance(question, str):
            raise ValueError(f"question {number} must be text. Received: {shown(question)}")
        is_list = isinstance(texts, list)
        if not is_list or len(texts) != NUM_OPTIONS or not all(isinstance(t, str) for t in texts):
            received = f"{len(texts)}: {shown(texts)}" if is_list else shown(texts)
            raise ValueError(
                f"question {number} must have {NUM_OPTIONS} options, all of them text. "
                f"Received: {received}"
            )
    return article, questions, options, answers


def _label(answer: Any, options: Sequence[str]) -> int:
    letters = LETTERS[: len(options)]
    if isinstance(answer, str) and len(answer) == 1 and answer in letters:
        return letters.index(answer)
    raise ValueError(f"has the answer {shown(answer)}; allowed are {', '.join(letters)}.")
