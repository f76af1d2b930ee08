"""Sentences with labeled words: rows of JSON files and tables, or columns as in CoNLL.

Each row of `.jsonl`, `.ndjson`, `.json` and `.csv` files, see `read_rows`, has the following keys,
or the names that other tools use instead:

* `tokens` and optionally `labels`: lists of texts of equal length; or
* `text` and optionally `entities`: a list of `{"start": 0, "end": 4, "label": "PER"}` in characters
  (code points), end exclusive. The text is split into words, see `split_words`.

A word with the label `null`, -100 or "-" has no label: it is context, but not trained or scored.
If a row contains both kinds of keys, `tokens` and `labels` are read.

All other files contain one word per line, and blank lines between sentences. Files to predict may
also contain texts, one per line, see `recognize_kind`.

* Columns are separated by tabs if the first row contains a tab, otherwise by blanks and tabs. All
  rows have the same number of columns.
* Lines that start with `-DOCSTART-` separate documents.
* A line that starts with `#` before the first word of a sentence is a comment if its number of
  columns differs from the rows, or if it is a CoNLL-U comment: `# newdoc`, `# newpar` or
  `# key = value`. Other lines that start with `#` are rows.
* A first row with usual names of columns, or with a label that occurs nowhere else, is a header.
  Rows before a sentence with a label that occurs nowhere else are comments if they start with `##`,
  or with `#` and a cell with a blank.
* Files with at least 10 columns and tabs are CoNLL-U. Lines with `1-2` or `1.1` in the first column
  are not words if all columns after the tenth, such as predictions, contain `_`.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
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
from albert_tf.token_classification.labels import (
    NO_LABEL,
    OUTSIDE,
    WITHOUT_LABEL,
    WORD_UNITS,
    Sentence,
    entities,
    split_label,
)
from albert_tf.tokenization.word_piece import spread_words

# The same value for lists and files, so that both have the same batches and rounding errors.
SENTENCES_AT_ONCE = 1024
Prediction = tuple[Sequence[str], Sequence[float]]  # labels and probabilities of words
_TWO_UNITS = re.compile("[\U00010000-\U0010ffff]")
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
_WORD, _CHARACTER, _ICU = WORD_UNITS
_WORDS_PER_LABEL = 5  # at least, to recognize a header without the labels of a model
_HEADER_NAMES = frozenset(
    {*_TOKENS, *_TEXTS, *_LABELS, "word", "token", "text_a", "form", "tag", "pos", "upos", "ner"}
)
_PREFIXES = {"B", "I", "E", "S", OUTSIDE, NO_LABEL}  # of labels that are never a header
_MALFORMED = "malformed values, skipped"
_WANTED = (
    'an object such as {"tokens": ["..."], "labels": ["..."]} or {"text": "...", "entities": '
    '[{"start": 0, "end": 4, "label": "..."}]}'
)
# What a line contains. Comments are `_BLANK`.
_ROW, _BLANK, _DOCUMENT, _RANGE, _BAD = "row", "", "-DOCSTART-", "range", "bad"
_HEADER = "names of columns or a label that occurs nowhere else, skipped as a header or comment"
# In the column of predictions
_FILLERS = {_DOCUMENT: OUTSIDE, _RANGE: _NO_LABEL, _HEADER: "predicted_label"}


class Reading(NamedTuple):
    """How files are read. Columns are numbered from 0, or backwards from -1."""

    token_column: int = 0
    label_column: int = -1  # a file without this column, or with a single column, has no labels
    word_unit: str = _WORD  # see `split_words`
    label_scheme: str | None = None  # see `recognize_scheme`
    labels: Collection[str] = ()  # of the model, to recognize a header
    kind: str | None = None  # see `recognize_kind`
    reads_labels: bool = True

    @classmethod
    def stored(cls, columns: Mapping[str, str | None]) -> "Reading":
        """Returns the reading in the `columns` of a task."""
        token, label, unit, scheme = map(columns.get, READING_SETTINGS)
        return cls(int(token or 0), int(label or -1), unit or _WORD, scheme)


READING_SETTINGS: Final = Reading._fields[:4]
DEFAULT_READING: Final = Reading()


def read_sentences(
    path: str, reading: Reading = DEFAULT_READING, *, needs_labels: bool = False
) -> Iterator[Sentence]:
    """Reads a file sentence by sentence; skips sentences without words. Logs malformed rows.

    `path` is "-" for the standard input. If `needs_labels` is true, sentences without labels are
    skipped. Raises ValueError, with the file and the line, if the file is missing, contains no
    words, or more than 1% of its rows are malformed, or if `needs_labels` is true and there are no
    labels.
    """
    rows, parts = _parts(path, reading)
    report = rows.report
    num_rows = num_sentences = num_numbers = 0
    for lines, sentence in parts:
        if sentence is None:
            continue
        num_rows += len(sentence.lines) or 1
        if needs_labels and not any(sentence.labels or ()):
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
            f"columns as in CoNLL, or {_WANTED}. Skipped: {listed(report.locations) or 'nothing'}."
        )
    logging.info("Reading %s as %s", path, found)
    report.log()
    if num_numbers > num_sentences / 2:
        what = "the words are numbers. Is `token_column`=%d the column of the words?"
        logging.warning(f"%s: {what}", path, reading.token_column)


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


def _parts(path: str, reading: Reading) -> tuple[Rows, Iterator[_Part]]:
    """Returns the format and the problems of a file, and its sentences with their lines."""
    kind = reading.kind or _kind_of(path)
    rows = Rows(path, kind, [])
    if kind == COLUMNS:
        token, label = reading.token_column, reading.label_column
        rows.format += f" (`token_column`={token}, `label_column`={label})"
        return rows, _column_parts(rows, reading, _known_labels(path, reading))
    if kind == TEXTS or _is_streamed(path):
        lines = _row_lines(rows)
    else:
        rows = read_rows(path, lists=_TOKENS, wanted=_WANTED)
        lines = (_Line(int(number), "", problem or row) for number, row, problem in rows.rows)
    return rows, _row_parts(rows, lines, reading)


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


def _cell_label(cell: str) -> str:
    label = cell.strip(_BLANKS)
    return NO_LABEL if label in WITHOUT_LABEL else label


def _cells(line: str, tab: bool) -> list[str]:
    """Returns the columns of a line. Unicode blanks other than U+0020 are parts of words."""
    if tab:
        return line.split("\t")
    return [cell for cell in line.replace("\t", " ").split(" ") if cell]


def _is_comment(row: Sequence[str]) -> bool:
    """Returns whether a row before a sentence may be a comment."""
    return row[0].startswith("##") or (row[0].startswith("#") and " " in row[0])


def _known_labels(path: str, reading: Reading) -> Collection[str]:
    """Returns the labels, except those that only rows have that may be a header or comments.

    Returns nothing if there are few words, or other labels than in the model: the label of a row
    does not tell whether it is a word.
    """
    counts: Counter[str] = Counter()
    for index, (lines, _) in enumerate(_column_parts(Rows(path, COLUMNS, []), reading)):
        found = [line for line in lines if line.row]
        label = _indices(path, len(found[0].row), reading)[1] if found else None
        if label is None:
            continue
        num_doubtful = (index == 0) + sum(1 for _ in takewhile(_is_comment, (w.row for w in found)))
        counts.update(_cell_label(line.row[label]) for line in found[num_doubtful:])
    known = {*(reading.labels or counts), NO_LABEL}
    is_enough = reading.labels or counts.total() >= _WORDS_PER_LABEL * len(counts)
    return known if counts and is_enough and known.issuperset(counts) else ()


def _column_parts(rows: Rows, reading: Reading, known: Collection[str] = ()) -> Iterator[_Part]:
    path, lines = rows.path, _lines(rows.path)
    head = [*islice(lines, _LINES_TO_CHECK)]
    first = _first_row([text.removesuffix("\r") for _, text in head])
    tab, is_first, reads_labels = "\t" in first, True, reading.reads_labels
    width = len(_cells(first, tab))
    token, label = _indices(path, width, reading) if first else (0, None)
    has_ranges = width >= _CONLLU_COLUMNS and tab and token > 0
    part: list[_Line] = []
    words: list[_Line] = []
    for number, text in chain(head, lines, [(0, "")]):
        line = text.removesuffix("\r")
        cells = _cells(line, tab)
        kind = _classify(line, cells, width, is_start=not words, has_ranges=has_ranges)
        is_doubtful = kind == _ROW and not words and (is_first or _is_comment(cells))
        if is_doubtful and label is not None:
            name = _cell_label(cells[label])
            is_new = known and name not in known and split_label(name)[0] not in _PREFIXES
            if is_new or _HEADER_NAMES.issuperset({cells[token].lower(), name.lower()}):
                kind = _BLANK if _is_comment(cells) else _HEADER
                rows.report.add(_HEADER, number)
        is_first &= kind not in (_ROW, _HEADER)
        if kind == _ROW and (label is None or not reads_labels or cells[label].strip(_BLANKS)):
            words.append(_Line(number, text, cells))
            part.append(words[-1])
            continue
        if words and kind in (_BLANK, _DOCUMENT):
            labels = None
            if label is not None and reads_labels:
                labels = tuple(_cell_label(word.row[label]) for word in words)
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


def _indices(path: str, width: int, reading: Reading) -> tuple[int, int | None]:
    """Returns the columns of words and labels, from 0. `None` if the file has no labels."""
    token, label = reading.token_column, reading.label_column
    is_same = (token - label) % width == 0
    has_labels = width > 1 and -width <= label < width and (reading.reads_labels or not is_same)
    if not -width <= token < width or (has_labels and is_same):
        raise UserError(
            f"`token_column` must be from {-width} to {width - 1}, because {path} has {width} "
            f"columns, and differ from `label_column`={label}. Received: {token}"
        )
    return token % width, label % width if has_labels else None


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


def _row_parts(rows: Rows, lines: Iterable[_Line], reading: Reading) -> Iterator[_Part]:
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
            if reading.reads_labels and is_rejected(line.row):
                rows.report.add(REJECTED, line.number)
                continue
            sentence = _sentence(line.row, f"{rows.path}:{line.number}", reading)
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


def _sentence(row: JsonValue, guid: str, reading: Reading) -> Sentence | None:
    """Returns the sentence of a row; `None` if it has no words."""
    text = offsets = labels = None
    tokens = _tokens(row)
    keys = _ENTITIES if tokens is None else _LABELS
    found = find_value(row, keys) if reading.reads_labels else None
    if tokens is not None:
        words = tuple(word.whole_text() for word in literal(tokens).elements())
        if found is not None:
            given = literal(found).elements()
            labels = tuple(
                NO_LABEL if each.value in WITHOUT_LABEL else _label(each) for each in given
            )
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
        offsets = tuple(split_words(text, reading.word_unit))
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
                f"ideographs, unless `word_unit` is 'character', or 'icu' for dictionary words. "
                f"{shown(text[start:end])} is in the words: {parts or 'none'}"
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
_PATTERNS = {
    _WORD: re.compile(f"{SINGLE}|{PART}(?:[{PART}{DROPPED}]*{PART})?"),
    _CHARACTER: re.compile(f"[{SINGLE}{PART}]"),
}


def split_words(text: str, unit: str = _WORD) -> list[tuple[int, int]]:
    """Splits a text into words. Returns their starts and ends in characters, end exclusive.

    `unit` is "word" to split at blanks, punctuation and ideographs, like BERT's basic tokenizer;
    "character" to make each character a word; or "icu" for the words of ICU, which finds words
    without blanks in Chinese, Japanese, Thai, Lao, Khmer and Burmese by a dictionary. Control and
    format characters (categories Cc and Cf) are kept inside words and dropped elsewhere.
    """
    classes = text.translate(_CLASSES)
    if unit != _ICU:
        return [match.span() for match in _PATTERNS[unit].finditer(classes)]
    try:
        from icu4py.breakers import WordBreaker
    except ImportError as error:
        raise UserError("`word_unit`='icu' requires: pip install 'albert_tf[languages]'") from error
    # ICU counts characters of two UTF-16 units twice, and its dictionaries ignore the locale.
    segments = WordBreaker(_TWO_UNITS.sub("\ufffd", text), "en").segments()
    return [(start, end) for start, end in segments if {*classes[start:end]} & {SINGLE, PART}]


def lines_with_predictions(
    path: str,
    predict: Callable[[Sequence[Sequence[str]]], Iterable[Prediction]],
    scheme: str,
    reading: Reading = DEFAULT_READING,
) -> Iterator[list[str]]:
    """Yields the lines of a file with predictions for its words, in groups of sentences.

    The predicted label is added to each row as the last column, after a tab if the file has a
    single column. Other lines with the same number of columns get `O` (`-DOCSTART-`) or `_` (`1-2`
    in CoNLL-U), and a header gets `predicted_label`. If columns are separated by blanks, blanks in
    labels are replaced by `_`. Objects with `tokens` get `predicted_labels`; others get
    `predicted_entities`, see `text_entities`. Lines of raw texts become objects.

    `predict` returns the labels and probabilities of the words of several sentences. For errors see
    `read_sentences`.
    """
    kind = reading.kind or _kind_of(path)
    _, parts = _parts(path, reading._replace(reads_labels=False))
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
