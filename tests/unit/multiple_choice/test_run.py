"""Scores, choices and files of a multiple-choice job."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.data.text_examples import DEV, Labels
from albert_tf.finetuning.metrics import predictions, probabilities
from albert_tf.multiple_choice.run import (
    MultipleChoiceJob,
    MultipleChoiceSettings,
    scores,
    write_choice_predictions,
    write_predict_results,
)
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults
from tests.fine_tuning_run import run_context
from tests.small_model import small_config

OPTIONS = ("cat", "horse", "whale", "sparrow", "ant")


def write_examples(path, is_labelled):
    rows = [
        {
            "id": f"q{number}",
            "context": "I saw a cat and a horse. " * (1 + number),
            "question": "Who was _?",
            "options": OPTIONS[: 2 + number],
        }
        for number in range(4)
    ]
    if is_labelled:
        rows = [{**row, "label": number % 2} for number, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def job(golden, tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    settings = MultipleChoiceSettings(
        output_dir=str(files),
        do_train=False,
        do_predict=True,
        dev_choices=write_examples(files / "dev.jsonl", is_labelled=True),
        test_choices=write_examples(files / "test.jsonl", is_labelled=False),
        max_seq_length=16,
        max_qa_length=9,
        eval_batch_size=3,
        predict_batch_size=3,
    )
    config = small_config(vocab_size=1000, num_hidden_layers=2)
    tokenizer = load_tokenizer(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))
    job = MultipleChoiceJob(run_context(settings, config, tokenizer, "race"))
    job.use(job.make_task().build_model())
    levels = ["middle", "high", "high", "high"]
    job.features[DEV] = dataclasses.replace(job.features[DEV], levels=levels)
    return job


@pytest.fixture
def run(job, tmp_path):
    """Returns the job with the directory of the test as output."""
    job.settings = dataclasses.replace(job.settings, output_dir=str(tmp_path))
    job.context = dataclasses.replace(job.context, output=TrainingDirectory(str(tmp_path)))
    job.results = EvaluationResults(str(tmp_path))
    return job


def expected_logits(run):
    """Returns the logits of all questions in one batch, [N, C]; -1e30 for missing options."""
    features = run.features[DEV]
    padded = features.sequences.padded(np.arange(len(features.sequences)), 16)
    shape = (len(features), features.num_choices, 16)
    inputs = {name: tf.constant(values.reshape(shape)) for name, values in padded.items()}
    return run.model(inputs)["logits"].numpy()


def test_logits_do_not_depend_on_batches(run):
    logits = run._logits(DEV, 3, "scoring")
    mask = run.features[DEV].choice_mask > 0
    assert mask.sum() == 2 + 3 + 4 + 5
    np.testing.assert_allclose(logits[mask], expected_logits(run)[mask], rtol=0, atol=1e-5)


@pytest.mark.parametrize("keeps_best", [True, False])
def test_scores_are_computed_and_recorded(run, tmp_path, keeps_best):
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), "eval_accuracy")
    results = run.evaluate()
    is_right = expected_logits(run).argmax(axis=1) == run.features[DEV].label_ids
    assert results["eval_accuracy"] == pytest.approx(is_right.mean())
    assert results["eval_accuracy_middle"] == is_right[0]
    assert results["eval_accuracy_high"] == pytest.approx(is_right[1:].mean(), abs=1e-6)
    run.record(7, results, best, keeps_best=keeps_best)
    assert "global_step = 7" in (tmp_path / "eval_results.txt").read_text()
    if keeps_best:
        assert best.step == 7
    else:
        assert [path.name for path in tmp_path.iterdir()] == ["eval_results.txt"]


def test_questions_without_labels_are_not_scored(run, tmp_path):
    run._predict(7)
    lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "id\tquestion\tprediction\tA\tB\tC\tD\tE"
    chosen = expected_logits(run).argmax(axis=1)
    assert [line.split("\t")[2] for line in lines[1:]] == ["ABCDE"[i] for i in chosen]
    assert not (tmp_path / "predict_results.txt").exists()


# 5 questions of 3, 2, 4, 2 and 3 options; the logits of missing options are the largest.
MASK = (np.arange(4) < np.array([3, 2, 4, 2, 3])[:, None]).astype(np.float32)
GIVEN = [[0, 1, 0, 50], [2, 0, 50, 50], [0, 0, 0, 3], [1, 1, 50, 50], [-1, -2, -3, 50]]
LOGITS = np.where(MASK > 0, np.array(GIVEN, np.float32), -np.inf)
LABELS = Labels(("A", "B", "C", "D"))


@pytest.mark.filterwarnings("error")
class TestScores:
    def test_missing_options_are_never_chosen(self):
        chosen = predictions(LOGITS, LABELS)
        assert chosen.tolist() == [1, 0, 3, 0, 0]
        assert chosen.dtype == np.int32
        shares = probabilities(LOGITS, LABELS)
        assert shares.dtype == np.float32
        assert (shares[MASK == 0] == 0).all()
        np.testing.assert_allclose(shares.sum(axis=1), np.ones(5), rtol=1e-6)
        np.testing.assert_allclose(shares[3], [0.5, 0.5, 0, 0], rtol=1e-6)
        np.testing.assert_allclose(shares[1, 0], 1 / (1 + math.exp(-2)), rtol=1e-6)

    def test_equal_hand_computed_values(self):
        labels = np.array([1, 1, 3, 1, 0], np.int32)  # right, wrong, right, wrong, right
        assert scores(LOGITS, labels, [""] * 5, 3).keys() == {"eval_accuracy", "eval_loss", "loss"}
        results = scores(LOGITS, labels, ["high", "middle", "high", "high", "middle"], 3)
        e = math.exp
        losses = [
            -math.log(e(1) / (e(1) + 2)),
            -math.log(1 / (1 + e(2))),
            -math.log(e(3) / (e(3) + 3)),
            -math.log(0.5),
            -math.log(1 / (1 + e(-1) + e(-2))),
        ]
        expected = {
            "eval_accuracy": 3 / 5,
            "eval_accuracy_high": 2 / 3,
            "eval_accuracy_middle": 1 / 2,
            "eval_loss": sum(losses) / 5,
            "loss": (sum(losses[:3]) / 3 + sum(losses[3:]) / 2) / 2,
        }
        assert results == pytest.approx(expected, rel=1e-6)


def test_a_row_is_written_for_every_question(tmp_path):
    shares = np.array(
        [[0.25, 0.75, 0.0], [0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], np.float32
    )
    ids = ["high2.txt", "high2.txt", "a\tb\\\n日", "high2.txt"]
    chosen, counts = np.array([1, 2, 0, 0]), np.array([2, 3, 2, 3])
    write_choice_predictions(str(tmp_path / "new"), ids, shares, chosen, counts)
    assert (tmp_path / "new" / "predictions.tsv").read_text("utf-8") == (
        "id\tquestion\tprediction\tA\tB\tC\n"
        "high2.txt\t0\tB\t0.25\t0.75\t\n"
        "high2.txt\t1\tC\t0.1\t0.2\t0.7\n"
        "a\\tb\\\\\\n日\t0\tA\t0.5\t0.5\t\n"
        "high2.txt\t2\tA\t1.0\t0.0\t0.0\n"
    )


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
