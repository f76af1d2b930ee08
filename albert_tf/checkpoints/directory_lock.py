"""Locks on an output directory, so that two runs of one kind do not write to it at once.

A lock is a POSIX record lock on a file in the directory. It ends with its process, however that
ends, and is not inherited by forked children, which may outlive their parent. The file says who
holds the lock; one left behind by a killed process locks nothing. Record locks belong to a process
and are lost when it closes any descriptor of the file: only this module opens it, and it keeps a
list of what the process holds, which also excludes two runs in one process.
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from absl import logging

from albert_tf.data.files import is_remote

TRAINING = "training"
EVALUATION = "evaluation"
_ATTEMPTS = 5  # while a holder ends, or has not yet written who it is
_SECONDS_BETWEEN_ATTEMPTS = 0.1
_HOLDER_CHARACTERS = 300

# By process id, which a forked child does not share, and file.
_held: dict[tuple[int, str], str] = {}

_held_guard = threading.Lock()


class DirectoryLockedError(OSError):
    """Another run of the same kind writes to the directory."""


class DirectoryRemovedError(OSError):
    """The directory of a run was removed or replaced."""


@contextmanager
def locked(path: str, *kinds: str) -> Iterator[Callable[[], bool]]:
    """Keeps other runs of these kinds out of a directory.

    Where the file system has no locks, a warning says so, once, and the run goes on without.

    Args:
        path: the directory; created if need be, and removed again if it is empty in the end.
        *kinds: `TRAINING`, `EVALUATION` or both.

    Yields:
        A function that tells whether the directory is still there, and still the same.

    Raises:
        DirectoryLockedError: another run, in this process or another, has one of these locks.
    """
    if is_remote(path):
        _warn(path, "remote directories have no locks")
        yield lambda: True
        return
    with ExitStack() as stack:
        created = _missing_folders(path)
        os.makedirs(path, exist_ok=True)
        # Kept open, so that a directory made in place of this one is not given the same inode.
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        stack.callback(_remove_empty, created, lambda: _is_at(folder, path))
        for kind in kinds:
            stack.enter_context(_locked_file(path, kind))
        yield lambda: _is_at(folder, path)


def check_unlocked(path: str, kind: str) -> None:
    """Raises DirectoryLockedError if another run of this kind writes to a directory.

    Args:
        path: the directory; need not exist, and is left as it is.
        kind: see `locked`.
    """
    if is_remote(path):
        return
    with suppress(FileNotFoundError), _locked_file(path, kind, create=False):
        pass


@contextmanager
def _locked_file(path: str, kind: str, *, create: bool = True) -> Iterator[None]:
    """Holds the lock of one kind; a file that it creates is removed in the end.

    Raises:
        FileNotFoundError: there is no file, and none is to be created.
    """
    name = os.path.join(path, f".{kind}.lock")
    key = os.getpid(), os.path.realpath(name)
    holder = _describe_holder()
    with _held_guard:
        if key in _held:  # to read the file would end its lock
            raise _locked_error(path, kind, _held[key])
        _held[key] = holder
    file = None
    try:
        try:
            file = _open_locked(name, os.O_CREAT if create else 0)
        except FileNotFoundError:
            raise
        except OSError as error:
            _warn(path, str(error))
        else:
            if file is None:
                raise _locked_error(path, kind, _read_holder(name))
        if file is not None and create:
            with suppress(OSError):  # a full disk; the name is for messages only
                os.ftruncate(file, 0)
                os.write(file, f"{holder}\n".encode())
        yield
    finally:
        if file is not None:
            if create and _is_at(file, name):
                with suppress(OSError):
                    os.remove(name)  # while it is locked: no other run can have it yet
            os.close(file)
        with _held_guard:
            del _held[key]


def _describe_holder() -> str:
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return f"host={socket.gethostname()} pid={os.getpid()} since={since}"


def _read_holder(name: str) -> str:
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.readline(_HOLDER_CHARACTERS).strip() or "holder unknown"
    except OSError:
        return "holder unknown"


def _locked_error(path: str, kind: str, holder: str) -> DirectoryLockedError:
    return DirectoryLockedError(
        f"--output_dir {path!r} is in use by another {kind}: {holder}. Wait until that run has "
        "ended, or give another --output_dir."
    )


def _open_locked(name: str, flags: int) -> int | None:
    """The descriptor of a locked file; None where another process has locked it."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        file = os.open(name, os.O_RDWR | flags, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, name):  # else its holder has removed it since it was opened
                return file
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                os.close(file)
                raise
        os.close(file)
    return None


def _is_at(descriptor: int, path: str) -> bool:
    """Whether a path still names the file or directory that was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _missing_folders(path: str) -> list[str]:
    """A directory and those above it that are not there, innermost first."""
    path, missing = os.path.abspath(path), []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _remove_empty(folders: list[str], is_there: Callable[[], bool]) -> None:
    """Removes directories, innermost first, up to one that is not empty."""
    if is_there():
        with suppress(OSError):
            for folder in folders:
                os.rmdir(folder)


def _warn(path: str, reason: str) -> None:
    logging.log_first_n(
        logging.WARNING,
        "%s cannot be locked (%s). Make sure that no other run writes to it.",
        1,
        path,
        reason,
    )
