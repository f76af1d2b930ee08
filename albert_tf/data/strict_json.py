"""Strict parsing of JSON, and checks of types.

Duplicate keys, NaN, Infinity and numbers too large for a float are rejected. Errors contain the
file; errors of `JsonValue` also contain the keys that lead to the value.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, read_file

_INT64 = range(-(2**63), 2**63)
_VALUE = re.compile(r"[^ \t\n\r]")  # the first character of a value
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_MOST_SHOWN = 120  # characters of a value in an error
_MOST_LISTED = 25


class JsonError(UserError):
    """Raised if a file is not valid JSON, or lacks an expected value."""


def parse_json(data: bytes | str, where: str, *, line: int = 1) -> Any:
    """Parses one JSON value from text or UTF-8 bytes, with or without a byte order mark.

    `line` is the number of the first line of `data`, from 1. Raises ValueError, with the file
    `where` and the line, if the text is not strict JSON, or the bytes are not UTF-8.
    """
    text = decode_utf8(data, where, line=line) if isinstance(data, bytes) else data
    values = list(json_values(text, where, line=line))
    if not values:
        raise JsonError(f"{where} is empty; JSON is expected.")
    if len(values) > 1:
        raise JsonError(f"{where} is not valid JSON: extra data at line {values[1][0]}.")
    return values[0][1]


def json_values(text: str, where: str, *, line: int = 1) -> Iterator[tuple[int, Any]]:
    """Yields each JSON value in a text, with the number of its first line; see `parse_json`."""
    position = counted = 0
    while found := _VALUE.search(text, position):
        line += text.count("\n", counted, found.start())
        counted = found.start()
        try:
            value, position = _DECODER.raw_decode(text, counted)
        except json.JSONDecodeError as error:
            number = line + text.count("\n", counted, error.pos)
            raise JsonError(
                f"{where} is not valid JSON: {error.msg} at line {number}, column {error.colno}."
            ) from error
        except (ValueError, RecursionError) as error:
            raise JsonError(f"{where} is not valid JSON from line {line} on: {error}.") from error
        yield line, value


def read_json(path: str, where: str) -> Any:
    """Reads a JSON file; see `parse_json`."""
    return parse_json(read_file(path), where)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise UserError(f"{shown(number)} is not a finite number (null means a missing value)")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise UserError(f"duplicate key {shown(twice)} in an object")
    return values


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite, object_pairs_hook=_unique)


def shown(value: Any) -> str:
    """Returns a shortened representation of a value for an error."""
    text = _SHORT.repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def listed(values: Iterable[Any]) -> str:
    """Returns shortened values, separated by commas, for an error."""
    texts = [shown(value) for value in islice(values, _MOST_LISTED + 1)]
    more = ["..."] if len(texts) > _MOST_LISTED else []
    return ", ".join([*texts[:_MOST_LISTED], *more])


def as_whole_number(value: Any) -> int | None:
    """Converts whole numbers, such as 12 and 12.0, to `int`; returns `None` for other values."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number, and not true or false."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) <= sys.float_info.max


def is_encodable(text: str) -> bool:
    """Returns whether UTF-8 can represent a text. Lone surrogates only exist in JSON."""
    return _SURROGATE.search(text) is None


def lone_surrogates_replaced(text: str) -> str:
    """Replaces each surrogate by U+FFFD, so that positions do not change."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def whole_characters(text: str) -> str:
    """Replaces lone surrogates by U+FFFD."""
    if text.isascii() or is_encodable(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(slots=True)  # creating frozen instances takes twice as long
class JsonValue:
    """A value in a JSON file. Methods raise JsonError if the value has another type.

    `where` is the file, and `keys` leads to the value, such as `model.vocab[3]`.
    """

    value: Any
    where: str
    keys: str = ""

    def __getitem__(self, key: str) -> JsonValue:
        """Returns the value of a required key of an object."""
        values = self._checked("an object", isinstance(self.value, dict))
        if key not in values:
            raise JsonError(
                f"{self.where}: {self._inner(key)} is missing. The keys are {listed(values)}."
            )
        return JsonValue(values[key], self.where, self._inner(key))

    def get(self, key: str) -> JsonValue | None:
        """Returns the value of a key; `None` if it is missing or null."""
        if not isinstance(self.value, dict):
            raise self.error("an object")
        value = self.value.get(key)
        return None if value is None else JsonValue(value, self.where, self._inner(key))

    def members(self) -> dict[str, JsonValue]:
        """Returns the values of an object by key."""
        values = self._checked("an object", isinstance(self.value, dict))
        return {key: JsonValue(values[key], self.where, self._inner(key)) for key in values}

    def elements(self) -> list[JsonValue]:
        """Returns the values of a list."""
        values = self._checked("a list", isinstance(self.value, list))
        return [JsonValue(v, self.where, f"{self.keys}[{i}]") for i, v in enumerate(values)]

    def text(self) -> str:
        """Returns a text; rejects lone surrogates."""
        is_right = isinstance(self.value, str) and is_encodable(self.value)
        return self._checked("text without lone surrogates", is_right)

    def whole_text(self) -> str:
        """Returns a text; replaces lone surrogates with U+FFFD."""
        return whole_characters(self._checked("text", isinstance(self.value, str)))

    def whole_number(self, at_least: int = _INT64.start) -> int:
        """Returns a 64-bit whole number of at least `at_least`. 12.0 is accepted as 12."""
        number = as_whole_number(self.value)
        if number is None or number not in _INT64 or number < at_least:
            low = f" of at least {at_least}" if at_least > _INT64.start else ""
            raise self.error(f"a whole number{low} (64 bits)")
        return number

    def number(self) -> float:
        """Returns a finite number."""
        return self._checked("a finite number", is_number(self.value))

    def truth_value(self) -> bool:
        """Returns true or false."""
        return self._checked("true or false", isinstance(self.value, bool))

    def error(self, expected: str) -> JsonError:
        """Returns the error for a value that is not `expected`."""
        return JsonError(
            f"{self.where}: {self.keys or 'the content'} must be {expected}. "
            f"Received: {shown(self.value)}"
        )

    def _checked(self, expected: str, is_right: bool) -> Any:
        if not is_right:
            raise self.error(expected)
        return self.value

    def _inner(self, key: str) -> str:
        key = key if key.isidentifier() and len(key) <= _MOST_SHOWN else shown(key)
        return f"{self.keys}.{key}" if self.keys else key
