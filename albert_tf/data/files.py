"""File access for local and remote paths.

Only remote paths (`gs://...`) use `tf.io.gfile`, because importing TensorFlow takes seconds.

Files and directories are written under a temporary name, `.NAME.tmp-<host>-<random>`, and renamed
when they are complete. The writing process locks the temporary file. When a process is killed, the
system releases the lock, and the next process that writes `NAME` removes the leftover. Leftovers on
remote stores and on network file systems without locks are not removed.
"""

import errno
import fcntl
import glob
import hashlib
import io
import os
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from albert_tf.data.errors import UserError, visible, without_secrets

# Locks may be invisible to other machines, so only leftovers of this machine are removed.
_HOST = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]
_LONGEST_REASON = 300  # characters
# Keys are the texts of system errors, which TensorFlow quotes in its own errors.
_ADVICE = {
    os.strerror(errno.ENOSPC): "Free disk space",
    os.strerror(errno.EDQUOT): "Free space in your disk quota",
    os.strerror(errno.EMFILE): "Raise the limit of open files (ulimit -n), or write fewer files",
    os.strerror(errno.EROFS): "Choose a path that is not on a read-only file system",
}
_SCRATCH = re.compile(r"/(tmp|albert_tf_)[a-z0-9_]{8}(/|$)")  # created by `tempfile`
_TEMPORARY = re.compile(r"\.tmp-([0-9a-f]{8}-)?[0-9a-f]{12}(/|$)")


class WriteError(OSError):
    """Raised if a file or directory cannot be written. Existing files are left unchanged."""


def write_error(path: str, error: BaseException, num_replaced: int = 0) -> WriteError:
    """Returns the error for a file or directory, after `num_replaced` files of the same output."""
    others = f"Files already replaced: {num_replaced}" if num_replaced else ""
    others = others or "Existing files are unchanged"
    advice = " The environment variable TMPDIR sets the directory for temporary files."
    advice *= bool(_SCRATCH.search(path))
    return WriteError(f"{path} cannot be written: {reason_of(error)}. {others}.{advice}")


def reason_of(error: BaseException) -> str:
    """Returns the message of an error as one short line, without secrets and control characters."""
    if isinstance(error, WriteError) and error.__cause__ is not None:
        error = error.__cause__
    # TensorFlow adds the position in its graph.
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:)?", "", str(error))
    line = visible(without_secrets(" ".join(text.split())))
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."


def advice_on(error: BaseException) -> str:
    """Returns what to do about a file that cannot be written, without a full stop."""
    text = f"{error} {error.__cause__}"
    return next((_ADVICE[key] for key in _ADVICE if key in text), "Make the path writable")


def _system_errors() -> tuple[type[Exception], ...]:
    tensorflow = sys.modules.get("tensorflow")
    return (OSError, tensorflow.errors.OpError) if tensorflow else (OSError,)


