"""`eval_results.txt` in the format of the original."""

import math

from albert_tf.squad.run import SquadEvaluationResults

RULE = "=" * 50


def test_one_block_per_checkpoint_and_the_best_at_the_end(tmp_path):
    results = SquadEvaluationResults(str(tmp_path))
    first = {"f1": 100 / 3, "exact_match": 20.0}
    results.append_with_best(5, first, best_step=5, best_f1=100 / 3)
    second = {"f1": 30.25, "exact_match": 20.5}
    results.append_with_best(10, second, best_step=5, best_f1=100 / 3)
    best = "exact_match = 20.0\nf1 = 33.333333333333336\n"
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"{best}global_step = 5\nbest f1 = 33.333333333333336\n{RULE}\n"
        "exact_match = 20.5\nf1 = 30.25\nglobal_step = 10\n"
        f"best f1 = 33.333333333333336\n{RULE}\n"
        f"{best}best perf happened at step: 5"
    )


def test_a_resumed_run_continues_the_file(tmp_path):
    for step, f1 in ((5, 1.5), (10, 2.5), (15, 3.5)):
        results = SquadEvaluationResults(str(tmp_path), step - 1)
        results.append_with_best(step, {"f1": f1}, best_step=step, best_f1=f1)
    # Resumed at 10, which had been evaluated; 15 will be trained again.
    results = SquadEvaluationResults(str(tmp_path), 10)
    results.append_with_best(10, {"f1": 2.0}, best_step=5, best_f1=2.25)
    text = (tmp_path / "eval_results.txt").read_text()
    blocks = text.split(f"{RULE}\n")
    assert blocks == [
        "f1 = 1.5\nglobal_step = 5\nbest f1 = 1.5\n",
        "f1 = 2.0\nglobal_step = 10\nbest f1 = 2.25\n",
        "f1 = 1.5\nbest perf happened at step: 5",
    ]


def test_without_a_best_checkpoint(tmp_path):
    results = SquadEvaluationResults(str(tmp_path))
    results.append_with_best(7, {"f1": math.nan}, best_step=-1, best_f1=-math.inf)
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"f1 = nan\nglobal_step = 7\nbest f1 = -1\n{RULE}\nbest perf happened at step: -1"
    )
