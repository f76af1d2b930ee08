"""Simulates a full disk for this process, and records the order of changes on the disk."""

import os
import resource
from collections.abc import Iterator
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


def record_writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Returns a list to which "fsync", "replace" and "remove" are added, each with its inode."""
    events = []

    def recorded(name):
        change = getattr(os, name)

        def call(path, *args):
            events.append((name, os.stat(path).st_ino))
            return change(path, *args)

        return call

    for name in ("fsync", "replace", "remove"):
        monkeypatch.setattr(os, name, recorded(name))
    return events