@contextmanager
def raise_write_errors(path: str, written: str = "", num_replaced: int = 0) -> Iterator[None]:
    """Converts file errors of Python and TensorFlow inside the block into a `WriteError`.

    If `written` is given, errors about paths without this text are re-raised unchanged.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except _system_errors() as error:
        if "No usable temporary directory" in str(error):
            path = "The directory of the environment variable TMPDIR"
        is_nameless = isinstance(error, OSError) and error.errno and error.filename is None
        is_other = not is_nameless and written not in str(error)
        if is_other or (isinstance(error, WriteError) and not written):
            raise
        raise write_error(path, error, num_replaced) from error


@contextmanager
def write_then_rename(path: str) -> Iterator[IO[bytes]]:
    """Opens a file that replaces `path` when the block ends; see `write_all_then_rename`."""
    with write_all_then_rename([path]) as (file,):
        yield file


@contextmanager
def write_all_then_rename(paths: Iterable[str]) -> Iterator[list[IO[bytes]]]:
    """Opens files that replace `paths` when the block ends without an error.

    No file is replaced before all files are complete on disk. Creates missing parent directories,
    follows symbolic links, and keeps the modes of existing files. Devices and named pipes are
    written directly. Raises WriteError if a file cannot be written; other errors in the block are
    re-raised unchanged.
    """
    temporaries: dict[str, str] = {}  # by final path
    with ExitStack() as stack:
        files: list[IO[bytes]] = []
        for path in paths:
            mode = None
            if not is_remote(path):
                with suppress(OSError):
                    mode = os.stat(path).st_mode
            name = path
            if mode is None or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                name = temporaries[path] = stack.enter_context(_temporary(path, is_folder=False))
            files.append(stack.enter_context(io.BufferedWriter(_Output(name, path))))
            if mode is not None and name != path:
                os.chmod(name, stat.S_IMODE(mode))
        yield files
        for file in files:
            file.close()
        for path, name in temporaries.items():
            with raise_write_errors(path):
                sync(name)
        for number, (path, name) in enumerate(temporaries.items()):
            with raise_write_errors(path, num_replaced=number):
                rename(name, real_name(path))


def write_file(path: str, content: str | bytes) -> None:
    """Writes a file, text in UTF-8; see `write_then_rename`."""
    write_files({path: content})


def write_files(contents: Mapping[str, str | bytes]) -> None:
    """Writes files, given their contents by path; see `write_all_then_rename`."""
    with write_all_then_rename(contents) as files:
        for file, content in zip(files, contents.values(), strict=True):
            file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def temporary_folder(path: str, *, is_shared: bool = False) -> Iterator[str]:
    """Creates an empty directory next to `path`, and removes it unless the block renamed it.

    `path` is the final name of the directory, or of a file that is written in it. If `is_shared`,
    other machines also write to the directory, and it is never removed as a leftover. Raises
    WriteError if the directory, or a file in it, cannot be written.
    """
    with (
        _temporary(path, is_folder=True, is_shared=is_shared) as temporary,
        raise_write_errors(path, os.path.basename(temporary)),
    ):
        yield temporary


@contextmanager
def _temporary(path: str, *, is_folder: bool, is_shared: bool = False) -> Iterator[str]:
    """Creates an empty file or directory next to `path`, and removes it at the end."""
    target = real_name(path)
    temporary, lock = random_name(target), None
    with raise_write_errors(path):
        if is_remote(target):  # a file is created when it is opened
            _gfile().makedirs(temporary if is_folder else os.path.dirname(target))
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.mkdir(temporary) if is_folder else open(temporary, "xb").close()
            if not is_shared:
                remove_leftovers(*os.path.split(target))
                with suppress(OSError):  # such as a file system without locks
                    lock = open_locked(temporary)
                    os.rename(temporary, locked := random_name(target, f"{_HOST}-"))
                    temporary = locked
    try:
        yield temporary
    finally:
        with suppress(*_system_errors()):  # the error of the block is more important
            (remove_folder if is_folder else remove)(temporary)
        if lock is not None:
            os.close(lock)


def finish(made: str, path: str, endings: Sequence[str] = ("",), overwrite: bool = False) -> None:
    """Renames a `temporary_folder`, or files in it (`made` + ending), once they are on disk.

    At every moment, also after a power cut, `existing_path(path, endings[-1])` is complete: files
    count only with the last one. Unless `overwrite`, `path` must be new or an empty directory.
    """
    target = real_name(path)
    former, folder = replaced_name(target), os.path.dirname(target)
    with raise_write_errors(path):
        for inner, _, names in os.walk(made if os.path.isdir(made) else os.path.dirname(made)):
            for name in (*names, ""):
                sync(os.path.join(inner, name))
        if overwrite and os.path.exists(target + endings[-1]):
            remove_folder(former)
            for ending in reversed(endings):
                remove(former + ending)
            if os.path.isdir(target):
                rename(target, former)
            with suppress(OSError):  # a damaged checkpoint, or a file system without hard links
                for ending in endings:
                    os.link(target + ending, former + ending)
        try:
            sync(folder)
            for ending in endings[1:]:
                remove(target + ending)
            for ending in endings:
                rename(made + ending, target + ending)
                sync(folder)
        except BaseException:
            for ending in endings:
                with suppress(*_system_errors()):
                    rename(former + ending, target + ending)
            raise
        if os.path.isdir(former):
            rename(former, made)  # which is removed as a leftover if this process is killed
        for ending in reversed(endings):
            remove(former + ending)


def replaced_name(path: str) -> str:
    """Returns the name of a file or directory while it is replaced."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.replaced")


def existing_path(path: str, ending: str = "") -> str:
    """Returns the path, or its `replaced_name` if a process was killed while it replaced files."""
    former = path if is_remote(path) or "\0" in path else replaced_name(real_name(path))
    is_replaced = os.path.exists(former + ending) and not os.path.exists(path + ending)
    return former if is_replaced else path


class _Output(io.RawIOBase):
    """A local or remote file. Its errors contain the final path."""

    def __init__(self, name: str, path: str) -> None:
        self._path, self._is_remote = path, is_remote(name)
        with raise_write_errors(path):
            self._file: Any = open_binary(name, "wb") if self._is_remote else io.FileIO(name, "w")
        self.write(b"")  # TensorFlow creates the file at the first write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with raise_write_errors(self._path):
            written = self._file.write(bytes(data) if self._is_remote else data)
        return len(data) if written is None else written

    def close(self) -> None:
        if not self.closed:
            super().close()
            with raise_write_errors(self._path):
                self._file.close()


