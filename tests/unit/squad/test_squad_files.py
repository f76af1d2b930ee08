"""Files of answers and results in the format of the original."""

import json
import math

import numpy as np

from albert_tf.squad.answers import AnswerCandidate, SquadAnswers, write_answers
from albert_tf.squad.run import SquadEvaluationResults

RULE = "=" * 50


def answers_of(ids, texts, null_odds=None):
    """Returns two candidates per question, one for the last question."""
    found = [
        AnswerCandidate(text, 10.0 ** -(20 * number), -number, -1e6, 0, 0)
        for number, text in enumerate(texts)
    ]
    candidates = [found[2 * number : 2 * number + 2] for number in range(len(ids))]
    return SquadAnswers(ids, candidates, null_odds)


def test_answer_files(tmp_path):
    texts = ['a "quoted"\n\\ line', "Élo\u2028ïse 😀", "", "\x00\t", "\ud800 alone"]
    answers = answers_of(['1/é"', "b", "c"], texts, np.array([-0.5, 1e6, 2.0]))
    write_answers(str(tmp_path), answers, threshold=1.0)
    nbest = {
        qas_id: [
            {
                "text": entry.text,
                "probability": entry.probability,
                "start_log_prob": entry.start_log_prob,
                "end_log_prob": entry.end_log_prob,
            }
            for entry in answers.candidates[number]
        ]
        for number, qas_id in enumerate(answers.ids)
    }
    assert [len(entries) for entries in nbest.values()] == [2, 2, 1]
    expected = {
        "predictions.json": {'1/é"': texts[0], "b": "", "c": ""},
        "nbest_predictions.json": nbest,
        "null_odds.json": {'1/é"': -0.5, "b": 1e6, "c": 2.0},
    }
    assert {path.name for path in tmp_path.iterdir()} == expected.keys()
    for name, value in expected.items():
        assert (tmp_path / name).read_text() == json.dumps(value, indent=4) + "\n", name


class TestEvaluationResults:
    def test_one_block_per_checkpoint_and_the_best_at_the_end(self, tmp_path):
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

    def test_a_resumed_run_continues_the_file(self, tmp_path):
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

    def test_without_a_best_checkpoint(self, tmp_path):
        results = SquadEvaluationResults(str(tmp_path))
        results.append_with_best(7, {"f1": math.nan}, best_step=-1, best_f1=-math.inf)
        assert (tmp_path / "eval_results.txt").read_text() == (
            f"f1 = nan\nglobal_step = 7\nbest f1 = -1\n{RULE}\nbest perf happened at step: -1"
        )
