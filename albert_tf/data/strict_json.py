"""JSON that a user gives: one parser, and checks of the types in it.

The parser refuses what the standard library takes or stumbles over: deep nesting, numbers too long
or too large, NaN and Infinity, which are no JSON, and bytes that are not UTF-8. Everything else
means what `json.loads` makes of it. Errors name the file, the line and the column; those of
`JsonValue` name the file and the keys that lead to the value.
"""

from __future__ import annotations

import gc
import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

from albert_tf.data.files import open_binary
from albert_tf.data.utf8 import decode_utf8

MAX_DEPTH = 100  # lists and objects inside one another
MAX_DIGITS = 4300  # of a whole number: Python's own limit
MAX_BYTES = 64 << 20  # of a file that describes something and holds no data
_INT64 = range(-(2**63), 2**63)

_BLANKS = re.compile(r"[ \t\n\r]*")
# Strings are matched so that nothing inside them is taken for a number or a bracket.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_BRACKETS = re.compile(rf"{_STRING}|(?P<open>[\[{{])|(?P<close>[\]}}])", re.DOTALL)
_BEGIN = r"(?<![\d.eE+-])"  # of a number, and no part of another one
_LONG = rf"{_BEGIN}-?\d{{{MAX_DIGITS + 1},}}(?![\d.eE])"
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_MOST_SHOWN = 120  # characters of a value in an error
_MOST_LISTED = 25


class JsonError(ValueError):
    """A file is not the JSON it should be.

    Attributes:
        is_unfinished: whether the text ends before the value does.
    """

    is_unfinished = False


class _RepeatedKeyError(ValueError):
    """An object has a key twice."""


class _NumberError(ValueError):
    """NaN, Infinity, or a number beyond all floats."""

    def __init__(self, number: str) -> None:
        super().__init__(number)
        self.number = number


def parse_json(data: bytes | str, where: str, *, line: int = 1, unique_keys: bool = False) -> Any:
    """Returns what a JSON text means.

    Args:
        data: the text; bytes are UTF-8, with or without a byte order mark.
        where: the file and the flag it came from; errors begin with it.
        line: number of the line `data` begins with, from 1.
        unique_keys: refuse an object that has a key twice; else the last one counts.

    Raises:
        JsonError: the text is broken, nested deeper than `MAX_DEPTH`, or has NaN, Infinity, a whole
            number of more than `MAX_DIGITS` digits or another one that would be infinite. Names the
            line and the column.
        EncodingError: the bytes are not UTF-8.
    """
    text = decode_utf8(data, where, line=line) if isinstance(data, bytes) else data
    decoder = _UNIQUE_DECODER if unique_keys else _DECODER
    value, end = _decoded(decoder, text, _after_blanks(text, 0), where, line)
    end = _after_blanks(text, end)
    if end < len(text):
        raise _error(text, end, "Extra data", where, line)
    return value


def json_values(text: str, where: str) -> Iterator[tuple[int, Any]]:
    """Yields the JSON values of a text, one after the other, whatever blanks are between them.

    Args:
        text: from `decode_utf8`.
        where: as for `parse_json`.

    Yields:
        The line a value begins in, from 1, and the value.

    Raises:
        JsonError: see `parse_json`.
    """
    line, counted = 1, 0
    place = _after_blanks(text, 0)
    while place < len(text):
        line += text.count("\n", counted, place)
        counted = place
        value, place = _decoded(_DECODER, text, place, where)
        yield line, value
        place = _after_blanks(text, place)


