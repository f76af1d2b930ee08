"""`--dry_run` of conversions and exports: everything is checked, nothing is written."""

import tempfile

import pytest

from albert_tf.cli import convert_checkpoint, export_checkpoints, export_litert, export_to_tfhub
from albert_tf.cli.flags import DRY_RUN_PASSED
from tests.dry_runs import run_here, tree


@pytest.mark.parametrize(
    ("module", "model_flag", "flags"),
    [
        (convert_checkpoint, "model", {"format": "huggingface", "output_dir": "new/out"}),
        (
            export_to_tfhub,
            "albert_directory",
            {"export_path": "new/encoder", "preprocessor_path": "new/preprocessor"},
        ),
        (export_checkpoints, "albert_directory", {"export_path": "new/model.ckpt"}),
        (export_litert, "model", {"output_file": "new/a.tflite", "quantization": "int8"}),
    ],
)
def test_a_dry_run_writes_nothing(module, model_flag, flags, golden, tmp_path, monkeypatch, capsys):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    model = golden / "hub" / "albert_directory"
    run_here(module, {model_flag: model, **flags, "dry_run": True})
    assert tree(tmp_path) == before
    assert capsys.readouterr().out == f"{DRY_RUN_PASSED}\n"
