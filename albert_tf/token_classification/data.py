"""Sentences with labeled words: rows of JSON files and tables, or columns as in CoNLL.

Each row of `.jsonl`, `.ndjson`, `.json` and `.csv` files, see `read_rows`, has the following keys,
or the names that other tools use instead:

* `tokens` and optionally `labels`: lists of texts of equal length; or
* `text` and optionally `entities`: a list of `{"start": 0, "end": 4, "label": "PER"}` in characters
  (code points), end exclusive. The text is split into words, see `split_words`.

If a row contains both kinds of keys, `tokens` and `labels` are read.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, encoding_error
from albert_tf.data.filled_table import FilledTable
from albert_tf.data.rows import (
    REJECTED,
    TSV,
    Rows,
    find_value,
    format_of,
    is_rejected,
    literal,
    parse_row,
    read_rows,
)
from albert_tf.data.streams import is_regular_file, open_input, read_lines, source_name
from albert_tf.data.strict_json import JsonValue, is_encodable, listed, shown
from albert_tf.labels import label_cell
from albert_tf.token_classification.labels import OUTSIDE, Sentence, entities
from albert_tf.tokenization.word_piece import spread_words

# The same value for lists and files, so that both have the same batches and rounding errors.
SENTENCES_AT_ONCE = 1024
Prediction = tuple[Sequence[str], Sequence[float]]  # labels and probabilities of words
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # ids of multiword and empty-node rows in CoNLL-U
_NO_LABEL = "_"  # of these rows
# Comments of CoNLL-U. They contain no tabs, unlike rows.
_COMMENT = re.compile(r"# +(?:new(?:doc|par)(?: +id +=[^\t]*| *)|[^\s=]+ +=(?: [^\t]*)?)")
_CONLLU_COLUMNS = 10
_BLANKS = " \t"
# Keys of rows in this and other formats (datasets, doccano, Label Studio, prodigy, spaCy).
_TOKENS = ("tokens", "words")
_LABELS = ("labels", "label", "tags", "ner_tags", "pos_tags")
_TEXTS = ("text", "sentence")
_ENTITIES = ("entities", "labels", "label", "spans")
_ENTITY_KEYS = (("start", "start_offset"), ("end", "end_offset"), ("label", "type", "labels"))
COLUMNS, TEXTS = "columns", "raw texts"
_LINES_TO_CHECK = 1000
_MALFORMED = "malformed values, skipped"
_WANTED = (
    'an object such as {"tokens": ["..."], "labels": ["..."]} or {"text": "...", "entities": '
    '[{"start": 0, "end": 4, "label": "..."}]}'
)
# What a line contains. Comments are `_BLANK`.
_ROW, _BLANK, _DOCUMENT, _RANGE, _BAD = "row", "", "-DOCSTART-", "range", "bad"
_FILLERS = {_DOCUMENT: OUTSIDE, _RANGE: _NO_LABEL}  # in the column of predictions


def read_sentences(
    path: str,
    *,
    token_column: int = 0,
    label_column: int | None = -1,
    needs_labels: bool = False,
    kind: str | None = None,
) -> Iterator[Sentence]:
    """Reads a file sentence by sentence; skips sentences without words. Logs malformed rows.

    `path` is "-" for the standard input. Columns are numbered from 0, or backwards from -1. A file
    without `label_column`, or with a single column, has no labels. If `label_column` is `None`,
    labels are not read. If `needs_labels` is true, sentences without labels are skipped. For `kind`
    see `recognize_kind`. Raises ValueError, with the file and the line, if the file is missing,
    contains no words, or more than 1% of its rows are malformed, or if `needs_labels` is true and
    there are no labels.
    """
    rows, parts = _parts(path, token_column, label_column, kind)
    report = rows.report
    num_rows = num_sentences = num_numbers = 0
    for lines, sentence in parts:
        if sentence is None:
            continue
        num_rows += len(sentence.lines) or 1
        if needs_labels and sentence.labels is None:
            report.add("no label, skipped", lines[-1].number)
            continue
        num_sentences += 1
        num_numbers += all(map(str.isdecimal, sentence.words))
        yield sentence
    report.check(num_rows + len(report.errors))
    known = {*_TOKENS, *_LABELS, *_TEXTS, *_ENTITIES}
    unused = [column for column in rows.columns if column not in known]
    found = f"{rows.format}{f' (not used: {listed(unused)})' if unused else ''}"
    if not num_sentences:
        raise UserError(
            f"{path}, read as {found}, contains no {'labels' if num_rows else 'words'}. Expected: "
            f"columns as in CoNLL, or {_WANTED}."
        )
    logging.info("Reading %s as %s", path, found)
    report.log()
    if num_numbers > num_sentences / 2:
        what = "the words are numbers. Is `token_column`=%d the column of the words?"
        logging.warning(f"%s: {what}", path, token_column)


def recognize_kind(path: str, labels: Collection[str], label_column: int) -> str:
    """Returns how a file to predict is read: as `TEXTS`, `COLUMNS`, or in a format of tables.

    The extension decides. Files with the extension .txt or without one contain texts, one per line,
    unless most lines are rows: they contain a tab, a known label, or a single word. Raises
    ValueError if the first line is a JSON object.
    """
    name = path.rpartition("/")[2].lower()
    if "." in name and not name.endswith(".txt"):
        return _kind_of(path)
    lines = [line for _, line in islice(_lines(path), _LINES_TO_CHECK) if line.strip(_BLANKS)]
    if lines and isinstance(parse_row(path, lines[0], 1, _WANTED), dict):
        raise UserError(f"{path} contains JSON objects. Rename it to end in .jsonl.")
    are_rows = [
        "\t" in line
        or any(cell in labels for cell in line.split()[label_column:][:1])
        or len(split_words(line)) == 1
        for line in lines
    ]
    is_document = any(line.startswith(_DOCUMENT) for line in lines)
    return COLUMNS if is_document or 2 * sum(are_rows) > len(lines) else TEXTS


class _Line(NamedTuple):
    """A line of a file, or a row of a table."""

    number: int
    text: str  # without the line feed
    row: Any = None  # the columns of a word, or a `JsonValue`; `None` for other lines
    filler: str = ""


# The lines up to the end of a sentence; at the end, the remaining lines and `None`.
_Part = tuple[list[_Line], Sentence | None]


def _parts(
    path: str, token_column: int, label_column: int | None, kind: str | None
) -> tuple[Rows, Iterator[_Part]]:
    """Returns the format and the problems of a file, and its sentences with their lines."""
    kind = kind or _kind_of(path)
    rows = Rows(path, kind, [])
    if kind == COLUMNS:
        rows.format += f" (`token_column`={token_column}, `label_column`={label_column})"
        return rows, _column_parts(rows, token_column, label_column)
    if kind == TEXTS or _is_streamed(path):
        lines = _row_lines(rows)
    else:
        rows = read_rows(path, lists=_TOKENS, wanted=_WANTED)
        lines = (_Line(int(number), "", problem or row) for number, row, problem in rows.rows)
    return rows, _row_parts(rows, lines, label_column is not None)


def _kind_of(path: str) -> str:
    kind = format_of(path)
    return COLUMNS if kind in (None, TSV) else kind


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


def _column_parts(rows: Rows, token_column: int, label_column: int | None) -> Iterator[_Part]:
    path, lines = rows.path, _lines(rows.path)
    head = [*islice(lines, _LINES_TO_CHECK)]
    first = _first_row([text.removesuffix("\r") for _, text in head])
    tab = "\t" in first
    width = len(_cells(first, tab))
    token, label = _indices(path, width, token_column, label_column) if first else (0, None)
    has_ranges = width >= _CONLLU_COLUMNS and tab and token > 0
    part: list[_Line] = []
    words: list[_Line] = []
    for number, text in chain(head, lines, [(0, "")]):
        line = text.removesuffix("\r")
        cells = _cells(line, tab)
        kind = _classify(line, cells, width, is_start=not words, has_ranges=has_ranges)
        if kind == _ROW and (label is None or cells[label].strip(_BLANKS)):
            words.append(_Line(number, text, cells))
            part.append(words[-1])
            continue
        if words and kind in (_BLANK, _DOCUMENT):
            labels = None
            if label is not None:
                labels = tuple(word.row[label].strip(_BLANKS) for word in words)
            numbers = tuple(word.number for word in words)
            guid, texts = f"{path}:{numbers[0]}", tuple(word.row[token] for word in words)
            yield part, Sentence(guid, texts, labels, lines=numbers)
            part, words = [], []
        if kind in (_ROW, _BAD):
            rows.report.add(
                _MALFORMED,
                number,
                f"line {number} of {path} must have the {width} columns of the first row, "
                f"separated by {'tabs' if tab else 'blanks'}, a label that is not empty, and no "
                f"carriage return except at its end. Received {len(cells)}: {shown(line)}",
            )
        part.append(_Line(number, text, None, _FILLERS.get(kind, "")))
    yield part[:-1], None


def _first_row(lines: Iterable[str]) -> str:
    """Returns the first row. If all rows start with #, it is the last one; "" if there is none."""
    rows = [line for line in lines if line.strip(_BLANKS) and not line.startswith(_DOCUMENT)]
    rows = [line for line in rows if not _COMMENT.fullmatch(line)]
    return next((line for line in rows if line[0] != "#"), rows[-1] if rows else "")


