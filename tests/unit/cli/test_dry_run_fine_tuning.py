"""`--dry_run` of the commands that fine-tune: all is checked, nothing is written."""

import pytest

from albert_tf.cli import run_classifier, run_race, run_squad
from tests.choice_run import ChoiceRun
from tests.classifier_run import ClassifierRun
from tests.dry_runs import blocks, run_here, tree
from tests.squad_run import SquadRun

KINDS = {
    "classifier": (run_classifier, ClassifierRun, {"do_eval": True, "do_predict": True}),
    "squad": (run_squad, SquadRun, {"do_predict": True}),
    "race": (run_race, ChoiceRun, {"do_eval": True, "do_predict": True}),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def command(kind, tmp_path, golden):
    """The module of a command, a run of it, and the flags of all it does."""
    module, run, actions = KINDS[kind]
    return module, run(tmp_path, golden), {**actions, "do_train": True, "dry_run": True}


def test_the_plan_is_printed_and_nothing_is_written(command, tmp_path, capsys):
    module, run, actions = command
    before = tree(tmp_path)
    run_here(module, run.flags(**actions))
    assert tree(tmp_path) == before
    printed = capsys.readouterr().out
    plan = blocks(printed)
    assert "Starting from random weights" in plan["Start"]["weights"]
    assert plan["Checkpoints"]["to be written"] == "3, after steps 2, 4, 6"
    assert plan["Evaluation"]["when"] == "at each of the 3 checkpoints"
    assert "model.ckpt-best.*" in plan["Files"][f"in {run.output}"]
    assert printed.endswith("This was a dry run: nothing was written.\n")


@pytest.mark.parametrize("kind", ["classifier"], indirect=True)
def test_the_load_report_is_that_of_the_weights(command, capsys):
    module, run, actions = command
    run_here(module, run.flags(**actions, init_checkpoint=run.pretrained()))
    start = blocks(capsys.readouterr().out)["Start"]
    assert start["weights"].startswith(f"Starting from {run.folder}/pretrained.ckpt: ")
    assert "not in the checkpoint, freshly initialised: output_weights" in start.values()
