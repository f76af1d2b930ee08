"""Models that are not given by their path: URLs, names, and tar files as they were released.

A tar file is unpacked once, into a cache, and read from there.

A released file holds one folder with a model's files; TF-Hub's archives hold them at the top.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property

from absl import logging

from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.shipped import is_shipped, shipped_directory
from albert_tf.data.files import (
    file_exists,
    file_size,
    is_remote,
    open_binary,
    reason_of,
    temporary_folder,
)

_CACHE_VARIABLE = "TFHUB_CACHE_DIR"
CACHE_VARIABLE = "ALBERT_TF_CACHE_DIR"
_ENDINGS = (".tar", ".tar.gz", ".tgz")
_READ_ERRORS = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, OverflowError)
_CHUNK = 1 << 20  # bytes

# How much may come out of a file: numbers hardly become smaller when they are packed.
_MOST_TIMES, _MOST_BYTES = 100, 100 << 20


def is_url(handle: str) -> bool:
    """Whether a handle is a URL, which only TF-Hub can resolve."""
    return re.match(r"https?://", handle) is not None


def is_fetched(url: str) -> bool:
    """Whether TF-Hub's cache holds a module."""
    from tensorflow_hub import resolver

    cache = resolver.tfhub_cache_dir(use_temp=True)
    return os.path.isdir(os.path.join(cache, hashlib.sha1(url.encode()).hexdigest()))


def fetch(url: str, flag: str, folder: str | None = None) -> str:
    """Returns the directory of a module, which `tensorflow_hub` fetches if need be.

    Args:
        url: of the module; what is fetched stays in TFHUB_CACHE_DIR.
        flag: the flag the URL came from, for messages.
        folder: where it is sought and put instead.

    Raises:
        LoadError: it cannot be fetched.
    """
    import tensorflow_hub  # seconds to import, and needed for URLs only

    try:
        with _cache_in(folder):
            return tensorflow_hub.resolve(url)
    except Exception as error:  # whatever the network, the archive or the server does
        raise LoadError(
            f"{flag}={url} cannot be fetched: {error}. On a machine without network, fetch the "
            "model elsewhere, and give its directory or its tar file."
        ) from error


@contextmanager
def _cache_in(folder: str | None) -> Iterator[None]:
    """Has `tensorflow_hub` keep what it fetches in a folder; None changes nothing."""
    before = os.environ.get(_CACHE_VARIABLE)
    if folder is not None:
        os.environ[_CACHE_VARIABLE] = folder
    try:
        yield
    finally:
        if folder is not None:
            os.environ.pop(_CACHE_VARIABLE)
        if folder is not None and before is not None:
            os.environ[_CACHE_VARIABLE] = before


class _PassingFolder(ExitStack):
    """A folder that is made when it is asked for, and gone when this ends."""

    @cached_property
    def path(self) -> str:
        return self.enter_context(tempfile.TemporaryDirectory(prefix="albert_tf_"))


