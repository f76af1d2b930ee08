"""Reading record files past what is damaged in them, and the places of what was left out.

Two kinds of damage: a record that does not parse is left out alone; after one whose checksum
differs nothing says where the next one begins, and the rest of its file is left out. (Damage up to
the last record of a file is told of in the same way, of whichever kind it is.) The places
travel with the examples, as text, so that they need no state outside of the input's position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.examples import FeatureSpec
from albert_tf.data.files import file_size
from albert_tf.data.records import example_features, parse_batch
from albert_tf.data.tfrecord import RecordError, read_records

# In a batch, string [B], of the rows of all workers: what was left out before each example; lines
# `file TAB first TAB last`, numbers of records, the last one -1 for the rest of the file.
SKIPPED = "skipped_records"

_REST = -1
_FRAME_BYTES = 16  # of a record, besides its payload


def files_and_sizes(files: Sequence[str]) -> tf.data.Dataset:
    """What `good_records` is to be mapped over."""
    sizes = [file_size(path) for path in files]
    return tf.data.Dataset.from_tensor_slices((list(files), tf.constant(sizes, tf.int64)))


def good_records(path: tf.Tensor, size: tf.Tensor, specs: Sequence[FeatureSpec]) -> tf.data.Dataset:
    """The records of a file that can be read and parsed.

    Args:
        path: of a TFRecord file, a string.
        size: of the file in bytes, int64.
        specs: the features that a record must have.

    Returns:
        A data set of pairs: payload, and what was left out before it (see `SKIPPED`). Empty
        records are left out, so an empty payload only stands for the end of a file that is damaged
        there: `carry_places` takes such elements out.
    """

    def number(state: Any, payload: tf.Tensor) -> Any:
        count, offset = state
        end = offset + _FRAME_BYTES + tf.cast(tf.strings.length(payload), tf.int64)
        return (count + 1, end), (payload, count + 1, offset, end)

    def check(payload: tf.Tensor, *place: tf.Tensor) -> Any:
        with tf.control_dependencies(list(parse_batch(payload[None], specs).values())):
            return tf.identity(payload), *place

    def find_gaps(state: Any, element: Any) -> Any:
        last, end_of_last = state
        payload, record, start, end = element
        is_end = record == _REST
        final = tf.where(is_end, record, record - 1)
        fields = [path, tf.strings.as_string(last + 1), tf.strings.as_string(final)]
        skipped = tf.where(start > end_of_last, tf.strings.join(fields, "\t"), "")
        return (record, end), (payload, skipped)

    # A file that is not there `ignore_errors` would try to open for ever.
    there = tf.io.matching_files(tf.strings.regex_replace(path, r"[*?\[\\]", r"\\\0"))
    with tf.control_dependencies([tf.debugging.assert_positive(tf.size(there), "no such file")]):
        path = tf.identity(path)
    zero = tf.constant(0, tf.int64)
    end = tf.data.Dataset.from_tensors(("", tf.constant(_REST, tf.int64), size, size))
    records = tf.data.TFRecordDataset(path).scan((zero, zero), number).map(check).ignore_errors()
    found = records.concatenate(end).scan((zero, zero), find_gaps)
    return found.filter(lambda payload, skipped: (payload != "") | (skipped != ""))


def carry_places(records: tf.data.Dataset) -> tf.data.Dataset:
    """Gives the next record what an element without one says, and takes that element out.

    Args:
        records: the pairs of `good_records`, in any order.

    Returns:
        The same pairs, every payload a record.
    """

    def carry(pending: tf.Tensor, element: Any) -> Any:
        payload, skipped = element
        lines = tf.strings.join([pending, skipped], "\n")
        return tf.where(payload == "", lines, ""), (payload, lines)

    return records.scan("", carry).filter(lambda payload, _: payload != "")


def files_that_begin_well(files: Iterable[str]) -> list[str]:
    """Those files whose first record, if there is one, can be read; the others are named."""
    return [path for path in files if _begins_well(path)]


def _begins_well(path: str) -> bool:
    try:
        for payload in islice(read_records(path), 1):
            example_features(payload, path, 1)
    except RecordError as error:
        logging.warning("--skip_damaged_records: %s", error)
        return False
    return True


class SkippedRecords:
    """Tells of every place once, however often the input comes by, and counts.

    Args:
        places: what was told of already.

    Attributes:
        places: lines as in `SKIPPED`.
    """

    def __init__(self, places: Iterable[str] = ()) -> None:
        self.places: dict[str, None] = dict.fromkeys(places)

    def take_from(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Notes what a batch tells of, and returns the batch without that."""
        if SKIPPED not in batch:
            return batch
        for lines in filter(None, batch[SKIPPED].numpy()):
            for line in filter(None, lines.decode().split("\n")):
                self._add(line)
        return {name: values for name, values in batch.items() if name != SKIPPED}

    def _add(self, line: str) -> None:
        if line in self.places:
            return
        self.places[line] = None
        path, first, last = line.split("\t")
        what = f"record {first}" if last == first else f"records {first} to {last}"
        if int(last) == _REST:
            what = f"record {first} and all after it"
        logging.warning("Skipped as damaged: %s, %s", path, what)

    @property
    def count(self) -> int:
        """Records left out; the rest of a file, whose records nobody can count, is one."""
        spans = [map(int, line.split("\t")[1:]) for line in self.places]
        return sum(1 if last == _REST else last - first + 1 for first, last in spans)
