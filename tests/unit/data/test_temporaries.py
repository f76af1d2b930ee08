"""Leftovers of killed processes are removed by the next writer; other files are not."""

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from albert_tf.data.files import match_files, remove_leftovers, temporary_folder, write_then_rename
from tests.killed_writer import Writer

KINDS = ("file", "folder")
both_kinds = pytest.mark.parametrize("kind", KINDS)


def write(kind: str, path: Path) -> None:
    if kind == "file":
        with write_then_rename(str(path)) as file:
            file.write(b"whole")
    else:
        with temporary_folder(str(path)) as folder:
            (Path(folder) / "whole").write_bytes(b"whole")
            os.rename(folder, path)


@both_kinds
def test_leftovers_of_killed_processes_are_removed(tmp_path, kind):
    Writer(kind, tmp_path / "a [b]*.txt").kill()
    (left,) = tmp_path.iterdir()
    name, host, random = left.name.split("-")
    other = "0" * len(host) if host.strip("0") else "1" * len(host)
    # Files of another machine, of another version, and of the user.
    kept = {f"{name}-{other}-{random}", f"{name}-{random}", f"{left.name}.txt", f"b{left.name}"}
    for stays in kept:
        (tmp_path / stays).touch()
    write(kind, tmp_path / "another.txt")
    assert left.exists()
    write(kind, tmp_path / "a [b]*.txt")
    assert {*os.listdir(tmp_path)} == {"a [b]*.txt", "another.txt", *kept}


@both_kinds
def test_no_leftover_remains_if_a_locked_file_cannot_be_renamed(tmp_path, monkeypatch, kind):
    rename, failed = os.rename, []

    def fail_once(*paths):
        if not failed:
            failed.append(paths)
            raise OSError(errno.EIO, "Input/output error")
        rename(*paths)

    monkeypatch.setattr(os, "rename", fail_once)
    write(kind, tmp_path / "a")
    assert failed
    assert os.listdir(tmp_path) == ["a"]


@both_kinds
def test_files_of_running_processes_are_kept(tmp_path, kind):
    writer = Writer(kind, tmp_path / "a")
    before = {*os.listdir(tmp_path)}
    if kind == "file":
        write(kind, tmp_path / "a")
        before.add("a")
    else:
        with temporary_folder(str(tmp_path / "a")):
            pass
    remove_leftovers(str(tmp_path))
    assert {*os.listdir(tmp_path)} == before
    assert writer.finish() == 0
    assert os.listdir(tmp_path) == ["a"]
    half = tmp_path / "a" / "half" if kind == "folder" else tmp_path / "a"
    assert half.read_bytes() == b"half"


def test_all_leftovers_of_a_directory_are_removed(tmp_path, monkeypatch):
    for kind in KINDS:
        Writer(kind, tmp_path / kind).kill()
    (tmp_path / "mine").write_text("kept")
    monkeypatch.chdir(tmp_path)
    remove_leftovers("")
    assert os.listdir() == ["mine"]
    remove_leftovers(str(tmp_path / "nowhere"))


@both_kinds
def test_files_without_locks_are_kept(tmp_path, monkeypatch, kind):
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    opened = temporary_folder if kind == "folder" else write_then_rename
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", no_locks)
        writing = opened(str(tmp_path / "a"))
        writing.__enter__()
    before = os.listdir(tmp_path)
    remove_leftovers(str(tmp_path))
    assert os.listdir(tmp_path) == before
    writing.__exit__(None, None, None)
    assert os.listdir(tmp_path) == ["a"] * (kind == "file")


def test_concurrent_writers_leave_one_file(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write, "file", tmp_path / "a") for _ in range(300)]:
            done.result()
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"whole"


@both_kinds
def test_patterns_do_not_match_leftovers(tmp_path, kind):
    (tmp_path / "mine.tmp-1").touch()
    Writer(kind, tmp_path / "x.tfrecord").kill()
    [left] = tmp_path.glob(".x.tfrecord.tmp-*")
    files = [left] if kind == "file" else [left / "half"]
    assert all(path.exists() for path in files)
    for pattern in ("*", "*/*", "x*", "x*/*", ".x*", ".x*/*", "?*"):
        with suppress(ValueError):
            assert match_files(f"{tmp_path}/{pattern}") == [str(tmp_path / "mine.tmp-1")]
    write(kind, tmp_path / "x.tfrecord")
    assert {*os.listdir(tmp_path)} == {"mine.tmp-1", "x.tfrecord"}
