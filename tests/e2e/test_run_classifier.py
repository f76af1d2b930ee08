"""The command `run_classifier.py`: training, evaluation, prediction, and the files they write."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from tests.classifier_run import COUNTS, LABELS, ClassifierRun, blocks, write_csv
from tests.run_in_process import run_command
from tests.serving import serve_texts

# Flags that a trained model makes superfluous.
WITHOUT_DATA = dict.fromkeys(("train_file", "dev_file", "test_file"))
FROM_OUTPUT = dict.fromkeys(
    ("albert_config_file", "spm_model_file", "task_name", "max_seq_length", "text_a_column")
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, golden):
    """Returns a run with three labels: training with evaluation and prediction."""
    run = ClassifierRun(tmp_path_factory.mktemp("trained"), golden, hidden_dropout_prob=0.1)
    run.printed = run.must_work(do_train=True, do_eval=True, do_predict=True)
    return run


@pytest.fixture
def copied(trained, tmp_path, golden):
    """Returns a run in a copy of the trained directory."""
    run = ClassifierRun(tmp_path, golden, hidden_dropout_prob=0.1)
    shutil.copytree(trained.output, run.output)
    return run


class TestTraining:
    def test_evaluates_every_checkpoint_and_keeps_the_best(self, trained):
        results = blocks(trained.output / "eval_results.txt")
        assert [block["global_step"] for block in results] == ["2", "4", "6"]
        losses = [-float(block["eval_loss"]) for block in results]
        scores = [float(block["eval_accuracy"]) for block in results]
        last, best, value = (trained.output / "best_trial.txt").read_text().split(":")
        assert (int(last), int(best)) == (6, max(zip(scores, losses, (2, 4, 6), strict=True))[2])
        assert np.float32(value) == np.float32(max(scores))
        assert results[0]["best"] == "-1"
        stored = tf.train.load_checkpoint(str(trained.output / "model.ckpt-best"))
        assert stored.get_tensor("global_step") == int(best)
        for step, block in zip((2, 4, 6), results, strict=True):
            recorded = trained.metrics("eval")[step]
            for name in ("eval_accuracy", "eval_loss", "f1_macro", "loss"):
                assert np.float32(block[name]) == np.float32(recorded[name]), name

    def test_writes_a_complete_model(self, trained):
        names = {path.name for path in trained.output.iterdir()}
        assert names >= {
            "30k-clean.model",
            "albert_config.json",
            "confusion_matrix.png",
            "labels.json",
            "run_config.json",
            "training_curves.png",
        }
        assert not [name for name in names if "tmp" in name or "partial" in name]
        description = json.loads((trained.output / "labels.json").read_text())
        assert description["labels"] == list(LABELS)
        assert description["columns"]["text_a_column"] == "review"
        assert "RANDOM WEIGHTS" in trained.printed

    def test_predictions_are_in_the_order_of_the_file(self, trained):
        lines = (trained.output / "submit_results.tsv").read_text().splitlines()
        assert lines[0] == "index\tprediction"
        guids, labels = zip(*(line.split("\t") for line in lines[1:]), strict=True)
        assert guids == tuple(map(str, range(COUNTS["test"])))
        probabilities = trained.predicted()
        assert probabilities.shape == (COUNTS["test"], len(LABELS))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-6)
        assert labels == tuple(LABELS[i] for i in probabilities.argmax(axis=1))
        assert np.ptp(probabilities, axis=0).max() > 1e-3  # detects a wrong order

    @pytest.mark.slow
    def test_exports_a_text_model_with_the_same_outputs(self, trained):
        export = trained.folder / "export"
        trained.must_work(export_dir=export, export_text_model=True)
        (path,) = (export / "text").iterdir()
        texts = [text for _, text in trained.rows["test"]]
        (answer,) = serve_texts(trained.folder, [(str(path), {"texts": texts})])
        expected = trained.predicted()
        np.testing.assert_allclose(answer["probabilities"], expected, rtol=0, atol=1e-5)
        names = [name.decode() for name in answer["predicted_labels"]]
        assert names == [LABELS[i] for i in expected.argmax(axis=1)]
        (path,) = export.glob("[0-9]*")  # the one for token ids
        assert (path / "saved_model.pb").exists()

    @pytest.mark.slow
    def test_starts_with_a_fresh_head(self, trained, tmp_path, golden):
        run = ClassifierRun(tmp_path, golden)
        rows = [
            ("same" if number % 2 else "other", text)
            for number, (_, text) in enumerate(run.rows["train"])
        ]
        printed = run.must_work(
            do_train=True,
            train_step=1,
            train_file=write_csv(tmp_path / "two.csv", rows),
            init_checkpoint=trained.output,
            albert_config_file=None,
            do_predict=True,
        )
        assert "is not evaluated" not in printed  # training was initialized from it
        reason = r"labels is .* in \S+/model\.ckpt-best, but \W*other\W+same\W* in this run"
        assert re.search(rf"{reason}, randomly initialized: output_weights", printed)
        run.output = tmp_path / "pretrained"
        printed = run.must_work(
            do_train=True,
            train_step=1,
            init_checkpoint=run.pretrained(),
            output_dir=run.output,
            encoder_dropout_prob=0.25,
        )
        assert "25 of 27 variables restored" in printed  # all except the head
        written = json.loads((run.output / "albert_config.json").read_text())
        assert written["attention_probs_dropout_prob"] == written["hidden_dropout_prob"] == 0.25


class TestWithoutTraining:
    @pytest.mark.usefixtures("eager")
    def test_predicts_with_only_the_output_directory(self, copied):
        expected = copied.predicted()
        rows = [(row[1], row[0]) for row in copied.rows["test"]]
        backwards = copied.folder / "backwards.tsv"
        backwards.write_text("".join(f"{a}\t{b}\n" for a, b in [("review", "label"), *rows[::-1]]))
        run_command(
            copied,
            **{**WITHOUT_DATA, **FROM_OUTPUT, "test_file": backwards},
            do_predict=True,
            predict_batch_size=None,
            predict_file=copied.folder / "test.csv",
            predict_output_file=copied.folder / "predicted.txt",
        )
        np.testing.assert_allclose(copied.predicted()[::-1], expected, rtol=0, atol=1e-5)
        of_python = albert_tf.TextClassifier.load(copied.output)([text for text, _ in rows])
        printed = [
            "\t".join([label, *(f"{name}={p:.6f}" for name, p in probabilities.items())])
            for label, probabilities, _ in of_python
        ]
        assert (copied.folder / "predicted.txt").read_text().splitlines() == printed
        assert [one.label for one in of_python] == [LABELS[row.argmax()] for row in expected]
        found = [list(one.probabilities.values()) for one in of_python]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

    @pytest.mark.usefixtures("eager")
    def test_evaluates_all_checkpoints_or_the_selected_one(self, copied):
        expected = blocks(copied.output / "eval_results.txt")
        (copied.output / "best_trial.txt").unlink()
        run_command(copied, do_eval=True, padding="max")
        again = blocks(copied.output / "eval_results.txt")
        assert [block["global_step"] for block in again] == ["2", "4", "6"]
        for block, other in zip(again, expected, strict=True):
            np.testing.assert_allclose(
                float(block["eval_loss"]), float(other["eval_loss"]), rtol=0, atol=1e-5
            )
        assert (copied.output / "best_trial.txt").read_text().startswith("6:")
        elsewhere = copied.folder / "elsewhere"
        run_command(
            copied,
            **FROM_OUTPUT,
            do_eval=True,
            output_dir=elsewhere,
            checkpoint=copied.output / "model.ckpt-4",
        )
        (block,) = blocks(elsewhere / "eval_results.txt")
        assert block["global_step"] == "4"
        assert not (elsewhere / "best_trial.txt").exists()

    def test_logs_that_the_newest_checkpoint_predicts_without_a_best_one(self, copied):
        (copied.output / "model.ckpt-best.index").unlink()
        printed = copied.must_work(**FROM_OUTPUT, do_predict=True)
        assert "has no best checkpoint" in printed
        assert "model.ckpt-6, step 6" in printed
