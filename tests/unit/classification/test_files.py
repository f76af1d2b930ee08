"""Result files of classification, and the picture of the confusion matrix."""

import warnings

import numpy as np
import pytest
from matplotlib.image import imread

from albert_tf.classification.run import clip_similarity, write_predictions
from albert_tf.data.pictures import write_confusion_matrix
from albert_tf.training.evaluation import EvaluationResults

RULE = "=" * 50


def results_file(folder):
    return (folder / "eval_results.txt").read_text()


def test_resumed_runs_keep_earlier_blocks(tmp_path):
    (tmp_path / "eval_results.txt").write_text("of another program")

    def append(step, resumed_at, loss=0.5):
        """Returns the steps in the file after an evaluation."""
        EvaluationResults(str(tmp_path), *resumed_at).append(step, {"loss": loss}, 0.25)
        lines = results_file(tmp_path).splitlines()
        return [int(line.split(" = ")[1]) for line in lines if line.startswith("global_step")]

    assert [append(step, [step - 1]) for step in (5, 10, 15)] == [[5], [5, 10], [5, 10, 15]]
    # Resumed at 10, which had been evaluated; 15 will be trained again.
    assert append(10, [10], 0.75) == [5, 10]
    assert "loss = 0.75" in results_file(tmp_path).split(RULE)[1]
    assert append(7, []) == [7]


@pytest.mark.parametrize(
    ("scores", "names", "numbers", "submitted"),
    [
        ([[0.1], [-2e-7]], ["0.1", "-2e-07"], "0.1\n-2e-07\n", "0\t0.1\nx\\ty\t-2e-07\n"),
        (
            [[0.25, 0.75], [0.5, 0.5]],
            ["tab\there", "two\nlines"],
            "0.25\t0.75\n0.5\t0.5\n",
            "0\ttab\\there\nx\\ty\ttwo\\nlines\n",
        ),
    ],
)
def test_predictions_are_written_as_text(tmp_path, scores, names, numbers, submitted):
    write_predictions(str(tmp_path), ["0", "x\ty"], np.array(scores), names)
    assert (tmp_path / "test_results.tsv").read_text() == numbers
    assert (tmp_path / "submit_results.tsv").read_text() == f"index\tprediction\n{submitted}"


def test_submitted_similarities_are_clipped():
    similarities = clip_similarity(np.array([-0.3, 5.0001, 2.71828], np.float32))
    assert similarities == ["0.000", "5.000", "2.718"]


@pytest.mark.usefixtures("drawn")
def test_the_confusion_matrix_shows_shares_of_rows_and_grows_with_the_labels(tmp_path):
    pictures = []
    for counts in ([[3, 1], [1, 3]], [[3, 1], [2, 2]], [[3, 1], [0, 0]], np.eye(15, dtype=int)):
        names = [f"label {n}" for n in range(len(counts))]
        write_confusion_matrix(str(tmp_path), np.array(counts), names)
        pictures.append(imread(tmp_path / "confusion_matrix.png"))
    assert [len(picture) for picture in pictures] == [400, 400, 400, 1100]
    assert len({picture.tobytes() for picture in pictures}) == 4


@pytest.mark.usefixtures("drawn")
def test_the_confusion_matrix_replaces_names_that_the_font_lacks(tmp_path):
    names = ["\U0001f600", "中", "tab\there", "naïve 1", "$x^", "a_b" * 20]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # raised for missing glyphs
        write_confusion_matrix(str(tmp_path), np.eye(6, dtype=int), names)
