"""Tests for the bundled models."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import downloads
from albert_tf.checkpoints.errors import DamagedError
from albert_tf.checkpoints.formats.choose import open_model, open_weights
from albert_tf.checkpoints.formats.original import write_checkpoint

FOLDER = Path(albert_tf.__file__).parent / "pretrained" / "mini"
FILES = [line.split("  ")[1] for line in (FOLDER / downloads.CHECKSUMS).read_text().splitlines()]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Copies the model and uses the copy as the bundled model."""
    monkeypatch.setattr(downloads, "_FOLDER", str(tmp_path))
    return shutil.copytree(FOLDER, tmp_path / "mini")


def test_files_are_small_and_have_checksums():
    there = {path.name for path in FOLDER.iterdir()}
    assert there == {*FILES, downloads.CHECKSUMS, downloads.CARD}
    assert {"config.json", "model.safetensors", "spiece.model"} <= set(FILES)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 8_000_000
    subprocess.run(["sha256sum", "-c", "--quiet", downloads.CHECKSUMS], cwd=FOLDER, check=True)


@pytest.mark.parametrize("name", [*FILES, downloads.CHECKSUMS])
def test_damaged_files_are_rejected(copy, name):
    path = copy / name
    content = path.read_bytes()
    middle = len(content) // 2
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    texts = (b"", b"no sums\n", b"\xff" * 66)
    for damaged in texts if name == downloads.CHECKSUMS else (changed, content[:-1]):
        path.write_bytes(damaged)
        assert_rejected(path)
    path.unlink()
    assert_rejected(path)


def assert_rejected(path):
    with pytest.raises(DamagedError, match=r"mini.*--force-reinstall") as error:
        open_model("mini")
    assert str(path) in str(error.value)


def test_existing_checkpoint_has_priority(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_weights("mini").source == str(FOLDER / "model.safetensors")
    write_checkpoint("mini", {"a": np.ones(2, np.float32)}, 0)
    assert open_weights("mini").source == "mini"
