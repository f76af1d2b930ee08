"""Temporary files and folders that can be told to be leftovers once their process has died.

Their names are `NAME.tmp-<host>-<random>`. The process that makes one holds a lock on it, which the
system releases when the process ends, however it ends. So whoever writes `NAME` next can tell what
a process that was killed left behind from what a living one is writing. All of it is local: remote
stores have no locks.
"""

import fcntl
import hashlib
import os
import re
import shutil
import uuid
from contextlib import suppress

# Not all network file systems show a lock to other machines: what those are writing stays.
_HOST = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]


def random_name(path: str) -> str:
    """A temporary name for `path` that is never taken for a leftover."""
    return f"{path}.tmp-{uuid.uuid4().hex[:12]}"


def make_temporary(path: str, *, is_folder: bool) -> tuple[str, int | None]:
    """Makes an empty file or folder beside `path`.

    Args:
        path: the name it is to get in the end.
        is_folder: whether it is a folder.

    Returns:
        Its name, and the descriptor that holds its lock: to be closed when it has been renamed or
        removed. None where the file system has no locks; it is then never taken for a leftover.
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
    """Removes what processes of this machine left in a folder when they were killed.

    What a living process is writing stays, and so does what cannot be told from it.

    Args:
        folder: where to look; nothing is done in a remote one.
        name: of what they were writing; None for whatever they were writing there.
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
    """Locks a file or folder until the descriptor that is returned is closed.

    Raises:
        BlockingIOError: it is locked already.
        OSError: the file system has no such locks.
    """
    # Network file systems may lock only what is open for writing, and so no folders.
    descriptor = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
