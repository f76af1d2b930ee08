"""Tests for detecting formats."""

import shutil

import pytest

from albert_tf.checkpoints.formats import find_weights
from albert_tf.checkpoints.loading import open_checkpoint
from albert_tf.checkpoints.model_source import stored_model
from albert_tf.checkpoints.report import LoadError


@pytest.mark.parametrize("path", ["", "/", "/model.ckpt-best", "/model.ckpt-best.index"], ids=repr)
def test_paths_of_a_release_directory(release, path):
    stored = stored_model(f"{release}{path}")
    assert stored.format == "original"
    assert stored.checkpoint == str(release / "model.ckpt-best")
    assert stored.config_file == str(release / "albert_config.json")


@pytest.mark.parametrize("path", ["", "/variables/variables"], ids=repr)
def test_paths_of_a_module(hub, path):
    stored = stored_model(f"{hub / 'module'}{path}")
    assert stored.format == "tf1_hub"
    assert stored.path == str(hub / "module")
    assert stored.checkpoint == str(hub / "module" / "variables" / "variables")
    assert stored.config_file == str(hub / "module" / "assets" / "albert_config.json")
    assert stored.tokenizer_file == str(hub / "module" / "assets" / "30k-clean.model")
    assert stored.do_lower_case is True


def test_finding_weights_reads_no_other_files(release):
    (release / "albert_config.json").write_text("no JSON")
    assert find_weights(str(release)) == str(release / "model.ckpt-best")


def test_checkpoints_have_priority_over_other_formats(hub, release):
    shutil.copytree(hub / "module", release, dirs_exist_ok=True)
    assert stored_model(str(release)).format == "original"


def test_directory_without_a_model_is_rejected(hub):
    with pytest.raises(LoadError, match=r"no model .*: README.md, albert_dir"):
        stored_model(str(hub))


def test_pattern_characters_in_paths(release):
    path = release.rename(release.parent / "mödel *? {a}")
    assert stored_model(str(path)).checkpoint == str(path / "model.ckpt-best")
    assert open_checkpoint(str(path / "model.ckpt-best"))[1]
    path = path.rename(release.parent / "old [2]")
    assert stored_model(str(path)).checkpoint == str(path / "model.ckpt-best")
    with pytest.raises(LoadError, match=r"old \[2\].*pattern"):
        open_checkpoint(str(path / "model.ckpt-best"))


def test_checkpoint_without_index_is_rejected(release):
    (release / "model.ckpt-best.index").unlink()
    with pytest.raises(LoadError, match=r"no model .*model.ckpt-best.data-"):
        stored_model(str(release))
