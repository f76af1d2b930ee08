"""Tar files of models: as they were released, damaged, and made to do harm."""

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from albert_tf.checkpoints import archives
from albert_tf.checkpoints.archives import is_indirect, local_directory
from albert_tf.checkpoints.formats import recognise
from albert_tf.checkpoints.report import LoadError
from tests.full_disk import file_size_limit
from tests.killed import Writer


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache that is empty."""
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def released(golden, tmp_path):
    """A tar file with one folder, as the released ones."""
    path = tmp_path / "albert_base_v2.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(golden / "hub" / "albert_directory", "albert_base")
        archive.add(golden / "hub" / "README.md", "._albert_base")  # what a Mac adds
    return str(path)


def tar_of(path, members):
    """Writes a tar file of (name, change of its entry, content)."""
    with tarfile.open(path, "w") as archive:
        for name, changes, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in changes.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return str(path)


def test_a_released_file_is_a_model(released, cache):
    stored = recognise(released, "--model")
    assert stored.format == "original"
    assert stored.path.startswith(str(cache))
    assert stored.path.endswith("albert_base")
    assert stored.checkpoint.endswith("albert_base/model.ckpt-best")
    assert stored.tokenizer_file.endswith("30k-clean.model")
    assert stored.config.num_attention_heads == 4


def test_an_archive_of_tf_hub_has_its_files_at_the_top(golden, tmp_path):
    path = str(tmp_path / "module.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(golden / "hub" / "module", ".")
    assert recognise(path, "--model").format == "tf1_hub"


def test_it_is_unpacked_once_and_a_changed_file_anew(released, golden, monkeypatch):
    first = local_directory(released, "--model")
    with monkeypatch.context() as patch:
        patch.setattr(archives, "_extract", None)
        assert local_directory(released, "--model") == first
    with tarfile.open(released, "w:gz") as archive:
        archive.add(golden / "hub" / "module", "module")
    assert local_directory(released, "--model") != first


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("../outside", {}),
        ("a/../../outside", {}),
        ("link", {"type": tarfile.SYMTYPE, "linkname": "/etc"}),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "../good"}),
        ("pipe", {"type": tarfile.FIFOTYPE}),
    ],
)
def test_members_that_could_do_harm_are_refused(tmp_path, cache, name, changes):
    content = b"" if changes else b"harm"
    path = tar_of(tmp_path / "bad.tar", [("good", {}, b"1"), (name, changes, content)])
    with pytest.raises(LoadError, match=rf"--model=.*{name}"):
        local_directory(path, "--model")
    assert not (tmp_path / "outside").exists()
    assert list((cache / "unpacked").iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-40],
        lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
    ],
    ids=["empty", "without its end", "with another checksum"],
)
def test_damaged_files_leave_nothing(released, cache, damage):
    content = Path(released).read_bytes()
    Path(released).write_bytes(damage(content))
    with pytest.raises(LoadError, match=r"--model=.* is damaged") as raised:
        local_directory(released, "--model")
    assert "\n" not in str(raised.value)
    assert list((cache / "unpacked").iterdir()) == []


def test_a_member_larger_than_a_model_can_be_is_not_written(tmp_path, cache):
    member = tarfile.TarInfo("model.ckpt-best.index")
    member.size = 1 << 40
    path = tmp_path / "bomb.tar"
    path.write_bytes(member.tobuf() + bytes(1024))
    with pytest.raises(LoadError, match=r"--model=.*bomb\.tar is not unpacked"):
        local_directory(str(path), "--model")
    assert list((cache / "unpacked").iterdir()) == []


def test_a_python_that_cannot_check_members_unpacks_nothing(released, cache, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")  # as before 3.10.12 and 3.11.4
    with pytest.raises(LoadError, match=r"3\.10\.12.*Unpack it"):
        local_directory(released, "--model")
    assert not list(cache.glob("*/*"))


def test_no_room_for_it(released, cache):
    with file_size_limit(1000), pytest.raises(LoadError, match="ALBERT_TF_HOME"):
        local_directory(released, "--model")
    assert list((cache / "unpacked").iterdir()) == []


def test_what_a_killed_process_left_of_it_goes_with_the_next(released, cache):
    directory = Path(local_directory(released, "--model")).parent
    shutil.rmtree(directory)
    Writer("folder", directory).kill()
    assert Path(local_directory(released, "--model")).parent == directory
    assert list(directory.parent.iterdir()) == [directory]


def test_what_lies_elsewhere(released, tmp_path):
    assert is_indirect(released)
    assert is_indirect("https://tfhub.dev/google/albert_base/3")
    assert is_indirect("https://h.example/module.tar.gz")
    assert not is_indirect(str(tmp_path))
    assert not is_indirect(str(tmp_path / "absent.tar.gz"))
    assert is_indirect("mini")


class TestUrl:
    def test_one_that_cannot_be_fetched_says_what_to_do(self, monkeypatch):
        def resolve(handle):
            raise OSError("no route to host")

        monkeypatch.setattr("tensorflow_hub.resolve", resolve)
        message = "--init_checkpoint=https://h.example/m .*no route.*its tar file"
        with pytest.raises(LoadError, match=message):
            recognise("https://h.example/m", "--init_checkpoint")

    def test_a_fetched_module_is_read_from_the_cache(self, golden, monkeypatch):
        module = str(golden / "hub" / "module")
        monkeypatch.setattr("tensorflow_hub.resolve", {"http://h.example/m": module}.get)
        assert recognise("http://h.example/m", "--model").path == module
