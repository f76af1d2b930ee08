"""Files of the safetensors format: a header in JSON that says where each tensor's bytes are.

The format's own library opens local files only, and its NumPy side knows no bfloat16. The format is
small: eight bytes with the length of the header, the header, and the values one after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.report import DamagedError, LoadError
from albert_tf.data.files import file_exists, file_size, open_binary

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000  # bytes; the limit of the format's own library
_METADATA = "__metadata__"
# bfloat16 is the upper half of a float32.
_BFLOAT16 = "BF16"
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    _BFLOAT16: "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}


class _Entry(NamedTuple):
    """Kind, shape and place of one tensor; the place counts from the start of the file."""

    kind: str
    shape: list[int]
    start: int
    end: int


class SafetensorsFile:
    """A file of tensors, whose values are read one at a time.

    Args:
        path: local or remote.

    Raises:
        DamagedError: it is cut off, or no such file.
        LoadError: it cannot be reached.
    """

    def __init__(self, path: str) -> None:
        if not file_exists(path):
            raise LoadError(f"There is no file {path!r}.")
        self.path = path
        size = file_size(path)
        length = int.from_bytes(self._bytes(0, min(size, _LENGTH_BYTES)), "little")
        begin = _LENGTH_BYTES + length
        if size < _LENGTH_BYTES or length > _LONGEST_HEADER or begin > size:
            raise self._damaged("it does not begin with the length of a header that fits into it")
        header = self._header(self._bytes(_LENGTH_BYTES, begin))
        self._entries = {name: self._entry(name, value, begin) for name, value in header.items()}
        self._check_places(begin, size)

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor."""
        return {name: list(entry.shape) for name, entry in self._entries.items()}

    def get(self, name: str) -> np.ndarray:
        """Returns the values of a tensor; those of bfloat16 as float32, others as they are.

        Raises:
            LoadError: they are of a kind that is not known here.
        """
        kind, shape, start, end = self._entries[name]
        if kind not in _DTYPES:
            raise LoadError(
                f"{self.path}: the values of {name!r} are {kind}; those of a whole model are "
                f"F32, F16, BF16 or F64. Expected a model that is not quantized."
            )
        values = np.frombuffer(self._bytes(start, end), _DTYPES[kind])
        if kind == _BFLOAT16:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.reshape(shape)

    def _bytes(self, start: int, end: int) -> bytes:
        try:
            with open_binary(self.path, "rb") as file:
                file.seek(start)
                data = file.read(end - start)
        except (OSError, tf.errors.OpError) as error:
            raise LoadError(f"{self.path!r} cannot be read: {error}") from error
        if len(data) != end - start:
            raise self._damaged("it ends too early")
        return data

    def _header(self, data: bytes) -> dict[str, Any]:
        try:
            header = json.loads(data)
        except ValueError as error:
            raise self._damaged(f"its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise self._damaged("its header is not a JSON object")
        return {name: value for name, value in header.items() if name != _METADATA}

    def _entry(self, name: str, value: Any, begin: int) -> _Entry:
        try:
            kind, shape, (start, end) = value["dtype"], value["shape"], value["data_offsets"]
            is_sound = all(isinstance(n, int) and n >= 0 for n in (*shape, start, end))
            width = np.dtype(_DTYPES[kind]).itemsize if kind in _DTYPES else None
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"its header does not describe {name!r}") from error
        if not is_sound or (width and width * math.prod(shape) != end - start):
            raise self._damaged(f"its header contradicts itself about {name!r}")
        return _Entry(kind, shape, begin + start, begin + end)

    def _check_places(self, begin: int, size: int) -> None:
        """Refuses tensors that overlap, holes between them, and a file of another length."""
        place = begin
        for entry in sorted(self._entries.values(), key=lambda entry: (entry.start, entry.end)):
            if entry.start != place:
                raise self._damaged("its tensors do not follow each other")
            place = entry.end
        if place != size:
            raise self._damaged(f"its header describes {place} bytes, but it has {size}")

    def _damaged(self, what: str) -> DamagedError:
        return DamagedError(
            f"{self.path!r} is damaged, or not a safetensors file: {what}. Fetch it again, or take "
            "another copy."
        )


def write_safetensors(
    path: str, shapes: Mapping[str, tuple[int, ...]], value: Callable[[str], np.ndarray]
) -> None:
    """Writes a file of float32 tensors, in the order of their names.

    Args:
        path: where to.
        shapes: of every tensor.
        value: gives the values of one; asked for one after the other, so that a copy of all need
            not be in memory.
    """
    header: dict[str, Any] = {_METADATA: {"format": "pt"}}  # without it transformers refuses them
    names, place = sorted(shapes), 0
    for name in names:
        end = place + 4 * math.prod(shapes[name])
        header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    with open_binary(path, "wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for name in names:
            values = np.ascontiguousarray(value(name), "<f4")
            if values.shape != tuple(shapes[name]):
                raise ValueError(f"{name} has the shape {values.shape}, not {shapes[name]}.")
            file.write(values.tobytes())
