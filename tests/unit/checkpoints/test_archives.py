"""Tests for tar files of models: released, damaged and malicious ones."""

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from albert_tf.checkpoints import archives
from albert_tf.checkpoints.archives import local_directory
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.choose import open_model
from tests.full_disk import file_size_limit, record_writes


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Returns an empty cache."""
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def released(golden, tmp_path):
    """Writes a tar file with one directory, like the released ones."""
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


def test_archive_is_unpacked_again_only_if_it_changed(released, golden, monkeypatch):
    first = local_directory(released)
    with monkeypatch.context() as patch:
        patch.setattr(archives, "extract", None)
        assert local_directory(released) == first
    with tarfile.open(released, "w:gz") as archive:
        archive.add(golden / "hub" / "module", ".")  # without a top directory
    assert local_directory(released) != first
    assert open_model(released).format == "tf1_hub"


FILE = {}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("../outside", FILE),
        ("a/../../outside", FILE),
        ("good/below", FILE),
        ("x" * 256, FILE),
        ("/".join("x" * 33), FILE),
        ("/".join(["x" * 200] * 6), FILE),
        ("link", {"type": tarfile.SYMTYPE, "linkname": "good"}),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "good"}),
        ("pipe", {"type": tarfile.FIFOTYPE}),
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


def pax_header(kind, **records):
    return tarfile.TarInfo._create_pax_generic_header(records, kind, "utf-8")


def huge_member():
    member = tarfile.TarInfo("model.ckpt-best.index")
    member.size = 1 << 40
    return member


@pytest.mark.parametrize(
    "content",
    [
        lambda: b"".join(tarfile.TarInfo(f"{n}").tobuf() for n in range(200)),
        lambda: b"".join(tarfile.TarInfo("/".join(f"{n}" * 20)).tobuf() for n in range(10)),
        lambda: tarfile.TarInfo("x" * 200_000).tobuf(tarfile.GNU_FORMAT),
        lambda: tarfile.TarInfo("x" * 200_000).tobuf(tarfile.PAX_FORMAT),
        lambda: tarfile.TarInfo("x" * 200).tobuf(tarfile.GNU_FORMAT)[:1024] * 200,
        lambda: bytes(5 << 20),
        lambda: huge_member().tobuf(),
        lambda: pax_header(tarfile.XHDTYPE, size="-512") + tarfile.TarInfo("x").tobuf(),
        lambda: pax_header(tarfile.XGLTYPE, path="x") + tarfile.TarInfo("y").tobuf(),
    ],
    ids=[
        *("members", "directories", "GNU header", "PAX header", "headers", "bytes", "size"),
        *("negative size", "name of all members"),
    ],
)
def test_archives_beyond_limits_are_rejected(tmp_path, cache, content, monkeypatch):
    monkeypatch.setattr(archives, "_MAX_ENTRIES", 100)
    monkeypatch.setattr(archives, "_MAX_EXTRA_BYTES", 1 << 20)
    path = tmp_path / "large.tar.gz"
    path.write_bytes(gzip.compress(content() + bytes(1024)))
    with pytest.raises(LoadError, match=r"large\.tar\.gz cannot be unpacked"):
        local_directory(str(path))
    assert list((cache / "unpacked").iterdir()) == []


def test_global_headers_take_no_memory(tmp_path):
    path = tmp_path / "many.tar"
    header = pax_header(tarfile.XGLTYPE, **{f"{n}": "" for n in range(1500)})
    members = (tarfile.TarInfo(f"{n}").tobuf() for n in range(2000))
    path.write_bytes(header + b"".join(members) + bytes(1024))
    tracemalloc.start()
    try:
        assert len(list(Path(local_directory(str(path))).iterdir())) == 2000
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_non_ascii_names_are_extracted(tmp_path, format):
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
        lambda content: content[:-40],
        lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
        lambda content: gzip.compress(gzip.decompress(content)[:1024]),
        lambda content: gzip.compress(gzip.decompress(content).replace(b"ustar", b"other")),
        lambda content: gzip.compress(gzip.decompress(content)[:512] + b"damaged!" * 64),
    ],
    ids=["cut", "other checksum", "cut after a member", "first header", "second header"],
)
def test_damaged_archives_are_rejected(released, cache, damage):
    content = Path(released).read_bytes()
    Path(released).write_bytes(damage(content))
    with pytest.raises(LoadError, match=r" cannot be unpacked") as raised:
        local_directory(released)
    assert "\n" not in str(raised.value)
    assert list((cache / "unpacked").iterdir()) == []


def test_files_are_on_disk_before_an_archive_counts_as_unpacked(released, cache, monkeypatch):
    events = record_writes(monkeypatch)
    directory = Path(local_directory(released))
    (unpacked,) = (cache / "unpacked").iterdir()
    renamed = events.index(("replace", unpacked.stat().st_ino))
    for file in directory.iterdir():
        assert ("fsync", file.stat().st_ino) in events[:renamed]


def test_full_disk_is_reported(released, cache):
    with file_size_limit(1000), pytest.raises(LoadError, match="ALBERT_TF_HOME"):
        local_directory(released)
    assert list((cache / "unpacked").iterdir()) == []
