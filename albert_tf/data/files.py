"""Paths a user gives: opened, listed, renamed and written.

Local paths go through Python itself, every other one (`gs://...`) through `tf.io.gfile`: loading
TensorFlow takes seconds and half a gigabyte in every process.

What is written gets its name when it is complete. Until then it lies beside it as
`NAME.tmp-<host>-<random>`, on which the process that makes it holds a lock. The system releases the
lock when the process ends, however it ends: so whoever writes `NAME` next can tell what a killed
process left behind, and remove it, from what a living one is writing. Remote stores have no locks.

Whether files can be written, and how much disk space there is, is found out without writing. Of
remote folders nothing can be said so: they pass.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import io
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import IO, Any

# Not all network file systems show a lock to other machines: what those are writing stays.
_HOST = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]
_LONGEST_REASON = 300  # characters
TEMPORARY_FILES = "TMPDIR"  # what says where the system keeps them, in place of a flag


def random_name(path: str) -> str:
    """A temporary name for `path` that is never taken for a leftover."""
    return f"{path}.tmp-{uuid.uuid4().hex[:12]}"


def make_temporary(path: str, *, is_folder: bool) -> tuple[str, int | None]:
    """Makes an empty file or folder beside `path`, the name it is to get in the end.

    Returns its name, and the descriptor that holds its lock, to be closed in the end. None where
    the file system has no locks: it is then never taken for a leftover.
    """
    while True:
        temporary = f"{path}.tmp-{_HOST}-{uuid.uuid4().hex[:12]}"
        os.mkdir(temporary) if is_folder else open(temporary, "xb").close()
        try:
            lock = _lock(temporary)
        except (BlockingIOError, FileNotFoundError):
            continue  # in this moment, before it was locked, another process removes it
        except OSError:
            unlocked = random_name(path)
            os.rename(temporary, unlocked)
            return unlocked, None
        if os.path.lexists(temporary):
            return temporary, lock
        os.close(lock)


def remove_leftovers(folder: str, name: str | None = None) -> None:
    """Removes what processes of this machine left in a local folder when they were killed.

    What a living process is writing stays, and so does what cannot be told from it. `name` is what
    they were writing; None: whatever it was.
    """
    pattern = re.compile(rf"{re.escape(name) if name else '.+'}\.tmp-{_HOST}-[0-9a-f]{{12}}")
    with suppress(OSError):  # nothing depends on it
        for found in filter(pattern.fullmatch, os.listdir(folder or os.curdir)):
            _remove_unless_locked(os.path.join(folder, found))


def _remove_unless_locked(path: str) -> None:
    with suppress(OSError):
        lock = _lock(path)
        try:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.remove(path)
        finally:
            os.close(lock)


def _lock(path: str) -> int:
    """Locks a path until the descriptor is closed; BlockingIOError if it is locked already."""
    # Network file systems may lock only what is open for writing, and so no folders.
    descriptor = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_remote(path: str) -> bool:
    """True for a path with a scheme, such as `gs://bucket/file`."""
    return "://" in path


def real_name(path: str) -> str:
    """The one name of a file, by whatever links and relative names it is called."""
    return path if is_remote(path) else os.path.realpath(path)


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def open_binary(path: str, mode: str) -> IO[bytes]:
    """Opens `path` in binary `mode` ("rb" or "wb")."""
    if is_remote(path):
        return _gfile().GFile(path, mode)
    return open(path, mode)


def file_size(path: str) -> int:
    """Size of the file in bytes."""
    return _gfile().stat(path).length if is_remote(path) else os.path.getsize(path)


def file_exists(path: str) -> bool:
    """Whether there is a file (not a folder) of this name."""
    if is_remote(path):
        return _gfile().exists(path) and not _gfile().isdir(path)
    return os.path.isfile(path)


def folder_names(folder: str) -> list[str]:
    """Names of what lies in a folder, sorted; none where there is no such folder."""
    if is_remote(folder):
        names = _gfile().listdir(folder) if _gfile().isdir(folder) else []
        return sorted(name.rstrip("/") for name in names)
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def find_files(pattern: str) -> list[str]:
    """Files (not folders) that match a glob pattern, sorted; `*` matches no dot at the start.

    The part of a local pattern that exists, such as the folder `runs [old]`, is taken literally.
    """
    if is_remote(pattern):
        is_hidden = os.path.basename(pattern).startswith(".")
        return sorted(
            path
            for path in _gfile().glob(pattern)
            if os.path.basename(path).startswith(".") == is_hidden and not _gfile().isdir(path)
        )
    literal = pattern
    while literal and not os.path.lexists(literal):
        literal = os.path.dirname(literal.rstrip("/"))
    matches = glob.glob(glob.escape(literal) + pattern[len(literal) :])
    return sorted(path for path in matches if not os.path.isdir(path))


def match_files(patterns: str, flag: str = "--input_file") -> list[str]:
    """Expands comma-separated glob patterns.

    Returns the files in the order of the patterns, sorted within one pattern, each once.

    Raises:
        ValueError: a pattern matches no file, or there is no pattern at all; names the flag.

    Differs: the original goes on in silence when a pattern matches nothing.
    """
    files: dict[str, None] = {}
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matches = find_files(pattern)
        if not matches:
            raise ValueError(f"{flag}: no file matches {pattern!r}; pass existing files or globs.")
        files.update(dict.fromkeys(matches))
    if not files:
        raise ValueError(f"{flag} names no file. Received: {patterns!r}")
    return list(files)


def expand_shards(names: str) -> list[str]:
    """Expands comma-separated names of files to write; ValueError for a number of 0 files.

    "wiki@2" stands for wiki-00000-of-00002 and wiki-00001-of-00002.
    """
    paths = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        sharded = re.fullmatch(r"(.+)@(\d+)", name)
        if not sharded:
            paths.append(name)
            continue
        count = int(sharded[2])
        if not count:
            raise ValueError(
                f"--output_file={name} asks for 0 files; the number after the @ must be at least 1."
            )
        paths += [f"{sharded[1]}-{number:05d}-of-{count:05d}" for number in range(count)]
    return paths


def make_parent_folder(path: str) -> None:
    """Creates the folder that will hold `path`, if it is not there."""
    folder = os.path.dirname(path)
    if is_remote(path):
        _gfile().makedirs(folder)
    elif folder:
        os.makedirs(folder, exist_ok=True)


def rename(source: str, target: str) -> None:
    """Renames a file; an existing target is replaced."""
    if is_remote(target):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Removes a file; nothing happens when it is not there."""
    if not is_remote(path):
        with suppress(FileNotFoundError):
            os.remove(path)
    elif _gfile().exists(path):
        _gfile().remove(path)


