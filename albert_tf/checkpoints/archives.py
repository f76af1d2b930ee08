"""Returns local directories of models that are named by a URL or a name, or stored in a tar file.

Archives may come from untrusted sources. Only regular files and directories are extracted, because
links could lead out of the target directory. `tarfile` reads headers of any size and number into
memory, therefore it gets a stream with limits.
"""

import gzip
import hashlib
import math
import os
import tarfile
import zlib
from contextlib import suppress
from typing import IO, Any, cast

from absl import logging

from albert_tf.checkpoints.downloads import (
    CACHE_VARIABLE,
    ENDINGS,
    TAR,
    cached,
    source_of,
)
from albert_tf.checkpoints.errors import LoadError
from albert_tf.data.files import (
    advice_on,
    file_exists,
    file_size,
    finish,
    is_remote,
    open_binary,
    reason_of,
    remove,
    temporary_folder,
)

_MAX_ENTRIES = 10_000  # blocks of headers, plus the components of all paths
_MAX_HEADER = 16 << 10  # bytes of all headers of a member; some versions parse in quadratic time
_MAX_NAME, _MAX_PART = 1024, 255  # bytes of a path, and of a path component
_MAX_DEPTH = 32  # directories
_CHUNK = 1 << 20  # bytes
_SHARED = ("path", "size")  # rejected in a header for all members

_GZIP = b"\x1f\x8b"  # first bytes of a file
_GZIP_ERRORS = (gzip.BadGzipFile, zlib.error, EOFError)

# Compression hardly reduces the size of weights.
_MAX_RATIO, _MAX_EXTRA_BYTES = 100, 100 << 20


def is_indirect(path: str) -> bool:
    """Returns whether a path is a URL, a tar file, or the name of a model."""
    return source_of(path) is not None or (path.endswith(ENDINGS) and file_exists(path))


def local_directory(path: str) -> str:
    """Returns the directory of a model that is named by a URL, a name or a tar file.

    A tar file is unpacked once, into the cache. Raises `LoadError` if the model cannot be
    downloaded, read or stored, or is damaged or unsafe.
    """
    try:
        return _innermost(_fetched(path))
    except OSError as error:
        if error.filename == path:
            raise LoadError(f"{path} cannot be read: {error.strerror}") from error
        raise LoadError(
            f"{path} cannot be stored in {cached()!r}: {reason_of(error)}. {advice_on(error)}, or "
            f"set the environment variable {CACHE_VARIABLE} to another directory."
        ) from error


def _fetched(path: str) -> str:
    """Downloads and unpacks a model if necessary; returns its directory."""
    source = source_of(path)
    if source is None:
        return _unpacked(path, cached("unpacked", _cache_name(path)))
    found = source()
    if not found.endswith(TAR):
        return found
    try:
        directory = _unpacked(found, cached(*found.removesuffix(TAR).split(os.sep)[-2:]))
    except LoadError as error:
        rejected = f"{found}.rejected"
        with suppress(FileNotFoundError):  # another process has renamed it
            os.replace(found, rejected)
        raise LoadError(
            f"{error} The file was renamed to {rejected}: delete it. The next attempt downloads "
            "the model again."
        ) from error
    with suppress(OSError):  # a read-only cache
        remove(found)
    return directory


def _unpacked(path: str, directory: str) -> str:
    if os.path.isdir(directory):
        return directory
    logging.info("%s is unpacked to %s", path, directory)
    try:
        with temporary_folder(directory) as temporary:
            extract(path, temporary)
            finish(temporary, directory)
    except OSError:  # another process may have unpacked the same file
        if not os.path.isdir(directory):
            raise
    return directory


def _cache_name(path: str) -> str:
    """Returns a name for this version of a file."""
    absolute = path if is_remote(path) else os.path.abspath(path)
    changed = 0 if is_remote(path) else os.stat(path).st_mtime_ns
    key = f"{absolute} {file_size(path)} {changed}"
    return f"{os.path.basename(path)[:40]}-{hashlib.sha256(os.fsencode(key)).hexdigest()[:16]}"


def _innermost(directory: str) -> str:
    """Descends into directories that contain only one directory."""
    while True:
        names = sorted(os.listdir(directory))
        inner = os.path.join(directory, names[0]) if len(names) == 1 else ""
        if not os.path.isdir(inner):
            return directory
        directory = inner


