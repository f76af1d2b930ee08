"""Tests for detecting formats."""

import shutil

import pytest

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.choose import open_model, open_weights


@pytest.mark.parametrize("path", ["", "/", "/model.ckpt-best", "/model.ckpt-best.index"], ids=repr)
def test_paths_of_a_release_directory(hub, path):
    folder = hub / "albert_directory"
    stored = open_model(f"{folder}{path}")
    assert stored.format == "original"
    assert stored.checkpoint == str(folder / "model.ckpt-best")
    assert stored.config_file == str(folder / "albert_config.json")


@pytest.mark.parametrize("path", ["", "/variables/variables"], ids=repr)
def test_paths_of_a_module(hub, path):
    folder, stored = hub / "module", open_model(f"{hub / 'module'}{path}")
    assert stored.format == "tf1_hub"
    assert stored.checkpoint == str(folder / "variables" / "variables")
    assert stored.config_file == str(folder / "assets" / "albert_config.json")
    assert stored.stored_tokenizer.files[0] == str(folder / "assets" / "30k-clean.model")
    assert stored.do_lower_case is True


def test_checkpoints_have_priority_over_other_formats_and_files(hub, release):
    shutil.copytree(hub / "module", release, dirs_exist_ok=True)
    assert open_model(str(release)).format == "original"
    (release / "albert_config.json").write_text("no JSON")  # not read to find the weights
    assert open_weights(str(release)).source == str(release / "model.ckpt-best")


def test_directory_without_a_model_is_rejected(hub):
    with pytest.raises(LoadError, match=r"no model .*: README.md, albert_dir"):
        open_model(str(hub))


def test_pattern_characters_in_paths(release):
    path = release.rename(release.parent / "mödel *? {a}")
    assert open_model(str(path)).checkpoint == str(path / "model.ckpt-best")
    assert open_weights(str(path / "model.ckpt-best"))
    path = path.rename(release.parent / "old [2]")
    assert open_model(str(path)).checkpoint == str(path / "model.ckpt-best")
    with pytest.raises(LoadError, match=r"old \[2\].*pattern"):
        open_weights(str(path / "model.ckpt-best"))


def test_checkpoint_without_index_is_rejected(release):
    (release / "model.ckpt-best.index").unlink()
    with pytest.raises(LoadError, match=r"no model .*model.ckpt-best.data-"):
        open_model(str(release))
