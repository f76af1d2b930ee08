"""Files of `run_classifier.py`, compared with files of the original command."""

import numpy as np
import pytest

from albert_tf.cli import run_classifier
from tests.golden.reference import DATA, flags_with_weights, recorded_flags
from tests.run_in_process import run_here

pytestmark = pytest.mark.usefixtures("eager")

# Scores of GLUE that the original does not report.
OURS = {"classifier_mrpc": {"f1"}, "classifier_mnli": set(), "classifier_sts-b": {"spearman"}}
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module", params=sorted(OURS))
def both(request, tmp_path_factory):
    """Returns the directories of our files and of the files of the original."""
    flags = {**recorded_flags(request.param), "data_dir": DATA / "glue" / "data"}
    output = tmp_path_factory.mktemp("run") / "output"
    weights = DATA / "glue" / "heads" / f"{flags['task_name'].lower()}_model.ckpt"
    name = f"model.ckpt-{flags['train_step']}"
    run_here(run_classifier, flags_with_weights(output, weights, name, **flags))
    return output, DATA / "programs" / request.param


def results(path):
    """Returns keys and values of eval_results.txt, the end of the file, and its text."""
    text = path.read_text().replace("\n ", " ")
    body, end = text.split("best = ")
    pairs = [line.split(" = ") for line in body.splitlines()]
    return {key: np.array(value.strip("[]").split(), float) for key, value in pairs}, end, text


def test_scores_equal_the_original(both):
    output, expected_folder = both
    actual, end, _ = results(output / "eval_results.txt")
    expected, expected_end, _ = results(expected_folder / "eval_results.txt")
    assert list(actual) == sorted(actual)
    assert actual.keys() - expected.keys() == OURS[expected_folder.name]
    for key, value in expected.items():
        np.testing.assert_allclose(actual[key], value, **TOLERANCE, err_msg=key)
    assert end == expected_end


def test_lines_have_the_format_of_the_original(both):
    """Numbers have the digits of a float32; arrays have the line breaks of NumPy."""
    output, expected_folder = both
    ours = {f"{key} = " for key in OURS[expected_folder.name]}
    lines = [
        line
        for line in (output / "eval_results.txt").read_text().splitlines()
        if not any(line.startswith(start) for start in ours)
    ]
    expected = (expected_folder / "eval_results.txt").read_text().splitlines()
    assert len(lines) == len(expected)
    for line, other in zip(lines, expected, strict=True):
        assert line.split(" = ")[0] == other.split(" = ")[0] or line.startswith(" ")
        assert abs(len(line) - len(other)) <= 14  # the last digits may differ


def test_the_best_trial_equals_the_original(both):
    output, expected_folder = both
    *steps, value = (output / "best_trial.txt").read_text().split(":")
    *expected_steps, expected = (expected_folder / "best_trial.txt").read_text().split(":")
    assert steps == expected_steps
    np.testing.assert_allclose(float(value), float(expected), **TOLERANCE)


def test_predictions_equal_the_original(both):
    output, expected_folder = both
    for name in ("test_results.tsv", "submit_results.tsv"):
        rows = [line.split("\t") for line in (output / name).read_text().splitlines()]
        expected = [line.split("\t") for line in (expected_folder / name).read_text().splitlines()]
        for row, other in zip(rows, expected, strict=True):
            assert len(row) == len(other)
            for cell, other_cell in zip(row, other, strict=True):
                if "." in other_cell:
                    np.testing.assert_allclose(float(cell), float(other_cell), **TOLERANCE)
                else:
                    assert cell == other_cell
