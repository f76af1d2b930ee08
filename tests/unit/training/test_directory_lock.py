"""Locks on output directories, between real processes."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from albert_tf.training import directory_lock
from albert_tf.training.directory_lock import (
    EVALUATION,
    TRAINING,
    DirectoryLockedError,
    check_unlocked,
    locked,
)
from tests.programs import ROOT

HOLDER = """
import sys, time
from albert_tf.training.directory_lock import locked

with locked(sys.argv[1], *sys.argv[2].split(",")):
    print("locked", flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(path, *kinds):
    """Starts another process that locks a directory."""
    program = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path, ",".join(kinds)], cwd=ROOT, stdout=subprocess.PIPE
    )
    program.stdout.readline()
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def is_free(path, *kinds):
    try:
        with locked(str(path), *kinds):
            return True
    except DirectoryLockedError:
        return False


def test_second_process_is_rejected_until_the_first_ends(tmp_path):
    check_unlocked(str(tmp_path / "none"), TRAINING)
    check_unlocked(str(tmp_path), TRAINING)
    assert list(tmp_path.iterdir()) == []
    with holder(tmp_path, TRAINING) as program:
        (file,) = tmp_path.iterdir()
        content = file.read_bytes()
        with pytest.raises(DirectoryLockedError) as raised, locked(str(tmp_path), TRAINING):
            pass
        message = str(raised.value)
        assert str(tmp_path) in message
        assert f"host={socket.gethostname()} pid={program.pid} " in message
        with pytest.raises(DirectoryLockedError):
            check_unlocked(str(tmp_path), TRAINING)
        check_unlocked(str(tmp_path), EVALUATION)
        program.kill()
        program.wait()
        check_unlocked(str(tmp_path), TRAINING)
        assert list(tmp_path.iterdir()) == [file]  # left by the first, and locks nothing
        assert file.read_bytes() == content
        assert is_free(tmp_path, EVALUATION)
        assert is_free(tmp_path, TRAINING)
    assert list(tmp_path.iterdir()) == []


def test_rejected_run_releases_its_other_locks(tmp_path):
    with holder(tmp_path, EVALUATION):
        assert not is_free(tmp_path, TRAINING, EVALUATION)
        assert is_free(tmp_path, TRAINING)


def test_one_process_cannot_lock_twice(tmp_path):
    free = []
    with locked(str(tmp_path), TRAINING):
        link = tmp_path.parent / f"{tmp_path.name}-link"
        link.symlink_to(tmp_path)
        for path in (tmp_path, link):
            with pytest.raises(DirectoryLockedError, match=f"pid={os.getpid()} "):
                check_unlocked(str(path), TRAINING)
            thread = threading.Thread(target=lambda path=path: free.append(is_free(path, TRAINING)))
            thread.start()
            thread.join()
        assert free == [False, False]
    assert is_free(tmp_path, TRAINING)


def test_empty_new_directory_is_removed(tmp_path):
    path = tmp_path / "a" / "b"
    with locked(str(path), TRAINING):
        assert path.is_dir()
    assert list(tmp_path.iterdir()) == []
    with locked(str(path), TRAINING):
        (path / "file").touch()
    assert [file.name for file in path.iterdir()] == ["file"]


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_missing_locks_are_logged(tmp_path, monkeypatch, scheme):
    """A directory in place of the lock file cannot be locked on any system."""
    (tmp_path / ".training.lock").mkdir()
    logged = []
    monkeypatch.setattr(
        directory_lock.logging, "log_first_n", lambda *values: logged.append(values)
    )
    with locked(f"{scheme}{tmp_path}", TRAINING):
        ((_, message, times, path, _),) = logged
    assert "cannot be locked" in message
    assert (times, path) == (1, f"{scheme}{tmp_path}")
    assert [file.name for file in tmp_path.iterdir()] == [".training.lock"]
