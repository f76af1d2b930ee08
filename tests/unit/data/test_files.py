import errno
import os
import pickle
import re
import resource
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow as tf

from albert_tf.data.files import (
    WriteError,
    advice_on,
    check_file,
    check_folder,
    expand_shards,
    file_exists,
    file_size,
    folder_names,
    match_files,
    raise_write_errors,
    remove_folder,
    temporary_folder,
    why_not_writable,
    write_all_then_rename,
    write_error,
    write_files,
    write_then_rename,
)
from tests.full_disk import file_size_limit, record_writes

both_schemes = pytest.mark.parametrize("scheme", ["", "file://"])


def write(path, content=b"abc"):
    with write_then_rename(str(path)) as file:
        file.write(content)


def test_patterns_match_sorted_files(tmp_path):
    for name in ("b2.txt", "b1.txt", "a.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "b3.txt").mkdir()
    files = match_files(f"{tmp_path}/b*.txt, {tmp_path}/a.txt,{tmp_path}/b1.txt")
    assert [Path(file).name for file in files] == ["b1.txt", "b2.txt", "a.txt"]
    assert match_files(f"file://{tmp_path}/a*") == [f"file://{tmp_path}/a.txt"]
    for patterns in (f"{tmp_path}/a.txt,{tmp_path}/none-*", "", " , "):
        with pytest.raises(ValueError, match=re.escape(f"{patterns.split('/')[-1]}'")):
            match_files(patterns)


@pytest.mark.parametrize("name", ["a [old].txt", "runs [old]/b.txt", "[x]*/a?.txt"])
def test_existing_paths_are_not_patterns(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    (path.parent / "other").mkdir()
    assert match_files(str(path)) == [str(path)]
    assert match_files(f"{path.parent}/*.txt") == [str(path)]


def test_names_of_shards_are_expanded():
    expected = ["a.tfrecord", "b@c", "d/e-00000-of-00002", "d/e-00001-of-00002"]
    assert expand_shards("a.tfrecord, b@c ,,d/e@2") == expected
    assert expand_shards(" ,") == []
    with pytest.raises(ValueError, match="a@0"):
        expand_shards("b,a@0")


@both_schemes
def test_file_appears_only_when_complete(tmp_path, scheme):
    path = tmp_path / "new" / "out"
    with write_then_rename(f"{scheme}{path}") as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    write(f"{scheme}{path}", b"")
    assert file_size(f"{scheme}{path}") == 0
    with pytest.raises(TypeError), write_then_rename(f"{scheme}{path}") as file:
        file.writelines([b"half", None])
    assert file_size(f"{scheme}{path}") == 0
    assert os.listdir(path.parent) == ["out"]
    remove_folder(f"{scheme}{path.parent}")
    remove_folder(f"{scheme}{path.parent}")
    assert not path.parent.exists()


def test_devices_and_pipes_are_written_directly(tmp_path):
    path, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(path)
    link.symlink_to(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    for name in (path, link):
        check_file(str(name))
        write(name)
        assert os.read(reader, 10) == b"abc"
    os.close(reader)
    assert path.is_fifo()
    assert link.is_symlink()
    assert len(os.listdir(tmp_path)) == 2
    check_file(os.devnull)
    with pytest.raises(WriteError, match="/dev/full cannot"):
        write("/dev/full")


def test_links_are_followed_and_modes_are_kept(tmp_path):
    target, link, dangling = tmp_path / "other" / "file", tmp_path / "link", tmp_path / "dangling"
    target.parent.mkdir()
    target.write_text("before")
    target.chmod(0o600)
    link.symlink_to(target)
    dangling.symlink_to("other/new")
    for name in (link, dangling):
        write(name)
        assert name.is_symlink()
        assert name.read_bytes() == b"abc"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(os.listdir(target.parent)) == ["file", "new"]


@both_schemes
@pytest.mark.parametrize("size", [10, 100_000])  # fails when flushed, and when written
def test_a_full_disk_leaves_existing_files(tmp_path, scheme, size):
    path, other = tmp_path / "out", tmp_path / "other"
    path.write_bytes(b"before")
    with (
        file_size_limit(5),
        pytest.raises(WriteError, match=f"{scheme}{path} ") as raised,
        write_then_rename(f"{scheme}{path}") as file,
        write_then_rename(f"{scheme}{other}"),
    ):
        file.write(b"x" * size)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == b"before"
    assert [name for name in os.listdir(tmp_path) if name != "other"] == ["out"]
    # Worker processes pickle their errors.
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@both_schemes
def test_no_file_is_replaced_before_all_are_complete(tmp_path, scheme):
    """The buffers are written when the files are closed."""
    paths = [f"{scheme}{tmp_path}/{number}" for number in range(4)]
    write_files(dict.fromkeys(paths, "before"))
    for large in range(4):
        contents = {path: b"x" * (6000 if k == large else 7) for k, path in enumerate(paths)}
        with (
            file_size_limit(5000),
            pytest.raises(WriteError, match=f"{paths[large]} .*Existing files are unchanged"),
        ):
            write_files(contents)
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["before"] * 4


def test_replaced_files_are_reported(tmp_path):
    paths = [str(tmp_path / name) for name in "abc"]
    with (
        pytest.raises(WriteError, match=f"{paths[1]} .*Files already replaced: 1") as raised,
        write_all_then_rename(paths),
    ):
        os.mkdir(paths[1])
    assert "unchanged" not in str(raised.value)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_files_are_synced_before_they_are_renamed(tmp_path, monkeypatch):
    events = record_writes(monkeypatch)
    write_files({str(tmp_path / name): name for name in "ab"})
    assert [name for name, _ in events] == ["fsync", "fsync", "replace", "replace"]
    assert [number for _, number in events[:2]] == [number for _, number in events[2:]]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free disk space"),
        (errno.EDQUOT, "quota"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "writable"),
    ],
)
def test_advice_fits_the_error(number, advice):
    error = OSError(number, os.strerror(number))
    long = write_error("a" * 400, error)
    long.__cause__ = error
    from_tensorflow = tf.errors.UnknownError(None, None, f"a; {os.strerror(number)}")
    for one in (error, long, from_tensorflow):
        assert advice in advice_on(one)
        assert ("disk space" in advice_on(one)) is (number == errno.ENOSPC)


def test_errors_in_the_temporary_directory_name_tmpdir(tmp_path, monkeypatch):
    no_space = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for path, is_temporary in (("/a/tmp1_x2y3z4/b", True), ("/a/albert_tf_1_x2y3z4", True)):
        assert ("TMPDIR" in str(write_error(path, no_space))) is is_temporary
    assert "TMPDIR" not in str(write_error("/tmp/mine", no_space))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nonexistent"])
    output = str(tmp_path / "output")
    with pytest.raises(WriteError, match="TMPDIR") as raised, temporary_folder(output):
        tempfile.mkdtemp()
    assert output not in str(raised.value)


def test_too_many_open_files_leave_nothing(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    paths = [str(tmp_path / str(number)) for number in range(40)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, hard))
    try:
        with pytest.raises(WriteError) as raised, write_all_then_rename(paths):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "ulimit -n" in advice_on(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_write_errors_name_the_final_path(tmp_path):
    folder = str(tmp_path / "folder")
    with (
        file_size_limit(5),
        pytest.raises(WriteError, match=f"^{folder} "),
        temporary_folder(folder) as made,
    ):
        write(f"{made}/inner", b"x" * 10)
    with pytest.raises(FileNotFoundError, match="absent"), temporary_folder(folder):
        (tmp_path / "absent").read_bytes()
    with pytest.raises(WriteError, match=r"^b "), raise_write_errors("a"):
        raise write_error("b", OSError("no room"))
    (tmp_path / "file").write_text("x")
    for scheme in ("", "file://"):
        with pytest.raises(WriteError, match=r"^.*file/a "):
            write(f"{scheme}{tmp_path}/file/a")
    assert os.listdir(tmp_path) == ["file"]


@both_schemes
def test_files_and_directories_are_distinguished(tmp_path, scheme):
    (tmp_path / "b").write_text("x")
    (tmp_path / "a").mkdir()
    path = f"{scheme}{tmp_path}"
    assert folder_names(path) == ["a", "b"]
    assert folder_names(f"{path}/b") == folder_names(f"{path}/c") == []
    assert [file_exists(f"{path}/{name}") for name in "abc"] == [False, True, False]


def test_missing_permissions_are_detected(tmp_path, monkeypatch):
    """Root may write everywhere, so a missing permission is simulated."""
    real = os.access
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "own" / "file")
    monkeypatch.chdir(tmp_path)
    check_folder(str(tmp_path / "a" / "b"))
    check_file("name")
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(path) != str(tmp_path) and real(path, mode)
    )
    assert why_not_writable("a").errno == errno.EACCES
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
        assert why_not_writable("a").errno == errno.EROFS
    for path, check in (("a/b", check_folder), ("name", check_file), ("own", check_file)):
        with pytest.raises(ValueError, match=path):
            check(path)
    check_folder("own")
    check_file("link")
    assert sorted(os.listdir()) == ["link", "own"]


def test_invalid_directories_are_rejected(tmp_path):
    check_folder("gs://bucket/folder")  # remote folders are not checked
    for name in ("s3://bucket/a", "ftp://host/a", "runs [old]", "a]", "a\\b"):
        with pytest.raises(ValueError, match=re.escape(repr(name))):
            check_folder(name)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        for path in (tmp_path / name, tmp_path / name / "a"):
            with pytest.raises(ValueError, match=f"{tmp_path}/{name}'"):
                check_folder(str(path))
    with pytest.raises(ValueError, match="file/b"):
        check_file(str(tmp_path / "file" / "b"))
