"""How many lines of text there are in files, within a time one is willing to wait."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from albert_tf.data.files import file_size, open_binary

_SECONDS = 5.0


@dataclass(frozen=True)
class LineCount:
    """What there is in text files.

    Attributes:
        number: lines with anything but white space.
        is_exact: whether all were counted; else those at the beginning stand for the others.
        num_bytes: of the files.
    """

    number: int
    is_exact: bool
    num_bytes: int


def count_lines(
    files: Sequence[str], seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic
) -> LineCount:
    """Counts lines; estimates the rest when time is up.

    Args:
        files: text.
        seconds: time to count for.
        clock: returns the time in seconds.
    """
    deadline = clock() + seconds
    total = sum(map(file_size, files))
    number = seen = 0
    for path in files:
        with open_binary(path, "rb") as file:
            for line in file:
                seen += len(line)
                number += not line.isspace()
                if clock() > deadline and seen < total:
                    return LineCount(round(number * total / seen), False, total)
    return LineCount(number, True, total)
