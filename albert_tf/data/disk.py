"""Whether files can be written somewhere, and how much room there is, found out without writing.

Of remote folders (`gs://...`) nothing can be said without writing: they pass.
"""

from __future__ import annotations

import errno
import os
import shutil

from albert_tf.data.files import is_remote


def check_folder(path: str, flag: str) -> None:
    """Makes sure that a folder can be written to, or created.

    Args:
        path: the folder; need not exist.
        flag: where it came from.

    Raises:
        ValueError: nothing can be written there.
    """
    if problem := why_not_writable(path):
        raise ValueError(f"{flag} {path!r} cannot be written to: {problem}")


def check_file(path: str, flag: str) -> None:
    """Makes sure that a file can be written beside what is there, or in its place.

    Args:
        path: the file; its folder need not exist.
        flag: where it came from.

    Raises:
        ValueError: it cannot be written, or is a folder.
    """
    if not is_remote(path) and os.path.isdir(path):
        raise ValueError(f"{flag}: {path} is a folder. Give the name of a file in it.")
    folder = os.path.dirname(path) if is_remote(path) else os.path.dirname(os.path.abspath(path))
    if problem := why_not_writable(folder):
        raise ValueError(f"{flag}: {path} cannot be written: {problem}")


def why_not_writable(folder: str) -> OSError | None:
    """Returns why nothing can be written to a folder that may have to be made; None if it can."""
    if is_remote(folder):
        return None
    existing = _existing_folder(folder)
    if not os.path.isdir(existing):
        return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), existing)
    if not os.access(existing, os.W_OK | os.X_OK):
        is_read_only = bool(os.statvfs(existing).f_flag & os.ST_RDONLY)
        number = errno.EROFS if is_read_only else errno.EACCES
        return OSError(number, os.strerror(number), existing)
    return None


def _existing_folder(path: str) -> str:
    """The path itself if there is such a thing, else the nearest one above it."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def free_bytes(path: str) -> int | None:
    """Room on the disk where a file or folder is, or is to be; None where nobody can tell."""
    return None if is_remote(path) else shutil.disk_usage(_existing_folder(path)).free
