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
from albert_tf.data.rows import Row, Rows, literal, read_rows, read_text, rows_of
from albert_tf.data.schema import Field, Schema, as_is, log_counts
from albert_tf.data.splits import TRAIN
from albert_tf.data.strict_json import (
    JsonError,
    JsonValue,
    as_whole_number,
    is_number,
    json_values,
    listed,
)
from albert_tf.tokenization.base import SCRIPTS_WITHOUT_BLANKS

MIDDLE, HIGH = LEVELS = "middle", "high"  # of RACE
LETTERS = string.ascii_uppercase  # names of options, in their order
# Underscores are a blank, unless they join two letters or digits, as in max_len. In scripts without
# blanks between words, they always are.
_JOINED = rf"[^\W{SCRIPTS_WITHOUT_BLANKS}]"
_BLANK = re.compile(rf"(?<!{_JOINED})_+|_+(?!{_JOINED})")
BLANK = "\ue000"  # replaces it
# The same as regular expressions of RE2, which has no look-around.
_EDGE = rf"[^\pL\pN_]|[{SCRIPTS_WITHOUT_BLANKS}]"
BLANKS_OF_RE2 = {rf"(^|{_EDGE})_+": rf"\1{BLANK}", rf"_+($|{_EDGE})": rf"{BLANK}\1"}
_WANTED = (
    "one object per line (JSON Lines), such as "
    '{"context": "...", "question": "...", "options": ["...", "..."], "label": "A"}'
)
_QUESTION = "question.stem|question_stem|question|query"
_ANSWER = "answerKey|answer_idx|answer_index|label|answer|gold|correct|correct_option"
_CORRECT, _SORTED = "correct_answer|correct answer", "sorted"
# The keys of context ("" if there need not be one), question, options and label; of several keys,
# the first with a value is used. The options are a list, or have a key each. If labels are not
# numbers from 0, the last element contains the possible labels. `_SORTED` options have no order.
_KEYS = (
    ("context", "question", "options", "label", ""),
    ("sent1", "sent2", "ending[0-9]", "label", ""),
    ("ctx_a", "ctx_b", "endings", "label", ""),
    ("context", "question", "answers|answer[0-9]", "label|correct_answer_id", ""),
    ("context", "question", "answer[A-C]", "label", "123"),
    ("flores_passage", "question", "mc_answer[1-4]", "correct_answer_num", "1234"),
    ("premise", "question", "choice[12]", "label", ""),
    ("article|passage|text|dialogue|para|", _QUESTION, "(question.)?choices?|options", _ANSWER, ""),
    ("", "question|prompt", "op[a-e]|[A-J]", "cop|answer", ""),
    ("support|", "question", f"(in)?({_CORRECT})([ _][0-9])?|distractor[0-9]", _CORRECT, _SORTED),
    ("", "goal", "sol[12]", "label", ""),
    ("", "sentence", "option[12]", "answer", "12"),
)
_IDS = ("id", "example_id", "id_string", "question_id", "qid", "index", "idx", "ind")
_RACE_OPTIONS = LETTERS[:4]
_RACE = ("article", "question", "options", "answer", "id", "level")  # of a question


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
        """Returns one text per option: the question with the option inserted at each blank, "_".

        If the question contains no blank, the option is appended after a space. `clean` is applied
        to the question and the options first, because it converts similar characters to "_".

        Source: race_utils.py of the original release, read_examples.
        """
        question, options = self.question, self.options
        if clean is not None:
            question, options = clean(question), tuple(map(clean, options))
        first, *others = _BLANK.sub(BLANK, question).split(BLANK)
        if others:
            return tuple(option.join([first, *others]) for option in options)
        return tuple(f"{question} {option}" for option in options)


def read_choices(path: str, *, split: str = TRAIN) -> list[ChoiceExample]:
    """Reads a custom JSON, CSV or TSV file; see `Schema.read`.

    The default `id` is the number of the question, from 0.
    """
    given: set[str] = set()  # labels that are numbers from 0, letters or texts

    def find_label(value: JsonValue, values: Mapping[str, Any]) -> int | None:
        index, (texts, names) = _find_label(value, values), values["options"]
        if index is not None and not names:
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
    counts = Counter(sorted(LETTERS[e.label] for e in examples if e.label is not None))
    log_counts(path, split, "question", len(examples), counts)
    return examples


def _text(value: JsonValue) -> str:
    """Returns a JSON text, a number, or a list of texts, such as a dialogue, as text."""
    if isinstance(value.value, list):
        return "\n".join(text.whole_text() for text in value.elements())
    return json.dumps(value.value) if is_number(value.value) else value.whole_text()


