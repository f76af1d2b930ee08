"""The command `run_race.py`: training, evaluation, prediction, and what they leave behind."""

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


@pytest.fixture(scope="module", params=["race", "own"])
def trained(request, tmp_path_factory, golden):
    folder = tmp_path_factory.mktemp("trained")
    run = ChoiceRun(folder, golden)
    run.is_race = request.param == "race"
    run.data = {} if run.is_race else run.own_data()
    run.printed = run.must_work(
        **run.data,
        do_predict=True,
        export_dir=folder / "export",
        export_text_model=not run.is_race,
        **dict.fromkeys(FEATURE_FILES, folder / "features"),
    )
    run.questions = {split: count * (2 if run.is_race else 1) for split, count in COUNTS.items()}
    return run


@pytest.fixture
def copied(trained, tmp_path, golden):
    """A run of its own in a copy of what was trained."""
    run = ChoiceRun(tmp_path, golden)
    run.is_race, run.questions = trained.is_race, trained.questions
    run.data = {} if run.is_race else run.own_data()
    shutil.copytree(trained.output, run.output)
    return run


def probabilities(run):
    """The rows of predictions.tsv, [N, C]; NaN where a question has no such option."""
    return np.array(
        [
            [float(row[letter] or "nan") for letter in LETTERS if letter in row]
            for row in run.predicted()
        ]
    )


class TestTraining:
    def test_features_are_kept_nowhere(self, trained):
        for name in FEATURE_FILES:
            assert f"--{name}: No effect" in trained.printed
        assert not (trained.folder / "features").exists()

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

    def test_options_are_chosen_in_the_order_of_the_files(self, trained):
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

    def test_scores_a_test_set_that_has_labels(self, trained):
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

    def test_leaves_a_whole_model_behind(self, trained):
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

    @pytest.mark.slow
    def test_exports_a_model_for_texts_that_chooses_the_same(self, trained):
        if trained.is_race:
            assert not (trained.folder / "export" / "text").exists()
            return
        (path,) = (trained.folder / "export" / "text").iterdir()
        lines = (trained.folder / "test.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        texts = {
            "contexts": [row["context"] for row in rows],
            "questions": [row["question"] for row in rows],
            "options": [row["options"] + [""] * (5 - len(row["options"])) for row in rows],
        }
        (answer,) = serve_texts(trained.folder, [(str(path), texts)])
        expected = probabilities(trained)
        np.testing.assert_allclose(
            answer["probabilities"], np.nan_to_num(expected), rtol=0, atol=1e-5
        )
        chosen = [row["options"][i] for row, i in zip(rows, np.nanargmax(expected, 1), strict=True)]
        assert [text.decode() for text in answer["predicted_options"]] == chosen


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

    def test_evaluates_all_there_is(self, copied):
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
def test_goes_on_where_it_ended_and_keeps_as_many_checkpoints_as_asked(tmp_path, golden):
    run = ChoiceRun(tmp_path, golden)
    flags = {"high_only": True, "num_keep_checkpoint": 1}
    run.must_work(**flags, train_step=2)
    assert "Resuming from" in run.must_work(**flags, train_step=4, learning_rate=1e-4)
    results = blocks(run.output / "eval_results.txt")
    assert [int(block["global_step"]) for block in results] == [2, 4]
    assert all("eval_accuracy_middle" not in block for block in results)
    files = sorted(path.name for path in run.output.glob("model.ckpt-*.index"))
    assert files == [f"model.ckpt-{n}.index" for n in (4, "best")]


@pytest.mark.slow
def test_starts_without_the_head_of_a_regression_and_with_that_of_its_own_kind(tmp_path, golden):
    """Both have one output, in a variable of one name."""
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
    assert "freshly initialised" not in printed


@pytest.fixture(scope="module")
def broken(tmp_path_factory, golden):
    run = ChoiceRun(tmp_path_factory.mktemp("bad_input"), golden)
    rows = choices(3, 1, 4)
    write_choices(run.folder / "few.jsonl", [rows[0], {**rows[1], "options": ["one"]}])
    write_choices(run.folder / "label.jsonl", [rows[0], {**rows[1], "label": 4}])
    write_choices(run.folder / "none.jsonl", [{**row, "label": None} for row in rows])
    (run.folder / "json.jsonl").write_text(json.dumps(rows[0]) + "\n{'context': 1}\n")
    run.config.replace(hidden_size=15).to_json_file(str(run.folder / "wide.json"))
    run.pretrained()
    return run


BAD_INPUT = {
    "nothing to do": ({"do_train": False, "do_eval": False}, "Nothing to do: give --do_train"),
    "a model for texts without a place": (
        {"export_text_model": True},
        "--export_text_model needs --export_dir",
    ),
    "no such task": ({"task_name": "swag"}, "--task_name must be race, with questions of your own"),
    "no data": (
        {"data_dir": None},
        "--do_train (set unless --nodo_train is given) needs --data_dir, or --train_choices",
    ),
    "no development set": (
        {"data_dir": None, "train_choices": "{folder}/train.jsonl"},
        "--do_eval (set unless --nodo_eval is given) needs --data_dir, or --dev_choices",
    ),
    "data elsewhere": ({"data_dir": "/nowhere"}, "--data_dir: there are no passages (*.txt) in"),
    "both levels alone": ({"high_only": True, "middle_only": True}, "exclude each other"),
    "one option": (
        {"train_choices": "{folder}/few.jsonl"},
        "--train_choices: line 2 of {folder}/few.jsonl needs a list of 2 to 26 'options'",
    ),
    "a label that is no option": ({"train_choices": "{folder}/label.jsonl"}, "has the label 4"),
    "no labels": ({"dev_choices": "{folder}/none.jsonl"}, "no question has a label in"),
    "broken JSON": ({"train_choices": "{folder}/json.jsonl"}, "json.jsonl"),
    "no room": ({"max_seq_length": 3}, "--max_seq_length must be at least 4"),
    "no room for options": ({"max_qa_length": 0}, "--max_qa_length must be at least 1"),
    "longer than the position table": ({"max_seq_length": 41}, "--max_seq_length must be in 1..40"),
    "no rate": ({"dropout_prob": 1.0}, "--dropout_prob must be a rate in [0, 1)"),
    "no steps": ({"train_step": 0}, "--train_step must be"),
    "a checkpoint of another size": (
        {
            "init_checkpoint": "{folder}/pretrained.ckpt",
            "albert_config_file": "{folder}/wide.json",
        },
        "pretrained.ckpt does not fill the encoder",
    ),
    "nothing to predict with": (NO_TRAINING, "has no checkpoint for --checkpoint=best"),
    "a TPU": ({"use_tpu": True}, "No TPU can be reached as --tpu_name=local"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_is_refused_before_anything_is_written(broken, case):
    changes, message = BAD_INPUT[case]
    changes = {
        name: value.format(folder=broken.folder) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    assert message.format(folder=broken.folder) in broken.must_fail(**changes)
    assert not broken.output.exists()


def test_the_directory_of_another_task_is_left_alone(broken, tmp_path):
    (tmp_path / "labels.json").write_text('{"task_name": "squad1.1", "settings": {}}')
    printed = broken.must_fail(output_dir=tmp_path)
    assert "labels.json in it says 'squad1.1', this command 'race'" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["labels.json"]
