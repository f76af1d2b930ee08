"""`export_checkpoints` writes the same checkpoint as the original."""

import re
import shutil

import numpy as np
import pytest

from albert_tf.checkpoints.convert import export_weights
from albert_tf.checkpoints.load_weights import open_checkpoint


@pytest.fixture
def directory(golden, tmp_path):
    return shutil.copytree(golden / "hub" / "albert_directory", tmp_path / "model")


def test_variables_equal_the_original(golden, directory, tmp_path):
    path = str(tmp_path / "exported" / "model.ckpt")
    names = export_weights(str(directory / "model.ckpt-best"), path)
    expected, shapes = open_checkpoint(str(golden / "hub" / "exported_checkpoint" / "model.ckpt"))
    actual, own_shapes = open_checkpoint(path)
    assert own_shapes == shapes
    assert {*names, "global_step"} == set(shapes)
    for name in shapes:
        value = actual.get_tensor(name)
        np.testing.assert_array_equal(value, expected.get_tensor(name), err_msg=name)
        assert value.dtype == expected.get_tensor(name).dtype


def test_existing_checkpoints_are_not_overwritten(directory, tmp_path):
    path = str(tmp_path / "model.ckpt")
    export_weights(str(directory / "model.ckpt-best"), path)
    with pytest.raises(ValueError, match=re.escape(path)):
        export_weights(str(directory / "model.ckpt-best"), path)


def test_missing_checkpoints_are_rejected(directory, tmp_path):
    with pytest.raises(ValueError, match=r"model\.ckpt-500"):
        export_weights(str(directory / "model.ckpt-500"), str(tmp_path / "model.ckpt"))


def test_the_checkpoint_of_a_module_is_exported(golden, tmp_path):
    path = str(tmp_path / "model.ckpt")
    assert len(export_weights(str(golden / "hub" / "module"), path)) == 32
