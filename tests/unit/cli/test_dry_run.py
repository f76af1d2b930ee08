"""`--dry_run`: everything is checked, the plan is logged, nothing is written."""

import json
import tempfile

import pytest

from albert_tf.cli import (
    convert_checkpoint,
    export_checkpoints,
    export_litert,
    export_onnx,
    export_to_tfhub,
    run_classifier,
    run_race,
    run_squad,
    run_token_classifier,
)
from albert_tf.cli.flags import DRY_RUN_PASSED
from tests.choice_run import ChoiceRun
from tests.classifier_run import ClassifierRun
from tests.run_in_process import logged_plan, run_here, tree
from tests.squad_run import SquadRun
from tests.token_run import TokenRun

CONVERSIONS = [
    (convert_checkpoint, "model", {"format": "huggingface", "output_dir": "new/out"}),
    (
        export_to_tfhub,
        "albert_directory",
        {"export_path": "new/encoder", "preprocessor_path": "new/preprocessor"},
    ),
    (export_checkpoints, "albert_directory", {"export_path": "new/model.ckpt"}),
    (export_litert, "model", {"output_file": "new/a.tflite", "quantization": "int8"}),
    (export_onnx, "model", {"output_file": "new/a.onnx", "quantization": "int8"}),
]


@pytest.mark.parametrize(("module", "model_flag", "flags"), CONVERSIONS)
def test_conversions_and_exports(module, model_flag, flags, golden, tmp_path, monkeypatch, capsys):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    model = golden / "hub" / "albert_directory"
    run_here(module, {model_flag: model, **flags, "dry_run": True})
    assert tree(tmp_path) == before
    assert capsys.readouterr().out == f"{DRY_RUN_PASSED}\n"


@pytest.mark.parametrize(
    ("module", "kind", "actions"),
    [
        (run_classifier, ClassifierRun, ["do_train", "do_eval"]),
        (run_race, ChoiceRun, ["do_train", "do_eval"]),
        (run_squad, SquadRun, ["do_train", "do_predict"]),
        (run_token_classifier, TokenRun, ["do_train", "do_eval"]),
    ],
)
def test_unknown_pieces_are_counted_per_file(module, kind, actions, tmp_path, golden, caplog):
    caplog.set_level("DEBUG", logger="absl")
    flags = kind(tmp_path, golden).flags(dry_run=True, **dict.fromkeys(actions, True))
    run_here(module, flags)
    lines = [message for message in caplog.messages if "pieces_per_word=" in message]
    assert len(lines) == 2
    assert all(": pieces=" in line and " unknown_pieces=" in line for line in lines)


def test_equal_labels_of_words_are_reported(tmp_path, golden, caplog):
    run = TokenRun(tmp_path, golden)
    (tmp_path / "dev.conll").write_text("the O\nroad O\n\n" * 9)
    run_here(run_token_classifier, run.flags(do_train=True, do_eval=True, dry_run=True))
    assert "dev.conll: all 18 words have the label 'O'" in caplog.text


@pytest.mark.slow
def test_fine_tuning(tmp_path, golden, capsys, caplog):
    def plan_of(**changes):
        caplog.clear()
        run_here(run_squad, {**flags, **changes})
        return logged_plan(caplog.text)

    caplog.set_level("DEBUG", logger="absl")
    run = SquadRun(tmp_path, golden)
    flags = run.flags(do_train=True, do_predict=True)
    before = tree(tmp_path)
    plan = plan_of(dry_run=True)
    assert tree(tmp_path) == before
    assert capsys.readouterr().out.endswith(f"{DRY_RUN_PASSED}\n")
    assert plan["steps"] == 6
    assert plan_of() == plan
    assert DRY_RUN_PASSED not in capsys.readouterr().out
    assert len(list(run.output.glob("model.ckpt-[0-9]*.index"))) == 3
    config = json.loads((run.output / "run_config.json").read_text())["config"]
    assert plan["examples"] == config["input"]["examples"]
    plan = plan_of(dry_run=True)
    assert plan["steps"] == 0
