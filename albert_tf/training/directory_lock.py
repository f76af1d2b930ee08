"""Locks that prevent two runs of one kind from writing to the same output directory.

A lock is an `flock` on a file with the host and process of its holder. The system releases the lock
when the process ends.
"""

import datetime
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from absl import logging

from albert_tf.data.files import is_at, is_remote, missing_folders, open_locked

TRAINING = "training"
EVALUATION = "evaluation"


class DirectoryLockedError(OSError):
    """Raised if another run of the same kind writes to the directory."""


@contextmanager
def locked(path: str, *kinds: str, dry_run: bool = False) -> Iterator[None]:
    """Context manager that locks a directory against other runs of the given `kinds`.

    If the file system does not support locks, a warning is logged once. A missing directory is
    created, and removed if it is empty at the end. A dry run only checks the locks. Raises
    `DirectoryLockedError` if another run, in this process or another, has one of the locks.
    """
    if dry_run:
        for kind in kinds:
            check_unlocked(path, kind)
        yield
        return
    if is_remote(path):
        _warn(path, "remote directories have no locks")
        yield
        return
    created = missing_folders(path)
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
    """Raises `DirectoryLockedError` if another run of this kind writes to a directory."""
    if is_remote(path):
        return
    with suppress(FileNotFoundError), _locked_file(path, kind, create=False):
        pass


@contextmanager
def _locked_file(path: str, kind: str, *, create: bool = True) -> Iterator[None]:
    """Context manager for the lock of one kind; with `create`, removes the file at the end."""
    name = os.path.join(path, f".{kind}.lock")
    try:
        file = open_locked(name, os.O_CREAT if create else 0)
    except FileNotFoundError:
        raise
    except BlockingIOError as error:
        holder = ""
        with suppress(OSError), open(name, encoding="utf-8", errors="replace") as text:
            holder = text.readline(300).strip()
        raise DirectoryLockedError(
            f"`output_dir` {path!r} is in use by another {kind}: {holder}. Wait until "
            "that run has ended, or use another `output_dir`."
        ) from error
    except OSError as error:
        _warn(path, str(error))
        yield
        return
    try:
        if create:
            since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            holder = f"host={socket.gethostname()} pid={os.getpid()} since={since}\n"
            with suppress(OSError):  # such as a full disk; `holder` is only for messages
                os.ftruncate(file, 0)
                os.write(file, holder.encode())
        yield
    finally:
        if create and is_at(file, name):
            with suppress(OSError):
                os.remove(name)  # while it is locked, so that no other run uses it
        os.close(file)


def _warn(path: str, reason: str) -> None:
    logging.log_first_n(
        logging.WARNING,
        "%s cannot be locked (%s). Make sure that no other run writes to it.",
        1,
        path,
        reason,
    )
