"""What a killed process leaves goes with the next one that writes the same; nothing else does."""

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from albert_tf.data.files import remove_leftovers, temporary_folder, write_then_rename
from tests.killed import Writer

KINDS = ("file", "folder")


def write(kind: str, path: Path) -> None:
    """As a command does it."""
    if kind == "file":
        with write_then_rename(str(path)) as file:
            file.write(b"whole")
    else:
        with temporary_folder(str(path)) as folder:
            (Path(folder) / "whole").write_bytes(b"whole")
            os.rename(folder, path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_one_removes_what_a_killed_process_left(tmp_path, kind):
    Writer(kind, tmp_path / "a [b]*.txt").kill()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("a [b]*.txt.tmp-")
    write(kind, tmp_path / "another.txt")
    assert left.exists()
    write(kind, tmp_path / "a [b]*.txt")
    assert {path.name for path in tmp_path.iterdir()} == {"a [b]*.txt", "another.txt"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_living_process_is_writing_stays(tmp_path, kind):
    writer = Writer(kind, tmp_path / "a")
    before = set(tmp_path.iterdir())
    if kind == "file":
        write(kind, tmp_path / "a")
        before.add(tmp_path / "a")
    else:
        with temporary_folder(str(tmp_path / "a")):
            pass
    remove_leftovers(str(tmp_path))
    assert set(tmp_path.iterdir()) == before
    assert writer.finish() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    half = tmp_path / "a" / "half" if kind == "folder" else tmp_path / "a"
    assert half.read_bytes() == b"half"


def test_all_leftovers_of_a_folder(tmp_path, monkeypatch):
    for kind in KINDS:
        Writer(kind, tmp_path / kind).kill()
    (tmp_path / "mine").write_text("kept")
    monkeypatch.chdir(tmp_path)
    remove_leftovers("")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    remove_leftovers(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_told_from_a_living_process_stays(tmp_path, kind):
    Writer(kind, tmp_path / "a").kill()
    (left,) = tmp_path.iterdir()
    name, host, random = left.name.split("-")
    other = "0" * len(host) if host.strip("0") else "1" * len(host)
    kept = {f"{name}-{other}-{random}", f"{name}-{random}", f"{left.name}.txt", f"b{left.name}"}
    for stays in kept:
        (tmp_path / stays).write_text("of another machine, of another version, of the user")
    write(kind, tmp_path / "a")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "a"}


@pytest.mark.parametrize("kind", KINDS)
def test_without_locks_nothing_is_taken_for_a_leftover(tmp_path, monkeypatch, kind):
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    opened = temporary_folder if kind == "folder" else write_then_rename
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", no_locks)
        writing = opened(str(tmp_path / "a"))
        writing.__enter__()
    before = list(tmp_path.iterdir())
    remove_leftovers(str(tmp_path))
    assert list(tmp_path.iterdir()) == before
    writing.__exit__(None, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["a"] * (kind == "file")


def test_many_may_write_the_same_at_once(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write, "file", tmp_path / "a") for _ in range(300)]:
            done.result()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"whole"
