"""Result files of classification, and the picture of the confusion matrix."""

import math
import warnings

import numpy as np
from matplotlib.image import imread

from albert_tf.classification.run import clip_similarity, write_predictions
from albert_tf.finetuning.metrics import write_confusion_matrix
from albert_tf.training.evaluation import EvaluationResults

RULE = "=" * 50


def results_file(folder):
    return (folder / "eval_results.txt").read_text()


def steps(folder):
    lines = results_file(folder).splitlines()
    return [int(line.split(" = ")[1]) for line in lines if line.startswith("global_step")]


class TestEvaluationResults:
    def test_each_checkpoint_has_a_block(self, tmp_path):
        results = EvaluationResults(str(tmp_path))
        results.append(5, {"eval_accuracy": 0.1}, -math.inf)
        results.append(10, {"eval_accuracy": 0.25}, float(np.float32(0.1)))
        assert results_file(tmp_path) == (
            f"eval_accuracy = 0.1\nglobal_step = 5\nbest = -1\n{RULE}\n"
            f"eval_accuracy = 0.25\nglobal_step = 10\nbest = 0.10000000149011612\n{RULE}\n"
        )

    def test_resumed_runs_keep_earlier_blocks(self, tmp_path):
        (tmp_path / "eval_results.txt").write_text("of another program")
        for step in (5, 10, 15):
            EvaluationResults(str(tmp_path), step - 1).append(step, {"loss": 0.5}, 0.25)
        assert steps(tmp_path) == [5, 10, 15]
        # Resumed at 10, which had been evaluated; 15 will be trained again.
        EvaluationResults(str(tmp_path), 10).append(10, {"loss": 0.75}, 0.25)
        assert steps(tmp_path) == [5, 10]
        assert "loss = 0.75" in results_file(tmp_path).split(RULE)[1]
        EvaluationResults(str(tmp_path)).append(7, {"loss": 0.5}, 0.25)
        assert steps(tmp_path) == [7]


def test_numbers_have_one_column(tmp_path):
    scores = np.array([[0.1], [-2e-7], [4.75]])
    write_predictions(str(tmp_path), ["0", "1", "x"], scores, ["0.1", "-2e-07", "4.75"])
    assert (tmp_path / "test_results.tsv").read_text() == "0.1\n-2e-07\n4.75\n"
    submitted = (tmp_path / "submit_results.tsv").read_text()
    assert submitted == "index\tprediction\n0\t0.1\n1\t-2e-07\nx\t4.75\n"


def test_special_characters_of_labels_are_escaped(tmp_path):
    scores = np.array([[0.25, 0.75], [0.5, 0.5]])
    write_predictions(str(tmp_path), ["0", "1"], scores, ["tab\there", "two\nlines"])
    submitted = (tmp_path / "submit_results.tsv").read_text()
    assert submitted == "index\tprediction\n0\ttab\\there\n1\ttwo\\nlines\n"


def test_submitted_similarities_are_clipped():
    similarities = clip_similarity(np.array([-0.3, 5.0001, 2.71828], np.float32))
    assert similarities == ["0.000", "5.000", "2.718"]


def test_the_confusion_matrix_shows_shares_of_rows_and_grows_with_the_labels(tmp_path):
    pictures = []
    for counts in ([[3, 1], [1, 3]], [[3, 1], [2, 2]], [[3, 1], [0, 0]], np.eye(15, dtype=int)):
        names = [f"label {n}" for n in range(len(counts))]
        write_confusion_matrix(str(tmp_path), np.array(counts), names)
        pictures.append(imread(tmp_path / "confusion_matrix.png"))
    assert [len(picture) for picture in pictures] == [400, 400, 400, 1100]
    assert len({picture.tobytes() for picture in pictures}) == 4


def test_the_confusion_matrix_replaces_names_that_the_font_lacks(tmp_path):
    names = ["\U0001f600", "中", "tab\there", "naïve 1", "$x^", "a_b" * 20]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # raised for missing glyphs
        write_confusion_matrix(str(tmp_path), np.eye(6, dtype=int), names)
