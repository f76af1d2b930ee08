"""The command `run_race.py` on questions with three to five options: training and prediction.

tests/golden/test_race.py runs it on RACE.
"""

import json
import shutil

import numpy as np
import pytest

from tests.choice_run import COUNTS, LETTERS, ChoiceRun, choices, write_choices
from tests.classifier_run import ClassifierRun, blocks
from tests.run_in_process import run_command
from tests.serving import serve_texts


@pytest.fixture(scope="module")
def trained(tmp_path_factory, golden):
    run = ChoiceRun(tmp_path_factory.mktemp("trained"), golden)
    run.must_work(**run.own_data(), do_predict=True)
    return run


def questions_of(run):
    """Returns the rows of the test set."""
    return [json.loads(line) for line in (run.folder / "test.jsonl").read_text().splitlines()]


def probabilities(run):
    """Returns the rows of predictions.tsv, [N, C]. Missing options are NaN."""
    return np.array(
        [
            [float(row[letter] or "nan") for letter in LETTERS if letter in row]
            for row in run.predicted()
        ]
    )


def test_predictions_are_in_the_order_of_the_file(trained):
    rows, values = trained.predicted(), probabilities(trained)
    assert [row["id"] for row in rows] == [f"own-{number}" for number in range(COUNTS["test"])]
    counts = np.isfinite(values).sum(axis=1)
    assert counts.tolist() == [5 - number % 3 for number in range(COUNTS["test"])]
    np.testing.assert_allclose(np.nansum(values, axis=1), 1.0, rtol=0, atol=1e-6)
    assert [row["prediction"] for row in rows] == [LETTERS[i] for i in np.nanargmax(values, 1)]


def test_the_best_checkpoint_is_scored_on_the_test_set(trained):
    results = blocks(trained.output / "eval_results.txt")
    scores = {block["global_step"]: block["eval_accuracy"] for block in results}
    assert list(scores) == ["2", "4", "6"]
    _, best, value = (trained.output / "best_trial.txt").read_text().split(":")
    assert scores[best] == max(scores.values(), key=float)
    lines = (trained.output / "predict_results.txt").read_text().splitlines()
    tested = dict(line.split(" = ") for line in lines if " = " in line)
    assert (tested["global_step"], tested["best"]) == (best, value)
    is_right = [
        LETTERS[question["label"]] == row["prediction"]
        for question, row in zip(questions_of(trained), trained.predicted(), strict=True)
    ]
    assert float(tested["eval_accuracy"]) == pytest.approx(np.mean(is_right), abs=1e-6)


@pytest.mark.usefixtures("eager")
def test_predicts_without_labels_from_the_output_directory(trained, tmp_path, golden):
    run = ChoiceRun(tmp_path, golden)
    shutil.copytree(trained.output, run.output)
    (run.output / "predict_results.txt").unlink()
    rows = questions_of(run)
    for row in rows:
        del row["label"]
    flags = {**run.own_data(), "test_choices": write_choices(tmp_path / "asked.jsonl", rows)}
    flags |= dict.fromkeys(
        ("albert_config_file", "spm_model_file", "max_seq_length", "max_qa_length")
    )
    run_command(run, **flags, do_train=False, do_eval=False, do_predict=True, padding="max")
    np.testing.assert_allclose(probabilities(run), probabilities(trained), rtol=0, atol=1e-5)
    assert not (run.output / "predict_results.txt").exists()


@pytest.mark.slow
def test_only_heads_of_the_same_task_are_loaded(tmp_path, golden):
    """Both heads have one output and the same variable name."""
    classifier = ClassifierRun(tmp_path, golden, max_position_embeddings=40)
    lines = [json.dumps({"a": "a cat", "y": n / 3}) + "\n" for n in range(7)]
    (tmp_path / "numbers.jsonl").write_text("".join(lines))
    classifier.must_work(
        train_file=tmp_path / "numbers.jsonl",
        text_a_column="a",
        label_column="y",
        regression=True,
        do_train=True,
        train_step=1,
    )
    run = ChoiceRun(tmp_path, golden)
    run.output = tmp_path / "race"
    flags = {"train_step": 1, "do_eval": False, "middle_only": True}
    printed = run.must_work(**flags, init_checkpoint=classifier.output)
    assert "task is custom in" in printed
    assert "25 of 27 variables restored" in printed
    run.output = tmp_path / "further"
    printed = run.must_work(
        **flags,
        init_checkpoint=tmp_path / "race",
        train_choices=write_choices(tmp_path / "more.jsonl", choices(6, 4, 3)),
        num_keep_checkpoint=1,
    )
    assert "task is" not in printed
    assert "initialized" not in printed


@pytest.mark.slow
def test_the_exported_text_model_selects_the_same_options(trained):
    export = trained.folder / "export"
    trained.must_work(
        **trained.own_data(), do_train=False, export_dir=export, export_text_model=True
    )
    (path,) = (export / "text").iterdir()
    rows = questions_of(trained)
    texts = {
        "contexts": [row["context"] for row in rows],
        "questions": [row["question"] for row in rows],
        "options": [row["options"] + [""] * (5 - len(row["options"])) for row in rows],
    }
    (answer,) = serve_texts(trained.folder, [(str(path), texts)])
    expected = probabilities(trained)
    np.testing.assert_allclose(answer["probabilities"], np.nan_to_num(expected), rtol=0, atol=1e-5)
    chosen = [row["options"][i] for row, i in zip(rows, np.nanargmax(expected, 1), strict=True)]
    assert [text.decode() for text in answer["predicted_options"]] == chosen
