"""Returns local directories of models that are named by a URL or a name, or stored in a tar file.

Archives may come from untrusted sources. Only regular files and directories are extracted, because
links could lead out of the target directory. The headers are parsed here, because `tarfile` reads
headers of any size into memory.
"""

import gzip
import hashlib
import os
import tarfile
import zlib
from contextlib import suppress
from typing import IO

from absl import logging

from albert_tf.checkpoints.downloads import (
    CACHE_VARIABLE,
    ENDINGS,
    TAR,
    bundled_directory,
    cached,
    fetch,
    is_bundled,
    is_released,
)
from albert_tf.checkpoints.report import LoadError
from albert_tf.data.files import (
    advice_on,
    file_exists,
    file_size,
    is_remote,
    open_binary,
    reason_of,
    remove,
    temporary_folder,
)

_MAX_ENTRIES = 10_000  # headers, plus the components of all paths
_MAX_HEADER = 64 << 10  # bytes of one extended header
_MAX_NAME, _MAX_PART = 1024, 255  # bytes of a path, and of a path component
_MAX_DEPTH = 32  # directories
_CHUNK = 1 << 20  # bytes

_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_WEB = ("http://", "https://")
_GZIP = b"\x1f\x8b"  # first bytes of a file
_GZIP_ERRORS = (gzip.BadGzipFile, zlib.error, EOFError)

# Compression hardly reduces the size of weights.
_MAX_RATIO, _MAX_EXTRA_BYTES = 100, 100 << 20


def is_indirect(path: str) -> bool:
    """Returns whether a path is a URL, a tar file, or the name of a model."""
    if path.startswith(_WEB) or is_bundled(path) or is_released(path):
        return True
    return path.endswith(ENDINGS) and file_exists(path)


def local_directory(path: str) -> str:
    """Returns the directory of a model that is named by a URL, a name or a tar file.

    A tar file is unpacked once, into the cache. Raises `LoadError` if the model cannot be
    downloaded, read or stored, or is damaged or unsafe.
    """
    if is_bundled(path):
        return bundled_directory(path)
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
    if not (is_released(path) or path.startswith(_WEB)):
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
            extract(path, temporary)
            os.rename(temporary, directory)
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
        try:
            source = gzip.GzipFile(fileobj=file) if is_gzip else file
            _extract(_Source(source, max_bytes), directory)
        except (*_GZIP_ERRORS, tarfile.TarError, ValueError, OverflowError) as error:
            raise LoadError(
                f"{path} cannot be unpacked: {reason_of(error)}. Check that it is a complete tar "
                "file of a model."
            ) from error


class _Source:
    """Reads exact numbers of bytes, up to a limit for the whole archive."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, max_bytes: int) -> None:
        self._file, self._max, self._left = file, max_bytes, max_bytes

    def read(self, size: int, *, is_exact: bool = True) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it has more than {self._max} bytes after decompression")
        if is_exact and len(data) < size:
            raise ValueError("it ends too early")
        return data


def _extract(source: _Source, directory: str) -> None:
    entries, records = 0, dict[bytes, bytes]()
    while any(block := source.read(tarfile.BLOCKSIZE)):
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        entries += 1
        if member.type in _EXTENDED:
            records = _read_extended_header(source, member) | records
        else:
            size = int(records.get(b"size", member.size))
            name = os.fsdecode(records[b"path"]) if b"path" in records else member.name
            parts = _checked_parts(name, member)
            entries += len(parts)
            try:
                if member.type in _REGULAR:
                    _write(source, size, directory, parts)
                else:
                    os.makedirs(os.path.join(directory, *parts), exist_ok=True)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise ValueError(
                    f"its member {name[:100]!r} is both a file and a directory"
                ) from error
            records = {}
        if entries > _MAX_ENTRIES:
            raise ValueError(f"it has more than {_MAX_ENTRIES} headers and path components")
    while source.read(_CHUNK, is_exact=False):
        pass  # gzip compares the checksum at the end


def _read_extended_header(source: _Source, member: tarfile.TarInfo) -> dict[bytes, bytes]:
    """Returns the `path` and `size` that apply to the next member."""
    if not 0 <= member.size <= _MAX_HEADER:
        raise ValueError(f"it has a header of {member.size} bytes; the maximum is {_MAX_HEADER}")
    data = source.read(member.size + -member.size % tarfile.BLOCKSIZE)
    if member.type == tarfile.GNUTYPE_LONGLINK:
        return {}
    if member.type == tarfile.GNUTYPE_LONGNAME:
        return {b"path": data.partition(b"\0")[0]}
    records, place = dict[bytes, bytes](), 0
    while place < member.size:  # "length key=value\n", with the length of the whole record
        blank = data.find(b" ", place, place + 20)
        end = place + int(data[place : max(blank, place)])
        key, _, value = data[blank + 1 : end].partition(b"=")
        if key.startswith(b"GNU.sparse."):
            raise ValueError("it has a sparse file")
        if key in (b"path", b"size"):
            records[key] = value[:-1]
        if not value.endswith(b"\n") or (records and member.type == tarfile.XGLTYPE):
            raise ValueError("it has an invalid PAX header")
        place = end
    return records


def _checked_parts(name: str, member: tarfile.TarInfo) -> list[str]:
    """Splits a member's path; drops empty parts and `.`, so that absolute paths become relative."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    is_file = member.type in _REGULAR
    problem = None
    if not (is_file or member.type == tarfile.DIRTYPE):
        problem = "is neither a regular file nor a directory"
    elif ".." in parts:
        problem = "is outside of the archive's directory"
    elif (is_file and not parts) or "\0" in name:
        problem = "is not a valid file name"
    elif max(map(len, map(os.fsencode, parts)), default=0) > _MAX_PART or (
        len(os.fsencode(name)) > _MAX_NAME or len(parts) > _MAX_DEPTH
    ):
        problem = "is too long or too deep"
    if problem:
        raise ValueError(f"its member {name[:100]!r} {problem}")
    return parts


def _write(source: _Source, size: int, directory: str, parts: list[str]) -> None:
    if size < 0:
        raise ValueError(f"its member {'/'.join(parts)[:100]!r} has {size} bytes")
    is_skipped = parts[-1].startswith("._")
    if not is_skipped:
        os.makedirs(os.path.join(directory, *parts[:-1]), exist_ok=True)
    with open(os.devnull if is_skipped else os.path.join(directory, *parts), "wb") as target:
        left = size
        while left:
            left -= target.write(source.read(min(left, _CHUNK)))
    source.read(-size % tarfile.BLOCKSIZE)
