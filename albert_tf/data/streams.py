"""Files and pipes whose lines are answered as they come, and where the answers go."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import IO, Any, NoReturn, TypeVar, cast

from albert_tf.data.files import explain_write_errors, file_exists, open_binary, write_then_rename

T = TypeVar("T")
STANDARD_INPUT = "-"
_OUTPUT = "the standard output"
_LINES_AT_ONCE = 1024
_BYTES_AT_ONCE = 1 << 18
_END = b"\0"  # of what is written to a hidden standard error


def can_be_read_twice(path: str, flag: str, what: str) -> bool:
    """Whether a file can be looked through first; "-", the standard input, and pipes can not.

    Raises ValueError: there is nothing of this name; says `what` to give, such as "a text file".
    """
    if path == STANDARD_INPUT:
        return False
    is_folder = os.path.isdir(path)
    if is_folder or not (file_exists(path) or os.path.exists(path)):
        found = "is a directory" if is_folder else "does not exist"
        raise ValueError(f"{flag} {path!r} {found}. Pass {what}, or - for the standard input.")
    return file_exists(path)


@contextmanager
def open_input(path: str) -> Iterator[IO[bytes]]:
    """Opens a file, or "-", the standard input, in binary mode."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with open_binary(path, "rb") as file:
        yield file


@contextmanager
def open_output(path: str | None) -> Iterator[IO[bytes]]:
    """Opens a file that appears when the block ends without an error; None: the standard output.

    The block ends in silence if nobody reads the standard output any more.

    Raises:
        ValueError: the standard output is closed.
        WriteError: the file cannot be written.
    """
    if path is not None:
        with write_then_rename(path, "--predict_output_file") as file:
            yield file
        return
    if sys.stdout is None:  # as Python has it where the file was closed before the start
        raise ValueError("The standard output is closed: pass --predict_output_file.")
    try:
        with _StandardOutput() as file:
            yield cast(IO[bytes], file)
    except BrokenPipeError:
        discard_standard_output()  # its reader, `head` perhaps, has what it wanted


class _StandardOutput(io.BufferedIOBase):
    """The standard output, with errors that say so."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with explain_write_errors(_OUTPUT):
            return sys.stdout.buffer.write(data)

    def flush(self) -> None:
        flush_standard_output()


def flush_standard_output() -> None:
    """Writes what was printed and still is in Python's buffer; BrokenPipeError: nobody reads it."""
    if sys.stdout is not None:
        with explain_write_errors(_OUTPUT):
            sys.stdout.flush()


def discard_standard_output() -> None:
    """Forgets what cannot be written; Python would try again, and complain, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def hidden_standard_error() -> Iterator[None]:
    """Hides what code of any language writes to the standard error, unless the process dies.

    Another process keeps it meanwhile: code that aborts runs no handler of this one.
    """
    reading, writing = os.pipe()
    keeper = os.fork()
    if not keeper:
        os.close(writing)
        _keep_until_end(reading)
    os.close(reading)
    kept = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(2, _END)
        os.dup2(kept, 2)
        os.close(kept)
        os.waitpid(keeper, 0)


def _keep_until_end(pipe: int) -> NoReturn:
    """Reads a pipe; writes what came to the standard error if the pipe closes before `_END`."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        text = b""
        while data := os.read(pipe, _BYTES_AT_ONCE):
            text += data
            if text.endswith(_END):
                os._exit(0)
        os.write(2, text)
    finally:
        os._exit(0)


def read_lines(file: IO[bytes]) -> Iterator[list[bytes]]:
    r"""Yields the lines of a file or a pipe, opened in binary mode, some at a time.

    Only \n ends a line: other characters that some programs take for line ends belong to the text.

    Yields:
        1 to 1024 lines without their \n: from a pipe or a terminal, those that have come so far,
        without waiting for more.
    """
    # Readers of remote files have no read1, and need none.
    read = getattr(file, "read1", file.read)
    rest: list[bytes] = []  # of a line that may be a whole file, joined once
    while data := read(_BYTES_AT_ONCE):
        *lines, last = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest.clear()
        rest.append(last)
        for start in range(0, len(lines), _LINES_AT_ONCE):
            yield lines[start : start + _LINES_AT_ONCE]
    if any(rest):
        yield [b"".join(rest)]


def regrouped(groups: Iterable[Sequence[T]], size: int) -> Iterator[list[T]]:
    """Yields the items in groups of one size; only the last may be smaller."""
    items = chain.from_iterable(groups)
    while group := list(islice(items, size)):
        yield group
