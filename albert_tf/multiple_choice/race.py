"""The RACE data set: passages of English examinations, four options a question.

The folder of a split and level, such as `RACE/train/middle`, holds the download's files, one
passage each, or an `all.txt` with one passage a line, as the original release wants it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from albert_tf.data.files import folder_names
from albert_tf.data.jobs import progress
from albert_tf.data.strict_json import JsonError, JsonValue, is_number, json_values
from albert_tf.data.tables import DataIssues, read_text
from albert_tf.multiple_choice.data import LETTERS, ChoiceExample, finish, label_or_none

FLAG = "--data_dir"

MIDDLE, HIGH = "middle", "high"

LEVELS = (MIDDLE, HIGH)
NUM_OPTIONS = 4
_FOLDER = "RACE"
_ALL = "all.txt"


def chosen_levels(high_only: bool, middle_only: bool) -> tuple[str, ...]:
    """Turns the two flags into levels.

    Raises:
        ValueError: both are set.
    """
    if high_only and middle_only:
        raise ValueError(
            "--high_only and --middle_only exclude each other; set neither to use both levels."
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
    for level in filter(levels.__contains__, LEVELS):
        for location, passage in _passages(folder, level, data_dir):
            examples = _examples(passage, location, level, split)
            rows += [(location, example) for example in examples]
            if not examples:
                issues.add("no question", location)
    return finish(rows, split, issues, FLAG)


def _split_folder(data_dir: str, split: str) -> str:
    inner = os.path.join(data_dir, _FOLDER, split)
    own = os.path.join(data_dir, split)
    return own if not folder_names(inner) and folder_names(own) else inner


def _passages(folder: str, level: str, data_dir: str) -> Iterator[tuple[str, JsonValue]]:
    """The passages of a level, wherever they are, and what their location is called."""
    level_folder = os.path.join(folder, level)
    names = [n for n in folder_names(level_folder) if n.endswith(".txt") and not n.startswith(".")]
    if not names:
        other = LEVELS[1 - LEVELS.index(level)]
        raise ValueError(
            f"{FLAG}: no passages (*.txt) exist in {level_folder!r}. {FLAG} must be the directory "
            f"that contains {_FOLDER}/, or that directory itself; --{other}_only reads {other} "
            f"alone. Received: {data_dir!r}"
        )
    for name in progress([_ALL] if _ALL in names else sorted(names, key=_by_number), level):
        path = os.path.join(level_folder, name)
        where = f"{FLAG}: {path}"
        for line, content in json_values(read_text(path, FLAG), where):
            location = f"{level}/{name}" + (f":{line}" if name == _ALL else "")
            yield location, JsonValue(content, f"{where}, line {line}")


def _by_number(name: str) -> tuple[bool, int, str]:
    """Sorts names that are numbers by their size, before any other ones."""
    stem = name.removesuffix(".txt")
    is_number = stem.isascii() and stem.isdecimal()
    return not is_number, int(stem) if is_number else 0, name


def _examples(passage: JsonValue, location: str, level: str, split: str) -> list[ChoiceExample]:
    """The questions of a passage.

    Raises:
        JsonError: keys are missing, not as many of one as of the other, or not of their kind.
    """
    article, questions = passage["article"].whole_text(), passage["questions"].elements()
    options, answers = passage["options"].elements(), passage.get("answers")
    labels: list[JsonValue | None] = [*answers.elements()] if answers else []
    labels = labels or [None] * len(questions)
    if not len(questions) == len(options) == len(labels):
        raise JsonError(
            f"{passage.where} has {len(questions)} questions, {len(options)} lists of options and "
            f"{len(labels)} answers; there must be as many of each (or no answers at all)."
        )
    name = passage.get("id")
    if name is None:  # what the download calls a passage: `middle/13.txt` is middle13.txt
        example_id = location.replace("/", "", 1)
    else:
        example_id = str(name.whole_number()) if is_number(name.value) else name.whole_text()
    examples = []
    for question, choices, label in zip(questions, options, labels, strict=True):
        texts = tuple(option.whole_text() for option in choices.elements())
        if len(texts) != NUM_OPTIONS:
            raise choices.error(f"a list of {NUM_OPTIONS} options")
        number = label_or_none(_label, label, texts, split)
        example = ChoiceExample(example_id, article, question.whole_text(), texts, number, level)
        examples.append(example)
    return examples


def _label(answer: JsonValue, options: Sequence[str]) -> int:
    letters = LETTERS[: len(options)]
    if answer.value not in tuple(letters):
        raise answer.error(f"one of {', '.join(letters)}")
    return letters.index(answer.value)
