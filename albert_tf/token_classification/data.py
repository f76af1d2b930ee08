"""Sentences with labeled words, in JSON Lines or in columns as in CoNLL.

`.jsonl`, `.ndjson` and `.json` files contain one object per line with the keys

* `tokens` and optionally `labels`: lists of texts of equal length; or
* `text` and optionally `entities`: a list of `{"start": 0, "end": 4, "label": "PER"}` in characters
  (code points), end exclusive. The text is split into words, see `split_words`.

If an object contains both kinds of keys, `tokens` and `labels` are read.

All other files contain one word per line, and blank lines between sentences.

* Columns are separated by tabs if the first row contains a tab, otherwise by blanks and tabs. All
  rows have the same number of columns.
* Lines that start with `-DOCSTART-` separate documents.
* A line that starts with `#` before the first word of a sentence is a comment if its number of
  columns differs from the rows, or if it is a CoNLL-U comment: `# newdoc`, `# newpar` or
  `# key = value`. Other lines that start with `#` are rows.
* Files with at least 10 columns and tabs are CoNLL-U. Lines with `1-2` or `1.1` in the first column
  are not words if all columns after the tenth, such as predictions, contain `_`.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import IO, Any, Final, NamedTuple

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, encoding_error
from albert_tf.data.streams import is_regular_file, open_input, read_lines, source_name
from albert_tf.data.strict_json import JsonError, JsonValue, is_encodable, parse_json, shown
from albert_tf.data.tables import JSON_LINES, format_of
from albert_tf.labels import label_cell
from albert_tf.token_classification.labels import OUTSIDE, Sentence, entities
from albert_tf.tokenization.base import FilledTable
from albert_tf.tokenization.word_piece import spread_words

# The same value for lists and files, so that both have the same batches and rounding errors.
SENTENCES_AT_ONCE = 1024
Prediction = tuple[Sequence[str], Sequence[float]]  # labels and probabilities of words
_DOCUMENT = "-DOCSTART-"
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # ids of multiword and empty-node rows in CoNLL-U
# Comments of CoNLL-U. They contain no tabs, unlike rows.
_COMMENT = re.compile(r"# +(?:new(?:doc|par)(?: +id +=[^\t]*| *)|[^\s=]+ +=(?: [^\t]*)?)")
_CONLLU_COLUMNS = 10
_BLANKS = " \t"
_WANTED = (
    'an object such as {"tokens": ["..."], "labels": ["..."]} or {"text": "...", "entities": '
    '[{"start": 0, "end": 4, "label": "..."}]}'
)


def read_sentences(
    path: str, *, token_column: int = 0, label_column: int | None = -1, needs_labels: bool = False
) -> Iterator[Sentence]:
    """Reads a file sentence by sentence; skips sentences without words.

    `path` is "-" for the standard input. Columns are numbered from 0, or backwards from -1. A file
    without `label_column`, or with a single column, has no labels. If `label_column` is `None`,
    labels are not read. Raises ValueError, with the file and the line, if the file is missing,
    malformed or contains no words, or if `needs_labels` is true and a label is missing.
    """
    is_empty = True
    for _, sentence in _parts(path, token_column, label_column):
        if sentence is None:
            continue
        is_empty = False
        if needs_labels and sentence.labels is None:
            missing = f"no labels in column `label_column`={label_column}"
            if format_of(path) == JSON_LINES:
                missing = 'no "labels"' if sentence.text is None else 'no "entities"'
            raise UserError(f"{sentence.guid} has {missing}. Label all sentences of this file.")
        yield sentence
    if is_empty:
        raise UserError(f"{path} contains no words.")


class _Line(NamedTuple):
    """A line of a file."""

    number: int
    text: str  # without the line feed
    content: Any = None  # columns of a row with a word, or an object; `None` for other lines
    filler: str = ""  # value of the prediction column in lines without a word


_NO_LABEL = "_"


def _parts(
    path: str, token_column: int, label_column: int | None
) -> Iterator[tuple[list[_Line], Sentence | None]]:
    """Yields each sentence with the lines up to its end, then the remaining lines with `None`."""
    if format_of(path) == JSON_LINES:
        return _json_parts(path, label_column is not None)
    return _column_parts(path, token_column, label_column)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the number of each line, from 1, and the line without its line feed."""
    is_regular_file(path, "a file of words and labels")  # raises if the file does not exist
    where, number = source_name(path), 1
    with open_input(path) as file:
        for group in read_lines(file):
            data = b"\n".join(group)
            text = decode_utf8(data, where, line=number)
            if data.count(b"\0") > len(data) / 10:  # probably UTF-16; a few NULs are accepted
                raise encoding_error(data, where, data.find(b"\0"), line=number)
            yield from enumerate(text.split("\n"), number)
            number += len(group)


