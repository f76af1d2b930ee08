"""JSON lines as rows of cells: one object a line, its keys being the columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from albert_tf.data.rows import Oddities, Row
from albert_tf.data.strict_json import JsonError, is_encodable, parse_json, shown

_WANTED = 'one object a line (JSON Lines), such as {"text_a": "...", "label": "..."}'


def json_rows(
    path: str, flag: str, text: str, oddities: Oddities
) -> tuple[list[str], Iterator[Row]]:
    """Reads objects, one a line; blank lines are left out and counted.

    Args:
        path: the file, for errors.
        flag: the flag it came from, for errors.
        text: what is in it.
        oddities: grows while the rows are read.

    Returns:
        The keys of all objects in the order they appear in, and the rows: the line each begins at
        and its values, numbers and truth values as JSON writes them; None for what has no text: a
        key that an object lacks, null, a list or an object.

    Raises:
        ValueError: a line is no JSON object, or has a key twice; names the line.
    """
    objects = json_objects(path, flag, text, oddities, _WANTED)
    keys = list(dict.fromkeys(key for _, row in objects for key in row))
    rows = (
        (number, [_cell(row.get(key), number, oddities) for key in keys]) for number, row in objects
    )
    return keys, rows


def json_objects(
    path: str, flag: str, text: str, oddities: Oddities, wanted: str
) -> list[tuple[int, dict[str, Any]]]:
    """Reads objects, one a line, with the number of each line; blank lines are counted.

    Args:
        path: the file, for errors.
        flag: the flag it came from, for errors.
        text: what is in it.
        oddities: grows.
        wanted: what the file should hold, for errors.

    Raises:
        ValueError: a line is no JSON object, or has a key twice; names the line.
    """
    text = text.rstrip()
    if text.lstrip().startswith("["):
        raise ValueError(f"{flag}: {path} holds a JSON array; wanted is {wanted}.")
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            objects.append((number, _json_object(path, flag, number, line, wanted)))
        else:
            oddities.add("nothing in them, left out", number)
    return objects


def _json_object(path: str, flag: str, number: int, line: str, wanted: str) -> dict[str, Any]:
    try:
        row = parse_json(line, f"{flag}: {path}", line=number, unique_keys=True)
    except JsonError as error:
        raise ValueError(f"{error} Wanted is {wanted}.") from error
    if not isinstance(row, dict):
        raise ValueError(
            f"{flag}: line {number} of {path} must be a JSON object; wanted is {wanted}. "
            f"Received: {shown(row)}"
        )
    return row


def _cell(value: Any, line: int, oddities: Oddities) -> str | None:
    """A JSON value as the text a table would hold."""
    if value is None or isinstance(value, list | dict):
        return None
    if not isinstance(value, str):
        return json.dumps(value)
    return whole_characters(value, oddities, line)


def whole_characters(text: str, oddities: Oddities, place: int | str) -> str:
    """Replaces lone surrogates, which JSON can hold and UTF-8 cannot, and counts the text."""
    if text.isascii() or is_encodable(text):
        return text
    oddities.add("halves of characters (lone surrogates), replaced by U+FFFD", place)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