def _classify(line: str, cells: list[str], width: int, *, is_start: bool, has_ranges: bool) -> str:
    """Returns the kind of a line; `is_start` is true before the first word of a sentence."""
    is_row = len(cells) == width
    if not line.strip(_BLANKS):
        return _BLANK
    if line.startswith(_DOCUMENT):
        return _DOCUMENT if is_row else _BLANK
    if is_start and line[0] == "#" and (not is_row or _COMMENT.fullmatch(line)):
        return _BLANK
    if not is_row or "\r" in line:
        return _BAD
    is_range = has_ranges and _NO_WORD.fullmatch(cells[0])
    return _RANGE if is_range and {*cells[_CONLLU_COLUMNS:]} <= {_NO_LABEL} else _ROW


def _indices(path: str, width: int, token: int, label: int | None) -> tuple[int, int | None]:
    """Returns the columns of words and labels, from 0. `None` if the file has no labels."""
    if label is not None and (width == 1 or not -width <= label < width):
        label = None
    if not -width <= token < width or (label is not None and (token - label) % width == 0):
        raise UserError(
            f"`token_column` must be from {-width} to {width - 1}, because {path} has {width} "
            f"columns, and differ from `label_column`={label}. Received: {token}"
        )
    return token % width, None if label is None else label % width


