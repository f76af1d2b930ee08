"""Sentences with labeled words, in JSON or in columns as in CoNLL.

`.jsonl`, `.ndjson` and `.json` files contain one object per line, or one JSON value with all
objects. An object has the following keys, or the names that other tools use instead:

* `tokens` and optionally `labels`: lists of texts of equal length; or
* `text` and optionally `entities`: a list of `{"start": 0, "end": 4, "label": "PER"}` in characters
  (code points), end exclusive. The text is split into words, see `split_words`.

If an object contains both kinds of keys, `tokens` and `labels` are read.

All other files contain one word per line, and blank lines between sentences. Files to predict may
also contain texts, one per line, see `recognize_kind`.

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
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, encoding_error
from albert_tf.data.filled_table import FilledTable
from albert_tf.data.rows import JSON_LINES, format_of, read_text
from albert_tf.data.rows import parse_row as json_object
from albert_tf.data.streams import is_regular_file, open_input, read_lines, source_name
from albert_tf.data.strict_json import JsonError, JsonValue, is_encodable, shown
from albert_tf.data.tables import DataIssues, json_objects
from albert_tf.labels import label_cell
from albert_tf.token_classification.labels import OUTSIDE, Sentence, entities
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
# Keys of objects in this and other formats (datasets, doccano, Label Studio, prodigy, spaCy).
_TOKENS = ("tokens", "words")
_LABELS = ("labels", "label", "tags", "ner_tags", "pos_tags")
_TEXTS = ("text", "sentence")
_ENTITIES = ("entities", "labels", "label", "spans")
_ENTITY_KEYS = (("start", "start_offset"), ("end", "end_offset"), ("label", "type", "labels"))
COLUMNS, TEXTS = "columns", "raw texts"
_LINES_TO_RECOGNIZE, _LONGEST_WORD = 1000, 4
_WANTED = (
    'an object such as {"tokens": ["..."], "labels": ["..."]} or {"text": "...", "entities": '
    '[{"start": 0, "end": 4, "label": "..."}]}'
)


def read_sentences(
    path: str,
    *,
    token_column: int = 0,
    label_column: int | None = -1,
    needs_labels: bool = False,
    kind: str | None = None,
    issues: DataIssues | None = None,
) -> Iterator[Sentence]:
    """Reads a file sentence by sentence; skips sentences without words.

    `path` is "-" for the standard input. Columns are numbered from 0, or backwards from -1. A file
    without `label_column`, or with a single column, has no labels. If `label_column` is `None`,
    labels are not read. For `kind` see `recognize_kind`. Malformed lines are skipped and added to
    `issues`. Raises ValueError, with the file and the line, if the file is missing, contains no
    words, or more than 1% of its lines are malformed, or if `needs_labels` is true and a label is
    missing.
    """
    issues = issues or DataIssues(path)
    num_rows = 0
    for lines, sentence in _parts(path, token_column, label_column, kind, issues):
        if sentence is None:
            continue
        num_rows += len(sentence.lines) or 1
        if needs_labels and sentence.labels is None:
            missing = f"no labels in column `label_column`={label_column}"
            if format_of(path) == JSON_LINES:
                missing = 'no "labels"' if sentence.text is None else 'no "entities"'
                missing += f" (its keys: {', '.join(lines[-1].content)})"
            raise UserError(f"{sentence.guid} has {missing}. Label all sentences of this file.")
        yield sentence
    issues.check(num_rows + sum(map(len, issues.locations.values())))
    if not num_rows:
        raise UserError(f"{path} contains no words.")


def recognize_kind(path: str, labels: Collection[str], label_column: int) -> str:
    """Returns how a file to predict is read: `JSON_LINES`, `COLUMNS` or `TEXTS`.

    Files with the extension .txt or without one are texts, one per line, if the numbers of words
    per line differ, and columns if there are tabs, known labels or single words. Raises ValueError
    if this is unclear.
    """
    if format_of(path) == JSON_LINES:
        return JSON_LINES
    name = path.rpartition("/")[2].lower()
    if "." in name and not name.endswith(".txt"):
        return COLUMNS
    head = [line.removesuffix("\r") for _, line in islice(_lines(path), _LINES_TO_RECOGNIZE)]
    rows = [line for line in head if line.strip(_BLANKS)]
    if any("\t" in row or row.startswith(_DOCUMENT) or _COMMENT.fullmatch(row) for row in rows):
        return COLUMNS
    cells = [_cells(row, tab=False) for row in rows]
    width, count = Counter(map(len, cells)).most_common(1)[0] if rows else (1, 0)
    if width > 1 and -width <= label_column < width:
        found = [row[label_column] for row in cells if len(row) == width]
        if 2 * sum(map(labels.__contains__, found)) > len(rows):
            return COLUMNS
    if count < 0.9 * len(rows) or (len(rows) == 1 and width > 1):
        return TEXTS
    if width > 1:
        raise UserError(
            f"{path} may contain {width} columns or texts of {width} words. For columns, rename it "
            "to end in .conll. For texts, use JSON Lines with `text`, or the standard input."
        )
    # In languages without blanks, a line can be a sentence.
    is_long = [len(split_words(row)) > _LONGEST_WORD or len(row) > 40 for row in rows]
    return TEXTS if 2 * sum(is_long) > len(rows) else COLUMNS


class _Line(NamedTuple):
    """A line of a file."""

    number: int
    text: str  # without the line feed
    content: Any = None  # columns of a row with a word, or an object; `None` for other lines
    filler: str | None = ""  # of the prediction column; `None` if the line is malformed


_NO_LABEL = "_"


def _parts(
    path: str, token_column: int, label_column: int | None, kind: str | None, issues: DataIssues
) -> Iterator[tuple[list[_Line], Sentence | None]]:
    """Yields each sentence with the lines up to its end, then the remaining lines with `None`."""
    if kind == TEXTS or format_of(path) == JSON_LINES:
        return _json_parts(path, label_column is not None, kind == TEXTS, issues)
    if path.lower().endswith(".csv"):
        raise UserError(f"{path}: words need columns separated by tabs. Save the file as .tsv.")
    return _column_parts(path, token_column, label_column, issues)


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


def _column_lines(path: str, token_column: int, issues: DataIssues) -> Iterator[_Line]:
    """Yields the lines of a file of columns."""
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
        is_word = False
        filler: str | None = ""
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
            filler = None
            issues.add(
                "another number of columns, skipped",
                number,
                f"line {number} of {path} must have the {width} columns of line {first_number}, "
                f"separated by {'tabs' if tab else 'blanks'}. Received {len(cells)}: {shown(line)}",
            )
        yield _Line(number, text, cells if is_word else None, filler)


def _column_parts(
    path: str, token_column: int, label_column: int | None, issues: DataIssues
) -> Iterator[tuple[list[_Line], Sentence | None]]:
    lines: list[_Line] = []
    rows: list[_Line] = []  # lines with words
    for line in chain(_column_lines(path, token_column, issues), [_Line(0, "")]):
        if line.content is not None:
            if not rows:
                token, label = _indices(path, len(line.content), token_column, label_column)
            if label is not None and not line.content[label].strip(_BLANKS):
                where = f"line {line.number} of {path} has an empty label in `label_column`"
                issues.add("no label, skipped", line.number, f"{where}={label_column}.")
            else:
                rows.append(line)
        elif rows and line.filler not in (_NO_LABEL, None):
            labels = None
            if label is not None:
                labels = tuple(row.content[label].strip(_BLANKS) for row in rows)
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


def _json_lines(path: str, issues: DataIssues) -> Iterator[_Line]:
    """Yields lines with objects. The lines are streamed if the first one is an object."""
    lines = _lines(path)
    head = list(islice(lines, 2))
    rows: Iterable[tuple[int, str, Any]] = ()
    if len(head) > 1 and isinstance(json_object(path, head[0][1], 1, _WANTED), dict):
        rows = (
            (number, line, json_object(path, line, number, _WANTED) if line.strip() else None)
            for number, line in chain(head, lines)
        )
    elif head:
        found = json_objects(path, read_text(path), _WANTED, issues)
        rows = ((number, "", row) for number, row in found)
    for number, line, row in rows:
        if isinstance(row, UserError):
            issues.add("malformed JSON, skipped", number, row)
        yield _Line(number, line, row if isinstance(row, dict) else None)


def _json_parts(
    path: str, reads_labels: bool, is_text: bool, issues: DataIssues
) -> Iterator[tuple[list[_Line], Sentence | None]]:
    lines: list[_Line] = []
    texts = (_Line(at, line, {"text": line.removesuffix("\r")}) for at, line in _lines(path))
    for line in texts if is_text else _json_lines(path, issues):
        lines.append(line)
        if line.content is None:
            continue
        value = JsonValue(line.content, f"{issues.unit} {line.number} of {path}")
        read = _with_tokens if _tokens(value) else _with_text
        try:
            sentence = read(value, f"{path}:{line.number}", reads_labels)
        except JsonError as error:
            wanted = f"{error} Expected: {_WANTED}."
            issues.add("malformed values, skipped", line.number, wanted)
            continue
        if sentence:
            yield lines, sentence
            lines = []
    yield lines, None


def _first(value: JsonValue, keys: Sequence[str]) -> JsonValue | None:
    """Returns the value of the first key that exists and is not null."""
    return next((found for key in keys if (found := value.get(key)) is not None), None)


def _tokens(value: JsonValue) -> JsonValue | None:
    """Returns the words of an object; `None` if it has none, or they are objects (prodigy)."""
    found = _first(value, _TOKENS)
    words = found.value if found else None
    is_spans = isinstance(words, list) and any(isinstance(word, dict) for word in words)
    return None if is_spans else found


def _with_tokens(value: JsonValue, guid: str, reads_labels: bool) -> Sentence | None:
    tokens = _tokens(value)
    words = tuple(word.whole_text() for word in tokens.elements()) if tokens else ()
    found = _first(value, _LABELS) if reads_labels else None
    labels = None if found is None else tuple(_label(label) for label in found.elements())
    if labels is not None and len(labels) != len(words):
        raise JsonError(
            f"{value.where} must have a label for each token. Received: {len(words)} tokens and "
            f"{len(labels)} labels."
        )
    return Sentence(guid, words, labels) if words else None


def _label(value: JsonValue) -> str:
    if not isinstance(value.value, str):
        raise value.error("a text, the name of a label. Replace numbers by the names of the labels")
    label = value.text().strip()
    if not label:
        raise value.error("a label that is not empty")
    return label


def _with_text(value: JsonValue, guid: str, reads_labels: bool) -> Sentence | None:
    text = (_first(value, _TEXTS) or value["tokens"]).whole_text()
    offsets = tuple(split_words(text))
    words = tuple(text[start:end] for start, end in offsets)
    found = _first(value, _ENTITIES) if reads_labels else None
    labels = None if found is None else _entity_labels(found.elements(), text, offsets)
    return Sentence(guid, words, labels, text, offsets) if words else None


def _entity(value: JsonValue) -> tuple[int, int, str]:
    """Returns start, end and type of an entity: a list of these values, or an object."""
    if isinstance(value.value, list) and len(value.value) > 2:
        start, end, kind = value.elements()[:3]
    else:
        start, end, kind = (_first(value, keys) or value[keys[0]] for keys in _ENTITY_KEYS)
    if isinstance(kind.value, list) and len(kind.value) == 1:  # Label Studio
        [kind] = kind.elements()
    return start.whole_number(), end.whole_number(), _label(kind)


def _entity_labels(
    values: Iterable[JsonValue], text: str, offsets: Sequence[tuple[int, int]]
) -> tuple[str, ...]:
    """Returns the labels of words in IOB2. Blanks at the ends of entities are ignored."""
    labels = [OUTSIDE] * len(offsets)
    for value in values:
        start, end, kind = _entity(value)
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


def lines_with_predictions(
    path: str,
    predict: Callable[[Sequence[Sequence[str]]], Iterable[Prediction]],
    scheme: str,
    *,
    token_column: int = 0,
    kind: str | None = None,
) -> Iterator[list[str]]:
    """Yields the lines of a file with predictions for its words, in groups of sentences.

    The predicted label is added to each row as the last column, after a tab if the file has a
    single column. Other lines with the same number of columns get `O` (`-DOCSTART-`) or `_` (`1-2`
    in CoNLL-U). If columns are separated by blanks, blanks in labels are replaced by `_`. Objects
    with `tokens` get `predicted_labels`; others get `predicted_entities`, see `text_entities`.
    Lines of raw texts become objects.

    `predict` returns the labels and probabilities of the words of several sentences. For `kind`,
    `token_column` and errors see `read_sentences`.
    """
    parts = _parts(path, token_column, None, kind, DataIssues(path))
    while group := list(islice(parts, SENTENCES_AT_ONCE)):
        words = [sentence.words for _, sentence in group if sentence]
        predicted = iter(predict(words) if words else ())
        labelled: list[str] = []
        for lines, sentence in group:
            labels, probabilities = next(predicted) if sentence else ((), ())
            if kind == TEXTS or format_of(path) == JSON_LINES:
                offsets = (sentence and sentence.offsets) or ()
                labelled += _labelled_objects(lines, offsets, labels, probabilities, scheme)
            else:
                labelled += _labelled_rows(lines, labels)
        yield labelled


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
        if _tokens(JsonValue(value, "")) is None:
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
