"""Models that are named by a URL or a name, or stored in a tar file.

A tar file is unpacked once, into a cache. A released tar file contains one directory with the
model's files. Archives from TF-Hub contain the files without a directory.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress

from absl import logging

from albert_tf.checkpoints.names import CACHE_VARIABLE, ENDINGS, TAR, cached, fetch, is_released
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.shipped import is_shipped, shipped_directory
from albert_tf.checkpoints.tar_files import DamagedArchiveError, UnsafeArchiveError, extract
from albert_tf.data.files import (
    file_exists,
    file_size,
    is_remote,
    open_binary,
    reason_of,
    remove,
    temporary_folder,
)

# Compression hardly reduces the size of weights.
_MAX_RATIO, _MAX_EXTRA_BYTES = 100, 100 << 20


def is_indirect(path: str) -> bool:
    """Returns whether a path is a URL, a tar file, or the name of a model."""
    if _is_url(path) or is_shipped(path) or is_released(path):
        return True
    return path.endswith(ENDINGS) and file_exists(path)


def _is_url(path: str) -> bool:
    return re.match(r"https?://", path) is not None


def local_directory(path: str) -> str:
    """Returns the directory of a model that is named by a URL, a name or a tar file.

    A tar file is unpacked once, to the directory in the environment variable ALBERT_TF_HOME, by
    default `~/.cache/albert_tf`. A downloaded tar file is deleted afterwards.

    Raises:
        LoadError: the model cannot be downloaded, read or stored, or is damaged or unsafe.
    """
    if is_shipped(path):
        return shipped_directory(path)
    try:
        return _descended(_found(path))
    except OSError as error:
        if error.filename == path:
            raise LoadError(f"{path} cannot be read: {error.strerror}") from error
        raise LoadError(
            f"{path} cannot be kept in {cached()!r}: {reason_of(error)}. Free disk space "
            f"there, or set the environment variable {CACHE_VARIABLE} to another directory."
        ) from error


def _found(path: str) -> str:
    """Returns the directory of a model's files; downloads and unpacks them if necessary."""
    if not (is_released(path) or _is_url(path)):
        return _unpacked(path, cached("unpacked", _cache_name(path)))
    found = fetch(path)
    if not found.endswith(TAR):
        return found
    try:
        directory = _unpacked(found, found.removesuffix(TAR))
    except LoadError as error:
        rejected = f"{found}.rejected"
        with suppress(FileNotFoundError):  # another process has renamed it
            os.replace(found, rejected)
        raise LoadError(
            f"{error} The file was renamed to {rejected}: delete it. The next attempt downloads "
            "the model again."
        ) from error
    remove(found)
    return directory


def _unpacked(path: str, directory: str) -> str:
    if os.path.isdir(directory):
        return directory
    logging.info("%s is unpacked to %s", path, directory)
    try:
        with temporary_folder(directory) as temporary:
            _extract(path, temporary)
            os.rename(temporary, directory)
    except OSError:  # another process may have unpacked the same file
        if not os.path.isdir(directory):
            raise
    return directory


def _cache_name(path: str) -> str:
    """Returns a name that is unique to this file and its current content."""
    absolute = path if is_remote(path) else os.path.abspath(path)
    changed = 0 if is_remote(path) else os.stat(path).st_mtime_ns
    key = f"{absolute} {file_size(path)} {changed}"
    return f"{os.path.basename(path)[:40]}-{hashlib.sha256(os.fsencode(key)).hexdigest()[:16]}"


def _extract(path: str, directory: str) -> None:
    with open_binary(path, "rb") as file:
        try:
            extract(file, directory, _MAX_RATIO * file_size(path) + _MAX_EXTRA_BYTES)
        except UnsafeArchiveError as error:
            raise LoadError(
                f"{path} is not unpacked: {error}. Check that it is a model archive."
            ) from error
        except DamagedArchiveError as error:
            raise LoadError(f"{path} is damaged or not a tar file: {reason_of(error)}.") from error


def _descended(directory: str) -> str:
    """Returns the innermost directory of directories that contain nothing else."""
    while True:
        names = sorted(os.listdir(directory))
        inner = os.path.join(directory, names[0]) if len(names) == 1 else ""
        if not os.path.isdir(inner):
            return directory
        directory = inner
