"""Which format lies at a path, by whatever path it is named, and what is none."""

import shutil

import numpy as np
import pytest

from albert_tf.checkpoints.formats import find_weights
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.model_source import stored_model
from albert_tf.checkpoints.report import LoadError


@pytest.mark.parametrize("path", ["", "/", "/model.ckpt-best", "/model.ckpt-best.index"], ids=repr)
def test_a_release_directory_by_any_of_its_names(release, path):
    stored = stored_model(f"{release}{path}")
    assert stored.format == "original"
    assert stored.checkpoint == str(release / "model.ckpt-best")
    assert stored.config_file == str(release / "albert_config.json")


@pytest.mark.parametrize("path", ["", "/variables/variables"], ids=repr)
def test_a_module_by_any_of_its_names(hub, path):
    stored = stored_model(f"{hub / 'module'}{path}")
    assert stored.format == "tf1_hub"
    assert stored.path == str(hub / "module")
    assert stored.checkpoint == str(hub / "module" / "variables" / "variables")
    assert stored.config_file == str(hub / "module" / "assets" / "albert_config.json")
    assert stored.tokenizer_file == str(hub / "module" / "assets" / "30k-clean.model")
    assert stored.do_lower_case is True


def test_weights_are_found_whatever_lies_beside_them(release):
    (release / "albert_config.json").write_text("no JSON")
    assert find_weights(str(release)) == str(release / "model.ckpt-best")


def test_a_checkpoint_goes_before_other_formats(hub, release):
    shutil.copytree(hub / "module", release, dirs_exist_ok=True)
    assert stored_model(str(release)).format == "original"


def test_a_directory_without_a_model_says_what_is_in_it(hub):
    with pytest.raises(LoadError, match=r"no model .*: README.md, albert_dir"):
        stored_model(str(hub))


def test_signs_of_patterns_in_a_name_are_no_pattern_but_one_that_is_said(release):
    path = release.rename(release.parent / "mödel *? {a}")
    assert stored_model(str(path)).checkpoint == str(path / "model.ckpt-best")
    assert open_checkpoint(str(path / "model.ckpt-best"))[1]
    path = path.rename(release.parent / "old [2]")
    assert stored_model(str(path)).checkpoint == str(path / "model.ckpt-best")
    with pytest.raises(LoadError, match=r"old \[2\].*pattern"):
        open_checkpoint(str(path / "model.ckpt-best"))


def test_half_a_model_is_said(release, warnings):
    (release / "30k-clean.model").unlink()
    assert stored_model(str(release)).tokenizer_file is None
    (warning,) = warnings
    assert "30k-clean.vocab" in warning
    assert "30k-clean.model" in warning
    (release / "model.ckpt-best.index").unlink()
    with pytest.raises(LoadError, match=r"incomplete.*: model.ckpt-best.data-.*\.index"):
        stored_model(str(release))


def test_opening_gives_shapes_in_order(hub):
    reader, shapes = open_checkpoint(str(hub / "albert_directory" / "model.ckpt-best"))
    assert list(shapes) == sorted(shapes)
    assert shapes["cls/predictions/output_bias"] == [1000]
    assert np.shape(reader.get_tensor("cls/predictions/output_bias")) == (1000,)
