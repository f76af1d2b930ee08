"""`eval_results.txt` in the format of the original."""

import math

from albert_tf.squad.run import SquadEvaluationResults

RULE = "=" * 50


def test_one_block_per_checkpoint_and_the_best_at_the_end(tmp_path):
    results = SquadEvaluationResults(str(tmp_path))
    first = {"f1": 100 / 3, "exact_match": 20.0}
    results.append_with_best(5, first, "f1")
    second = {"f1": 30.25, "exact_match": 20.5}
    results.append_with_best(10, second, "f1", (5, 100 / 3))
    best = "exact_match = 20.0\nf1 = 33.333333333333336\n"
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"{best}global_step = 5\nbest f1 = 33.333333333333336\n{RULE}\n"
        "exact_match = 20.5\nf1 = 30.25\nglobal_step = 10\n"
        f"best f1 = 33.333333333333336\n{RULE}\n"
        f"{best}best perf happened at step: 5"
    )


def test_without_a_best_checkpoint(tmp_path):
    results = SquadEvaluationResults(str(tmp_path))
    results.append_with_best(7, {"f1": math.nan}, "f1")
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"f1 = nan\nglobal_step = 7\nbest f1 = -1\n{RULE}\nbest perf happened at step: -1"
    )
