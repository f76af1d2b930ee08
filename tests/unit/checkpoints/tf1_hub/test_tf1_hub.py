"""Tests for reading incomplete, damaged and other TF1 modules."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.formats import tf1_hub
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.original import write_checkpoint
from tests.saved_models import edit_graphs


@pytest.fixture
def module(golden, tmp_path):
    """Returns a copy of the recorded module."""
    return shutil.copytree(golden / "hub" / "module", tmp_path / "module")


def test_missing_assets_and_tokenization_info(module, warnings):
    shutil.rmtree(module / "assets")
    read = tf1_hub.read(str(module))
    assert (read.config_file, read.tokenizer) == (None, None)
    assert [text.split(" ")[0].rpartition("/")[2] for text in warnings] == [
        "albert_config.json",
        "30k-clean.model",
    ]
    assert read.do_lower_case is True

    edit_graphs(module, lambda graph: graph.signature_def.pop("tokenization_info"))
    assert tf1_hub.read(str(module)).do_lower_case is None


@pytest.mark.parametrize("name", ["module", "saved"])
def test_damaged_variables_are_reported(module, tmp_path, name):
    tf.saved_model.save(tf.Module(), str(tmp_path / "saved"))
    path = tmp_path / name
    index = path / "variables" / "variables.index"
    index.write_bytes(b"damaged")
    with pytest.raises(DamagedError, match=rf"{name}: .*cannot be read as a checkpoint"):
        open_model(str(path))
    index.unlink()
    with pytest.raises(LoadError, match=r"variables/variables"):
        open_model(str(path))


def test_modules_of_other_models_are_rejected(module):
    write_checkpoint(
        str(module / "variables" / "variables"), {"resnet/conv/kernel": np.zeros([2, 3])}, 7
    )
    with pytest.raises(LoadError, match=r"not a module of ALBERT.*resnet/conv/kernel"):
        tf1_hub.read(str(module))
