"""Tests for errors of exports to TF-Hub."""

import shutil
from pathlib import Path

import pytest

from albert_tf.serving import hub
from albert_tf.serving.hub import export_hub_module


@pytest.fixture
def release(golden):
    return str(golden / "hub" / "albert_directory")


@pytest.mark.parametrize("flag", ["export_path", "preprocessor_path"])
def test_existing_directories_are_rejected(release, tmp_path, flag):
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    paths = {"export_path": str(other), "preprocessor_path": str(other / "p"), flag: str(full)}
    with pytest.raises(ValueError, match="full already exists"):
        export_hub_module(release, **paths)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert (full / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("inner", ["", "/inside"])
def test_nested_targets_are_rejected(release, tmp_path, inner):
    paths = f"{tmp_path}/a", f"{tmp_path}/a{inner}"
    for pair in (paths, paths[::-1]):
        with pytest.raises(ValueError, match="must be different, and not inside each other"):
            export_hub_module(release, pair[0], preprocessor_path=pair[1])


def test_preprocessor_of_tf1_modules_is_rejected(release, tmp_path):
    with pytest.raises(ValueError, match="`preprocessor_path` requires `format`=tf2"):
        export_hub_module(
            release, f"{tmp_path}/a", format="tf1_hub", preprocessor_path=f"{tmp_path}/b"
        )


def test_missing_tokenizer_is_rejected(release, tmp_path):
    source = shutil.copytree(
        release, tmp_path / "source", ignore=shutil.ignore_patterns("30k-clean*")
    )
    with pytest.raises(ValueError, match="no tokenizer in the model"):
        export_hub_module(str(source), f"{tmp_path}/a", preprocessor_path=f"{tmp_path}/b")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_failed_encoder_leaves_no_preprocessor(release, tmp_path, monkeypatch):
    written = []

    def fail(*_, **__):
        written.extend(path.name for path in tmp_path.iterdir())
        raise ValueError("computes something else")

    monkeypatch.setattr(hub, "convert", fail)
    monkeypatch.setattr(hub, "write_preprocessor", lambda path, *_: Path(path, "a").touch())
    with pytest.raises(ValueError, match="computes something else"):
        export_hub_module(release, f"{tmp_path}/a", preprocessor_path=f"{tmp_path}/b")
    assert len(written) == 1
    assert not list(tmp_path.iterdir())


def test_missing_checkpoint_is_rejected(release, tmp_path):
    with pytest.raises(ValueError, match=r"model\.ckpt-7"):
        export_hub_module(f"{release}/model.ckpt-7", f"{tmp_path}/a", format="tf1_hub")
    assert not list(tmp_path.iterdir())
