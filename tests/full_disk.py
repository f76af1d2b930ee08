"""Simulates a full disk for this process, and records the order of changes on the disk."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Prevents files of this process from growing beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


CHANGES = ("fsync", "replace", "remove", "link", "unlink", "rmdir")


def before_changes(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[str, int], None], names=CHANGES
) -> None:
    """Calls `act` with the name of a function of `os` and an inode before each change."""

    def watched(name):
        change = getattr(os, name)

        def call(path, *args, **kwargs):
            act(name, os.stat(path, dir_fd=kwargs.get("dir_fd")).st_ino)
            return change(path, *args, **kwargs)

        return call

    for name in names:
        monkeypatch.setattr(os, name, watched(name))


def record_writes(
    monkeypatch: pytest.MonkeyPatch, names=("fsync", "replace", "remove")
) -> list[tuple[str, int]]:
    """Returns a list to which the changes are added, each with its inode."""
    events = []
    before_changes(monkeypatch, lambda *event: events.append(event), names)
    return events
