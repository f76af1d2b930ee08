"""`run_pretraining.py --depth_schedule`: training, resuming and evaluating with growing depth."""

import shutil

import numpy as np
import pytest

from tests.dry_runs import tree
from tests.pretraining_run import PretrainingRun
from tests.small_model import resolve

pytestmark = pytest.mark.slow  # several runs of whole programs

SCHEDULE = "1:0,2:4,3:8"
DEPTHS = {5: 2, 10: 3, 12: 3}  # of the checkpoints
FLAGS = {"do_eval": True, "log_steps": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = PretrainingRun(
        tmp_path_factory.mktemp("trained"), num_hidden_layers=3, num_hidden_groups=1
    )
    run.must_work(**FLAGS, depth_schedule=SCHEDULE)
    return run


def contents(run):
    """What lies in the output directory; a lock comes and goes there."""
    return {path: found[1] for path, found in tree(run.output).items()}


def test_the_records_tell_the_layers(trained):
    depths = {step: record["depth"] for step, record in trained.metrics().items()}
    assert depths == {4: 1, 5: 2, 8: 2, 10: 3, 12: 3}
    assert {step: r["depth"] for step, r in trained.metrics("eval").items()} == DEPTHS


@pytest.mark.parametrize("schedule", [None, "1:0,2:5,3:8"])
def test_steps_that_were_taken_cannot_be_contradicted(trained, schedule):
    before = contents(trained)
    flags = {"num_train_steps": 15, **({"depth_schedule": schedule} if schedule else {})}
    refused = trained(**flags)
    assert refused.code == 1
    assert f"--depth_schedule={SCHEDULE}" in refused.output
    assert (f"--depth_schedule={schedule}" if schedule else "no --depth_schedule") in refused.output
    assert contents(trained) == before


def test_elsewhere_all_layers_are_applied_and_a_warning_says_so(trained, tmp_path, caplog):
    resolve(init_checkpoint=str(trained.output / "model.ckpt-12"))
    assert "was last trained with" not in caplog.text
    early = str(trained.output / "model.ckpt-5")
    resolve(init_checkpoint=early)
    assert "was last trained with 2 layers" in caplog.text
    caplog.clear()
    trained.config.replace(num_hidden_layers=2).to_json_file(str(tmp_path / "two.json"))
    resolve(albert_config_file=str(tmp_path / "two.json"), init_checkpoint=early)
    assert "was last trained with" not in caplog.text


def test_checkpoints_are_evaluated_with_the_layers_they_were_trained_with(trained, tmp_path):
    output = tmp_path / "output"
    shutil.copytree(trained.output, output)
    trained.must_work(output_dir=output, do_train=False, do_eval=True, eval_checkpoint="all")
    assert (output / "best_trial.txt").read_text() == (
        trained.output / "best_trial.txt"
    ).read_text()
    trained.must_work(do_train=False, do_eval=True, eval_checkpoint=output / "model.ckpt-5")
    results = trained.results()
    assert results.pop("global_step") == 5
    for name, value in results.items():
        recorded = trained.metrics("eval")[5][name]
        np.testing.assert_allclose(value, recorded, rtol=1e-5, atol=0, err_msg=name)
    # With all layers the loss is another: the depth matters.
    (output / "run_config.json").unlink()
    trained.must_work(do_train=False, do_eval=True, eval_checkpoint=output / "model.ckpt-5")
    assert abs(trained.results()["loss"] - results["loss"]) > 1e-4
