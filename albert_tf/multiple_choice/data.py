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
from typing import Any

from absl import logging

from albert_tf.data.strict_json import as_whole_number, shown
from albert_tf.data.tables import DataIssues, json_objects, read_text, whole_characters
from albert_tf.data.text_examples import NO_LABEL, TEST, TRAIN

LETTERS = string.ascii_uppercase  # names of options, in their order
BLANK = "_"  # where in a question the option belongs
_WANTED = (
    'one object a line (JSON Lines), such as {"context": "...", "question": "...", '
    '"options": ["...", "..."], "label": "A"}'
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
    issues = DataIssues(path)
    objects = json_objects(path, flag, read_text(path, flag), _WANTED)
    rows = []
    for number, (line, row) in enumerate(objects):
        try:
            example = _example(row, str(number), split, issues, line)
        except ValueError as error:
            raise ValueError(f"{flag}: line {line} of {path} {error}") from error
        rows.append((line, example))
    _count_repeated(rows, issues)
    return finish(rows, split, issues, flag)


def _example(
    row: dict[str, Any], number: str, split: str, issues: DataIssues, line: int
) -> ChoiceExample:
    def text(key: str, value: Any) -> str:
        return whole_characters(_text(key, value), issues, line)

    missing = [key for key in ("context", "question", "options") if row.get(key) is None]
    if missing:
        raise ValueError(f"has no {missing[0]!r}; wanted is {_WANTED}.")
    options = row["options"]
    if not isinstance(options, list) or not 2 <= len(options) <= len(LETTERS):
        received = len(options) if isinstance(options, list) else shown(options)
        raise ValueError(f"needs a list of 2 to {len(LETTERS)} 'options'. Received: {received}")
    example = ChoiceExample(
        number if row.get("id") is None else text("id", row["id"]),
        text("context", row["context"]),
        text("question", row["question"]),
        tuple(text("options", option) for option in options),
    )
    count_empty(example, issues, line)
    label = row.get("label")
    return replace(example, label=label_or_none(_label, label, example, split, issues, line))


def _text(key: str, value: Any) -> str:
    """A value of JSON as text; numbers are written as JSON does."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    raise ValueError(f"needs text in {key!r}. Received: {shown(value)}")


def _label(value: Any, options: Sequence[str]) -> int:
    """The option a label means; one that could mean two is none."""
    last = len(options) - 1
    allowed = f"0 to {last}, A to {LETTERS[last]}, or the text of an option"
    number = as_whole_number(value)
    if number is not None and 0 <= number <= last:
        return number
    if not isinstance(value, str):
        raise ValueError(f"has the label {shown(value)}; allowed are {allowed}.")
    name = value.strip()
    meant = [number for number, option in enumerate(options) if option.strip() == name]
    if len(name) == 1 and name.upper() in LETTERS[: last + 1]:
        meant.append(LETTERS.index(name.upper()))
    elif not meant and re.fullmatch("[0-9]{1,9}", name) and int(name) <= last:
        meant.append(int(name))
    if len(set(meant)) == 1:
        return meant[0]
    if not meant:
        raise ValueError(f"has the label {shown(value)}; allowed are {allowed}.")
    raise ValueError(
        f"has the label {shown(value)}, which could mean options {sorted(set(meant))} (counted "
        "from 0); give the number of the right one."
    )


def label_or_none(
    find: Callable[[Any, Sequence[str]], int],
    value: Any,
    example: ChoiceExample,
    split: str,
    issues: DataIssues,
    place: int | str,
) -> int | None:
    """Gives the number of the right option; None where there is no label.

    Args:
        find: gives the number from the label and the options, or raises ValueError.
        value: the label in the file.
        example: without label.
        split: train, dev or test; in a test file a label that is none is counted.
        issues: grows.
        place: where the question is.

    Raises:
        ValueError: the label of a train or dev file is none of the options.
    """
    if value in (None, "") or (value in NO_LABEL and value not in example.options):
        return None
    try:
        return find(value, example.options)
    except ValueError:
        if split != TEST:
            raise
        issues.add("an unknown label: the data are taken as without labels", place)
        return None


def count_empty(example: ChoiceExample, issues: DataIssues, place: int | str) -> None:
    """Counts an example whose context, question or option is blank; it is kept."""
    if not example.context.strip():
        issues.add("an empty context, kept", place)
    if not example.question.strip():
        issues.add("an empty question, kept", place)
    if not all(option.strip() for option in example.options):
        issues.add("an empty option, kept", place)


def _count_repeated(rows: Sequence[tuple[int, ChoiceExample]], issues: DataIssues) -> None:
    seen = set()
    for line, example in rows:
        if example.example_id in seen:
            issues.add("an id that was there before, kept", line)
        seen.add(example.example_id)


def finish(
    rows: Sequence[tuple[int | str, ChoiceExample]], split: str, issues: DataIssues, flag: str
) -> list[ChoiceExample]:
    """Settles what examples without a label mean, and logs what was found.

    Args:
        rows: examples and their places.
        split: train or dev: those without a label are left out; test: all have one, or none.
        issues: of the file or folder; logged.
        flag: the flag it came from, for errors.

    Raises:
        ValueError: there is no example, or in train or dev none with a label.
    """
    unlabelled = [place for place, example in rows if example.label is None]
    if not rows or (split != TEST and len(unlabelled) == len(rows)):
        what = "question has a label" if rows else "question is there"
        raise ValueError(f"{flag}: no {what} in {issues.path}, the {split} data.")
    if split != TEST:
        for place in unlabelled:
            issues.add("no label, left out", place)
        examples = [example for _, example in rows if example.label is not None]
    else:
        if len(unlabelled) < len(rows):
            for place in unlabelled:
                issues.add("no label where others have one: all are taken as without", place)
        examples = [replace(row, label=None) if unlabelled else row for _, row in rows]
    issues.log()
    _log_examples(examples, split, issues.path)
    return examples


def _log_examples(examples: Sequence[ChoiceExample], split: str, path: str) -> None:
    counts = Counter(example.label for example in examples if example.label is not None)
    labels = ", ".join(f"{LETTERS[label]}: {counts[label]}" for label in sorted(counts))
    most = max(len(example.options) for example in examples)
    logging.info(
        "%s: split=%s questions=%d passages=%d most_options=%d %s",
        path,
        split,
        len(examples),
        len({example.context for example in examples}),
        most,
        f"labels {labels}" if counts else "without labels",
    )
    if split == TRAIN and len(counts) == 1 and len(examples) > 1:
        logging.warning(
            "%s: of all %d questions option %s is the right one; is the label what it should be?",
            path,
            len(examples),
            labels[0],
        )
