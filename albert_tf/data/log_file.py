"""`log.txt`: the complete log of a job. The screen shows only its most important lines."""

import datetime
import logging as python_logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from absl import logging

from albert_tf.data.errors import printable
from albert_tf.data.files import open_binary, raise_write_errors

LOG_FILE = "log.txt"
COLUMNS = 100  # of the lines on the screen
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


class _LogFile(python_logging.Filter):
    """Copies the records of this package, and warnings of others, to a file.

    Passes on the records that are logged without this filter.
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self.path, self._level = "", level
        self._lines: list[str] = []  # not written yet

    def filter(self, record: python_logging.LogRecord) -> bool:
        """Copies a record; returns whether it is passed on."""
        if record.levelno >= python_logging.WARNING or record.pathname.startswith(PACKAGE):
            self.write(f"{record.levelname} {record.getMessage()}")
        return record.levelno >= self._level

    def write(self, *lines: str) -> None:
        """Adds lines, and appends all lines to the file if it is known."""
        time = datetime.datetime.now().isoformat(sep=" ", timespec="seconds")
        self._lines += [f"{time} {printable(line)}\n" for line in lines]
        if path := self.path:
            content, self._lines = "".join(self._lines).encode(errors="replace"), []
            # If the disk is full, the files that matter are not written either, which is an error.
            with suppress(OSError), raise_write_errors(path), open_binary(path, "ab") as file:
                file.write(content)


@contextmanager
def collected_log() -> Iterator[None]:
    """Context manager that collects the log of a job, of all levels, for `write_log_to`."""
    logger = logging.get_absl_logger()
    level, log = logger.level, _LogFile(logger.getEffectiveLevel())
    logger.addFilter(log)
    logger.setLevel(python_logging.DEBUG)
    try:
        yield
    except BaseException as error:
        log.write(f"ERROR {type(error).__name__}: {error}")
        raise
    finally:
        logger.removeFilter(log)
        logger.setLevel(level)


def write_log_to(folder: str) -> None:
    """Appends the log of the current job, from its first line on, to `log.txt` in a directory."""
    for log in logging.get_absl_logger().filters:
        if isinstance(log, _LogFile):
            log.path = os.path.join(folder, LOG_FILE)
            log.write()
