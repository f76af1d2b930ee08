"""How many records there are in many files, within a time one is willing to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from absl import logging
from tqdm import tqdm

from albert_tf.data.files import file_size
from albert_tf.data.tfrecord import RecordError, frame_ends

_SECONDS = 10.0


@dataclass(frozen=True)
class RecordCount:
    """What there is in record files.

    Attributes:
        number: records.
        is_exact: whether all were counted; else the size of those that were stands for the others.
        num_bytes: of the files.
    """

    number: int
    is_exact: bool
    num_bytes: int

    @property
    def bytes_each(self) -> float:
        """Mean size of a record."""
        return self.num_bytes / max(self.number, 1)


def count_or_estimate(
    files: Sequence[str],
    seconds: float = _SECONDS,
    *,
    skip_damaged: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> RecordCount:
    """Counts records by the lengths in the files; estimates the rest when time is up.

    Args:
        files: TFRecord files.
        seconds: time to count for.
        skip_damaged: leave out the rest of a file that is cut short, as training will.
        clock: returns the time in seconds.

    Raises:
        RecordError: a file is cut short, and not `skip_damaged`; names file and record.
    """
    deadline = clock() + seconds
    sizes = [file_size(path) for path in files]
    number, seen, total = 0, 0, sum(sizes)
    with _progress(total) as progress:
        for path, size in zip(files, sizes, strict=True):
            try:
                for end in frame_ends(path):
                    number += 1
                    if clock() > deadline and seen + end < sum(sizes):
                        return RecordCount(
                            round(number * sum(sizes) / (seen + end)), False, sum(sizes)
                        )
            except RecordError as error:
                if not skip_damaged:
                    raise
                logging.warning("--skip_damaged_records: %s", error)
            seen += size
            progress.update(size)
    return RecordCount(number, True, total)


def _progress(total: int) -> tqdm:
    return tqdm(total=total, desc="counting", unit="B", unit_scale=True, disable=None, leave=False)