def extract(path: str, directory: str) -> None:
    """Extracts a tar file, which may be compressed with gzip, into an empty directory.

    Files whose name starts with `._`, which macOS adds, are skipped. Raises `LoadError` if the
    archive is damaged, exceeds a limit, or contains an unsafe member.
    """
    with open_binary(path, "rb") as file:
        is_gzip = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        max_bytes = _MAX_RATIO * file_size(path) + _MAX_EXTRA_BYTES
        source = _Source(gzip.GzipFile(fileobj=file) if is_gzip else file, max_bytes)
        known_errors = (*_GZIP_ERRORS, tarfile.TarError)
        try:
            _extract(source, directory)
        except (*known_errors, ValueError, OverflowError) as error:
            is_known = isinstance(error, known_errors)
            reason = reason_of(error) if is_known else "it has a malformed header or a sparse file"
            raise LoadError(
                f"{path} cannot be unpacked: {reason}. Check that it is a complete tar file of a "
                "model."
            ) from error


class _Source:
    """A file for `tarfile` that is only read forward, completely and up to limits."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, max_bytes: int) -> None:
        self._file, self._max, self._place = file, max_bytes, 0
        self.header_end: float = _MAX_HEADER
        self.last = b""

    def tell(self) -> int:
        return self._place

    def seek(self, place: int) -> None:
        self.read(place - self._place)

    def read(self, size: int, *, is_exact: bool = True) -> bytes:
        if not 0 <= size <= self.header_end - self._place:
            raise tarfile.ReadError(
                f"a header has a negative size or more than {_MAX_HEADER} bytes"
            )
        self.last = self._file.read(size)
        self._place += len(self.last)
        if self._place > self._max:
            raise tarfile.ReadError(f"it has more than {self._max} bytes after decompression")
        if is_exact and len(self.last) < size:
            raise tarfile.ReadError("it ends too early")
        return self.last


def _extract(source: _Source, directory: str) -> None:
    entries, start = 0, 0
    archive: Any = tarfile.TarFile(fileobj=cast(Any, source))
    while member := archive.next():
        parts = _checked_parts(member, is_global=not archive.pax_headers.keys().isdisjoint(_SHARED))
        entries += len(parts) + (source.tell() - start) // tarfile.BLOCKSIZE
        if entries > _MAX_ENTRIES:
            raise tarfile.ReadError(f"it has more than {_MAX_ENTRIES} headers and path components")
        source.header_end = math.inf
        try:
            if member.isdir():
                os.makedirs(os.path.join(directory, *parts), exist_ok=True)
            else:
                _write(source, member.size, directory, parts)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise tarfile.ReadError(
                f"its member {member.name[:100]!r} is both a file and a directory"
            ) from error
        start = source.tell()
        source.header_end = start + _MAX_HEADER
        # `tarfile` keeps all members, and copies global headers to each of them.
        archive.members.clear()
        archive.pax_headers.clear()
    if any(source.last):
        raise tarfile.ReadError("it has a malformed header")  # for `tarfile` the end of the archive
    source.header_end = math.inf
    while source.read(_CHUNK, is_exact=False):
        pass  # gzip compares the checksum at the end


def _checked_parts(member: tarfile.TarInfo, is_global: bool) -> list[str]:
    """Splits a member's path; drops empty parts and `.`, so that absolute paths become relative."""
    name = member.name
    parts = [part for part in name.split("/") if part not in ("", ".")]
    is_sparse = member.issparse() or any(
        key.startswith("GNU.sparse.") for key in member.pax_headers
    )
    longest = max(map(len, map(os.fsencode, parts)), default=0)
    is_long = longest > _MAX_PART or len(os.fsencode(name)) > _MAX_NAME
    for problem, is_found in {
        "is neither a regular file nor a directory": is_sparse
        or not (member.isreg() or member.isdir()),
        "is outside of the archive's directory": ".." in parts,
        "is not a valid file name": "\0" in name or (member.isreg() and not parts),
        "is too long or too deep": is_long or len(parts) > _MAX_DEPTH,
        "has a negative size, or a name or size that is set for all members": member.size < 0
        or is_global,
    }.items():
        if is_found:
            raise tarfile.ReadError(f"its member {name[:100]!r} {problem}")
    return parts


def _write(source: _Source, size: int, directory: str, parts: list[str]) -> None:
    is_skipped = parts[-1].startswith("._")
    if not is_skipped:
        os.makedirs(os.path.join(directory, *parts[:-1]), exist_ok=True)
    with open(os.devnull if is_skipped else os.path.join(directory, *parts), "wb") as target:
        while size:
            size -= target.write(source.read(min(size, _CHUNK)))
