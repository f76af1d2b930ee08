"""Questions with options: custom JSON or CSV files, or RACE.

A row has `context`, `question`, `options` (a list of 2 to 26 texts), `label` and optionally `id`,
or the keys of another data set in `_KEYS`. A label is a number from 0, a letter ("A" is the
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import folder_names
from albert_tf.data.parallel import progress
from albert_tf.data.rows import Row, Rows, read_rows, read_text
from albert_tf.data.schema import NO_LABEL, Field, Schema, as_is, log_counts
from albert_tf.data.splits import TEST, TRAIN
from albert_tf.data.strict_json import (
    JsonError,
    JsonValue,
    as_whole_number,
    is_number,
    json_values,
    listed,
)

MIDDLE, HIGH = LEVELS = "middle", "high"  # of RACE
_NUM_OPTIONS = 4
_RACE = ("context", "question", "options", "label", "name", "level")

_FEWEST_LABELS = 10  # fewer labels can be the same by chance
LETTERS = string.ascii_uppercase  # names of options, in their order
BLANK = "_"  # placeholder for the option in a question
_WANTED = (
    "one object per line (JSON Lines), such as "
    '{"context": "...", "question": "...", "options": ["...", "..."], "label": "A"}'
)
# The keys of context ("" if there is none), question, options and label. The options are a list, or
# have a key each. If labels are not numbers from 0, the last element contains the possible labels.
_KEYS = (
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
    ("", "question.stem", "question.choices", "answerKey", ""),
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
    """Reads a custom JSON, CSV or TSV file; see `Schema.read`.

    The default `id` is the number of the question, from 0.
    """
    given: set[str] = set()  # labels that are numbers from 0, letters or texts

    def find_label(value: JsonValue, values: Mapping[str, Any]) -> int | None:
        texts, names = values["options"]
        if value.value == "":
            return None
        index = _label(value, texts, names)
        if not names:
            given.add("text" if value.value in texts else str(value.value))
        return index

    schema = Schema(_example, _LAYOUTS, find_label, "question")
    examples = schema.read(read_rows(path, wanted=_WANTED), split)
    if given and all(map(str.isdigit, given)) and "0" not in given:
        logging.warning(
            "%s: all labels are numbers, and none is 0. Numbers count from 0: 1 selects the second "
            "option. If they count from 1, subtract 1, or use letters",
            path,
        )
    return _logged(path, split, examples)


def _logged(path: str, split: str, examples: list[ChoiceExample]) -> list[ChoiceExample]:
    """Logs the labels of examples. Warns if all labels are equal."""
    counts = Counter(LETTERS[e.label] for e in examples if e.label is not None)
    log_counts(path, split, "question", len(examples), dict(sorted(counts.items())))
    if len(counts) == 1 and len(examples) >= _FEWEST_LABELS:
        logging.warning("%s: all %d questions have the label %s", path, len(examples), *counts)
    return examples


def _text(value: JsonValue) -> str:
    """Returns a JSON text, a number, or a list of texts, such as a dialogue, as text."""
    if isinstance(value.value, list):
        return "\n".join(text.whole_text() for text in value.elements())
    return json.dumps(value.value) if is_number(value.value) else value.whole_text()


def _options(value: JsonValue, names: str) -> tuple[tuple[str, ...], Sequence[object]]:
    """Returns options, and their names if they have names."""
    given: list[JsonValue] = []
    if isinstance(value.value, dict):
        found, given = value["text"].elements(), value["label"].elements()
    elif all(isinstance(option.value, dict) for option in value.elements()):
        found = [option["text"] for option in value.elements()]
        given = [option["label"] for option in value.elements()]
    else:
        found = value.elements()
    if not 2 <= len(found) <= len(LETTERS):
        raise value.error(f"2 to {len(LETTERS)} texts")
    return tuple(map(_text, found)), [name.value for name in given] or names


def _layout(context: str, question: str, options: str, label: str, names: str) -> dict[str, Field]:
    fields = {"context": Field((context,), _text)} if context else {}
    return fields | {
        "question": Field((question,), _text),
        "options": Field((options,), partial(_options, names=names), is_pattern=True),
        "label": Field((label,), as_is, is_required=False),
        "name": Field(("id", "example_id"), _text, is_required=False),
    }


_LAYOUTS = tuple(_layout(*keys) for keys in _KEYS)


def _example(
    index: int,
    number: object,
    question: str,
    options: tuple[tuple[str, ...], Sequence[object]],
    label: int | None,
    name: str | None,
    context: str = "",
) -> ChoiceExample:
    example_id = str(index) if name is None else name
    return ChoiceExample(example_id, context, question, options[0], label)


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
    rows = Rows(folder, "RACE", _RACE, unit="passage")
    rows.rows = _questions(rows, data_dir, levels, split)
    fields = {name: Field((name,), as_is, name != "label") for name in _RACE}
    schema = Schema(_race_example, [fields], what="question")
    return _logged(folder, split, schema.read(rows, split))


def _questions(rows: Rows, data_dir: str, levels: Sequence[str], split: str) -> Iterator[Row]:
    """Yields the questions about all passages. Raises ValueError if a passage is malformed."""
    for level in filter(levels.__contains__, LEVELS):
        for location, passage in _passages(rows.path, level, data_dir):
            questions = list(_examples(passage, location, level, split))
            yield from ((location, question, None) for question in questions)
            if not questions:
                rows.report.add("no question", location)


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


def _examples(passage: JsonValue, location: str, level: str, split: str) -> Iterator[JsonValue]:
    """Yields the questions about a passage by the names in `_RACE`."""
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
    for question, choices, label in zip(questions, options, labels, strict=True):
        texts = tuple(option.whole_text() for option in choices.elements())
        if len(texts) != _NUM_OPTIONS:
            raise choices.error(f"a list of {_NUM_OPTIONS} options")
        number = _letter_label(label, split)
        row = article, question.whole_text(), texts, number, example_id, level
        yield JsonValue(dict(zip(_RACE, row, strict=True)), passage.where)


def _letter_label(answer: JsonValue | None, split: str) -> int | None:
    """Returns the index of an option. `None` if missing, or if invalid in test data."""
    letters = LETTERS[:_NUM_OPTIONS]
    if answer is None or answer.value in (None, *NO_LABEL):
        return None
    if answer.value not in tuple(letters):
        if split == TEST:
            return None
        raise answer.error(f"one of {', '.join(letters)}")
    return letters.index(answer.value)


def _race_example(index: int, location: object, **values: Any) -> ChoiceExample:
    found = {name: getattr(value, "value", value) for name, value in values.items()}
    return ChoiceExample(found.pop("name"), **found)