def _is_streamed(path: str) -> bool:
    """Returns whether a file has several lines, and the first one is an object."""
    head = [line for _, line in islice(_lines(path), 2)]
    return len(head) > 1 and isinstance(parse_row(path, head[0], 1, _WANTED), dict)


def _row_lines(rows: Rows) -> Iterator[_Line]:
    """Yields lines of texts or objects."""
    for number, text in _lines(rows.path):
        row: Any = {"text": text.removesuffix("\r")}
        if rows.format != TEXTS:
            row = parse_row(rows.path, text, number, _WANTED) if text.strip() else None
        if isinstance(row, dict):
            row = JsonValue(row, f"line {number} of {rows.path}")
        yield _Line(number, text, row)


def _row_parts(rows: Rows, lines: Iterable[_Line], reads_labels: bool) -> Iterator[_Part]:
    part: list[_Line] = []
    columns = dict.fromkeys(rows.columns)
    for line in lines:
        part.append(line)
        if line.row is None:
            continue
        try:
            if isinstance(line.row, UserError):
                part[-1] = line._replace(row=None)
                raise line.row
            columns.update(dict.fromkeys(line.row.value))
            if reads_labels and is_rejected(line.row):
                rows.report.add(REJECTED, line.number)
                continue
            sentence = _sentence(line.row, f"{rows.path}:{line.number}", reads_labels)
        except UserError as error:
            rows.report.add(_MALFORMED, line.number, error)
            continue
        if sentence:
            yield part, sentence
            part = []
    rows.columns = [*columns]
    yield part, None


