"""`--dry_run` of fine-tuning commands: checks everything, logs the plan, writes nothing."""

import json

import pytest

from albert_tf.cli import run_classifier, run_race, run_squad
from albert_tf.cli.flags import DRY_RUN_PASSED
from tests.choice_run import ChoiceRun
from tests.classifier_run import ClassifierRun
from tests.dry_runs import logged_plan, run_here, tree
from tests.squad_run import SquadRun


def without_machine(plan):
    """Returns the part of a plan that concerns training."""
    return {name: value for name, value in plan.items() if name[:4] not in ("free", "avai")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "kind", "actions"),
    [
        (run_classifier, ClassifierRun, ("do_train", "do_eval", "do_predict")),
        (run_squad, SquadRun, ("do_train", "do_predict")),
        (run_race, ChoiceRun, ("do_train", "do_eval", "do_predict")),
    ],
)
def test_a_dry_run_logs_the_plan_and_writes_nothing(
    module, kind, actions, tmp_path, golden, capsys, caplog
):
    caplog.set_level("INFO", logger="absl")
    run = kind(tmp_path, golden)
    flags = run.flags(**dict.fromkeys(actions, True))
    before = tree(tmp_path)
    run_here(module, {**flags, "dry_run": True})
    assert tree(tmp_path) == before
    assert capsys.readouterr().out.endswith(f"{DRY_RUN_PASSED}\n")
    plan = logged_plan(caplog.text)
    assert (plan["steps"], plan["checkpoints"]) == ("6", "3")
    caplog.clear()
    run_here(module, flags)
    assert DRY_RUN_PASSED not in capsys.readouterr().out
    assert without_machine(logged_plan(caplog.text)) == without_machine(plan)
    assert len(list(run.output.glob("model.ckpt-[0-9]*.index"))) == 3
    config = json.loads((run.output / "run_config.json").read_text())["config"]
    assert plan["examples"] == str(config["input"]["examples"])
    caplog.clear()
    run_here(module, {**flags, "dry_run": True})
    plan = logged_plan(caplog.text)
    assert (plan["steps"], plan["last_step"], plan["checkpoints"]) == ("0", "6", "0")