_passing: list[_PassingFolder] = []  # of `nothing_kept`, the innermost last


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Lets what has to be fetched, unpacked or made again lie in a folder that ends with the block.

    What is in the caches already is read from there.
    """
    with _PassingFolder() as folder:
        _passing.append(folder)
        try:
            yield
        finally:
            _passing.pop()


def is_indirect(path: str) -> bool:
    """Whether a model lies elsewhere: a URL, a tar file, or the name of one of this package."""
    is_packed = path.endswith(_ENDINGS) and file_exists(path)
    return is_url(path) or is_packed or is_shipped(path)


def local_directory(path: str, flag: str) -> str:
    """Returns the directory of a model that is given by a URL, a name or as a tar file.

    Args:
        path: see `is_indirect`. A tar file is unpacked once, below the directory that the
            environment variable ALBERT_TF_CACHE_DIR names, or `~/.cache/albert_tf`.
        flag: the flag the path came from, for messages.

    Raises:
        LoadError: it cannot be fetched, is damaged or unsafe, or there is no room for it.
    """
    if is_shipped(path):
        return shipped_directory(path, flag)
    if is_url(path):
        is_passing = _passing and not is_fetched(path)
        return _descended(fetch(path, flag, _passing[-1].path if is_passing else None))
    return _descended(_unpacked(path, flag))


def _unpacked(path: str, flag: str) -> str:
    directory = cached("unpacked", _cache_name(path))
    if os.path.isdir(directory):
        return directory
    logging.info("%s=%s is unpacked to %s", flag, path, directory)
    try:
        with temporary_folder(directory) as temporary:
            _extract(path, flag, temporary)
            _rename_unless_there(temporary, directory)
    except OSError as error:
        raise LoadError(
            f"{flag}={path} cannot be unpacked to {directory!r}: {reason_of(error)}. Make room "
            f"there, or name another folder by the environment variable {CACHE_VARIABLE}."
        ) from error
    return directory


def _rename_unless_there(temporary: str, directory: str) -> None:
    """Gives a folder its name; another process may have been faster with the same content."""
    try:
        os.rename(temporary, directory)
    except OSError:
        if not os.path.isdir(directory):
            raise


def cached(*names: str) -> str:
    """Returns where in the cache something lies, or is to be put; see `nothing_kept`."""
    default = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.environ.get(CACHE_VARIABLE) or os.path.join(default, "albert_tf")
    path = os.path.join(cache, *names)
    is_passing = _passing and not os.path.exists(path)
    return os.path.join(_passing[-1].path, *names) if is_passing else path


def _cache_name(path: str) -> str:
    """A name that another file, or the same one changed, does not get."""
    absolute = path if is_remote(path) else os.path.abspath(path)
    changed = 0 if is_remote(path) else os.stat(path).st_mtime_ns
    key = f"{absolute} {file_size(path)} {changed}"
    return f"{os.path.basename(path)}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _extract(path: str, flag: str, directory: str) -> None:
    """Writes the files of an archive; only plain files, and only into the directory."""
    try:
        with open_binary(path, "rb") as file, tarfile.open(fileobj=file, mode="r:*") as archive:
            room = _MOST_TIMES * file_size(path) + _MOST_BYTES
            for member, name in _files(archive, path, flag):
                room -= member.size
                if room < 0:
                    raise LoadError(
                        f"{flag}={path} is not unpacked: its members are more than {_MOST_TIMES} "
                        "times as large as the file. Is it a model?"
                    )
                target = os.path.join(directory, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                content = archive.extractfile(member)
                if content is not None:
                    with content, open(target, "wb") as written:
                        shutil.copyfileobj(content, written)
            while archive.fileobj and archive.fileobj.read(_CHUNK):
                pass  # only at its end is a compressed file compared with its checksum
    except LoadError:
        raise
    except _READ_ERRORS as error:
        raise LoadError(f"{flag}={path} is damaged, or no tar file: {reason_of(error)}") from error


def _files(archive: tarfile.TarFile, path: str, flag: str) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """The files of an archive and their names, without what a Mac adds.

    Raises:
        LoadError: a member that is no plain file, or would be written elsewhere.
    """
    for member in archive:
        name = os.path.normpath(member.name)
        is_elsewhere = os.path.isabs(name) or name.split(os.sep)[0] == os.pardir
        if is_elsewhere or not (member.isfile() or member.isdir()):
            what = "outside of its folder" if is_elsewhere else "neither a file nor a folder"
            raise LoadError(
                f"{flag}={path} is not unpacked: its member {member.name!r} is {what}. A released "
                "model holds plain files only."
            )
        if member.isfile() and not os.path.basename(name).startswith("._"):
            yield member, name


def _descended(directory: str) -> str:
    """The directory, or the one below it that is all there is in it."""
    while True:
        names = sorted(os.listdir(directory))
        inner = os.path.join(directory, names[0]) if len(names) == 1 else ""
        if not os.path.isdir(inner):
            return directory
        directory = inner
