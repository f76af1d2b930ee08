import os
import pickle
import re
import shutil
from pathlib import Path

import pytest

from albert_tf.data.files import (
    WriteError,
    check_file,
    check_folder,
    expand_shards,
    explain_write_errors,
    file_exists,
    file_size,
    folder_names,
    free_bytes,
    match_files,
    remove_folder,
    write_error,
    write_then_rename,
)
from tests.full_disk import file_size_limit


def test_patterns_are_expanded_in_order_without_repetition(tmp_path):
    for name in ("b2.txt", "b1.txt", "a.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "b3.txt").mkdir()
    files = match_files(f"{tmp_path}/b*.txt, {tmp_path}/a.txt,{tmp_path}/b1.txt")
    assert [Path(file).name for file in files] == ["b1.txt", "b2.txt", "a.txt"]


def test_pattern_without_a_match_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=r"--eval_file: no file matches '.*/none-\*'"):
        match_files(f"{tmp_path}/a.txt,{tmp_path}/none-*", "--eval_file")


@pytest.mark.parametrize("name", ["a [old].txt", "runs [old]/b.txt", "[x]*/a?.txt"])
def test_what_exists_is_not_taken_for_a_pattern(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    (path.parent / "other").mkdir()
    assert match_files(str(path)) == [str(path)]
    assert match_files(f"{path.parent}/*.txt") == [str(path)]


@pytest.mark.parametrize("patterns", ["", " , "])
def test_no_pattern_is_an_error(patterns):
    with pytest.raises(ValueError, match="--input_file names no file"):
        match_files(patterns)


def test_local_and_remote_scheme_match_alike(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    assert match_files(f"file://{tmp_path}/a*") == [f"file://{tmp_path}/a.txt"]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_file_appears_only_when_complete(tmp_path, scheme):
    path = tmp_path / "new" / "out"
    with write_then_rename(f"{scheme}{path}") as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    assert [entry.name for entry in path.parent.iterdir()] == ["out"]


def test_a_named_pipe_is_written_to_and_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with write_then_rename(str(path)) as file:
        file.write(b"abc")
    assert os.read(reader, 10) == b"abc"
    os.close(reader)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: str) -> None:
    with write_then_rename(path) as file:
        file.write(b"half")
        raise RuntimeError


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_failure_leaves_what_was_there(tmp_path, scheme):
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError):
        write_half(f"{scheme}{path}")
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("size", [10, 100_000])  # fails when it is flushed, and when it is written
def test_a_full_disk_leaves_what_was_there(tmp_path, scheme, size):
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with (
        file_size_limit(5),
        pytest.raises(WriteError, match=f"--flag: {scheme}{path} ") as raised,
        write_then_rename(f"{scheme}{path}", "--flag") as file,
    ):
        file.write(b"x" * size)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    # As it comes from a worker process.
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_what_fails_while_a_file_is_open_is_told_as_it_is(tmp_path):
    with pytest.raises(FileNotFoundError), write_then_rename(str(tmp_path / "a"), "--flag"):
        (tmp_path / "absent").read_bytes()
    with pytest.raises(WriteError, match="--inner: "), explain_write_errors("a", "--outer"):
        raise write_error("b", OSError("no room"), "--inner")
    with pytest.raises(WriteError, match="--outer: a "), explain_write_errors("a", "--outer"):
        raise write_error("b", OSError("no room"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_there_is(tmp_path, scheme):
    (tmp_path / "b").write_text("x")
    (tmp_path / "a").mkdir()
    path = f"{scheme}{tmp_path}"
    assert folder_names(path) == ["a", "b"]
    assert folder_names(f"{path}/b") == folder_names(f"{path}/c") == []
    assert [file_exists(f"{path}/{name}") for name in "abc"] == [False, True, False]


def test_shards_are_expanded():
    assert expand_shards("a.tfrecord, b@c ,,d/e@2") == [
        "a.tfrecord",
        "b@c",
        "d/e-00000-of-00002",
        "d/e-00001-of-00002",
    ]
    assert expand_shards(" ,") == []
    with pytest.raises(ValueError, match=r"--output_file=a@0 asks for 0 files"):
        expand_shards("b,a@0")


def test_file_that_nothing_is_written_to_is_made(tmp_path):
    for path in (f"{tmp_path}/a", f"file://{tmp_path}/b/c"):
        with write_then_rename(path):
            pass
        assert file_size(path) == 0


def test_remote_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file/a"), write_then_rename(f"file://{tmp_path}/file/a"):
        pass


def test_folder_is_removed_with_what_lies_in_it(tmp_path):
    for path in (f"{tmp_path}/a", f"file://{tmp_path}/b"):
        with write_then_rename(f"{path}/c/d") as file:
            file.write(b"e")
        remove_folder(path)
        remove_folder(path)
    assert not list(tmp_path.iterdir())


def forbid_writing(monkeypatch, folder):
    """As for a user without rights there; the tests may run as root, who has all."""
    real = os.access

    def access(path, mode):
        return real(path, mode) and not (str(path) == str(folder) and mode & os.W_OK)

    monkeypatch.setattr(os, "access", access)


def test_a_folder_that_is_not_there_can_be_made(tmp_path):
    check_folder(str(tmp_path / "a" / "b"), "--output_dir")
    check_file(str(tmp_path / "a" / "b.txt"), "--output_file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["s3://bucket/a", "ftp://host/a", "runs [old]", "a]", "a\\b"])
def test_a_folder_that_tensorflow_cannot_read_is_refused(name):
    with pytest.raises(ValueError, match=rf"--output_dir {re.escape(repr(name))}"):
        check_folder(name, "--output_dir")


def test_a_link_that_points_nowhere_is_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for folder in ("link", "link/a"):
        with pytest.raises(ValueError, match=rf"link points to .*{tmp_path}/link'"):
            check_folder(str(tmp_path / folder), "--output_dir")


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(
        ValueError, match=r"--output_dir '.*/a/b/c' cannot be .*Not a directory.*/a'"
    ):
        check_folder(str(tmp_path / "a" / "b" / "c"), "--output_dir")
    with pytest.raises(ValueError, match=r"--output_file: .*/a/b cannot be written: .*/a'"):
        check_file(str(tmp_path / "a" / "b"), "--output_file")


def test_rights_of_the_nearest_folder_count(tmp_path, monkeypatch):
    forbid_writing(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match="Permission denied"):
        check_folder(str(tmp_path / "a" / "b"), "--output_dir")
    (tmp_path / "own").mkdir()
    check_folder(str(tmp_path / "own"), "--output_dir")


def test_a_file_name_without_folder_is_written_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_file("name", "--output_file")
    forbid_writing(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match=r"name cannot be written: .*Permission denied"):
        check_file("name", "--output_file")


def test_room_is_that_of_the_disk_below(tmp_path):
    free = free_bytes(str(tmp_path / "a" / "b"))
    assert abs(free - shutil.disk_usage(tmp_path).free) < 1e9
    assert free_bytes("gs://bucket/folder") is None
    check_folder("gs://bucket/folder", "--output_dir")
