"""The command `run_race.py`: training, evaluation, prediction, and the files they write."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.choice_run import COUNTS, LETTERS, ChoiceRun, choices, write_choices
from tests.classifier_run import ClassifierRun, blocks
from tests.serving import serve_texts

FEATURE_FILES = (
    "train_file",
    "eval_file",
    "predict_file",
)  # accepted, and neither read nor written

FROM_OUTPUT = dict.fromkeys(
    ("albert_config_file", "spm_model_file", "max_seq_length", "max_qa_length")
)
NO_TRAINING = {"do_train": False, "do_eval": False, "do_predict": True}


@pytest.fixture(scope="module", params=["own", pytest.param("race", marks=pytest.mark.slow)])
def trained(request, tmp_path_factory, golden):
    folder = tmp_path_factory.mktemp("trained")
    run = ChoiceRun(folder, golden)
    run.is_race = request.param == "race"
    run.data = {} if run.is_race else run.own_data()
    run.printed = run.must_work(
        **run.data,
        do_predict=True,
        export_dir=folder / "export",
    )
    run.questions = {split: count * (2 if run.is_race else 1) for split, count in COUNTS.items()}
    return run


@pytest.fixture
def copied(trained, tmp_path, golden):
    """Returns a run in a copy of the trained directory."""
    run = ChoiceRun(tmp_path, golden)
    run.is_race, run.questions = trained.is_race, trained.questions
    run.data = {} if run.is_race else run.own_data()
    shutil.copytree(trained.output, run.output)
    return run


def probabilities(run):
    """Returns the rows of predictions.tsv, [N, C]. Missing options are NaN."""
    return np.array(
        [
            [float(row[letter] or "nan") for letter in LETTERS if letter in row]
            for row in run.predicted()
        ]
    )


class TestTraining:
    def test_evaluates_every_checkpoint_and_keeps_the_best(self, trained):
        results = blocks(trained.output / "eval_results.txt")
        assert [block["global_step"] for block in results] == ["2", "4", "6"]
        scores = [float(block["eval_accuracy"]) for block in results]
        last, best, value = (trained.output / "best_trial.txt").read_text().split(":")
        assert (int(last), int(best)) == (6, 2 * (1 + int(np.argmax(scores))))
        assert np.float32(value) == np.float32(max(scores))
        stored = tf.train.load_checkpoint(str(trained.output / "model.ckpt-best"))
        assert stored.get_tensor("global_step") == int(best)
        assert trained.metrics("eval").keys() == {2, 4, 6}

    def test_reports_the_levels_of_race(self, trained):
        for block in blocks(trained.output / "eval_results.txt"):
            levels = [float(block.get(f"eval_accuracy_{n}", "nan")) for n in ("middle", "high")]
            assert np.isfinite(levels).all() == trained.is_race
            if trained.is_race:  # as many questions in each of the two
                np.testing.assert_allclose(
                    np.mean(levels), float(block["eval_accuracy"]), rtol=0, atol=1e-6
                )

    def test_predictions_are_in_the_order_of_the_files(self, trained):
        rows, values = trained.predicted(), probabilities(trained)
        assert len(rows) == trained.questions["test"]
        np.testing.assert_allclose(np.nansum(values, axis=1), 1.0, rtol=0, atol=1e-6)
        assert [row["prediction"] for row in rows] == [LETTERS[i] for i in np.nanargmax(values, 1)]
        if trained.is_race:
            ids = [f"{level}{n}.txt" for level in ("middle", "high") for n in range(COUNTS["test"])]
            assert values.shape[1] == 4
            assert np.isfinite(values).all()
        else:
            ids = [f"own-{number}" for number in range(COUNTS["test"])]
            counts = np.isfinite(values).sum(axis=1)
            assert counts.tolist() == [5 - number % 3 for number in range(COUNTS["test"])]
        assert [row["id"] for row in rows] == ids

    def test_scores_a_labeled_test_set(self, trained):
        title, *lines = (trained.output / "predict_results.txt").read_text().splitlines()
        assert title == "***** Predict results *****"
        results = dict(line.split(" = ") for line in lines)
        _, best, value = (trained.output / "best_trial.txt").read_text().split(":")
        assert results["global_step"] == best
        assert results["best"] == value
        rows, test_rows = trained.predicted(), []
        if not trained.is_race:
            test_rows = [
                json.loads(line)
                for line in (trained.folder / "test.jsonl").read_text().splitlines()
            ]
            is_right = [
                LETTERS[wanted["label"]] == row["prediction"]
                for wanted, row in zip(test_rows, rows, strict=True)
            ]
            assert float(results["eval_accuracy"]) == pytest.approx(np.mean(is_right), abs=1e-6)

    def test_writes_a_complete_model(self, trained):
        names = {path.name for path in trained.output.iterdir()}
        assert names >= {"30k-clean.model", "albert_config.json", "labels.json", "run_config.json"}
        description = json.loads((trained.output / "labels.json").read_text())
        assert description == {
            "task_name": "race",
            "settings": {"max_qa_length": 17},
            "max_seq_length": 40,
        }
        (exported,) = (trained.folder / "export").glob("[0-9]*")
        assert (exported / "saved_model.pb").exists()


class TestWithoutTraining:
    def test_predicts_without_labels_from_the_output_directory(self, copied):
        expected = probabilities(copied)
        (copied.output / "predict_results.txt").unlink()
        data = dict(copied.data)
        if not copied.is_race:
            lines = (copied.folder / "test.jsonl").read_text().splitlines()
            rows = [
                {key: value for key, value in json.loads(line).items() if key != "label"}
                for line in lines
            ]
            data["test_choices"] = write_choices(copied.folder / "asked.jsonl", rows)
        else:
            for path in (copied.folder / "RACE" / "test").glob("*/*.txt"):
                passage = json.loads(path.read_text())
                del passage["answers"]
                path.write_text(json.dumps(passage))
        copied.must_work(**{**data, **FROM_OUTPUT, **NO_TRAINING}, padding="max")
        np.testing.assert_allclose(probabilities(copied), expected, rtol=0, atol=1e-5)
        assert not (copied.output / "predict_results.txt").exists()

    def test_evaluates_all_checkpoints(self, copied):
        (copied.output / "best_trial.txt").unlink()
        expected = blocks(copied.output / "eval_results.txt")
        copied.must_work(**copied.data, do_train=False)
        again = blocks(copied.output / "eval_results.txt")
        assert [block["global_step"] for block in again] == ["2", "4", "6"]
        for block, other in zip(again, expected, strict=True):
            np.testing.assert_allclose(
                float(block["eval_loss"]), float(other["eval_loss"]), rtol=0, atol=1e-5
            )
        assert (copied.output / "best_trial.txt").read_text().startswith("6:")


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
    assert "of the task custom" in printed
    run.output = tmp_path / "further"
    more = choices(6, 4, 3)
    printed = run.must_work(
        **flags,
        init_checkpoint=tmp_path / "race",
        train_choices=write_choices(tmp_path / "more.jsonl", more),
        num_keep_checkpoint=1,
    )
    assert "of the task" not in printed
    assert "initialized" not in printed


@pytest.mark.slow
def test_the_exported_text_model_selects_the_same_options(tmp_path, golden):
    run = ChoiceRun(tmp_path, golden)
    run.must_work(
        **run.own_data(), do_predict=True, export_dir=tmp_path / "export", export_text_model=True
    )
    (path,) = (tmp_path / "export" / "text").iterdir()
    rows = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    texts = {
        "contexts": [row["context"] for row in rows],
        "questions": [row["question"] for row in rows],
        "options": [row["options"] + [""] * (5 - len(row["options"])) for row in rows],
    }
    (answer,) = serve_texts(tmp_path, [(str(path), texts)])
    expected = probabilities(run)
    np.testing.assert_allclose(answer["probabilities"], np.nan_to_num(expected), rtol=0, atol=1e-5)
    chosen = [row["options"][i] for row, i in zip(rows, np.nanargmax(expected, 1), strict=True)]
    assert [text.decode() for text in answer["predicted_options"]] == chosen
