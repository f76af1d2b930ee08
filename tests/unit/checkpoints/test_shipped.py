"""The models that come with the package: whole, checked, and found by their names."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import albert_tf
from albert_tf.checkpoints import names
from albert_tf.checkpoints.formats import find_weights
from albert_tf.checkpoints.huggingface.weights import hugging_face_name
from albert_tf.checkpoints.model_source import stored_model
from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.checkpoints.report import DamagedError, LoadError
from albert_tf.modeling.original_names import original_names
from tests.small_model import resolve

FOLDER = Path(albert_tf.__file__).parent / "pretrained" / "mini"
FILES = [line.split("  ")[1] for line in (FOLDER / names.CHECKSUMS).read_text().splitlines()]


@pytest.fixture(scope="module")
def mini():
    return albert_tf.load("mini")


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the model, which is taken for the one that comes with the package."""
    monkeypatch.setattr(names, "_FOLDER", str(tmp_path))
    return shutil.copytree(FOLDER, tmp_path / "mini")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working directory."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_its_files_are_small_and_all_but_the_card_have_checksums():
    there = {path.name for path in FOLDER.iterdir()}
    assert there == {*FILES, names.CHECKSUMS, names.CARD}
    assert {"config.json", "model.safetensors", "spiece.model"} <= set(FILES)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 8_000_000
    subprocess.run(["sha256sum", "-c", "--quiet", names.CHECKSUMS], cwd=FOLDER, check=True)


def test_the_weights_are_those_of_the_file_in_float32(mini):
    stored = load_file(FOLDER / "model.safetensors")
    assert {values.dtype for values in stored.values()} == {np.dtype("float16")}
    assert isinstance(mini, albert_tf.AlbertForPretraining)
    variables = original_names(mini)
    assert len(variables) == len(stored)
    for name, variable in variables.items():
        values = stored[hugging_face_name(name, has_heads=True)].astype(np.float32)
        assert variable.dtype == "float32"
        np.testing.assert_array_equal(
            variable, values.T if name.endswith("/kernel") else values, err_msg=name
        )


def test_configuration_and_tokenizer_come_along(mini):
    config = json.loads((FOLDER / "config.json").read_text())
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings")
    assert {name: getattr(mini.config, name) for name in sizes} == {n: config[n] for n in sizes}
    tokenizer = albert_tf.load_tokenizer("mini")
    assert tokenizer.vocab_size == config["vocab_size"]
    assert tokenizer.tokenize("A Café") == tokenizer.tokenize("a cafe")
    ((blank,),) = albert_tf.FillMask.load("mini")(["one [MASK] three"], top_k=7)
    assert len(blank) == 7


def refusal(path, content):
    """What is said when a file has another content, or is missing."""
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DamagedError) as error:
        stored_model("mini")
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused(copy, name):
    content = (copy / name).read_bytes()
    middle = len(content) // 2
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    for damaged in (changed, changed[:-1], None):
        told = refusal(copy / name, damaged)
        assert "mini" in told
        assert "--force-reinstall" in told
        for there in (content, damaged) if damaged is not None else ():
            assert hashlib.sha256(there).hexdigest() in told


@pytest.mark.parametrize("content", [b"", b"no sums\n", b"\xff" * 66, None])
def test_a_damaged_list_of_checksums_is_refused(copy, content):
    refusal(copy / names.CHECKSUMS, content)


def test_a_directory_of_that_name_counts_before_it(elsewhere, golden, monkeypatch):
    warnings = []
    monkeypatch.setattr(
        names.logging, "log_first_n", lambda level, text, n, *values: warnings.append(values)
    )
    assert stored_model("mini").path == str(FOLDER)
    shutil.copytree(golden / "hub" / "albert_directory", elsewhere / "mini")
    warnings.clear()
    assert stored_model("mini").path == "mini"
    assert warnings[0] == ("mini", str(elsewhere / "mini"))
    assert stored_model(str(FOLDER)).path == str(FOLDER)


def test_a_checkpoint_of_that_name_counts_before_it(elsewhere):
    assert find_weights("mini") == str(FOLDER / "model.safetensors")
    write_checkpoint("mini", {"a": np.ones(2, np.float32)}, 0)
    assert find_weights("mini") == "mini"


def test_other_names_are_errors_that_say_which_there_is(elsewhere):
    for is_handle in (True, False):
        with pytest.raises(ValueError, match=r"minni.*'mini'"):
            stored_model("minni", is_handle=is_handle)
    with pytest.raises(LoadError, match=r"'minni'.*'mini'"):
        albert_tf.load("minni")


class TestParts:
    """Of other models, which flags name beside it."""

    @pytest.fixture(params=["albert_hub_module_handle", "init_checkpoint"])
    def named(self, request):
        return {request.param: "mini"}

    @pytest.fixture
    def others(self, golden):
        return golden / "hub" / "albert_directory"

    @pytest.mark.parametrize("flag", ["spm_model_file", "vocab_file"])
    def test_another_tokenizer_is_refused(self, named, others, flag):
        path = str(others / "30k-clean.model")
        with pytest.raises(ValueError, match=r"30k-clean\.model.*spiece\.model"):
            resolve(**named, **{flag: path})

    def test_another_configuration_is_refused(self, named, others):
        with pytest.raises(ValueError, match=r"config\.json.*albert_config\.json"):
            resolve(**named, albert_config_file=str(others / "albert_config.json"))


def test_its_name_needs_no_tensorflow():
    program = (
        "import sys, albert_tf; from albert_tf.checkpoints import names; "
        "names.bundled_directory('mini'); assert 'tensorflow' not in sys.modules"
    )
    root = Path(albert_tf.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(root)}, check=True
    )
