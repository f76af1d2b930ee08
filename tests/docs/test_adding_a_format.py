"""The format that docs/adding_a_format.md makes: its code, as it stands there."""

import sys

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import convert as conversion
from albert_tf.checkpoints import formats
from albert_tf.checkpoints.loading import read_contents
from albert_tf.checkpoints.model_source import stored_model
from albert_tf.checkpoints.report import DamagedError, LoadError
from tests.documentation import DOCS, import_module, python_blocks, write_module

NAME = "albert_tf.checkpoints.npz"


@pytest.fixture
def npz(tmp_path, monkeypatch):
    """The format, in the table by the line that the page gives."""
    module = import_module(write_module("adding_a_format.md", tmp_path / "npz.py", slice(1)), NAME)
    entry = eval("{" + python_blocks("adding_a_format.md")[1] + "}", {"_Format": formats._Format})
    for name, value in entry.items():
        monkeypatch.setitem(formats._FORMATS, name, value)
    yield module
    del sys.modules[NAME]


@pytest.fixture
def in_this_process(monkeypatch):
    """Proves conversions here: a fresh process does not know the module."""

    def outputs(format_name, directory, batch, folder):
        paths = [f"{folder}/batch.npz", f"{folder}/outputs.npz"]
        np.savez(paths[0], **batch)
        conversion.main(format_name, directory, *paths)
        with np.load(paths[1]) as file:
            return dict(file)

    monkeypatch.setattr(conversion, "outputs_in_fresh_process", outputs)


def test_it_has_every_function_that_a_format_needs(npz):
    functions = [name for name in vars(formats.FormatModule) if not name.startswith("_")]
    page = (DOCS / "adding_a_format.md").read_text("utf-8")
    for name in functions:
        assert callable(getattr(npz, name))
        assert f"| `{name}(" in page
    assert len(functions) == page.count("\n| `") == 5


def test_it_is_found_and_read_as_it_was_written(npz, golden, tmp_path):
    contents = read_contents(str(golden / "hub/albert_directory"))[0]
    npz.write(str(tmp_path), contents)
    for path in (tmp_path, tmp_path / "model.npz"):
        assert stored_model(str(path)).format == "npz"
    again = read_contents(str(tmp_path))[0]
    assert again.config == contents.config
    assert again.tokenizer.tokens == contents.tokenizer.tokens
    assert again.weights.keys() == contents.weights.keys()
    for name, value in contents.weights.items():
        np.testing.assert_array_equal(again.weights[name], value, err_msg=name)


@pytest.mark.slow
def test_a_model_is_converted_to_it_and_back(npz, in_this_process, golden, tmp_path):
    source, there, back = (
        str(golden / "hub/albert_directory"),
        tmp_path / "there",
        tmp_path / "back",
    )
    report = conversion.convert(source, "npz", str(there))
    assert report.unsupported_weights == []
    assert report.has_tokenizer
    assert isinstance(albert_tf.load(there), albert_tf.AlbertForPretraining)

    conversion.convert(str(there), formats.ORIGINAL, str(back))
    before, after = read_contents(source)[0], read_contents(str(back))[0]
    assert before.weights.keys() == after.weights.keys()
    for name, value in before.weights.items():
        np.testing.assert_array_equal(after.weights[name], value, err_msg=name)


def test_moments_are_left_out_and_named(npz, golden, tmp_path):
    contents = read_contents(str(golden / "hub/albert_directory"))[0]
    slot = "bert/pooler/dense/bias/adam_m"
    contents = type(contents)(
        contents.config, {**contents.weights, slot: np.zeros(3)}, contents.tokenizer
    )
    assert npz.unsupported_weights(contents) == [slot]
    npz.write(str(tmp_path), contents)
    assert slot not in npz.open_weights(str(tmp_path / "model.npz")).get_variable_to_shape_map()


def test_half_a_model_and_damage_are_named(npz, tmp_path):
    (tmp_path / "model.npz").write_bytes(b"PK\3\4cut")
    with pytest.raises(LoadError, match=f"{tmp_path} is an incomplete model"):
        stored_model(str(tmp_path))
    with pytest.raises(DamagedError, match=r"model\.npz is damaged"):
        npz.open_weights(str(tmp_path / "model.npz"))
