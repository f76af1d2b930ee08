"""Tar files of models: as they were released, damaged, and made to do harm."""

import gzip
import io
import shutil
import tarfile
from pathlib import Path

import pytest

from albert_tf.checkpoints import archives
from albert_tf.checkpoints.archives import is_indirect, local_directory
from albert_tf.checkpoints.model_source import stored_model
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
    stored = stored_model(released)
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
    assert stored_model(path).format == "tf1_hub"


def test_it_is_unpacked_once_and_a_changed_file_anew(released, golden, monkeypatch):
    first = local_directory(released)
    with monkeypatch.context() as patch:
        patch.setattr(archives, "extract", None)
        assert local_directory(released) == first
    with tarfile.open(released, "w:gz") as archive:
        archive.add(golden / "hub" / "module", "module")
    assert local_directory(released) != first


FILE, DIRECTORY = {}, {"type": tarfile.DIRTYPE}
LINK, HARD_LINK = {"type": tarfile.SYMTYPE}, {"type": tarfile.LNKTYPE}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("../outside", FILE),
        ("a/../../outside", FILE),
        ("good/below", FILE),
        (".", FILE),
        ("x" * 256, FILE),
        ("/".join("x" * 33), FILE),
        ("/".join(["x" * 200] * 6), FILE),
        ("link", {**LINK, "linkname": "/etc"}),
        ("link", {**LINK, "linkname": "good"}),
        ("hard", {**HARD_LINK, "linkname": "../good"}),
        ("hard", {**HARD_LINK, "linkname": "good"}),
        ("pipe", {"type": tarfile.FIFOTYPE}),
        ("device", {"type": tarfile.CHRTYPE}),
        ("sparse", {"type": tarfile.GNUTYPE_SPARSE}),
        ("sparse", {"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}}),
    ],
)
def test_unsafe_members_are_rejected(tmp_path, cache, name, changes):
    content = b"" if changes else b"harm"
    path = tar_of(tmp_path / "bad.tar", [("good", FILE, b"1"), (name, changes, content)])
    with pytest.raises(LoadError, match=rf"{name[:50]}") as error:
        local_directory(path)
    assert "ALBERT_TF_HOME" not in str(error.value)
    assert not (tmp_path / "outside").exists()
    assert list((cache / "unpacked").iterdir()) == []


def test_links_behind_a_path_that_is_too_long_to_resolve_overwrite_nothing(tmp_path, cache):
    members, path, deep, short = [], "", "d" * 247, "abcdefghijklmnop"
    for name in short:
        members.append((path + deep, DIRECTORY, b""))
        members.append((path + name, {**LINK, "linkname": deep}, b""))
        path += f"{deep}/"
    top = f"{'/'.join(short)}/{'l' * 254}"
    members += [
        (top, {**LINK, "linkname": "../" * len(short)}, b""),
        ("escape", {**LINK, "linkname": f"{top}/../../.."}, b""),
        ("file", {**HARD_LINK, "linkname": "escape/victim"}, b""),
        ("file", FILE, b"harm"),
    ]
    (tmp_path / "victim").write_text("mine")
    with pytest.raises(LoadError):
        local_directory(tar_of(tmp_path / "bad.tar", members))
    assert (tmp_path / "victim").read_text() == "mine"
    assert list((cache / "unpacked").iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        lambda: b"".join(tarfile.TarInfo(f"{n}").tobuf() for n in range(200)),
        lambda: b"".join(tarfile.TarInfo("/".join(f"{n}" * 20)).tobuf() for n in range(10)),
        lambda: tarfile.TarInfo("x" * 200_000).tobuf(tarfile.GNU_FORMAT),
        lambda: tarfile.TarInfo("x" * 200_000).tobuf(tarfile.PAX_FORMAT),
        lambda: tarfile.TarInfo("x" * 200).tobuf(tarfile.GNU_FORMAT)[:1024] * 200,
        lambda: bytes(5 << 20),
    ],
    ids=["members", "directories", "GNU header", "PAX header", "headers", "bytes"],
)
def test_small_files_that_become_large_are_rejected(tmp_path, cache, content, monkeypatch):
    monkeypatch.setattr(archives, "_MAX_ENTRIES", 100)
    monkeypatch.setattr(archives, "_MAX_EXTRA_BYTES", 1 << 20)
    path = tmp_path / "large.tar.gz"
    path.write_bytes(gzip.compress(content() + bytes(1024)))
    with pytest.raises(LoadError, match=r"large\.tar\.gz cannot be unpacked"):
        local_directory(str(path))
    assert list((cache / "unpacked").iterdir()) == []


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names(tmp_path, format):
    name = f"{'ü' * 60}/{'b' * 90}" if format == tarfile.USTAR_FORMAT else "ü" * 120
    path = str(tmp_path / ("n" * 240 + ".tar"))
    with tarfile.open(path, "w", format=format) as archive:
        for member, content in ((f"./{name}", b"1"), ("/other", b"2")):
            info = tarfile.TarInfo(member)
            info.size, info.mode = len(content), 0
            archive.addfile(info, io.BytesIO(content))
    directory = Path(local_directory(path))
    assert (directory / name).read_bytes() == b"1"
    assert (directory / "other").read_bytes() == b"2"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-40],
        lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
        lambda content: gzip.compress(gzip.decompress(content)[:1024]),
        lambda content: gzip.decompress(content)[:1536] + b"x" + gzip.decompress(content)[1537:],
        lambda content: (
            tarfile.TarInfo("x" * 200).tobuf(tarfile.PAX_FORMAT).replace(b" path", b"x")
        ),
    ],
    ids=["empty", "cut", "other checksum", "cut after a member", "other header", "PAX header"],
)
def test_damaged_files_leave_nothing(released, cache, damage):
    content = Path(released).read_bytes()
    Path(released).write_bytes(damage(content))
    with pytest.raises(LoadError, match=r" cannot be unpacked") as raised:
        local_directory(released)
    assert "\n" not in str(raised.value)
    assert list((cache / "unpacked").iterdir()) == []


def test_a_member_larger_than_a_model_can_be_is_not_written(tmp_path, cache):
    member = tarfile.TarInfo("model.ckpt-best.index")
    member.size = 1 << 40
    path = tmp_path / "bomb.tar"
    path.write_bytes(member.tobuf() + bytes(1024))
    with pytest.raises(LoadError, match=r"bomb\.tar cannot be unpacked"):
        local_directory(str(path))
    assert list((cache / "unpacked").iterdir()) == []


def test_no_room_for_it(released, cache):
    with file_size_limit(1000), pytest.raises(LoadError, match="ALBERT_TF_HOME"):
        local_directory(released)
    assert list((cache / "unpacked").iterdir()) == []


def test_what_a_killed_process_left_of_it_goes_with_the_next(released, cache):
    directory = Path(local_directory(released)).parent
    shutil.rmtree(directory)
    Writer("folder", directory).kill()
    assert Path(local_directory(released)).parent == directory
    assert list(directory.parent.iterdir()) == [directory]


def test_what_lies_elsewhere(released, tmp_path):
    assert is_indirect(released)
    assert is_indirect("https://tfhub.dev/google/albert_base/3")
    assert is_indirect("https://h.example/module.tar.gz")
    assert not is_indirect(str(tmp_path))
    assert not is_indirect(str(tmp_path / "absent.tar.gz"))
    assert is_indirect("mini")
