"""Scores and files of a multiple-choice job, and `MultipleChoice`, which gives the same numbers.

tests/golden/test_race.py tests the losses.
"""

import csv
import dataclasses
import math
import random

import numpy as np
import pytest

from albert_tf import AlbertForClassification, AlbertForMultipleChoice, MultipleChoice
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.splits import DEV
from albert_tf.multiple_choice.data import LETTERS
from albert_tf.multiple_choice.run import (
    MultipleChoiceJob,
    MultipleChoiceSettings,
    write_choice_predictions,
    write_predict_results,
)
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults
from albert_tf.training.training_directory import TrainingDirectory
from tests.choice_run import choices, write_choices
from tests.fine_tuning_run import run_context
from tests.text_models import CONFIG, assert_rejected, write_model

TASK = StoredTask("race", max_seq_length=22, settings={"max_qa_length": 9})
ROWS = choices(13, 2, 5)
ASKED = {f"{name}s": [row[name] for row in ROWS] for name in ("question", "context")}
ASKED["options"] = [row["options"] for row in ROWS]


@pytest.fixture(scope="module")
def model():
    random.seed(3)
    return AlbertForMultipleChoice(CONFIG)


@pytest.fixture
def new_job(model, tokenizer, tmp_path):
    """Returns a function that creates a job for a file of questions."""

    def new(flag, rows, **settings):
        settings[flag] = str(write_choices(tmp_path / f"{flag}.jsonl", rows))
        settings = MultipleChoiceSettings(
            output_dir=str(tmp_path / "out"),
            do_train=False,
            max_seq_length=22,
            max_qa_length=9,
            **settings,
        )
        job = MultipleChoiceJob(run_context(settings, CONFIG, tokenizer, "race", TASK))
        job.make_task()
        job.use(model)
        return job

    return new


@pytest.mark.parametrize("keeps_best", [True, False])
def test_scores_are_computed_and_recorded(new_job, model, tmp_path, keeps_best):
    job = new_job("dev_choices", choices(4, 1, 5), eval_batch_size=3)
    levels = ["middle", "high", "high", "high"]
    job.features[DEV] = features = dataclasses.replace(job.features[DEV], levels=levels)
    job.results = EvaluationResults(str(tmp_path / "out"))
    best = BestCheckpoint(TrainingDirectory(str(tmp_path / "out")), "eval_accuracy")
    results = job.evaluate()
    padded = features.sequences.padded(np.arange(len(features.sequences)), 22)
    shape = (len(features), features.num_choices, 22)
    logits = model({name: x.reshape(shape) for name, x in padded.items()})["logits"].numpy()
    is_right = logits.argmax(axis=1) == features.label_ids
    assert results["eval_accuracy"] == pytest.approx(is_right.mean())
    assert results["eval_accuracy_middle"] == is_right[0]
    assert results["eval_accuracy_high"] == pytest.approx(is_right[1:].mean(), abs=1e-6)
    job.record(7, results, best, keeps_best=keeps_best)
    assert "global_step = 7" in (tmp_path / "out" / "eval_results.txt").read_text()
    if keeps_best:
        assert best.step == 7
    else:
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["eval_results.txt"]


def test_the_class_chooses_the_options_of_the_command(new_job, model, tokenizer, tmp_path):
    rows = [{name: row[name] for name in row if name != "label"} for row in ROWS]
    new_job("test_choices", rows, do_eval=False, do_predict=True).apply(1)
    with (tmp_path / "out" / "predictions.tsv").open(newline="") as file:
        expected = list(csv.DictReader(file, delimiter="\t"))
    found = MultipleChoice.load(write_model(tmp_path / "trained", model, tokenizer, TASK))(**ASKED)
    for choice, row, asked in zip(found, expected, ROWS, strict=True):
        assert LETTERS[choice.index] == row["prediction"]
        assert choice.option == asked["options"][choice.index]
        assert {type(value) for value in choice.probabilities} == {float}
        # The file contains all digits of a float32.
        texts = [row[letter] for letter in LETTERS[: len(asked["options"])]]
        assert choice.probabilities == [float(np.float32(text)) for text in texts]
    assert len({choice.index for choice in found}) > 1


def test_models_of_an_unknown_task_need_one_score(model, tokenizer, tmp_path):
    unknown = MultipleChoice.load(write_model(tmp_path / "unknown", model, tokenizer))
    assert unknown.max_qa_length == 128
    assert unknown(**ASKED) == MultipleChoice(model, tokenizer)(**ASKED)
    classes = AlbertForClassification(CONFIG, 3)
    with pytest.raises(ValueError, match="output_weights"):
        MultipleChoice.load(write_model(tmp_path / "classes", classes, tokenizer))


def test_invalid_input_is_rejected(model, tokenizer):
    choose = MultipleChoice(model, tokenizer)
    assert_rejected([
        (lambda: choose(["b"], contexts=["a"], options=["cd"]), TypeError, r"options\[0\]"),
        (lambda: choose(["b"], contexts=["a"], options=[["c"]]), ValueError, "options.*2 to 26"),
        (
            lambda: MultipleChoice(model, tokenizer, max_qa_length=0),
            ValueError,
            "`max_qa_length` must be at least 1",
        ),
    ])  # fmt: skip


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
