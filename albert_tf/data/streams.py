"""Standard input, standard output, pipes, and lines of text."""

import glob
import os
import platform
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from types import ModuleType
from typing import IO, NoReturn, TypeVar

from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    decode_utf8,
    file_exists,
    open_binary,
    raise_write_errors,
    write_then_rename,
)

T = TypeVar("T")
# Environment variables that TensorFlow reads when it is imported
CPP_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
STANDARD_INPUT = "-"
_OUTPUT = "the standard output"
_LINES_AT_ONCE = 1024
_BYTES_AT_ONCE = 1 << 18
_END = b"\0"  # marks the regular end of a hidden standard error


def is_regular_file(path: str, what: str) -> bool:
    """Returns whether `path` is a regular file, not "-" (the standard input) or a pipe.

    Raises ValueError if `path` does not exist or is a directory. The error describes the expected
    file by `what`, such as "a text file".
    """
    if path == STANDARD_INPUT:
        return False
    is_folder = os.path.isdir(path)
    if is_folder or not (file_exists(path) or os.path.exists(path)):
        found = "is a directory" if is_folder else "does not exist"
        raise UserError(f"{path!r} {found}. Pass {what}, or - for the standard input.")
    return file_exists(path)


def source_name(path: str) -> str:
    """Returns the name of an input in errors: its path, or "the standard input"."""
    return "the standard input" if path == STANDARD_INPUT else path


@contextmanager
def open_input(path: str) -> Iterator[IO[bytes]]:
    """Opens a file, or the standard input ("-"), in binary mode."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with open_binary(path, "rb") as file:
        yield file


@contextmanager
def open_output(path: str | None) -> Iterator[IO[bytes]]:
    """Opens an output in binary mode. If `path` is `None`, it is the standard output.

    Files are written with `write_then_rename`. If the reader of the standard output ends, the block
    ends without an error. Raises ValueError if the standard output is closed, and WriteError if the
    output cannot be written.
    """
    if path is not None:
        with write_then_rename(path) as file:
            yield file
        return
    if sys.stdout is None:  # it was closed before Python started
        raise UserError("The standard output is closed. Pass `predict_output_file`.")
    try:
        with raise_write_errors(_OUTPUT, _OUTPUT):
            yield sys.stdout.buffer
            sys.stdout.flush()
    except BrokenPipeError:
        discard_standard_output()  # the reader, such as `head`, has ended


def flush_standard_output() -> None:
    """Writes buffered output; raises BrokenPipeError if its reader has ended."""
    if sys.stdout is not None:
        with raise_write_errors(_OUTPUT):
            sys.stdout.flush()


def discard_standard_output() -> None:
    """Discards buffered output, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def hidden_standard_error() -> Iterator[None]:
    """Hides the standard error, also of C++ code, unless the process is aborted inside the block.

    Another process buffers the text, because an aborted process cannot print it.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # of threads, which the new process does not use
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


def import_tensorflow(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Imports TensorFlow with oneDNN and, unless absl logs debug messages, without its messages.

    Without a GPU, which is logged as an error, only fatal errors of C++ are logged.
    """
    from absl import logging  # takes time, and `import albert_tf` imports this module

    # By default, TensorFlow disables oneDNN on x86 processors without VNNI, where it is faster too.
    # On ARM, where nothing was measured, TensorFlow decides.
    if platform.machine() == "x86_64":
        os.environ.setdefault(_ONEDNN, "1")
    # Without a home directory, Keras would create a directory "~". If the home directory is not
    # writable, Keras itself uses /tmp.
    if os.path.expanduser("~") == "~":
        os.environ.setdefault("KERAS_HOME", "/tmp/.keras")
    if logging.level_debug() or sys.stderr is None:  # it was closed before Python started
        execute(module)
        return
    has_gpu = glob.glob("/dev/nvidia*") or os.path.exists("/dev/dxg")  # WSL has dxg
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if os.environ.get(CPP_LOG_LEVEL, "2") == "2":
        os.environ[CPP_LOG_LEVEL] = "2" if has_gpu and not is_hidden else "3"
    with hidden_standard_error():  # some lines precede the check of the level
        execute(module)


def _keep_until_end(pipe: int) -> NoReturn:
    """Copies a pipe to the standard error if the pipe is closed before `_END`."""
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
    r"""Yields the lines of a binary file without their \n, in groups of 1 to 1024 lines.

    Only \n ends a line. A group from a pipe or a terminal contains the lines that have arrived.
    """
    # Readers of remote files have no read1.
    read = getattr(file, "read1", file.read)
    rest: list[bytes] = []  # of a line, joined once
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


def parse_lines(path: str, parse: Callable[[str, int], T]) -> Iterator[list[T]]:
    """Yields the parsed lines of a file or of the standard input, "-", in groups.

    `parse` converts a line without its line end, given its number from 1. Raises ValueError if a
    line is not UTF-8, or `parse` rejects it, after yielding the lines before it.
    """
    number = 0
    with open_input(path) as file:
        for group in read_lines(file):
            parsed: list[T] = []
            for line in group:
                number += 1
                try:
                    text = decode_utf8(line.removesuffix(b"\r"), source_name(path), line=number)
                    parsed.append(parse(text, number))
                except ValueError:
                    if parsed:
                        yield parsed
                    raise
            yield parsed


def regrouped(
    groups: Iterable[Iterable[T]], size: int, *, is_live: bool = False
) -> Iterator[list[T]]:
    """Yields the items in groups of `size`; the last group may be smaller.

    If `is_live`, larger groups are split, but no item waits for the items of the next group.
    """
    for items in map(iter, groups if is_live else [chain.from_iterable(groups)]):
        while group := list(islice(items, size)):
            yield group


def write_lines(path: str | None, groups: Iterable[Iterable[str]]) -> None:
    """Writes groups of lines, each before the next one is computed; see `open_output`."""
    with open_output(path) as out:
        for lines in groups:
            out.writelines(f"{line}\n".encode(errors="backslashreplace") for line in lines)
            out.flush()
