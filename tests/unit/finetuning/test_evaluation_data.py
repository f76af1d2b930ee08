"""Scores of different development files are not compared with each other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.choice_run import ChoiceRun
from tests.classifier_run import ClassifierRun
from tests.small_training import replace_evaluations
from tests.squad_run import SquadRun
from tests.token_run import TokenRun

pytestmark = pytest.mark.usefixtures("eager")

FIRST = [0.75, 0.5, 0.5]  # the scores on the first file, by step
OTHER = [0.25, 0.5, 0.5, 0.5]  # the scores on the other file from step 4 on
KINDS = {"classification": ClassifierRun, "squad": SquadRun, "race": ChoiceRun, "tokens": TokenRun}


@pytest.fixture
def small(request, tmp_path, golden, monkeypatch):
    """Returns a job whose steps do nothing and whose scores are given, its settings and files."""
    make, scores = KINDS[request.param], []
    replace_evaluations(monkeypatch, make.job, lambda self: {self.best_metric: scores.pop(0)})
    program = make(tmp_path, golden)
    flags = {"train_step": 3, "warmup_step": 0}
    if request.param == "squad":
        flags = {"num_train_epochs": 1.0}  # three steps
    if request.param == "race":
        flags |= program.own_data()
    settings = program.given(save_checkpoints_steps=1, **flags)
    train, dev = program.files
    changed = {dev: getattr(settings, train)}
    longer = {"num_train_epochs": 3.0} if request.param == "squad" else {"train_step": 9}
    return make.function, settings, changed, longer, scores


@pytest.mark.parametrize(
    "small",
    [
        "classification",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("squad", "race", "tokens")),
    ],
    indirect=True,
)
def test_another_file_starts_a_new_selection(small, caplog):
    run, settings, changed, longer, scores = small
    scores += FIRST
    assert run(settings).step == 1
    stored = json.loads((Path(settings.output_dir) / "run_config.json").read_text())
    assert stored["config"]["evaluation"]["after_step"] == -1

    # A finished run keeps its best checkpoint.
    caplog.clear()
    result = run(replace(settings, **changed))
    assert result.step == 1
    assert result.best_checkpoint
    assert FIRST[0] not in result.scores.values(), "it belongs to the other file"
    assert "evaluation.digest" in caplog.text
    assert "was selected by another" not in caplog.text

    scores += OTHER
    result = run(replace(settings, **changed, **longer, early_stopping=2))
    assert result.step == 7, "the last of equal scores"
    assert 0.5 in result.scores.values()
    assert not scores, "the scores of the first file do not count"
    assert "(step 1) was selected by another evaluation: evaluation.digest" in caplog.text
    caplog.clear()
    scores += [0.25, 0.25]  # a resumed run continues the selection
    result = run(replace(settings, **changed, **longer, early_stopping=4))
    assert (result.step, scores) == (7, [])
    assert "was selected by another" not in caplog.text


@pytest.mark.parametrize("small", ["classification"], indirect=True)
def test_evaluation_without_training(small, caplog):
    run, settings, changed, longer, scores = small
    scores += FIRST
    run(settings)
    only = replace(settings, do_train=False)
    scores += [0.125, 0.375, 0.25]
    result = run(replace(only, **changed))
    assert (result.step, result.scores["eval_accuracy"]) == (2, 0.375)
    assert "(step 1) was selected by another evaluation" in caplog.text
    caplog.clear()
    scores += [0.25, 0.25, 0.25]  # of the other file again
    result = run(replace(settings, **changed, **longer, early_stopping=2))
    assert (result.step, scores) == (2, [])
    scores += [0.1]
    run(replace(only, checkpoint="newest"))  # one checkpoint does not change the best
    assert "was selected by another evaluation" not in caplog.text
