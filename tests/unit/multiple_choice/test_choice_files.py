"""What is written of the options chosen, and the original's file of scores."""

import math

import numpy as np

from albert_tf.multiple_choice.files import write_choice_predictions, write_predict_results


def test_a_row_for_every_question(tmp_path):
    shares = np.array(
        [[0.25, 0.75, 0.0], [0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], np.float32
    )
    ids = ["high2.txt", "high2.txt", "a\tb\\\n日", "high2.txt"]
    write_choice_predictions(
        str(tmp_path / "new"), ids, shares, np.array([1, 2, 0, 0]), np.array([2, 3, 2, 3])
    )
    assert (tmp_path / "new" / "predictions.tsv").read_text("utf-8") == (
        "id\tquestion\tprediction\tA\tB\tC\n"
        "high2.txt\t0\tB\t0.25\t0.75\t\n"
        "high2.txt\t1\tC\t0.1\t0.2\t0.7\n"
        "a\\tb\\\\\\n日\t0\tA\t0.5\t0.5\t\n"
        "high2.txt\t2\tA\t1.0\t0.0\t0.0\n"
    )


def test_no_question_leaves_the_header(tmp_path):
    nothing = np.zeros([0, 2], np.float32)
    write_choice_predictions(str(tmp_path), [], nothing, np.zeros(0, int), np.zeros(0, int))
    assert (tmp_path / "predictions.tsv").read_text() == "id\tquestion\tprediction\tA\tB\n"


def test_scores_of_the_test_set_have_the_originals_form(tmp_path):
    results = {"loss": 1.3862944, "eval_accuracy": 0.1, "eval_loss": 1.25}
    path = tmp_path / "predict_results.txt"
    write_predict_results(str(tmp_path), 12000, results, float(np.float32(0.1)))
    assert path.read_text() == (
        "***** Predict results *****\n"
        "eval_accuracy = 0.1\neval_loss = 1.25\nglobal_step = 12000\nloss = 1.3862944\n"
        "best = 0.10000000149011612\n"
    )
    write_predict_results(str(tmp_path), 5, {"loss": 2}, -math.inf)
    assert path.read_text().endswith("global_step = 5\nloss = 2.0\nbest = -1\n")
