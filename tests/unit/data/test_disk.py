"""Whether files can be written somewhere, without writing."""

import os
import shutil

import pytest

from albert_tf.data.files import check_file, check_folder, free_bytes


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
