"""`--dry_run` of conversions and exports: all is checked, nothing is written."""

import tempfile

import pytest

from albert_tf.checkpoints.original.files import write_checkpoint
from albert_tf.cli import convert_checkpoint, export_checkpoints, export_litert, export_to_tfhub
from albert_tf.cli.flags import DRY_RUN_PASSED
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from tests.dry_runs import run_here, tree
from tests.small_model import small_config

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
    """Whatever a command keeps anywhere lies below `tmp_path`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=COMMANDS)
def command(request, release, tmp_path, monkeypatch):
    """The module of a command, and its flags; paths are those below `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    module, model_flag, flags = COMMANDS[request.param]
    return module, {model_flag: release, **flags}


def test_nothing_is_written(command, tmp_path, capsys):
    module, flags = command
    before = tree(tmp_path)
    run_here(module, {**flags, **DRY})
    assert tree(tmp_path) == before
    assert capsys.readouterr().out == f"{DRY_RUN_PASSED}\n"


@pytest.mark.parametrize(
    ("command", "changes", "message"),
    [
        ("convert", {"output_dir": "file/out"}, "--output_dir"),
        ("convert", {"model": "whole_attention"}, "parameter_sharing"),
        ("hub", {"preprocessor_path": "new/encoder/in"}, "--preprocessor_path"),
        ("hub", {"export_path": "file/out"}, "--export_path"),
        ("weights", {"export_path": "file/model.ckpt"}, "--export_path"),
        ("litert", {"output_file": "file/a.tflite"}, "--output_file"),
        ("litert", {"max_seq_length": 100_000}, "--max_seq_length"),
    ],
    indirect=["command"],
)
def test_what_the_real_run_refuses_is_refused(command, changes, message, tmp_path, capsys):
    module, flags = command
    (tmp_path / "file").write_text("in the way")
    if "model" in changes:  # one that no other format can hold
        config = small_config(parameter_sharing="attention", num_hidden_groups=1, inner_group_num=1)
        (tmp_path / "whole_attention").mkdir()
        prefix = str(tmp_path / "whole_attention" / "model.ckpt")
        write_checkpoint(prefix, original_names(AlbertForPretraining(config)), 0)
        config.to_json_file(str(tmp_path / "whole_attention" / "albert_config.json"))
    before = tree(tmp_path)
    for more in ({}, DRY):
        with pytest.raises((ValueError, OSError), match=message):
            run_here(module, {**flags, **changes, **more})
        assert tree(tmp_path) == before
        assert DRY_RUN_PASSED not in capsys.readouterr().out
