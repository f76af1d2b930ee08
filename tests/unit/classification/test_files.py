"""The result files in the original's form, GLUE's, and the picture of what was taken for what."""

import math
import warnings

import numpy as np
from matplotlib.image import imread

from albert_tf.classification.run import (
    clip_similarity,
    write_predictions,
    write_submission,
)
from albert_tf.finetuning.metrics import write_confusion_matrix
from albert_tf.training.evaluation import EvaluationResults

RULE = "=" * 50


def results_file(folder):
    return (folder / "eval_results.txt").read_text()


class TestEvaluationResults:
    def test_are_a_block_for_every_checkpoint(self, tmp_path):
        results = EvaluationResults(str(tmp_path))
        results.append(5, {"eval_accuracy": 0.1}, -math.inf)
        results.append(10, {"eval_accuracy": 0.25}, float(np.float32(0.1)))
        assert results_file(tmp_path) == (
            f"eval_accuracy = 0.1\nglobal_step = 5\nbest = -1\n{RULE}\n"
            f"eval_accuracy = 0.25\nglobal_step = 10\nbest = 0.10000000149011612\n{RULE}\n"
        )

    def test_go_on_with_what_an_earlier_start_wrote(self, tmp_path):
        for step in (5, 10, 15):
            EvaluationResults(str(tmp_path), step - 1).append(step, {"loss": 0.5}, 0.25)
        assert steps(tmp_path) == [5, 10, 15]
        # Resumed at 10, which had been evaluated; 15 is of a future that is trained anew.
        results = EvaluationResults(str(tmp_path), 10)
        results.append(10, {"loss": 0.75}, 0.25)
        assert steps(tmp_path) == [5, 10]
        assert "loss = 0.75" in results_file(tmp_path).split(RULE)[1]
        EvaluationResults(str(tmp_path)).append(7, {"loss": 0.5}, 0.25)
        assert steps(tmp_path) == [7]

    def test_of_another_program_are_read_over(self, tmp_path):
        (tmp_path / "eval_results.txt").write_text("something else")
        EvaluationResults(str(tmp_path), 10).append(12, {"loss": 0.5}, 0.25)
        assert steps(tmp_path) == [12]


def steps(folder):
    lines = results_file(folder).splitlines()
    return [int(line.split(" = ")[1]) for line in lines if line.startswith("global_step")]


class TestPredictions:
    def test_of_numbers_have_one_column(self, tmp_path):
        scores = np.array([[0.1], [-2e-7], [4.75]])
        write_predictions(str(tmp_path), ["0", "1", "x"], scores, ["0.1", "-2e-07", "4.75"])
        assert (tmp_path / "test_results.tsv").read_text() == "0.1\n-2e-07\n4.75\n"
        submitted = (tmp_path / "submit_results.tsv").read_text()
        assert submitted == "index\tprediction\n0\t0.1\n1\t-2e-07\nx\t4.75\n"

    def test_of_any_labels_stay_in_their_row(self, tmp_path):
        scores = np.array([[0.25, 0.75], [0.5, 0.5]])
        write_predictions(str(tmp_path), ["0", "1"], scores, ["tab\there", "two\nlines"])
        submitted = (tmp_path / "submit_results.tsv").read_text()
        assert submitted == "index\tprediction\n0\ttab\\there\n1\ttwo\\nlines\n"

    def test_for_the_server_stay_in_the_range_of_the_scores(self, tmp_path):
        similarities = clip_similarity(np.array([-0.3, 5.0001, 2.71828], np.float32))
        write_submission(str(tmp_path / "STS-B.tsv"), ["0", "1", "2"], similarities)
        expected = "index\tprediction\n0\t0.000\n1\t5.000\n2\t2.718\n"
        assert (tmp_path / "STS-B.tsv").read_text() == expected


class TestConfusionMatrix:
    def test_grows_with_the_labels(self, tmp_path):
        for count, height in ((2, 400), (15, 1100)):
            counts = np.arange(count**2).reshape(count, count)
            write_confusion_matrix(str(tmp_path), counts, [f"label {n}" for n in range(count)])
            assert imread(tmp_path / "confusion_matrix.png").shape[0] == height

    def test_has_no_boxes_and_no_formulas_in_place_of_names(self, tmp_path):
        names = ["\U0001f600", "中", "tab\there", "naïve 1", "$x^", "a_b" * 20]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a glyph that is missing
            write_confusion_matrix(str(tmp_path), np.eye(6, dtype=int), names)

    def test_shows_shares_of_the_rows(self, tmp_path):
        pictures = []
        for counts in ([[3, 1], [1, 3]], [[3, 1], [2, 2]], [[3, 1], [0, 0]]):
            write_confusion_matrix(str(tmp_path), np.array(counts), ["no", "yes"])
            pictures.append((tmp_path / "confusion_matrix.png").read_bytes())
        assert len(set(pictures)) == 3