def _cells(line: str, tab: bool) -> list[str]:
    """Returns the columns of a line. Unicode blanks other than U+0020 are parts of words."""
    if tab:
        return line.split("\t")
    return [cell for cell in line.replace("\t", " ").split(" ") if cell]


def _column_lines(path: str, token_column: int) -> Iterator[_Line]:
    """Yields the lines of a file of columns; raises ValueError if the number of columns changes."""
    lines = _lines(path)
    head: list[tuple[int, str]] = []
    first = ""  # the first row; if all lines start with #, the last line
    for number, line in lines:
        head.append((number, line))
        line = line.removesuffix("\r")
        if line.strip(_BLANKS) and not (line.startswith(_DOCUMENT) or _COMMENT.fullmatch(line)):
            first = line
            if line[0] != "#":
                break
    tab = "\t" in first
    width, first_number = len(_cells(first, tab)), head[-1][0] if head else 0
    may_have_ranges = width >= _CONLLU_COLUMNS and tab and token_column % width
    is_start = True
    for number, text in chain(head, lines):
        line = text.removesuffix("\r")
        cells = _cells(line, tab)
        is_word, filler = False, ""
        if not line.strip(_BLANKS):
            is_start = True
        elif line.startswith(_DOCUMENT):
            is_start = True
            filler = OUTSIDE if len(cells) == width else ""
        elif "\r" in line:
            raise UserError(
                f"line {number} of {path} contains a carriage return. Lines must end in \\n or "
                "\\r\\n."
            )
        elif len(cells) == width and not (is_start and _COMMENT.fullmatch(line)):
            is_range = may_have_ranges and _NO_WORD.fullmatch(cells[0])
            if is_range and {*cells[_CONLLU_COLUMNS:]} <= {_NO_LABEL}:
                filler = _NO_LABEL
            else:
                is_word, is_start = True, False
        elif not (is_start and line[0] == "#"):
            raise UserError(
                f"line {number} of {path} must have the {width} columns of line {first_number}, "
                f"separated by {'tabs' if tab else 'blanks'}. Received {len(cells)}: {shown(line)}"
            )
        yield _Line(number, text, cells if is_word else None, filler)


def _column_parts(
    path: str, token_column: int, label_column: int | None
) -> Iterator[tuple[list[_Line], Sentence | None]]:
    lines: list[_Line] = []
    rows: list[_Line] = []  # lines with words
    for line in chain(_column_lines(path, token_column), [_Line(0, "")]):
        if line.content is not None:
            if not rows:
                token, label = _indices(path, len(line.content), token_column, label_column)
            rows.append(line)
        elif rows and line.filler != _NO_LABEL:
            labels = None
            if label is not None:
                labels = tuple(row.content[label].strip(_BLANKS) for row in rows)
            if labels and "" in labels:
                raise UserError(
                    f"line {rows[labels.index('')].number} of {path} has an empty label in "
                    f"`label_column`={label_column}."
                )
            words = tuple(row.content[token] for row in rows)
            numbers = tuple(row.number for row in rows)
            yield lines, Sentence(f"{path}:{numbers[0]}", words, labels, lines=numbers)
            lines, rows = [], []
        lines.append(line)
    yield lines[:-1], None


