"""Extracts tar files from untrusted sources.

A model consists of regular files and directories. Every other type of member is rejected. Without
links, comparing names is enough to keep all files inside the target directory. The archive is read
as a stream, and this module parses the headers itself: `tarfile` reads headers of any size into
memory, and what its extraction filters reject depends on the version of Python.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from typing import IO

from albert_tf.data.errors import UserError
from albert_tf.data.files import reason_of

_MAX_ENTRIES = 10_000  # headers, and files and directories to create
_MAX_HEADER = 64 << 10  # bytes of one extended header
_MAX_NAME, _MAX_PART = 1024, 255  # bytes of a path, and of a name in it
_MAX_DEPTH = 32  # directories
_CHUNK = 1 << 20  # bytes
_GZIP = b"\x1f\x8b"

_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


class UnsafeArchiveError(UserError):
    """Raised if an archive exceeds a limit or contains a member that is not extracted."""


class DamagedArchiveError(UserError):
    """Raised if a file is truncated, damaged or not a tar file."""


def extract(file: IO[bytes], directory: str, max_bytes: int) -> None:
    """Extracts a tar file, which may be compressed with gzip, into an empty directory.

    Members whose name starts with `._`, which macOS adds, are skipped.

    Args:
        file: the archive, open at its start.
        directory: an existing directory, to which nobody else writes.
        max_bytes: maximum size of the decompressed archive in bytes.

    Raises:
        UnsafeArchiveError: a limit is exceeded, or a member is neither a regular file nor a
            directory, or is outside of the directory.
        DamagedArchiveError: the archive is truncated or damaged.
        OSError: a file cannot be written.
    """
    try:
        is_gzip = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        _extract(_Source(gzip.GzipFile(fileobj=file) if is_gzip else file, max_bytes), directory)
    except (UnsafeArchiveError, DamagedArchiveError):
        raise
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise DamagedArchiveError(reason_of(error)) from error


class _Source:
    """Reads exact numbers of bytes, up to a limit for the whole archive."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, max_bytes: int) -> None:
        self._file, self._max, self._left = file, max_bytes, max_bytes

    def read(self, size: int) -> bytes:
        self.check(size)
        data = self.read_up_to(size)
        if len(data) < size:
            raise DamagedArchiveError("it ends too early")
        return data

    def read_up_to(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise DamagedArchiveError(reason_of(error)) from error
        self.check(len(data))
        self._left -= len(data)
        return data

    def check(self, size: int) -> None:
        if size > self._left:
            raise UnsafeArchiveError(f"it has more than {self._max} bytes after decompression")


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
                raise UnsafeArchiveError(
                    f"its member {name[:100]!r} is both a file and a directory"
                ) from error
            records = {}
        if entries > _MAX_ENTRIES:
            raise UnsafeArchiveError(f"it has more than {_MAX_ENTRIES} members")
    while source.read_up_to(_CHUNK):
        pass  # gzip compares the checksum at the end


def _read_extended_header(source: _Source, member: tarfile.TarInfo) -> dict[bytes, bytes]:
    """Returns the `path` and `size` that apply to the next member."""
    if not 0 <= member.size <= _MAX_HEADER:
        raise UnsafeArchiveError(
            f"it has a header of {member.size} bytes; the maximum is {_MAX_HEADER}"
        )
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
            raise UnsafeArchiveError("it has a sparse file")
        if key in (b"path", b"size"):
            records[key] = value[:-1]
        if not value.endswith(b"\n") or (records and member.type == tarfile.XGLTYPE):
            raise DamagedArchiveError("it has an invalid PAX header")
        place = end
    return records


def _checked_parts(name: str, member: tarfile.TarInfo) -> list[str]:
    """Splits a member's path; a leading `/` and `.` are dropped."""
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
        raise UnsafeArchiveError(f"its member {name[:100]!r} {problem}")
    return parts


def _write(source: _Source, size: int, directory: str, parts: list[str]) -> None:
    source.check(size)
    if size < 0:
        raise DamagedArchiveError(f"its member {'/'.join(parts)[:100]!r} has {size} bytes")
    is_skipped = parts[-1].startswith("._")
    if not is_skipped:
        os.makedirs(os.path.join(directory, *parts[:-1]), exist_ok=True)
    with open(os.devnull if is_skipped else os.path.join(directory, *parts), "wb") as target:
        left = size
        while left:
            left -= target.write(source.read(min(left, _CHUNK)))
    source.read(-size % tarfile.BLOCKSIZE)