def read_json(path: str, where: str) -> Any:
    """Reads a JSON file that describes something: a configuration, a task, an index.

    Args:
        path: any path `data.files` takes.
        where: as for `parse_json`.

    Raises:
        JsonError: see `parse_json`; or the file is larger than `MAX_BYTES`.
        EncodingError: it is not UTF-8.
        OSError: it cannot be read.
    """
    with open_binary(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise JsonError(f"{where} is larger than {MAX_BYTES:,} bytes. Is it another file?")
    return parse_json(data, where)


def _decoded(
    decoder: json.JSONDecoder, text: str, place: int, where: str, line: int = 1
) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends."""
    try:
        value, end = decoder.raw_decode(text, place)
    except json.JSONDecodeError as error:
        raise _error(text, error.pos, error.msg, where, line) from error
    except _RepeatedKeyError as error:
        raise _error(text, place, str(error), where, line) from error
    except _NumberError as error:
        what = f"{shown(error.number)}, which is no finite number (null is JSON for none),"
        found = _find(_BEGIN + re.escape(error.number), text, place)
        raise _error(text, found, what, where, line) from error
    except ValueError as error:
        what = f"a number of more than {MAX_DIGITS} digits"
        raise _error(text, _find(_LONG, text, place), what, where, line) from error
    except RecursionError:
        pass
    else:
        if not _is_deep(value):
            return value, end
    what = f"more than {MAX_DEPTH} lists and objects inside one another"
    raise _error(text, _find_depth(text, place), what, where, line)


def _is_deep(value: Any) -> bool:
    """Whether a value is nested deeper than `MAX_DEPTH`.

    Every file is looked through, so this has to be fast. The garbage collector's functions take a
    fourteenth of the time of parsing, half of what a loop over lists and objects takes.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        # Strings and numbers are not tracked; nor are, in some versions, objects of these alone.
        level = list(filter(gc.is_tracked, gc.get_referents(*level)))
        if not level:
            return False
    return True


def _find(pattern: str, text: str, place: int) -> int:
    """Where the first match of a pattern is that is not inside a string."""
    for match in re.compile(f"{_STRING}|({pattern})", re.DOTALL).finditer(text, place):
        if match[1]:
            return match.start()
    return place


def _find_depth(text: str, place: int) -> int:
    """Where the first bracket is that is nested too deep."""
    depth = 0
    for match in _BRACKETS.finditer(text, place):
        depth += (match["open"] is not None) - (match["close"] is not None)
        if depth > MAX_DEPTH:
            return match.start()
    return place


def _error(text: str, place: int, what: str, where: str, line: int) -> JsonError:
    if not text.strip():
        error = JsonError(f"{where} is empty; JSON is expected.")
    else:
        number = line + text.count("\n", 0, place)
        column = place - text.rfind("\n", 0, place)
        error = JsonError(f"{where} is broken JSON: {what} at line {number}, column {column}.")
    error.is_unfinished = place >= len(text.rstrip())
    return error


def _after_blanks(text: str, place: int) -> int:
    match = _BLANKS.match(text, place)
    return match.end() if match else place


def _no_constant(name: str) -> NoReturn:
    raise _NumberError(name)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise _NumberError(number)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise _RepeatedKeyError(f"the key {shown(twice)} is there twice in one object")
    return values


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
_UNIQUE_DECODER = json.JSONDecoder(
    parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_unique
)


def shown(value: Any) -> str:
    """A value for an error: shortened, however long or deep it is."""
    text = _SHORT.repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def listed(values: Iterable[Any]) -> str:
    """Values for an error, with commas between them: each shortened, and the first of many."""
    texts = [shown(value) for value in islice(values, _MOST_LISTED + 1)]
    more = ["..."] if len(texts) > _MOST_LISTED else []
    return ", ".join([*texts[:_MOST_LISTED], *more])


def as_whole_number(value: Any) -> int | None:
    """The whole number that a value is, 12 as well as 12.0; None for any other, and for true."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value in a JSON file, asked for by key and type.

    Attributes:
        value: as it was parsed.
        where: the file and the flag it came from; errors begin with it.
        place: the keys that lead to the value, such as `model.vocab[3]`; "" for the whole.
    """

    value: Any
    where: str
    place: str = ""

    def __getitem__(self, key: str) -> JsonValue:
        """The value of a key that an object has to have.

        Raises:
            JsonError: this is no object, or it has no such key.
        """
        values = self._object()
        if key not in values:
            raise JsonError(
                f"{self.where}: {self._inner(key)} is missing. The keys are {shown([*values])}."
            )
        return JsonValue(values[key], self.where, self._inner(key))

    def get(self, key: str) -> JsonValue | None:
        """The value of a key; None where it is missing or null.

        Raises:
            JsonError: this is no object.
        """
        value = self._object().get(key)
        return None if value is None else JsonValue(value, self.where, self._inner(key))

    def members(self) -> dict[str, JsonValue]:
        """The values of an object by key.

        Raises:
            JsonError: this is no object.
        """
        values = self._object()
        return {key: JsonValue(values[key], self.where, self._inner(key)) for key in values}

    def elements(self) -> list[JsonValue]:
        """The values of a list, in order.

        Raises:
            JsonError: this is no list.
        """
        values = self._checked("a list", isinstance(self.value, list))
        return [
            JsonValue(value, self.where, f"{self.place}[{number}]")
            for number, value in enumerate(values)
        ]

    def text(self) -> str:
        """The value as text.

        Raises:
            JsonError: it is none, or holds half a character (a lone surrogate), which no file can.
        """
        text = self._checked("text", isinstance(self.value, str))
        return self._checked("text without lone surrogates", is_encodable(text))

    def whole_number(self, at_least: int = _INT64.start) -> int:
        """The value as a whole number; 12.0 is 12.

        Raises:
            JsonError: it is none, is smaller than `at_least`, or does not fit into 64 bits.
        """
        number = as_whole_number(self.value)
        if number is None or number not in _INT64 or number < at_least:
            low = f" of at least {at_least}" if at_least > _INT64.start else ""
            raise self.error(f"a whole number{low} (64 bits)")
        return number

    def number(self) -> float:
        """The value as a finite number.

        Raises:
            JsonError: it is none.
        """
        return self._checked("a finite number", is_number(self.value))

    def truth_value(self) -> bool:
        """The value as true or false.

        Raises:
            JsonError: it is neither.
        """
        return self._checked("true or false", isinstance(self.value, bool))

    def error(self, expected: str) -> JsonError:
        """Returns the error of a value that is not what is expected."""
        return JsonError(
            f"{self.where}: {self.place or 'the content'} must be {expected}. "
            f"Received: {shown(self.value)}"
        )

    def _object(self) -> dict[str, Any]:
        return self._checked("an object", isinstance(self.value, dict))

    def _checked(self, expected: str, is_right: bool) -> Any:
        if not is_right:
            raise self.error(expected)
        return self.value

    def _inner(self, key: str) -> str:
        key = key if key.isidentifier() and len(key) <= _MOST_SHOWN else shown(key)
        return f"{self.place}.{key}" if self.place else key


def is_encodable(text: str) -> bool:
    """Whether a text can be written to a file: JSON can hold half a character, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