def _options(value: JsonValue, names: Sequence[str]) -> tuple[tuple[str, ...], Sequence[object]]:
    """Returns options, and their names if they have names."""
    content = literal(value).value
    content = rows_of(content) or content
    if isinstance(content, dict):  # texts by name; tables have null for missing ones
        names = [name for name, option in content.items() if option is not None]
        content = [content[name] for name in names]
    found = JsonValue(content, value.where, value.keys).elements()
    if not 2 <= len(found) <= len(LETTERS):
        raise value.error(f"2 to {len(LETTERS)} texts")
    if not all(isinstance(option.value, dict) for option in found):
        if names == _SORTED:
            return tuple(sorted(map(_text, found))), ()
        return tuple(map(_text, found)), names[: len(found)]
    return tuple(_text(one["text"]) for one in found), [one["label"].value for one in found]


def _layout(context: str, question: str, options: str, label: str, names: str) -> dict[str, Field]:
    contexts = context.split("|")
    return {
        "context": Field([n or "context" for n in contexts], _text, is_required="" not in contexts),
        "question": Field(question.split("|"), _text),
        "options": Field((options,), partial(_options, names=names), is_pattern=True),
        "label": Field(label.split("|"), as_is, is_required=False),
        "name": Field(_IDS, _text, is_required=False),
    }


_LAYOUTS = tuple(_layout(*keys) for keys in _KEYS)


def _example(
    index: int, number: object, context: str | None, question: str, options: Any, **values: Any
) -> ChoiceExample:
    name = values.pop("name")
    name = str(index) if name is None else name
    return ChoiceExample(name, context or "", question, options[0], **values)


def _find_label(value: JsonValue, values: Mapping[str, Any]) -> int | None:
    """Returns the index of the option that a label selects; rejects ambiguous labels.

    If the options have names, the label must be one of them.
    """
    options, names = values["options"]
    if value.value == "":
        return None
    number, last = as_whole_number(value.value), len(options) - 1
    name = str(value.value if number is None else number).strip()
    texts = names or (options if isinstance(value.value, str) else ())
    found = {index for index, one in enumerate(texts) if str(one).strip() == name}
    if not names and re.fullmatch("[0-9]{1,9}|[A-Za-z]", name):
        found.add(int(name) if name.isdigit() else LETTERS.index(name.upper()))
    found &= {*range(len(options))}
    if len(found) > 1:
        letters = " or ".join(LETTERS[index] for index in sorted(found))
        raise value.error(f"unambiguous, but it selects option {letters}. Use a letter")
    if not found:
        numbers = f"0 to {last}, A to {LETTERS[last]}, or the text of exactly one option"
        raise value.error(f"one of {listed(names)}" if names else numbers)
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
    rows = Rows(folder, "RACE", [*_RACE], unit="passage")
    rows.rows = _questions(rows, data_dir, levels)
    layout = _layout(*_RACE[:4], names=_RACE_OPTIONS) | {"level": Field(("level",))}
    schema = Schema(_example, [layout], _find_label, "question", most_malformed=0.0)
    return _logged(folder, split, schema.read(rows, split))


def _questions(rows: Rows, data_dir: str, levels: Sequence[str]) -> Iterator[Row]:
    for level in filter(levels.__contains__, LEVELS):
        for location, passage in _passages(rows.path, level, data_dir):
            questions = passage["questions"].elements()
            options = passage["options"].elements()
            answers = passage.get("answers")
            labels = [answer.value for answer in answers.elements()] if answers else []
            labels = labels or [None] * len(questions)
            if not len(questions) == len(options) == len(labels):
                raise JsonError(
                    f"{passage.where} has {len(questions)} questions, {len(options)} lists of "
                    f"options and {len(labels)} answers. The numbers must be equal, or there must "
                    "be no answers."
                )
            # Default: the ids of the download, such as middle13.txt for `middle/13.txt`.
            name = passage.value.get("id") or location.replace("/", "", 1)
            article = passage["article"].value
            for question, choices, label in zip(questions, options, labels, strict=True):
                if len(choices.elements()) != len(_RACE_OPTIONS):
                    raise choices.error(f"a list of {len(_RACE_OPTIONS)} options")
                values = article, question.value, choices.value, label, name, level
                where = f"{passage.where}, {question.keys}"
                yield location, JsonValue(dict(zip(_RACE, values, strict=True)), where), None
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
