"""Questions with options to choose from, and everybody's own in JSON lines.

A line is an object with `context`, `question`, `options` (a list of 2 to 26 texts, as many as the
question has), `label` and, if wanted, `id`. A label is one of: a number, counted from 0; a letter,
"A" for the first option; the text of the option.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from absl import logging

from albert_tf.data.strict_json import JsonValue, as_whole_number, is_number
from albert_tf.data.tables import DataIssues, json_objects, read_text
from albert_tf.data.text_examples import NO_LABEL, TEST, TRAIN

LETTERS = string.ascii_uppercase  # names of options, in their order
BLANK = "_"  # where in a question the option belongs
_WANTED = (
    "one object per line (JSON Lines), such as "
    '{"context": "...", "question": "...", "options": ["...", "..."], "label": "A"}'
)


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A question about a text, with options of which one is right.

    Attributes:
        example_id: what it is called; of RACE the passage, which several questions share.
        context: the text, as the file has it.
        question: likewise.
        options: likewise, in order.
        label: number of the right one from 0; None where it is not known.
        level: of RACE "middle" or "high"; "" for other data.
    """

    example_id: str
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None = None
    level: str = ""

    def endings(self, clean: Callable[[str], str] | None = None) -> tuple[str, ...]:
        """Puts every option into the question.

        The option takes the place of each "_" of the question; without any it follows the
        question after a blank.

        Args:
            clean: applied to question and options before. It matters: the clean-up makes "_" of
                characters that look like it, and takes blanks off the ends of an option.

        Source: race_utils.py of the original release, read_examples.
        """
        question, options = self.question, self.options
        if clean is not None:
            question, options = clean(question), tuple(map(clean, options))
        if BLANK in question:
            return tuple(question.replace(BLANK, option) for option in options)
        return tuple(f"{question} {option}" for option in options)


def read_choices(path: str, *, split: str = TRAIN, flag: str) -> list[ChoiceExample]:
    """Reads a JSON-lines file of one's own.

    Questions of train and dev without a label (none, null, "" or "-") are left out and counted. Of
    a test file none is left out, and its labels are used only if all of them are labels. Questions
    without `id` are called by their number from 0, those left out included.

    Args:
        path: the file.
        split: train, dev or test.
        flag: the flag the path came from, for errors.

    Raises:
        ValueError: the file is missing, empty or broken, a key is missing or no text, a question
            has fewer than 2 options or more than 26, a label of train or dev is none of them, or
            there is no label at all; names file, line and flag.
    """
    rows = []
    objects = json_objects(path, flag, read_text(path, flag), _WANTED)
    for number, (line, row) in enumerate(objects):
        entry = JsonValue(row, f"{flag}: line {line} of {path}")
        name, label = entry.get("id"), entry.get("label")
        options = tuple(_text(option) for option in entry["options"].elements())
        if not 2 <= len(options) <= len(LETTERS):
            raise entry["options"].error(f"a list of 2 to {len(LETTERS)} texts")
        example = ChoiceExample(
            str(number) if name is None else _text(name),
            _text(entry["context"]),
            _text(entry["question"]),
            options,
            label_or_none(_label, label, options, split),
        )
        rows.append((line, example))
    return finish(rows, split, DataIssues(path), flag)


def _text(value: JsonValue) -> str:
    """A value of JSON as text; numbers are written as JSON does."""
    return json.dumps(value.value) if is_number(value.value) else value.whole_text()


def _label(value: JsonValue, options: Sequence[str]) -> int:
    """The option a label means; one that could mean two is none."""
    last = len(options) - 1
    meant = set()
    if isinstance(value.value, str):
        name = value.value.strip()
        meant = {number for number, option in enumerate(options) if option.strip() == name}
        if len(name) == 1 and name.upper() in LETTERS[: last + 1]:
            meant.add(LETTERS.index(name.upper()))
        elif not meant and re.fullmatch("[0-9]{1,9}", name) and int(name) <= last:
            meant.add(int(name))
    else:
        number = as_whole_number(value.value)
        if number is not None and 0 <= number <= last:
            meant.add(number)
    if len(meant) != 1:
        raise value.error(
            f"0 to {last}, A to {LETTERS[last]}, or the text of an option, and mean one of them"
        )
    return meant.pop()


def label_or_none(
    find: Callable[[JsonValue, Sequence[str]], int],
    value: JsonValue | None,
    options: Sequence[str],
    split: str,
) -> int | None:
    """Gives the number of the right option; None where there is no label.

    Args:
        find: gives the number from the label and the options, or raises ValueError.
        value: the label in the file.
        options: of the question.
        split: train, dev or test; in a test file what is no label, such as -1, counts as none.

    Raises:
        ValueError: the label of a train or dev file is none of the options.
    """
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


def finish(
    rows: Sequence[tuple[int | str, ChoiceExample]], split: str, issues: DataIssues, flag: str
) -> list[ChoiceExample]:
    """Settles what examples without a label mean, and logs what was found.

    Args:
        rows: examples and where they are.
        split: train or dev: those without a label are left out; test: all have one, or none.
        issues: of the file or folder; logged.
        flag: the flag it came from, for errors.

    Raises:
        ValueError: there is no example, or in train or dev none with a label.
    """
    unlabelled = [location for location, example in rows if example.label is None]
    if not rows or (split != TEST and len(unlabelled) == len(rows)):
        what = "question has a label" if rows else "question exists"
        raise ValueError(f"{flag}: no {what} in {issues.path}, the {split} data.")
    examples = [example for _, example in rows]
    kind = "no label, skipped"
    if split != TEST:
        examples = [example for example in examples if example.label is not None]
    elif unlabelled:
        kind = "no label where others have one: all are treated as unlabelled"
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
