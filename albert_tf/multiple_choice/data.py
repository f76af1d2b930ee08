"""Questions with options: custom JSON or CSV files, or RACE.

A row has `context`, `question`, `options` (a list of 2 to 26 texts), `label` and optionally `id`,
or the keys of another data set in `_FORMATS`. A label is a number from 0, a letter ("A" is the
first option), or the text of an option.

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
from functools import partial
from typing import Any

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import folder_names
from albert_tf.data.parallel import progress
from albert_tf.data.rows import JSON_LINES, DataIssues, json_objects, read_table, read_text
from albert_tf.data.splits import TEST, TRAIN
from albert_tf.data.strict_json import (
    JsonError,
    JsonValue,
    as_whole_number,
    is_number,
    json_values,
    listed,
)
from albert_tf.labels import NO_LABEL

MIDDLE, HIGH = LEVELS = "middle", "high"  # of RACE
_NUM_OPTIONS = 4

_FEWEST_LABELS = 10  # fewer labels can be the same by chance
LETTERS = string.ascii_uppercase  # names of options, in their order
BLANK = "_"  # placeholder for the option in a question
_WANTED = (
    "one object per line (JSON Lines), such as "
    '{"context": "...", "question": "...", "options": ["...", "..."], "label": "A"}'
)
# The keys of context ("" if there is none), question, options and label. The options are a list, or
# have a key each. If labels are not numbers from 0, the last element contains the possible labels.
_FORMATS = (
    ("context", "question", "options", "label", ""),
    ("article", "question", "options", "answer", ""),
    ("sent1", "sent2", "ending[0-9]", "label", ""),
    ("ctx_a", "ctx_b", "endings", "label", ""),
    ("context", "question", "answers|answer[0-9]", "label", ""),
    ("context", "question", "answer[A-C]", "label", "123"),
    ("context", "question", "choice", "answer", ""),
    ("dialogue", "question", "choice", "answer", ""),
    ("premise", "question", "choice[12]", "label", ""),
    ("", "question", "choices", "answerKey", ""),
    ("", "question_stem", "choices", "answerKey", ""),
    ("", "goal", "sol[12]", "label", ""),
    ("", "sentence", "option[12]", "answer", "12"),
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
    """Reads a custom JSON, CSV or TSV file.

    In train and dev, questions without a label (missing, null, "" or "-") are skipped and counted.
    Labels of a test file are used only if all are valid. The default `id` is the number of the
    question, from 0. Malformed rows are skipped and counted.

    Raises:
        ValueError: the file is missing or empty, more than 1% of its rows are malformed, or there
            is no label in train or dev.
    """
    issues = DataIssues(path)
    objects = _objects(path, issues)
    keys = listed(next((row for _, row in objects if isinstance(row, dict)), ()))
    logging.info("Reading %s as %s (%s)", path, issues.format or JSON_LINES, keys)
    rows = []
    given: set[str] = set()  # labels that are numbers from 0, letters or texts
    for number, (line, row) in enumerate(objects):
        try:
            if isinstance(row, UserError):
                raise row
            entry = JsonValue(row, f"{issues.unit} {line} of {path}")
            context, question, options, label, names = _parts(entry)
            find = partial(_label, names=names)
            index = _label_or_none(find, label, options, split)
            name = entry.get("id") or entry.get("example_id")
            example_id = str(number) if name is None else _text(name)
            rows.append((line, ChoiceExample(example_id, context, question, options, index)))
            if label is not None and index is not None and not names:
                given.add("text" if label.value in options else str(label.value))
        except UserError as error:
            issues.add("malformed values, skipped", line, error)
    issues.check(len(objects))
    if given and all(map(str.isdigit, given)) and "0" not in given:
        logging.warning(
            "%s: all labels are numbers, and none is 0. Numbers count from 0: 1 selects the second "
            "option. If they count from 1, subtract 1, or use letters",
            path,
        )
    return _finish(rows, split, issues, f" The keys of its first row: {keys}.")


def _objects(path: str, issues: DataIssues) -> list[tuple[int, dict[str, Any] | UserError]]:
    """Returns the rows of a file as objects, or errors, with their numbers."""
    if not path.lower().endswith((".csv", ".tsv")):
        return json_objects(path, read_text(path), _WANTED, issues)
    table = read_table(path)
    rows: list[tuple[int, dict[str, Any] | UserError]] = []
    for line, cells in table.rows:
        row = dict(zip(table.columns or (), cells, strict=False))
        problem = UserError(f"line {line} of {path} has {len(cells)} columns, not {table.width}.")
        rows.append((line, row if len(cells) == table.width else problem))
    return rows


def _parts(
    row: JsonValue,
) -> tuple[str, str, tuple[str, ...], JsonValue | None, Sequence[object]]:
    """Returns context, question, options, label and possible labels; see `_FORMATS`."""
    values = row.members()
    if "question" in values and isinstance(values["question"].value, dict):  # ARC as published
        values |= values["question"].members()
        values["question"] = values["question"]["stem"]
    for context, question, pattern, label, names in _FORMATS:
        found = [values[key] for key in sorted(values) if re.fullmatch(pattern, key)]
        is_list = len(found) == 1 and isinstance(found[0].value, list | dict)
        if {context, question} - {""} <= values.keys() and (is_list or len(found) > 1):
            options, choices = _options(found[0]) if is_list else (found, names)
            texts = tuple(map(_text, options))
            if not 2 <= len(texts) <= len(LETTERS):
                raise row.error(f"an object whose options are 2 to {len(LETTERS)} texts")
            passage = _text(values[context]) if context else ""
            return passage, _text(values[question]), texts, values.get(label), choices or names
    known = "; ".join(", ".join(filter(None, keys[:4])) for keys in _FORMATS)
    raise JsonError(f"{row.where} has the keys {listed(values)}. Expected one of: {known}.")


def _options(value: JsonValue) -> tuple[list[JsonValue], list[object]]:
    """Returns a list of options, and their names if they have names."""
    if isinstance(value.value, dict):
        return value["text"].elements(), [name.value for name in value["label"].elements()]
    found = value.elements()
    if not all(isinstance(option.value, dict) for option in found):
        return found, []
    return [option["text"] for option in found], [option["label"].value for option in found]


def _text(value: JsonValue) -> str:
    """Returns a JSON text, a number, or a list of texts, such as a dialogue, as text."""
    if isinstance(value.value, list):
        return "\n".join(text.whole_text() for text in value.elements())
    return json.dumps(value.value) if is_number(value.value) else value.whole_text()


def _label(value: JsonValue, options: Sequence[str], names: Sequence[object] = ()) -> int:
    """Returns the index of the option that a label selects; rejects ambiguous labels.

    If `names` are given, the label must be one of them.
    """
    last = len(options) - 1
    found = set()
    if names:
        text = str(value.value).strip()
        found = {number for number, name in enumerate(names) if str(name) == text}
    elif isinstance(value.value, str):
        name = value.value.strip()
        found = {number for number, option in enumerate(options) if option.strip() == name}
        if len(name) == 1 and name.upper() in LETTERS[: last + 1]:
            found.add(LETTERS.index(name.upper()))
        if re.fullmatch("[0-9]{1,9}", name) and int(name) <= last:
            found.add(int(name))
    else:
        number = as_whole_number(value.value)
        if number is not None and 0 <= number <= last:
            found.add(number)
    if len(found) > 1:
        letters = " or ".join(LETTERS[index] for index in sorted(found))
        raise value.error(f"unambiguous, but it selects option {letters}. Use a letter")
    if not found:
        wanted = f"0 to {last}, A to {LETTERS[last]}, or the text of exactly one option"
        raise value.error(f"one of {listed(names)}" if names else wanted)
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
    rows: Sequence[tuple[int | str, ChoiceExample]], split: str, issues: DataIssues, keys: str = ""
) -> list[ChoiceExample]:
    """Skips train and dev examples without a label, and logs counts."""
    unlabelled = [location for location, example in rows if example.label is None]
    if not rows or (split != TEST and len(unlabelled) == len(rows)):
        what = "question has a label" if rows else "question exists"
        raise UserError(f"No {what} in {issues.path}, the {split} data.{keys}")
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
        "%s: %d questions (%s), %d passages, up to %d options, %s",
        issues.path,
        len(examples),
        split,
        len({example.context for example in examples}),
        max(len(example.options) for example in examples),
        f"labels {labels}" if counts else "without labels, so predictions are not scored",
    )
    if len(counts) == 1 and len(examples) >= _FEWEST_LABELS:
        logging.warning(
            "%s: all %d questions have the label %s", issues.path, len(examples), labels[0]
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