def _indices(path: str, width: int, token: int, label: int | None) -> tuple[int, int | None]:
    """Returns the columns of words and labels, from 0. `None` if the file has no labels."""
    if not -width <= token < width:
        raise UserError(
            f"`token_column` must be from {-width} to {width - 1}, because {path} has {width} "
            f"columns. Received: {token}"
        )
    if label is None or width == 1 or not -width <= label < width:
        return token % width, None
    if token % width == label % width:
        raise UserError(
            f"`token_column` and `label_column` must be different columns of {path}, which has "
            f"{width} columns. Received: {token} and {label}"
        )
    return token % width, label % width


def _json_parts(path: str, reads_labels: bool) -> Iterator[tuple[list[_Line], Sentence | None]]:
    lines: list[_Line] = []
    for number, line in _lines(path):
        if not line.strip():
            lines.append(_Line(number, line))
            continue
        try:
            value = parse_json(line, path, line=number)
            found = JsonValue(value, f"line {number} of {path}")
            has_text = found.get("tokens") is None and found.get("text") is not None
            if not has_text:
                found["tokens"]
        except JsonError as error:
            raise UserError(f"{error} Expected: {_WANTED}.") from error
        lines.append(_Line(number, line, value))
        read = _with_text if has_text else _with_tokens
        if sentence := read(found, f"{path}:{number}", reads_labels):
            yield lines, sentence
            lines = []
    yield lines, None


def _with_tokens(value: JsonValue, guid: str, reads_labels: bool) -> Sentence | None:
    words = tuple(word.whole_text() for word in value["tokens"].elements())
    found = value.get("labels") if reads_labels else None
    labels = None if found is None else tuple(_label(label) for label in found.elements())
    if labels is not None and len(labels) != len(words):
        raise UserError(
            f"{value.where} must have a label for each token. Received: {len(words)} tokens and "
            f"{len(labels)} labels"
        )
    return Sentence(guid, words, labels) if words else None


def _label(value: JsonValue) -> str:
    label = value.text().strip()
    if not label:
        raise value.error("a label that is not empty")
    return label


def _with_text(value: JsonValue, guid: str, reads_labels: bool) -> Sentence | None:
    text = value["text"].whole_text()
    offsets = tuple(split_words(text))
    words = tuple(text[start:end] for start, end in offsets)
    found = value.get("entities") if reads_labels else None
    labels = None if found is None else _entity_labels(found.elements(), text, offsets)
    return Sentence(guid, words, labels, text, offsets) if words else None


def _entity_labels(
    values: Iterable[JsonValue], text: str, offsets: Sequence[tuple[int, int]]
) -> tuple[str, ...]:
    """Returns the labels of words in IOB2. Blanks at the ends of entities are ignored."""
    labels = [OUTSIDE] * len(offsets)
    for value in values:
        start, end = value["start"].whole_number(), value["end"].whole_number()
        kind = _label(value["label"])
        if not 0 <= start < end <= len(text):
            raise value.error(
                f"an entity with 0 <= start < end <= {len(text)}, the length of its text"
            )
        first = bisect_right(offsets, start, key=lambda word: word[1])
        last = bisect_left(offsets, end, key=lambda word: word[0])
        if first >= last:
            raise value.error(f"an entity that contains a word, unlike {shown(text[start:end])}")
        for word_start, word_end in (offsets[first], offsets[last - 1]):
            if word_start < start or word_end > end:
                raise value.error(
                    f"an entity of whole words (texts are split at blanks, punctuation and "
                    f"ideographs). {shown(text[start:end])} contains only a part of "
                    f"{shown(text[word_start:word_end])}, characters {word_start} to {word_end}"
                )
        if {*labels[first:last]} != {OUTSIDE}:
            raise value.error("an entity that does not overlap an earlier one")
        labels[first:last] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first - 1)
    return tuple(labels)


BLANK, DROPPED, SINGLE, PART = " \0!a"  # classes of characters; `SINGLE` is always a word


def character_class(code: int) -> str:
    """Returns the class of a character."""
    spread = spread_words(chr(code), do_lower_case=False)
    if not spread.strip():
        return BLANK if spread else DROPPED
    return SINGLE if len(spread) > 1 else PART


