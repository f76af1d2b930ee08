"""`--dry_run` of conversions and exports: everything is checked, nothing is written."""

import tempfile

import pytest

from albert_tf.cli import convert_checkpoint, export_checkpoints, export_litert, export_to_tfhub
from albert_tf.cli.flags import DRY_RUN_PASSED
from tests.dry_runs import run_here, tree

DRY = {"dry_run": True}
# What each command writes of a model: its flag for the model, and further ones.
COMMANDS = {
    "convert": (convert_checkpoint, "model", {"format": "huggingface", "output_dir": "new/out"}),
    "hub": (
        export_to_tfhub,
        "albert_directory",
        {"export_path": "new/encoder", "preprocessor_path": "new/preprocessor"},
    ),
    "weights": (export_checkpoints, "albert_directory", {"export_path": "new/model.ckpt"}),
    "litert": (export_litert, "model", {"output_file": "new/a.tflite", "quantization": "int8"}),
}


@pytest.fixture
def release(golden):
    return golden / "hub" / "albert_directory"


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Moves all caches of commands into `tmp_path`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=COMMANDS)
def command(request, release, tmp_path, monkeypatch):
    """Returns the module of a command and its flags, with paths in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    module, model_flag, flags = COMMANDS[request.param]
    return module, {model_flag: release, **flags}


def test_a_dry_run_writes_nothing(command, tmp_path, capsys):
    module, flags = command
    before = tree(tmp_path)
    run_here(module, {**flags, **DRY})
    assert tree(tmp_path) == before
    assert capsys.readouterr().out == f"{DRY_RUN_PASSED}\n"
