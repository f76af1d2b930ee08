"""`--dry_run` of fine-tuning commands: checks everything, logs the plan, writes nothing."""

import json

import numpy as np
import pytest

from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.cli import run_classifier, run_race, run_squad
from albert_tf.cli.flags import DRY_RUN_PASSED
from albert_tf.data.text_examples import Labels
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.modeling.original_names import original_names
from tests.choice_run import ChoiceRun
from tests.classifier_run import LABELS, ClassifierRun
from tests.dry_runs import logged_plan, run_here, tree
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
    """Returns the module of a command, a run, and flags for all actions."""
    module, run, actions = KINDS[kind]
    return module, run(tmp_path, golden), {**actions, "do_train": True, "dry_run": True}


def without_machine(plan):
    """Returns the part of a plan that concerns training."""
    return {name: value for name, value in plan.items() if name[:4] not in ("free", "avai")}


@pytest.mark.parametrize(
    "kind",
    ["classifier", "squad", "race"],
    indirect=True,
)
@pytest.mark.slow
def test_a_dry_run_logs_the_plan_and_writes_nothing(command, tmp_path, capsys, caplog):
    caplog.set_level("INFO", logger="absl")
    module, run, actions = command
    before = tree(tmp_path)
    run_here(module, run.flags(**actions))
    assert tree(tmp_path) == before
    assert capsys.readouterr().out.endswith(f"{DRY_RUN_PASSED}\n")
    plan = logged_plan(caplog.text)
    assert (plan["steps"], plan["checkpoints"]) == ("6", "3")
    caplog.clear()
    run_here(module, run.flags(**{**actions, "dry_run": False}))
    assert DRY_RUN_PASSED not in capsys.readouterr().out
    assert without_machine(logged_plan(caplog.text)) == without_machine(plan)
    assert len(list(run.output.glob("model.ckpt-[0-9]*.index"))) == 3
    config = json.loads((run.output / "run_config.json").read_text())["config"]
    assert plan["examples"] == str(config["input"]["examples"])
    caplog.clear()
    run_here(module, run.flags(**actions))
    plan = logged_plan(caplog.text)
    assert (plan["steps"], plan["last_step"], plan["checkpoints"]) == ("0", "6", "0")


def write_classifiers(run: ClassifierRun, *steps: int) -> None:
    """Writes random weights and the task as the checkpoints of a training run."""
    run.output.mkdir()
    task = TrainedTask("custom", Labels(LABELS), False, {"text_a_column": "review"}, 24)
    task.write(str(run.output))
    weights = original_names(AlbertForClassification(run.config, num_labels=3))
    moments = {
        f"{name}/{slot}": np.zeros(weight.shape, np.float32)
        for name, weight in weights.items()
        for slot in ("adam_m", "adam_v")
    }
    for step in steps:
        write_checkpoint(f"{run.output}/model.ckpt-{step}", {**weights, **moments}, step)


@pytest.mark.parametrize("kind", ["classifier"], indirect=True)
def test_a_damaged_checkpoint_is_rejected(command, tmp_path):
    module, run, _ = command
    write_classifiers(run, 2)
    data = run.output / "model.ckpt-2.data-00000-of-00001"
    content = data.read_bytes()
    before = tree(tmp_path)
    actions = [{"do_eval": True, "do_predict": True}, {"do_predict": True}]
    for action in actions:
        run_here(module, run.flags(**action, dry_run=True))
    assert tree(tmp_path) == before
    data.write_bytes(content[:-100])
    before = {path: found[1] for path, found in tree(tmp_path).items()}
    for action in actions:
        for is_dry in (True, False):
            with pytest.raises(ValueError, match=r"model\.ckpt-2"):
                run_here(module, run.flags(**action, dry_run=is_dry))
            assert {path: found[1] for path, found in tree(tmp_path).items()} == before
