"""Which format lies at a path, by whatever path it is named, and what is none."""

import shutil

import numpy as np
import pytest
from absl import logging

from albert_tf.checkpoints.formats import find_weights, recognise
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.report import LoadError


@pytest.fixture
def hub(golden, tmp_path):
    return shutil.copytree(golden / "hub", tmp_path / "hub")


@pytest.mark.parametrize("path", ["", "/", "/model.ckpt-best", "/model.ckpt-best.index"], ids=repr)
def test_a_release_directory_by_any_of_its_names(hub, path):
    stored = recognise(f"{hub / 'albert_directory'}{path}", "--model")
    assert stored.format == "original"
    assert stored.checkpoint == str(hub / "albert_directory" / "model.ckpt-best")
    assert stored.config_file == str(hub / "albert_directory" / "albert_config.json")


@pytest.mark.parametrize("path", ["", "/variables/variables"], ids=repr)
def test_a_module_by_any_of_its_names(hub, path):
    stored = recognise(f"{hub / 'module'}{path}", "--model")
    assert stored.format == "tf1_hub"
    assert stored.path == str(hub / "module")
    assert stored.checkpoint == str(hub / "module" / "variables" / "variables")
    assert stored.config_file == str(hub / "module" / "assets" / "albert_config.json")
    assert stored.tokenizer_file == str(hub / "module" / "assets" / "30k-clean.model")
    assert stored.do_lower_case is True


def test_weights_are_found_whatever_lies_beside_them(hub):
    directory = hub / "albert_directory"
    (directory / "albert_config.json").write_text("no JSON")
    assert find_weights(str(directory)) == str(directory / "model.ckpt-best")


def test_a_checkpoint_goes_before_other_formats(hub):
    shutil.copytree(hub / "module", hub / "albert_directory", dirs_exist_ok=True)
    assert recognise(str(hub / "albert_directory"), "--model").format == "original"


def test_a_directory_without_a_model_says_what_is_in_it(hub):
    with pytest.raises(LoadError, match=r"no model .*\(--model\).*It holds: README.md, albert_dir"):
        recognise(str(hub), "--model")


def test_signs_of_patterns_in_a_name_are_no_pattern(hub):
    path = shutil.copytree(hub / "albert_directory", hub / "mödel *? {a}")
    assert recognise(str(path), "--model").checkpoint == str(path / "model.ckpt-best")
    assert open_checkpoint(str(path / "model.ckpt-best"))[1]


def test_the_one_sign_that_tensorflow_cannot_take_is_said(hub):
    path = shutil.copytree(hub / "albert_directory", hub / "old [2]")
    assert recognise(str(path), "--model").checkpoint == str(path / "model.ckpt-best")
    with pytest.raises(LoadError, match=r"old \[2\].*pattern"):
        open_checkpoint(str(path / "model.ckpt-best"))


def test_half_a_tokenizer_is_said(hub, monkeypatch):
    said = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: said.append(text % values))
    (hub / "albert_directory" / "30k-clean.model").unlink()
    stored = recognise(str(hub / "albert_directory"), "--model")
    assert stored.tokenizer_file is None
    assert len(said) == 1
    assert "30k-clean.vocab" in said[0]
    assert "30k-clean.model" in said[0]


def test_half_a_checkpoint(hub):
    (hub / "albert_directory" / "model.ckpt-best.index").unlink()
    with pytest.raises(LoadError, match=r"--model=.*incomplete.*: model.ckpt-best.data-.*\.index"):
        recognise(str(hub / "albert_directory"), "--model")


def test_opening_gives_shapes_in_order(hub):
    reader, shapes = open_checkpoint(str(hub / "albert_directory" / "model.ckpt-best"))
    assert list(shapes) == sorted(shapes)
    assert shapes["cls/predictions/output_bias"] == [1000]
    assert np.shape(reader.get_tensor("cls/predictions/output_bias")) == (1000,)
