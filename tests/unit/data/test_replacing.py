"""Directories and checkpoints are replaced without a moment without a complete one."""

import os
from pathlib import Path

import pytest

from albert_tf.data.files import WriteError, existing_path, finish, temporary_folder
from tests.full_disk import CHANGES, before_changes, record_writes

# Endings of the renamed paths, and the files after an existing path
KINDS = {"folder": (("",), ("/a", "/b/c")), "files": ((".data", ".index"), (".data", ".index"))}
kinds = pytest.mark.parametrize("kind", KINDS)


def put(kind: str, path: str, content: str) -> None:
    endings, files = KINDS[kind]
    with temporary_folder(path) as folder:
        made = folder if kind == "folder" else os.path.join(folder, os.path.basename(path))
        for name in files:
            os.makedirs(os.path.dirname(made + name), exist_ok=True)
            Path(made + name).write_text(content)
        finish(made, path, endings, overwrite=True)


def content(kind: str, path: str) -> str:
    """Returns the content of all files, which must be equal."""
    endings, files = KINDS[kind]
    there = existing_path(path, endings[-1])
    (found,) = {Path(there + name).read_text() for name in files}
    return found


@pytest.fixture
def path(tmp_path):
    (tmp_path / "parent").mkdir()
    return str(tmp_path / "parent" / "model")


@kinds
def test_a_killed_process_leaves_one_of_both(path, kind, monkeypatch):
    found = []
    put(kind, path, "old")
    with monkeypatch.context() as patch:
        before_changes(patch, lambda *_: found.append(content(kind, path)))
        put(kind, path, "new")
    assert found == sorted(found, reverse=True)
    assert {*found} == {"old", "new"}
    assert len(os.listdir(os.path.dirname(path))) == len(KINDS[kind][0])


@kinds
def test_an_error_leaves_one_of_both(path, kind, monkeypatch):
    put(kind, path, "old")
    events = record_writes(monkeypatch, CHANGES)
    put(kind, path, "new")
    for number in range(len(events)):
        monkeypatch.undo()
        put(kind, path, "old")

        def fail(name, inode, left=iter(range(number, -1, -1))):  # noqa: B008
            if next(left, None) == 0:
                raise OSError(5, "Input/output error")

        before_changes(monkeypatch, fail)
        try:
            put(kind, path, "new")
        except WriteError:
            assert content(kind, path) in ("old", "new")
        else:
            assert content(kind, path) == "new"
        assert os.path.exists(path + KINDS[kind][0][-1])


@kinds
def test_all_files_are_on_disk_before_the_old_ones_are_removed(path, kind, monkeypatch):
    put(kind, path, "old")
    folder = Path(os.path.dirname(path))
    old = {file.stat().st_ino for file in folder.rglob("*") if file.is_file()}
    events = record_writes(monkeypatch, CHANGES)
    put(kind, path, "new")
    new = {file.stat().st_ino for file in folder.rglob("*")}
    for inode in new:
        assert ("fsync", inode) in events
    renamed = [i for i, event in enumerate(events) if event[0] == "replace" and event[1] in new]
    assert all(events.index(("fsync", inode)) < renamed[0] for inode in new)
    removed = [i for i, (name, inode) in enumerate(events) if name == "unlink" and inode in old]
    removed += [i for i, (name, _) in enumerate(events) if name == "remove"][-1:]
    assert ("fsync", folder.stat().st_ino) in events[renamed[-1] : min(removed)]


def test_a_directory_is_only_replaced_on_request(path):
    put("folder", path, "old")
    with pytest.raises(WriteError), temporary_folder(path) as made:
        finish(made, path)
    assert content("folder", path) == "old"
    assert os.listdir(os.path.dirname(path)) == ["model"]


@kinds
def test_file_systems_without_links_and_remote_paths(path, kind, monkeypatch):
    def fail(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    for text in ("old", "new"):
        put(kind, path, text)
        assert content(kind, path) == text
    endings = KINDS[kind][0]
    with temporary_folder(f"file://{path}2") as folder:
        made = folder if kind == "folder" else f"{folder}/model2"
        for ending in endings:
            if kind == "files":
                Path(made.removeprefix("file://") + ending).write_text("far")
        finish(made, f"file://{path}2", endings)
    assert all(os.path.exists(f"{path}2{ending}") for ending in endings)
