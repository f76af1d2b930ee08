"""The example of docs/adding_a_format.md works as written."""

import importlib.util
import sys

import numpy as np
import pytest

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.formats import choose as formats
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.loading import read_model
from tests.documentation import DOCS, blocks_of

NAME = "albert_tf.checkpoints.formats.npz"


@pytest.fixture
def npz(tmp_path, monkeypatch):
    """Returns the module of the format, which is in the table of formats."""
    blocks = blocks_of(DOCS / "adding_a_format.md")
    code, row, *_ = (block.text for block in blocks if block.language == "python")
    (tmp_path / "npz.py").write_text(code)
    spec = importlib.util.spec_from_file_location(NAME, tmp_path / "npz.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, NAME, module)
    spec.loader.exec_module(module)
    for name, value in eval("{" + row + "}").items():
        monkeypatch.setitem(formats._FORMATS, name, value)
    return module


def test_the_module_has_all_functions_of_a_format(npz):
    functions = [name for name in vars(formats.FormatModule) if not name.startswith("_")]
    page = (DOCS / "adding_a_format.md").read_text("utf-8")
    for name in functions:
        assert callable(getattr(npz, name))
        assert f"| `{name}(" in page
    assert len(functions) == page.count("\n| `") == 5


def test_the_format_is_detected_and_restores_the_model(npz, golden, tmp_path):
    contents = read_model(str(golden / "hub/albert_directory"))[0]
    npz.write(str(tmp_path), contents)
    for path in (tmp_path, tmp_path / "model.npz"):
        assert open_model(str(path)).format == "npz"
    again = read_model(str(tmp_path))[0]
    assert again.config == contents.config
    assert again.tokenizer.tokens == contents.tokenizer.tokens
    assert again.weights.keys() == contents.weights.keys()
    for name, value in contents.weights.items():
        np.testing.assert_array_equal(again.weights[name], value, err_msg=name)


def test_moments_are_reported_as_unsupported(npz, golden, tmp_path):
    contents = read_model(str(golden / "hub/albert_directory"))[0]
    slot = "bert/pooler/dense/bias/adam_m"
    contents = contents.with_weights({**contents.weights, slot: np.zeros(3)})
    assert npz.unsupported_weights(contents) == [slot]
    npz.write(str(tmp_path), contents)
    assert slot not in npz.open_weights(str(tmp_path / "model.npz"))


def test_incomplete_and_damaged_models_are_rejected(npz, tmp_path):
    (tmp_path / "model.npz").write_bytes(b"PK\3\4cut")
    with pytest.raises(LoadError, match=str(tmp_path)):
        open_model(str(tmp_path))
    with pytest.raises(DamagedError, match=r"model\.npz"):
        npz.open_weights(str(tmp_path / "model.npz"))
