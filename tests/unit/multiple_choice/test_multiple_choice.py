"""`MultipleChoice` gives the same numbers as the command, and rejects invalid input."""

import csv

import keras
import numpy as np
import pytest

from albert_tf import AlbertForClassification, AlbertForMultipleChoice, MultipleChoice
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.labels import Labels
from albert_tf.multiple_choice.data import LETTERS
from albert_tf.multiple_choice.run import MultipleChoiceJob
from albert_tf.multiple_choice.settings import MultipleChoiceSettings
from tests.choice_run import choices, write_choices
from tests.fine_tuning_run import run_context
from tests.text_models import CONFIG, assert_rejected, write_model

TASK = StoredTask("race", max_seq_length=22, settings={"max_qa_length": 9})
ROWS = choices(13, 2, 5)
COLUMNS = {
    argument: [row[name] for row in ROWS]
    for argument, name in {
        "questions": "question",
        "contexts": "context",
        "options": "options",
    }.items()
}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return AlbertForMultipleChoice(CONFIG)


@pytest.fixture(scope="module")
def directory(model, tokenizer, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trained"), model, tokenizer, TASK)


def test_options_are_chosen_as_by_the_command(model, directory, tokenizer, tmp_path):
    rows = [{name: row[name] for name in row if name != "label"} for row in ROWS]
    settings = MultipleChoiceSettings(
        output_dir=str(tmp_path),
        do_train=False,
        do_eval=False,
        do_predict=True,
        test_choices=str(write_choices(tmp_path / "test.jsonl", rows)),
        max_seq_length=22,
        max_qa_length=9,
    )
    job = MultipleChoiceJob(run_context(settings, CONFIG, tokenizer, "race", TASK))
    job.make_task()
    job.use(model)
    job.apply(1)
    with (tmp_path / "predictions.tsv").open(newline="") as file:
        expected = list(csv.DictReader(file, delimiter="\t"))
    found = MultipleChoice.load(directory)(**COLUMNS)
    for choice, row, asked in zip(found, expected, ROWS, strict=True):
        assert LETTERS[choice.index] == row["prediction"]
        assert choice.option == asked["options"][choice.index]
        assert len(choice.probabilities) == len(asked["options"])
        texts = [row[letter] for letter in LETTERS[: len(choice.probabilities)]]
        assert [type(value) for value in choice.probabilities] == [float] * len(texts)
        # The file contains all digits of a float32.
        assert choice.probabilities == [float(np.float32(text)) for text in texts]
    assert len({choice.index for choice in found}) > 1


def test_models_of_an_unknown_task_need_one_score(model, tokenizer, tmp_path):
    unknown = MultipleChoice.load(write_model(tmp_path / "unknown", model, tokenizer))
    assert unknown.max_qa_length == 128
    assert unknown(**COLUMNS) == MultipleChoice(model, tokenizer)(**COLUMNS)
    regression = StoredTask("sts-b", Labels())
    other = write_model(tmp_path / "regression", model, tokenizer, regression)
    with pytest.raises(ValueError, match=r"path must be a multiple-choice model.*'sts-b'"):
        MultipleChoice.load(other)
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
