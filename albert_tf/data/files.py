"""Paths a user gives: opened, listed and renamed.

Local paths go through Python itself, every other one (`gs://...`) through `tf.io.gfile`. TensorFlow
is imported only when such a path turns up: loading it takes seconds and half a gigabyte in every
process, and the processes that make records need nothing else from it.
"""

import glob
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any


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
    """Files (not folders) that match a glob pattern, sorted."""
    if is_remote(pattern):
        return sorted(path for path in _gfile().glob(pattern) if not _gfile().isdir(path))
    return sorted(path for path in glob.glob(pattern) if not os.path.isdir(path))


def match_files(patterns: str, flag: str = "--input_file") -> list[str]:
    """Expands comma-separated glob patterns.

    Args:
        patterns: for example `wiki-*.txt,books.txt`.
        flag: the flag the patterns came from, for the error.

    Returns:
        The files in the order of the patterns, sorted within one pattern, each once.

    Raises:
        ValueError: a pattern matches no file, or there is no pattern at all.

    Differs: the original goes on in silence when a pattern matches nothing.
    """
    files: dict[str, None] = {}
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matches = find_files(pattern)
        if not matches:
            raise ValueError(f"{flag}: no file matches {pattern!r}; give existing files or globs.")
        files.update(dict.fromkeys(matches))
    if not files:
        raise ValueError(f"{flag} names no file. Received: {patterns!r}")
    return list(files)


def expand_shards(names: str) -> list[str]:
    """Expands comma-separated names of files to write.

    Args:
        names: for example "a.tfrecord,b.tfrecord", or "wiki@2" for wiki-00000-of-00002 and
            wiki-00001-of-00002.

    Raises:
        ValueError: a number of files is 0.
    """
    paths = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        sharded = re.fullmatch(r"(.+)@(\d+)", name)
        if not sharded:
            paths.append(name)
            continue
        count = int(sharded[2])
        if not count:
            raise ValueError(f"--output_file={name} asks for 0 files; give at least 1 after the @.")
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


@contextmanager
def write_then_rename(path: str) -> Iterator[IO[bytes]]:
    """Opens a temporary file that takes the name `path` only when the block ends without an error.

    Args:
        path: the final name; its folder is created if need be.
    """
    temporary = f"{path}.tmp-{uuid.uuid4().hex[:12]}"  # two machines may write to one folder
    try:
        with _open_new(temporary) as file:
            yield file
        rename(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def _open_new(path: str) -> IO[bytes]:
    """Opens a file to write; it is there from now on, even if nothing is written."""
    if not is_remote(path):
        make_parent_folder(path)
        return open(path, "wb")
    try:
        make_parent_folder(path)
        file = open_binary(path, "wb")
        file.write(b"")  # TensorFlow makes the file only then
    except _gfile_error() as error:
        raise OSError(f"{path}: {error}") from error
    return file


def _gfile_error() -> type[Exception]:
    """What TensorFlow raises instead of an OSError."""
    import tensorflow as tf

    return tf.errors.OpError


@contextmanager
def named_output(path: str, flag: str) -> Iterator[IO[bytes]]:
    """Does what `write_then_rename` does; says which flag is to blame when that cannot begin.

    Args:
        path: the final name.
        flag: where it came from.

    Raises:
        ValueError: the file cannot be opened.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(write_then_rename(path))
        except OSError as error:
            raise ValueError(f"{flag}: {path} cannot be written: {error}") from error
        yield file
