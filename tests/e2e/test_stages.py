"""Pretraining in stages: several commands with the same output directory."""

import json
import re
import shutil

import numpy as np
import pytest

from tests.pretraining_run import PretrainingRun, read_checkpoint
from tests.small_records import LENGTH, plain_columns, write_records
from tests.small_training import forget_after

pytestmark = pytest.mark.slow  # several runs of whole programs

LONGER = LENGTH + 4


LAST = 8


def plain_records(folder, name, length, count):
    return write_records(folder / name, plain_columns(count, seed=length, length=length))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a run of five steps on short sequences and three steps on longer ones."""
    folder = tmp_path_factory.mktemp("stages")
    run = PretrainingRun(folder, hidden_dropout_prob=0.2)
    run.short = {
        "input_file": plain_records(folder, "short", LENGTH, 13),
        "eval_input_file": plain_records(folder, "short_eval", LENGTH, 7),
        "masked_lm_prob": 0.4,
        "do_eval": True,
    }
    run.long = {
        "input_file": plain_records(folder, "long", LONGER, 17),
        "eval_input_file": plain_records(folder, "long_eval", LONGER, 7),
        "max_seq_length": LONGER,
        "max_predictions_per_seq": 5,
        "train_batch_size": 3,
        "masked_lm_prob": 0.2,
        "ngram": 1,
        "learning_rate": 0.0004,
        "num_train_steps": LAST,
        "do_eval": True,
    }
    run.must_work(**run.short, num_train_steps=5)
    run.printed = run.must_work(**run.long)
    return run


def test_the_second_stage_keeps_weights_moments_and_step(run):
    assert f"Resuming from {run.output / 'model.ckpt-5'} at step 5" in run.printed
    (changed,) = re.findall("was saved, so it is read from the start: (.*)", run.printed)
    for name in ("files", "features", "masking.settings.ngram", "train_batch_size"):
        assert f"{name} is " in changed
    assert set(re.findall(r"Changed at step 5: (\S+) is ", run.printed)) >= {
        "input.files",
        "input.features",
        "input.masking.settings.ngram",
        "optimizer.learning_rate",
        "optimizer.num_train_steps",
        "trainer.train_batch_size",
    }
    before, after = (read_checkpoint(run.output / f"model.ckpt-{step}") for step in (5, LAST))
    for name in (name for name in before if name.endswith("adam_v")):
        # The second moment decays by this factor per step, whatever the gradients are.
        assert np.all(after[name] >= 0.999**3 * before[name] * (1 - 1e-5)), name
        assert np.any(before[name] > 0), name
    assert list(run.metrics()) == [4, 5, LAST]
    rate = run.metrics()[LAST]["learning_rate"]
    np.testing.assert_allclose(rate, 0.0004 * 1 / LAST, rtol=1e-5)


def test_best_scores_on_different_examples_are_not_compared(run, tmp_path):
    output = tmp_path / "output"
    shutil.copytree(run.output, output)
    best = (output / "best_trial.txt").read_text()
    (output / "best_trial.txt").write_text(re.sub(r":[^:]*$", ":1.0", best))
    printed = run.must_work(**run.short, output_dir=output, num_train_steps=LAST + 1)
    assert "was selected by another evaluation: evaluation." in printed
    last, step, value = (output / "best_trial.txt").read_text().split(":")
    assert (last, step) == ("9", "9")
    assert float(value) < 1.0
    # A start without evaluation keeps the description of the evaluation files.
    run.must_work(**{**run.short, "do_eval": False}, output_dir=output, num_train_steps=LAST + 1)
    settings = json.loads((output / "run_config.json").read_text())["config"]
    assert settings["evaluation"]["files"][0][0] == str(run.short["eval_input_file"])


def test_a_run_with_a_final_decay_can_be_prolonged_or_finished_from_a_copy(tmp_path):
    run = PretrainingRun(tmp_path)
    flags = {"learning_rate": 0.01, "num_decay_steps": 2, "log_steps": 1}
    run.must_work(**flags, num_train_steps=7)
    copy = tmp_path / "copy"
    shutil.copytree(run.output, copy)
    for folder in (run.output, copy):
        forget_after(5, folder)  # the decay began at step 5

    def rates():
        return [record["learning_rate"] / 0.01 for record in run.metrics().values()]

    printed = run.must_work(**flags, num_train_steps=9)
    assert re.search(r"step 5: optimizer.num_train_steps is 7 in \S+, but 9 in this run", printed)
    warm = [0.0, 1 / 3, 2 / 3]
    np.testing.assert_allclose(rates(), [*warm, 1, 1, 1, 1, 1, 1 / 2], rtol=1e-5, atol=0)
    run.output = copy
    run.must_work(**{**flags, "num_decay_steps": 3}, num_train_steps=8, output_dir=copy)
    np.testing.assert_allclose(rates(), [*warm, 1, 1, 1, 2 / 3, 1 / 3], rtol=1e-5, atol=0)
    printed = run.must_fail(**{**flags, "num_decay_steps": 6}, num_train_steps=8, output_dir=copy)
    assert "error: --num_decay_steps" in printed