def sync(path: str) -> None:
    """Writes a local file or directory to the disk, if it is readable and this is supported."""
    if not is_remote(path):
        with suppress(PermissionError, FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
            finally:
                os.close(descriptor)


def random_name(path: str, host: str = "") -> str:
    """Returns a hidden temporary name, which patterns do not match.

    Only names with the host are removed as leftovers.
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.tmp-{host}{uuid.uuid4().hex[:12]}")


def open_locked(path: str, flags: int = 0, *, waits: bool = False) -> int:
    """Locks a file or directory; returns its descriptor.

    Raises `BlockingIOError` if it is already locked, unless `waits`.
    """
    # Some network file systems can lock only files that are open for writing, and no directories.
    flags |= os.O_RDONLY if os.path.isdir(path) else os.O_RDWR
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            if is_at(descriptor, path):  # otherwise another process has removed the file
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def is_at(descriptor: int, path: str) -> bool:
    """Returns whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def remove_leftovers(folder: str, name: str | None = None) -> None:
    """Removes temporary files of killed processes of this machine from a local directory.

    `name` is the final name of the files. If `None`, all such temporary files are removed.
    """
    pattern = re.compile(rf"\.{re.escape(name) if name else '.+'}\.tmp-{_HOST}-[0-9a-f]{{12}}")
    with suppress(OSError):
        for found in filter(pattern.fullmatch, os.listdir(folder or os.curdir)):
            path = os.path.join(folder, found)
            with suppress(OSError):  # a running process holds the lock
                lock = open_locked(path)
                try:
                    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
                finally:
                    os.close(lock)


def is_remote(path: str) -> bool:
    """Returns whether a path has a scheme, such as `gs://bucket/file`."""
    return "://" in path


def real_name(path: str) -> str:
    """Returns the absolute path of a local file, with all symbolic links resolved."""
    return path if is_remote(path) else os.path.realpath(path)


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def open_binary(path: str, mode: str) -> IO[bytes]:
    """Opens `path` in binary `mode` ("rb", "wb" or "ab")."""
    if is_remote(path):
        return _gfile().GFile(path, mode)
    return open(path, mode)


def read_file(path: str) -> bytes:
    """Returns the content of a file."""
    with open_binary(path, "rb") as file:
        return file.read()


def file_size(path: str) -> int:
    """Returns the size of a file in bytes."""
    return _gfile().stat(path).length if is_remote(path) else os.path.getsize(path)


def file_exists(path: str) -> bool:
    """Returns whether `path` is an existing file, not a directory."""
    if is_remote(path):
        return _gfile().exists(path) and not _gfile().isdir(path)
    return os.path.isfile(path)


def folder_names(folder: str) -> list[str]:
    """Returns the sorted names of the entries of a directory; empty if it does not exist."""
    if is_remote(folder):
        names = _gfile().listdir(folder) if _gfile().isdir(folder) else []
        return sorted(name.rstrip("/") for name in names)
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _find_paths(pattern: str) -> list[str]:
    """Returns the sorted files and directories that match a glob pattern.

    `*` does not match a leading dot, and no pattern matches temporary names.
    """
    if is_remote(pattern):
        is_hidden = os.path.basename(pattern).startswith(".")
        return sorted(
            path
            for path in _gfile().glob(pattern)
            if os.path.basename(path).startswith(".") == is_hidden and not _TEMPORARY.search(path)
        )
    literal = pattern  # the part that exists, such as the directory `runs [old]`
    while literal and not os.path.lexists(literal):
        literal = os.path.dirname(literal.rstrip("/"))
    matches = glob.glob(glob.escape(literal) + pattern[len(literal) :])
    return sorted(path for path in matches if not _TEMPORARY.search(path, len(literal)))


def _is_folder(path: str) -> bool:
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def _files_in(folder: str) -> Iterator[str]:
    """Yields the files in a directory and its subdirectories, except hidden files."""
    for name in folder_names(folder):
        if not name.startswith("."):
            path = os.path.join(folder, name)
            yield from _files_in(path) if _is_folder(path) else [path]


def match_files(patterns: str, *, in_folders: bool = False) -> list[str]:
    """Returns the files that match comma-separated glob patterns, without duplicates.

    Files are in the order of the patterns, and sorted within each pattern. With `in_folders`, all
    files in matching directories are returned. An existing directory at the start of a local
    pattern, such as `runs [old]`, is taken literally. Raises ValueError if a pattern matches no
    file, or there is no pattern.

    Differs: the original ignores a pattern that matches no file.
    """
    files: dict[str, None] = {}
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matches = []
        for path in _find_paths(pattern):
            if not _is_folder(path):
                matches.append(path)
            elif in_folders:
                matches += _files_in(path)
        if not matches:
            raise UserError(f"no file matches {pattern!r}. Pass existing files or patterns.")
        files.update(dict.fromkeys(matches))
    if not files:
        raise UserError(f"Pass at least one file or pattern. Received: {patterns!r}")
    return list(files)


def expand_shards(names: str) -> list[str]:
    """Returns the paths in a comma-separated list, with "a@2.txt" as two paths.

    These are a-00000-of-00002.txt and a-00001-of-00002.txt. An extension is optional.
    Raises ValueError if the number after an @ is 0.
    """
    paths = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        sharded = re.fullmatch(r"(.+)@(\d+)(\.\w+)?", name)
        if not sharded:
            paths.append(name)
            continue
        count = int(sharded[2])
        if not count:
            raise UserError(f"The number after the @ must be at least 1. Received: {name!r}")
        start, end = sharded[1], sharded[3] or ""
        paths += [f"{start}-{number:05d}-of-{count:05d}{end}" for number in range(count)]
    return paths


def rename(source: str, target: str) -> None:
    """Renames a file, replacing an existing target."""
    if is_remote(target):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Removes a file if it exists."""
    if not is_remote(path):
        with suppress(FileNotFoundError):
            os.remove(path)
    elif _gfile().exists(path):
        _gfile().remove(path)


def remove_folder(path: str) -> None:
    """Removes a directory and its content if it exists."""
    if not is_remote(path):
        shutil.rmtree(path, ignore_errors=True)
    elif _gfile().isdir(path):
        _gfile().rmtree(path)


def is_pattern_to_tensorflow(path: str) -> bool:
    """Returns whether TensorFlow would read a path as a glob pattern."""
    return any(sign in path for sign in "[]\\")


def check_checkpoint_path(path: str) -> None:
    """Raises ValueError if TensorFlow could write checkpoints to a path, but not read them."""
    if is_pattern_to_tensorflow(path):
        raise UserError(
            f"{path!r} contains '[', ']' or a backslash. TensorFlow cannot read checkpoints from "
            "such a path. Choose another name."
        )


def is_missing_file_system(error: BaseException) -> bool:
    """Returns whether TensorFlow raised `error` because it does not support the path's scheme."""
    tensorflow = sys.modules.get("tensorflow")
    return (
        tensorflow is not None
        and isinstance(error, tensorflow.errors.UnimplementedError)
        and "File system scheme" in str(error)
    )


def check_folder(path: str) -> None:
    """Raises ValueError if models cannot be written to a directory."""
    check_checkpoint_path(path)
    if problem := why_not_writable(path):
        raise UserError(f"{path!r} cannot be written to: {problem}")


def check_file(path: str) -> None:
    """Raises ValueError if a path is a directory, or a file that cannot be written."""
    if not is_remote(path) and os.path.isdir(path):
        raise UserError(f"{path} is a directory. Pass the path of a file in it.")
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe
        problem = None if os.access(path, os.W_OK) else _system_error(errno.EACCES, path)
    else:
        problem = why_not_writable(os.path.dirname(real_name(path)))
    if problem:
        raise UserError(f"{path} cannot be written: {problem}")


def why_not_writable(folder: str) -> OSError | None:
    """Returns why a directory, which need not exist, is not writable; `None` if it is writable.

    For remote directories, only the scheme is checked.
    """
    if is_remote(folder):
        scheme = folder.partition("://")[0]
        is_known = scheme in _gfile().get_registered_schemes()
        return None if is_known else OSError(f"TensorFlow does not support {scheme}:// paths")
    missing = missing_folders(folder)
    existing = os.path.dirname(missing[-1]) if missing else os.path.abspath(folder)
    if not os.path.isdir(existing):  # a file or a dangling link
        return _system_error(errno.ENOTDIR, existing)
    if os.access(existing, os.W_OK | os.X_OK):
        return None
    is_read_only = os.statvfs(existing).f_flag & os.ST_RDONLY
    return _system_error(errno.EROFS if is_read_only else errno.EACCES, existing)


def _system_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def missing_folders(path: str) -> list[str]:
    """Returns the path and its parents that do not exist, innermost first."""
    path, missing = os.path.abspath(path), []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def decode_utf8(data: bytes, where: str, *, line: int = 1) -> str:
    """Decodes UTF-8, and removes byte order marks at the start of a file.

    `line` is the number of the first line of `data`, from 1. Raises ValueError, with the file
    `where` and the line, if the bytes are not UTF-8.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise encoding_error(data, where, error.start, line=line) from error
    return text.lstrip("\ufeff") if line == 1 else text


def read_utf8(path: str) -> str:
    r"""Reads a UTF-8 file written by this package. All line ends become \n."""
    text = decode_utf8(read_file(path), path)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def encoding_error(data: bytes, where: str, place: int, *, line: int = 1) -> UserError:
    """Returns the error for the byte at index `place`; see `decode_utf8`."""
    line += data.count(b"\n", 0, place)
    return UserError(
        f"{where} is not UTF-8 text: line {line} contains byte 0x{data[place]:02x}. Convert it "
        "first."
    )
