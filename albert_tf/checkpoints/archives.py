"""Models that are not given by their path: URLs, names, and tar files as they were released.

A tar file is unpacked once, into a cache, and read from there. A released file holds one folder
with a model's files; TF-Hub's archives hold them at the top.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tarfile
import zlib

from absl import logging

from albert_tf.checkpoints.names import CACHE_VARIABLE, TAR, cached, fetch, is_released
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.shipped import is_shipped, shipped_directory
from albert_tf.data.files import (
    file_exists,
    file_size,
    is_remote,
    open_binary,
    reason_of,
    remove,
    temporary_folder,
)

_ENDINGS = (".tar", ".tar.gz", ".tgz")
_READ_ERRORS = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, OverflowError)
_CHUNK = 1 << 20  # bytes

# How much may come out of a file: numbers hardly become smaller when they are packed.
_MOST_TIMES, _MOST_BYTES = 100, 100 << 20


def _resolve(url: str, flag: str) -> str:
    """The directory of a module by its URL, which `tensorflow_hub` keeps in TFHUB_CACHE_DIR."""
    import tensorflow_hub  # seconds to import, and needed for URLs only

    try:
        return tensorflow_hub.resolve(url)
    except Exception as error:  # whatever the network, the archive or the server does
        raise LoadError(
            f"{flag}={url} cannot be downloaded: {error}. On a machine without network, download "
            "the model elsewhere and pass its directory or its tar file."
        ) from error


def is_indirect(path: str) -> bool:
    """Whether a model lies elsewhere: a URL, a tar file, or the name of a model."""
    if _is_url(path) or is_shipped(path) or is_released(path):
        return True
    return path.endswith(_ENDINGS) and file_exists(path)


def _is_url(path: str) -> bool:
    return re.match(r"https?://", path) is not None


def local_directory(path: str, flag: str) -> str:
    """Returns the directory of a model that is given by a URL, a name or as a tar file.

    A tar file is unpacked once, below the directory that the environment variable
    ALBERT_TF_HOME names, or `~/.cache/albert_tf`. That of a released model is not kept then.

    Raises:
        LoadError: it cannot be fetched, is damaged or unsafe, or there is no room for it.
    """
    if is_shipped(path):
        return shipped_directory(path, flag)
    try:
        return _descended(_found(path, flag))
    except OSError as error:
        raise LoadError(
            f"{flag}={path} cannot be kept in {cached()!r}: {reason_of(error)}. Free disk space "
            f"there, or set the environment variable {CACHE_VARIABLE} to another directory."
        ) from error


def _found(path: str, flag: str) -> str:
    """Where the files of a model lie, after it was fetched or unpacked if need be."""
    if is_released(path):
        found = fetch(path, flag)
        if not found.endswith(TAR):
            return found
        directory = _unpacked(found, flag, found.removesuffix(TAR))
        remove(found)
        return directory
    if _is_url(path):
        return _resolve(path, flag)
    return _unpacked(path, flag, cached("unpacked", _cache_name(path)))


def _unpacked(path: str, flag: str, directory: str) -> str:
    if os.path.isdir(directory):
        return directory
    logging.info("%s=%s is unpacked to %s", flag, path, directory)
    try:
        with temporary_folder(directory) as temporary:
            _extract(path, flag, temporary)
            os.rename(temporary, directory)
    except OSError:  # another process may have been faster with the same content
        if not os.path.isdir(directory):
            raise
    return directory


def _cache_name(path: str) -> str:
    """A name that another file, or the same one changed, does not get."""
    absolute = path if is_remote(path) else os.path.abspath(path)
    changed = 0 if is_remote(path) else os.stat(path).st_mtime_ns
    key = f"{absolute} {file_size(path)} {changed}"
    return f"{os.path.basename(path)}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _extract(path: str, flag: str, directory: str) -> None:
    """Writes the files of an archive; only into the directory, and without what a Mac adds."""
    if not hasattr(tarfile, "data_filter"):
        raise LoadError(
            f"{flag}={path} cannot be unpacked safely by this Python: 3.10.12, 3.11.4 or a later "
            "version is needed. Unpack it with tar, and give the directory."
        )
    try:
        with open_binary(path, "rb") as file, tarfile.open(fileobj=file, mode="r:*") as archive:
            room = _MOST_TIMES * file_size(path) + _MOST_BYTES

            def checked(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
                nonlocal room
                room -= member.size
                if room < 0:
                    raise LoadError(
                        f"{flag}={path} is not unpacked: its contents would be more than "
                        f"{_MOST_TIMES} times the size of the file. Check that it is a model "
                        "archive."
                    )
                is_of_mac = os.path.basename(member.name).startswith("._")
                return None if is_of_mac else tarfile.data_filter(member, folder)

            archive.extractall(directory, filter=checked)
            while archive.fileobj and archive.fileobj.read(_CHUNK):
                pass  # only at its end is a compressed file compared with its checksum
    except LoadError:
        raise
    except tarfile.FilterError as error:
        raise LoadError(f"{flag}={path} is not unpacked: {error}") from error
    except _READ_ERRORS as error:
        raise LoadError(
            f"{flag}={path} is damaged or not a tar file: {reason_of(error)}"
        ) from error


def _descended(directory: str) -> str:
    """The directory, or the one below it that is all there is in it."""
    while True:
        names = sorted(os.listdir(directory))
        inner = os.path.join(directory, names[0]) if len(names) == 1 else ""
        if not os.path.isdir(inner):
            return directory
        directory = inner
