"""What other readers say of the same files: json, csv, TFRecordDataset, sentencepiece.

A reader raises, or returns `UNKNOWN`, where it cannot tell what a file holds.
"""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import seeds
from tests.fuzz.mutations import payloads_of
from tests.fuzz.wire import checksum

UNKNOWN = object()


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal, NaN and arrays included."""
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(
            ours, theirs, equal_nan=ours.dtype.kind == "f"
        )
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def shares_values(ours: Any, theirs: Any) -> bool:
    """Whether a file's values, as far as they are kept, are what the other reader says."""
    if ours is None or not isinstance(theirs, dict):
        return ours is None
    there = {key: value for key, value in theirs.items() if value is not None}
    return all(same(ours[key], there[key]) for key in ours.keys() & there.keys())


def whole_json(name: str, folder: Path) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def delimited_rows(name: str, folder: Path) -> Any:
    text = (folder / name).read_bytes().decode("utf-8-sig")
    if name.endswith(".csv"):
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    else:
        if "\r" in text or "\0" in text:  # which end lines for csv, and are text here
            return UNKNOWN
        rows = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    columns, *cells = [row for row in rows if row and (len(row) > 1 or row[0].strip())]
    while columns and not columns[-1].strip():
        columns.pop()
    if len(columns) < 2:  # empty lines are then rows
        return UNKNOWN
    return [column.strip() for column in columns], cells


def in_one_step(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives all elements of a data set at once.

    An iterator takes 20 ms and more to be made, a graph that gives one element less than 1 ms.

    Args:
        make: makes the data set from tensors.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = 1

    @tf.function(autograph=False)
    def read(*arguments: Any) -> Any:
        return make(*arguments).batch(100_000).with_options(options).get_single_element()

    return read


@cache
def _tensorflow_records() -> Any:
    import tensorflow as tf

    last = tf.data.Dataset.from_tensors("")
    read = in_one_step(lambda path: tf.data.TFRecordDataset(path).concatenate(last))
    return lambda path: read(tf.constant(path)).numpy()[:-1].tolist()


def records(folder: Path) -> Any:
    return _tensorflow_records()(str(folder / "part.tfrecord"))


def sound_records(folder: Path) -> Any:
    """The payloads before the first checksum that differs: nothing says where others begin."""
    data, place, found = (folder / "part.tfrecord").read_bytes(), 0, []
    while place < len(data):
        header = data[place : place + 8]
        end = place + 16 + int.from_bytes(header, "little")
        payload = data[place + 12 : end - 4]
        is_sound = checksum(header) == data[place + 8 : place + 12]
        if end > len(data) or not is_sound or checksum(payload) != data[end - 4 : end]:
            break
        found.append(payload)
        place = end
    return found


def keeps_good_records(ours: Any, theirs: Any) -> bool:
    """Whether all records that nobody changed were read, and none that is not whole."""
    good = set(payloads_of(seeds.records()[0]))
    return all(payload in theirs for payload in ours) and (
        [payload for payload in ours if payload in good]
        == [payload for payload in theirs if payload in good]
    )


def tensors(name: str, folder: Path) -> Any:
    data = (folder / name).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    values = {}
    for key, entry in header.items():
        start, end = entry["data_offsets"]
        dtype = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}[entry["dtype"]]
        content = np.frombuffer(data[8 + length :][start:end], dtype)
        values[key] = content.reshape(entry["shape"])
    return values


def pieces(folder: Path) -> Any:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    found = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    return found, processor.encode(seeds.PLAIN_TEXT, out_type=str)
