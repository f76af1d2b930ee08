"""Scores and files of a multiple-choice job. tests/golden/test_race.py tests the losses."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.text_examples import DEV
from albert_tf.multiple_choice.run import (
    MultipleChoiceJob,
    MultipleChoiceSettings,
    write_choice_predictions,
    write_predict_results,
)
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults
from albert_tf.training.training_directory import TrainingDirectory
from tests.choice_run import choices, write_choices
from tests.fine_tuning_run import run_context
from tests.small_model import small_config


@pytest.fixture(scope="module")
def job(golden, tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    settings = MultipleChoiceSettings(
        output_dir=str(files),
        do_train=False,
        dev_choices=write_choices(files / "dev.jsonl", choices(4, 1, 5)),
        max_seq_length=16,
        max_qa_length=9,
        eval_batch_size=3,
    )
    config = small_config(vocab_size=1000, num_hidden_layers=2)
    tokenizer = tokenizer_from_files(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))
    job = MultipleChoiceJob(run_context(settings, config, tokenizer, "race"))
    job.use(job.make_task().build_model())
    levels = ["middle", "high", "high", "high"]
    job.features[DEV] = dataclasses.replace(job.features[DEV], levels=levels)
    return job


@pytest.mark.parametrize("keeps_best", [True, False])
def test_scores_are_computed_and_recorded(job, tmp_path, keeps_best):
    job.results = EvaluationResults(str(tmp_path))
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), "eval_accuracy")
    results = job.evaluate()
    features = job.features[DEV]
    padded = features.sequences.padded(np.arange(len(features.sequences)), 16)
    shape = (len(features), features.num_choices, 16)
    inputs = {name: tf.constant(values.reshape(shape)) for name, values in padded.items()}
    is_right = job.model(inputs)["logits"].numpy().argmax(axis=1) == features.label_ids
    assert results["eval_accuracy"] == pytest.approx(is_right.mean())
    assert results["eval_accuracy_middle"] == is_right[0]
    assert results["eval_accuracy_high"] == pytest.approx(is_right[1:].mean(), abs=1e-6)
    job.record(7, results, best, keeps_best=keeps_best)
    assert "global_step = 7" in (tmp_path / "eval_results.txt").read_text()
    if keeps_best:
        assert best.step == 7
    else:
        assert [path.name for path in tmp_path.iterdir()] == ["eval_results.txt"]


def test_a_row_is_written_for_every_question(tmp_path):
    shares = np.array([[0.25, 0.75, 0.0], [0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    ids = ["high2.txt", "high2.txt", "a\tb\\\n日", "high2.txt"]
    with np.errstate(divide="ignore"):
        logits = np.log(shares)
    write_choice_predictions(str(tmp_path / "new"), ids, np.array([2, 3, 2, 3]), logits)
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