def remove_folder(path: str) -> None:
    """Removes a folder and what lies in it; nothing happens when it is not there."""
    if not is_remote(path):
        shutil.rmtree(path, ignore_errors=True)
    elif _gfile().isdir(path):
        _gfile().rmtree(path)


class WriteError(OSError):
    """Something, of a flag perhaps, that could not be written; what was there before stays."""

    flag = ""


def write_error(path: str, error: BaseException, flag: str = "") -> WriteError:
    """Returns what to raise when a file or folder, by its final name, cannot be written."""
    explained = WriteError(
        f"{f'{flag}: ' * bool(flag)}{path} cannot be written: {reason_of(error)}. Existing files "
        "are unchanged. Free disk space or make the path writable, and run the same command again."
    )
    explained.flag = flag
    return explained


def reason_of(error: BaseException) -> str:
    """What the system, or a library, said of a file that cannot be read or written; a line."""
    if isinstance(error, WriteError) and error.__cause__ is not None:
        error = error.__cause__
    # TensorFlow says where it was in its graph as well.
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:)?", "", str(error))
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."


@contextmanager
def explain_write_errors(path: str, flag: str = "") -> Iterator[None]:
    """Turns an error of writing inside the block, TensorFlow's too, into a `WriteError`.

    It has the final name of the file or folder, and its flag; see `write_then_rename`.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # of a reader that has what it wanted
    except _write_errors() as error:
        # Of a file inside a folder that is being written, its name under the folder's final one
        # would say nothing; but another folder with a flag of its own is told of as it is.
        if isinstance(error, WriteError) and (error.flag or not flag):
            raise
        raise write_error(path, error, flag) from error


def _write_errors() -> tuple[type[Exception], ...]:
    tensorflow = sys.modules.get("tensorflow")  # which raises nothing where it is not imported
    return (OSError, tensorflow.errors.OpError) if tensorflow else (OSError,)


@contextmanager
def write_then_rename(path: str, flag: str = "") -> Iterator[IO[bytes]]:
    """Opens a temporary file that takes the name `path` only when the block ends without an error.

    The folder is created if need be. A device or a named pipe is written to directly: renaming a
    file to its name would remove it.

    Raises:
        WriteError: there is no room, or nothing may be written there; names the flag. Other errors
            of the block go through unchanged.
    """
    with ExitStack() as stack:
        is_renamed = os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path)
        temporary = path
        if is_renamed:
            temporary = stack.enter_context(_temporary(path, flag, is_folder=False))
        with explain_write_errors(path, flag):
            opened = _open_unbuffered(temporary)
        with io.BufferedWriter(_Output(opened, path, flag)) as file:
            yield file
        if is_renamed:
            with explain_write_errors(path, flag):
                rename(temporary, path)


def _open_unbuffered(path: str) -> Any:
    """Opens a file for writing, so that flushing what wraps it reports a full disk."""
    if not is_remote(path):
        return open(path, "wb", buffering=0)
    file = open_binary(path, "wb")
    file.write(b"")  # TensorFlow creates the file only then
    return file


def temporary_folder(
    path: str, flag: str = "", *, is_shared: bool = False
) -> AbstractContextManager[str]:
    """Makes an empty folder beside `path`, for the block to rename; else it is removed in the end.

    Args:
        path: the name that the folder, or what is written in it, is to get.
        flag: where it came from, for the WriteError if it cannot be made.
        is_shared: other machines go on writing in it when this process is killed, so that it is
            never taken for a leftover.
    """
    return _temporary(path, flag, is_folder=True, is_shared=is_shared)


@contextmanager
def _temporary(path: str, flag: str, *, is_folder: bool, is_shared: bool = False) -> Iterator[str]:
    """Gives a name beside `path`, of a new folder or for a file; removes what has it in the end."""
    temporary, lock = random_name(path), None
    with explain_write_errors(path, flag):
        make_parent_folder(path)
        if is_remote(path):
            if is_folder:
                _gfile().makedirs(temporary)
        elif is_shared:
            os.mkdir(temporary)
        else:
            remove_leftovers(*os.path.split(path))
            temporary, lock = make_temporary(path, is_folder=is_folder)
    with ExitStack() as stack:
        if lock is not None:
            stack.callback(os.close, lock)
        try:
            yield temporary
        finally:
            with suppress(*_write_errors()):  # the error of the block says more
                (remove_folder if is_folder else remove)(temporary)


class _Output(io.RawIOBase):
    """A file under its temporary name, whose errors have the final one."""

    def __init__(self, file: Any, path: str, flag: str) -> None:
        self._file, self._path, self._flag = file, path, flag

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with explain_write_errors(self._path, self._flag):
            if isinstance(self._file, io.FileIO):
                return self._file.write(data)
            self._file.write(bytes(data))
            return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with explain_write_errors(self._path, self._flag):
                self._file.close()


def check_folder(path: str, flag: str) -> None:
    """Refuses a folder that no model can be written to; the ValueError names the flag."""
    check_checkpoint_path(path, flag)
    if problem := why_not_writable(path):
        raise ValueError(f"{flag} {path!r} cannot be written to: {problem}")


def is_pattern_to_tensorflow(path: str) -> bool:
    """Whether TensorFlow cannot read a checkpoint at this path, which it takes for a pattern."""
    return any(sign in path for sign in "[]\\")


def check_checkpoint_path(path: str, flag: str) -> None:
    """Refuses a path at which TensorFlow can write a checkpoint or SavedModel, but not read it."""
    if is_pattern_to_tensorflow(path):
        raise ValueError(
            f"{flag} {path!r} contains '[', ']' or a backslash, so TensorFlow could not read the "
            "checkpoints in it. Choose another name."
        )


def is_missing_file_system(error: BaseException) -> bool:
    """Whether TensorFlow raised an error because it has no file system for the scheme of a path."""
    tensorflow = sys.modules.get("tensorflow")
    return (
        tensorflow is not None
        and isinstance(error, tensorflow.errors.UnimplementedError)
        and "File system scheme" in str(error)
    )


def check_file(path: str, flag: str) -> None:
    """Refuses a folder, and a file that cannot be written; the ValueError names the flag."""
    if not is_remote(path) and os.path.isdir(path):
        raise ValueError(f"{flag}: {path} is a directory. Pass the path of a file in it.")
    folder = os.path.dirname(path) if is_remote(path) else os.path.dirname(os.path.abspath(path))
    if problem := why_not_writable(folder):
        raise ValueError(f"{flag}: {path} cannot be written: {problem}")


def why_not_writable(folder: str) -> OSError | None:
    """Returns why nothing can be written to a folder that may have to be made; None if it can."""
    if is_remote(folder):
        scheme = folder.partition("://")[0]
        is_known = scheme in _gfile().get_registered_schemes()
        return None if is_known else OSError(f"TensorFlow has no file system {scheme}://")
    existing = _existing_folder(folder)
    if os.path.islink(existing) and not os.path.exists(existing):
        return FileNotFoundError(
            errno.ENOENT, "The symbolic link points to a path that does not exist", existing
        )
    if os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK):
        return None
    number = errno.EACCES if os.path.isdir(existing) else errno.ENOTDIR
    return OSError(number, os.strerror(number), existing)


def _existing_folder(path: str) -> str:
    """The path itself if there is such a thing, else the nearest one above it."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def free_bytes(path: str) -> int | None:
    """Room on the disk where a file or folder is, or is to be; None where nobody can tell."""
    return None if is_remote(path) else shutil.disk_usage(_existing_folder(path)).free


class EncodingError(ValueError):
    """A file is not UTF-8 text."""


def decode_utf8(data: bytes, where: str, *, line: int = 1) -> str:
    """Decodes UTF-8; byte order marks at the start of the file are dropped.

    Args:
        data: content of a file, or of a part of it.
        where: the file and the flag it came from, for the error.
        line: number of the line `data` begins with, from 1.

    Raises:
        EncodingError: the bytes are not UTF-8; names the line and the first such byte.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise encoding_error(data, where, error.start, line=line) from error
    return text.lstrip("\ufeff") if line == 1 else text


def read_utf8(path: str) -> str:
    r"""Reads a text file of this package; lines end in \n, whatever an editor made of them.

    Raises EncodingError as `decode_utf8` does.
    """
    with open_binary(path, "rb") as file:
        text = decode_utf8(file.read(), path)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def encoding_error(data: bytes, where: str, place: int, *, line: int = 1) -> EncodingError:
    """Returns the error for the byte at `place`; the other arguments are as for `decode_utf8`."""
    line += data.count(b"\n", 0, place)
    return EncodingError(
        f"{where} is not UTF-8 text: line {line} holds byte 0x{data[place]:02x}. Convert it first."
    )