def _tokens(row: JsonValue) -> JsonValue | None:
    """Returns the words of a row; `None` if it has none, or they are objects (prodigy)."""
    found = find_value(row, _TOKENS)
    words = found.value if found else None
    is_spans = isinstance(words, list) and any(isinstance(word, dict) for word in words)
    return None if is_spans else found


def _sentence(row: JsonValue, guid: str, reads_labels: bool) -> Sentence | None:
    """Returns the sentence of a row; `None` if it has no words."""
    text = offsets = labels = None
    tokens = _tokens(row)
    found = find_value(row, _ENTITIES if tokens is None else _LABELS) if reads_labels else None
    if tokens is not None:
        words = tuple(word.whole_text() for word in literal(tokens).elements())
        if found is not None:
            labels = tuple(map(_label, literal(found).elements()))
            if len(labels) != len(words):
                raise UserError(
                    f"{row.where} must have a label for each token. Received: {len(words)} tokens "
                    f"and {len(labels)} labels."
                )
    else:
        value = find_value(row, _TEXTS)
        if value is None:
            raise UserError(f"{row.where} has the keys {listed(row.value)}. Expected: {_WANTED}.")
        text = value.whole_text()
        offsets = tuple(split_words(text))
        words = tuple(text[start:end] for start, end in offsets)
        labels = None if found is None else _entity_labels(literal(found).elements(), text, offsets)
    return Sentence(guid, words, labels, text, offsets) if words else None


def _label(value: JsonValue) -> str:
    if not isinstance(value.value, str) or not value.text().strip():
        raise value.error("a text, the name of a label. Replace numbers by the names of the labels")
    return value.text().strip()


def _entity(value: JsonValue) -> tuple[int, int, str]:
    """Returns start, end and type of an entity: a list of these values, or an object."""
    if isinstance(value.value, list) and len(value.value) > 2:
        start, end, kind = value.elements()[:3]
    else:
        start, end, kind = (find_value(value, keys) or value[keys[0]] for keys in _ENTITY_KEYS)
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
        first = bisect_right(offsets, start, key=lambda word: word[1])
        last = bisect_left(offsets, end, key=lambda word: word[0])
        words = offsets[first:last] if 0 <= start < end <= len(text) else []
        is_whole = bool(words) and start <= words[0][0] and words[-1][1] <= end
        if not is_whole or {*labels[first:last]} != {OUTSIDE}:
            parts = ", ".join(f"{shown(text[a:b])} ({a} to {b})" for a, b in words)
            raise value.error(
                f"an entity of whole words that does not overlap an earlier one, with 0 <= start < "
                f"end <= {len(text)}. Texts are split into words at blanks, punctuation and "
                f"ideographs. {shown(text[start:end])} is in the words: {parts or 'none'}"
            )
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
    kind = kind or _kind_of(path)
    _, parts = _parts(path, token_column, None, kind)
    while group := list(islice(parts, SENTENCES_AT_ONCE)):
        words = [sentence.words for _, sentence in group if sentence]
        predicted = iter(predict(words) if words else ())
        labelled: list[str] = []
        for lines, sentence in group:
            labels, probabilities = next(predicted) if sentence else ((), ())
            if kind == COLUMNS:
                labelled += _labelled_rows(lines, labels)
            else:
                offsets = (sentence and sentence.offsets) or ()
                labelled += _labelled_objects(lines, offsets, labels, probabilities, scheme)
        yield labelled


def _labelled_rows(lines: list[_Line], labels: Sequence[str]) -> Iterator[str]:
    remaining = iter(labels)
    for _, text, row, filler in lines:
        line = text.removesuffix("\r")
        separator = " " if " " in line.strip(" ") and "\t" not in line else "\t"
        if row is not None:
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
        if line.row is None:
            yield line.text
            continue
        value, own = line.row.value, labels if line is lines[-1] else ()
        if _tokens(line.row) is None:
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