_CLASSES: Final[FilledTable[int, str]] = FilledTable(character_class)
_WORD = re.compile(f"{SINGLE}|{PART}(?:[{PART}{DROPPED}]*{PART})?")


def split_words(text: str) -> list[tuple[int, int]]:
    """Splits a text at blanks, punctuation and ideographs, like BERT's basic tokenizer.

    Control and format characters (categories Cc and Cf) are kept inside words and dropped
    elsewhere. Returns the start and end of each word in characters, end exclusive.
    """
    return [match.span() for match in _WORD.finditer(text.translate(_CLASSES))]


def write_predictions(
    path: str,
    output: IO[bytes],
    predict: Callable[[Sequence[Sequence[str]]], Iterable[Prediction]],
    scheme: str,
    *,
    token_column: int = 0,
) -> None:
    """Writes a copy of a file with predictions for its words, in constant memory.

    The predicted label is added to each row as the last column, after a tab if the file has a
    single column. Other lines with the same number of columns get `O` (`-DOCSTART-`) or `_` (`1-2`
    in CoNLL-U). If columns are separated by blanks, blanks in labels are replaced by `_`. Objects
    with `tokens` get `predicted_labels`; others get `predicted_entities`, see `text_entities`.

    `predict` returns the labels and probabilities of the words of several sentences. For
    `token_column` and errors see `read_sentences`.
    """
    parts = _parts(path, token_column, None)
    while group := list(islice(parts, SENTENCES_AT_ONCE)):
        words = [sentence.words for _, sentence in group if sentence]
        predicted = iter(predict(words) if words else ())
        for lines, sentence in group:
            labels, probabilities = next(predicted) if sentence else ((), ())
            if format_of(path) == JSON_LINES:
                offsets = (sentence and sentence.offsets) or ()
                labelled = _labelled_objects(lines, offsets, labels, probabilities, scheme)
            else:
                labelled = _labelled_rows(lines, labels)
            output.writelines(line.encode() + b"\n" for line in labelled)


def _labelled_rows(lines: list[_Line], labels: Sequence[str]) -> Iterator[str]:
    remaining = iter(labels)
    for _, text, content, filler in lines:
        line = text.removesuffix("\r")
        separator = " " if " " in line.strip(" ") and "\t" not in line else "\t"
        if content is not None:
            filler = label_cell(next(remaining))
            if separator == " ":
                filler = filler.replace(" ", "_")
        yield f"{line}{separator}{filler}{text[len(line) :]}" if filler else text


def _labelled_objects(
    lines: list[_Line],
    offsets: Sequence[tuple[int, int]],
    labels: Sequence[str],
    probabilities: Sequence[float],
    scheme: str,
) -> Iterator[str]:
    """Adds predictions to the objects in `lines`. Only the last line can contain words."""
    for line in lines:
        value = line.content
        if value is None:
            yield line.text
            continue
        own = labels if line is lines[-1] else ()
        if value.get("tokens") is None:
            value["predicted_entities"] = text_entities(offsets, own, probabilities, scheme)
        else:
            value["predicted_labels"] = [*own]
        text = json.dumps(value, ensure_ascii=False)
        yield text if is_encodable(text) else json.dumps(value)


def text_entities(
    offsets: Sequence[tuple[int, int]],
    labels: Sequence[str],
    probabilities: Sequence[float],
    scheme: str,
) -> list[dict[str, Any]]:
    """Returns the entities of a text as objects for JSON Lines; see `entities`.

    `offsets`, `labels` and `probabilities` have one element per word. An object contains `start`
    and `end` in characters, end exclusive; `label`, the type of the entity; and `probability`, the
    mean over its words.
    """
    return [
        {
            "start": offsets[start][0],
            "end": offsets[end - 1][1],
            "label": kind,
            "probability": round(sum(probabilities[start:end]) / (end - start), 6),
        }
        for kind, start, end in entities(labels, scheme)
    ]
