"""Locks on an output directory, so that two runs of one kind do not write to it at once.

A lock is an `flock` on a file in the directory, which names its holder. It ends with the process,
however that ends: a file that a killed process left locks nothing.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from absl import logging

from albert_tf.data.files import is_remote

TRAINING = "training"
EVALUATION = "evaluation"


class DirectoryLockedError(OSError):
    """Another run of the same kind writes to the directory."""


@contextmanager
def locked(path: str, *kinds: str) -> Iterator[None]:
    """Keeps other runs of these kinds out of a directory.

    Where the file system has no locks, a warning says so, once, and the run goes on without.

    Args:
        path: the directory; created if need be, and removed again if it is empty in the end.
        *kinds: `TRAINING`, `EVALUATION` or both.

    Raises:
        DirectoryLockedError: another run, in this process or another, has one of these locks.
    """
    if is_remote(path):
        _warn(path, "remote directories have no locks")
        yield
        return
    created = _missing_folders(path)
    os.makedirs(path, exist_ok=True)
    try:
        with ExitStack() as stack:
            for kind in kinds:
                stack.enter_context(_locked_file(path, kind))
            yield
    finally:
        with suppress(OSError):  # not empty
            for folder in created:
                os.rmdir(folder)


def check_unlocked(path: str, kind: str) -> None:
    """Raises DirectoryLockedError if another run of this kind writes to a directory.

    The directory need not exist, and is left as it is.
    """
    if is_remote(path):
        return
    with suppress(FileNotFoundError), _locked_file(path, kind, create=False):
        pass


@contextmanager
def _locked_file(path: str, kind: str, *, create: bool = True) -> Iterator[None]:
    """Holds the lock of one kind; a file that it creates is removed in the end."""
    name = os.path.join(path, f".{kind}.lock")
    try:
        file = open_locked(name, os.O_CREAT if create else 0)
    except FileNotFoundError:
        raise
    except BlockingIOError as error:
        raise DirectoryLockedError(
            f"--output_dir {path!r} is in use by another {kind}: {_read_holder(name)}. Wait until "
            "that run has ended, or use another --output_dir."
        ) from error
    except OSError as error:
        _warn(path, str(error))
        yield
        return
    try:
        if create:
            since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            holder = f"host={socket.gethostname()} pid={os.getpid()} since={since}\n"
            with suppress(OSError):  # a full disk; the name is for messages only
                os.ftruncate(file, 0)
                os.write(file, holder.encode())
        yield
    finally:
        if create and _is_at(file, name):
            with suppress(OSError):
                os.remove(name)  # while it is locked: no other run can have it yet
        os.close(file)


def open_locked(name: str, flags: int, *, waits: bool = False) -> int:
    """Returns the descriptor of a locked file, to be closed in the end.

    BlockingIOError where another run has locked it, unless this is to wait for that.
    """
    while True:
        file = os.open(name, os.O_RDWR | flags, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            if _is_at(file, name):  # else its holder has removed it since it was opened
                return file
        except OSError:
            os.close(file)
            raise
        os.close(file)


def _read_holder(name: str) -> str:
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.readline(300).strip() or "holder unknown"
    except OSError:
        return "holder unknown"


def _is_at(descriptor: int, path: str) -> bool:
    """Whether a path still names the file that was opened."""
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


def _warn(path: str, reason: str) -> None:
    logging.log_first_n(
        logging.WARNING,
        "%s cannot be locked (%s). Make sure that no other run writes to it.",
        1,
        path,
        reason,
    )
