"""Questions with options: custom JSON Lines, or RACE.

A line is an object with `context`, `question`, `options` (a list of 2 to 26 texts), `label` and
optionally `id`. A label is a number from 0, a letter ("A" is the first option), or the text of an
option.

RACE contains passages of English examinations and questions with 4 options. The directory of a
split and level, such as `RACE/train/middle`, contains one file per passage, as downloaded, or the
file `all.txt` with one passage per line, as the original release requires.
"""

import json
import os
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import folder_names
from albert_tf.data.parallel import progress
from albert_tf.data.strict_json import JsonError, JsonValue, as_whole_number, is_number, json_values
from albert_tf.data.tables import DataIssues, json_objects, read_text
from albert_tf.data.text_examples import TEST, TRAIN
from albert_tf.labels import NO_LABEL

MIDDLE, HIGH = LEVELS = "middle", "high"  # of RACE
_NUM_OPTIONS = 4

LETTERS = string.ascii_uppercase  # names of options, in their order
BLANK = "_"  # placeholder for the option in a question
_WANTED = (
    "one object per line (JSON Lines), such as "
    '{"context": "...", "question": "...", "options": ["...", "..."], "label": "A"}'
)


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A question about a text, with options of which one is correct."""

    example_id: str  # in RACE, the questions about a passage have the same id
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None = None  # index of the correct option; `None` if unknown
    level: str = ""  # "middle" or "high" in RACE

    def endings(self, clean: Callable[[str], str] | None = None) -> tuple[str, ...]:
        """Returns one text per option: the question with the option inserted at each "_".

        If the question contains no "_", the option is appended after a space. `clean` is applied to
        the question and the options first, because it converts similar characters to "_".

        Source: race_utils.py of the original release, read_examples.
        """
        question, options = self.question, self.options
        if clean is not None:
            question, options = clean(question), tuple(map(clean, options))
        if BLANK in question:
            return tuple(question.replace(BLANK, option) for option in options)
        return tuple(f"{question} {option}" for option in options)


def read_choices(path: str, *, split: str = TRAIN) -> list[ChoiceExample]:
    """Reads a custom JSON Lines file.

    In train and dev, questions without a label (missing, null, "" or "-") are skipped and counted.
    Labels of a test file are used only if all are valid. The default `id` is the number of the
    question, from 0.

    Raises:
        ValueError: the file is missing, empty or malformed, a value is invalid, or there is no
            label in train or dev.
    """
    rows = []
    objects = json_objects(path, read_text(path), _WANTED)
    for number, (line, row) in enumerate(objects):
        entry = JsonValue(row, f"line {line} of {path}")
        name, label = entry.get("id"), entry.get("label")
        options = tuple(_text(option) for option in entry["options"].elements())
        if not 2 <= len(options) <= len(LETTERS):
            raise entry["options"].error(f"a list of 2 to {len(LETTERS)} texts")
        example = ChoiceExample(
            str(number) if name is None else _text(name),
            _text(entry["context"]),
            _text(entry["question"]),
            options,
            _label_or_none(_label, label, options, split),
        )
        rows.append((line, example))
    return _finish(rows, split, DataIssues(path))


def _text(value: JsonValue) -> str:
    """Returns a JSON text or number as text."""
    return json.dumps(value.value) if is_number(value.value) else value.whole_text()


def _label(value: JsonValue, options: Sequence[str]) -> int:
    """Returns the index of the option that a label selects; rejects ambiguous labels."""
    last = len(options) - 1
    found = set()
    if isinstance(value.value, str):
        name = value.value.strip()
        found = {number for number, option in enumerate(options) if option.strip() == name}
        if len(name) == 1 and name.upper() in LETTERS[: last + 1]:
            found.add(LETTERS.index(name.upper()))
        elif not found and re.fullmatch("[0-9]{1,9}", name) and int(name) <= last:
            found.add(int(name))
    else:
        number = as_whole_number(value.value)
        if number is not None and 0 <= number <= last:
            found.add(number)
    if len(found) != 1:
        raise value.error(f"0 to {last}, A to {LETTERS[last]}, or the text of exactly one option")
    return found.pop()


def _label_or_none(
    find: Callable[[JsonValue, Sequence[str]], int],
    value: JsonValue | None,
    options: Sequence[str],
    split: str,
) -> int | None:
    """Returns the index of the correct option. `None` if missing, or if invalid in test data."""
    if value is None or value.value in (None, ""):
        return None
    if value.value in NO_LABEL and value.value not in options:
        return None
    try:
        return find(value, options)
    except ValueError:
        if split != TEST:
            raise
        return None


def _finish(
    rows: Sequence[tuple[int | str, ChoiceExample]], split: str, issues: DataIssues
) -> list[ChoiceExample]:
    """Skips train and dev examples without a label, and logs counts."""
    unlabelled = [location for location, example in rows if example.label is None]
    if not rows or (split != TEST and len(unlabelled) == len(rows)):
        what = "question has a label" if rows else "question exists"
        raise UserError(f"No {what} in {issues.path}, the {split} data.")
    examples = [example for _, example in rows]
    kind = "no label, skipped"
    if split != TEST:
        examples = [example for example in examples if example.label is not None]
    elif unlabelled:
        kind = "no label, while other questions have labels: all labels are ignored"
        examples = [replace(example, label=None) for example in examples]
    for location in unlabelled if len(unlabelled) < len(rows) else []:
        issues.add(kind, location)
    issues.log()
    counts = Counter(example.label for example in examples if example.label is not None)
    labels = ", ".join(f"{LETTERS[label]}: {counts[label]}" for label in sorted(counts))
    logging.info(
        "%s: split=%s questions=%d passages=%d most_options=%d %s",
        issues.path,
        split,
        len(examples),
        len({example.context for example in examples}),
        max(len(example.options) for example in examples),
        f"labels {labels}" if counts else "without labels",
    )
    return examples


def chosen_levels(high_only: bool, middle_only: bool) -> tuple[str, ...]:
    """Returns the levels that the two settings select; raises ValueError if both are set."""
    if high_only and middle_only:
        raise UserError(
            "`high_only` and `middle_only` cannot be combined. Set neither to use both levels."
        )
    return (HIGH,) if high_only else (MIDDLE,) if middle_only else LEVELS


def read_race(data_dir: str, split: str, *, levels: Sequence[str] = LEVELS) -> list[ChoiceExample]:
    """Reads a split of RACE.

    The level "middle" is read before "high". The files of a level are read in the order of their
    numbers; if there is an `all.txt`, only this file is read. The ids of questions are the ids of
    their passages. Questions without an answer are handled as in `read_choices`.

    Raises:
        ValueError: there are no passages, or a passage is malformed.
    """
    folder, own = os.path.join(data_dir, "RACE", split), os.path.join(data_dir, split)
    if not folder_names(folder) and folder_names(own):
        folder = own
    issues = DataIssues(folder, "passage")
    rows: list[tuple[str, ChoiceExample]] = []
    for level in filter(levels.__contains__, LEVELS):
        for location, passage in _passages(folder, level, data_dir):
            examples = _examples(passage, location, level, split)
            rows += [(location, example) for example in examples]
            if not examples:
                issues.add("no question", location)
    return _finish(rows, split, issues)


def _passages(folder: str, level: str, data_dir: str) -> Iterator[tuple[str, JsonValue]]:
    """Yields the passages of a level with their locations."""
    level_folder = os.path.join(folder, level)
    names = [n for n in folder_names(level_folder) if n.endswith(".txt") and not n.startswith(".")]
    if not names:
        other = LEVELS[1 - LEVELS.index(level)]
        raise UserError(
            f"`data_dir`: no passages (*.txt) exist in {level_folder!r}. `data_dir` must be RACE "
            "or the directory that contains RACE. "
            f"`{other}_only` reads only the level {other}. Received: {data_dir!r}"
        )
    # Longer numbers are larger.
    names = ["all.txt"] if "all.txt" in names else sorted(names, key=lambda name: (len(name), name))
    for name in progress(names, level):
        path = os.path.join(level_folder, name)
        for line, content in json_values(read_text(path), path):
            location = f"{level}/{name}" + (f":{line}" if name == "all.txt" else "")
            yield location, JsonValue(content, f"{path}, line {line}")


def _examples(passage: JsonValue, location: str, level: str, split: str) -> list[ChoiceExample]:
    """Returns the questions about a passage."""
    article, questions = passage["article"].whole_text(), passage["questions"].elements()
    options, answers = passage["options"].elements(), passage.get("answers")
    labels: list[JsonValue | None] = [*answers.elements()] if answers else []
    labels = labels or [None] * len(questions)
    if not len(questions) == len(options) == len(labels):
        raise JsonError(
            f"{passage.where} has {len(questions)} questions, {len(options)} lists of options and "
            f"{len(labels)} answers. The numbers must be equal, or there must be no answers."
        )
    name = passage.get("id")
    # Default: the ids of the download, such as middle13.txt for `middle/13.txt`.
    example_id = _text(name) if name else location.replace("/", "", 1)
    examples = []
    for question, choices, label in zip(questions, options, labels, strict=True):
        texts = tuple(option.whole_text() for option in choices.elements())
        if len(texts) != _NUM_OPTIONS:
            raise choices.error(f"a list of {_NUM_OPTIONS} options")
        number = _label_or_none(_letter_label, label, texts, split)
        example = ChoiceExample(example_id, article, question.whole_text(), texts, number, level)
        examples.append(example)
    return examples


def _letter_label(answer: JsonValue, options: Sequence[str]) -> int:
    letters = LETTERS[: len(options)]
    if answer.value not in tuple(letters):
        raise answer.error(f"one of {', '.join(letters)}")
    return letters.index(answer.value)
