"""The notebook about SQuAD, run whole on tiny settings."""

import json
import math
from types import SimpleNamespace

import pytest

from tests.notebooks import assert_clean, pictures, printed, run_notebook, small_pretrained
from tests.squad_run import questions, write_squad

TEXT = "The mill was built in 1871. It grinds rye."
QUESTIONS = ["When was it built?", "What does it grind?", "Who owns it?"]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[1, 2])
def squad(request, tmp_path_factory, golden) -> SimpleNamespace:
    """The notebook with its outputs, and the folder in which it ran."""
    version = request.param
    inputs, folder = tmp_path_factory.mktemp("inputs"), tmp_path_factory.mktemp("squad")
    notebook = run_notebook(
        "question_answering_squad",
        folder,
        SQUAD_VERSION=version,
        MODEL=small_pretrained(inputs / "model", golden),
        TRAIN_FILE=write_squad(inputs / "train.json", questions(15, 1, version)),
        DEV_FILE=write_squad(inputs / "dev.json", questions(11, 2, version)),
        TRAIN_QUESTIONS=12,
        DEV_QUESTIONS=0,
        OUTPUT_DIR="output",
        MAX_SEQ_LENGTH=48,
        DOC_STRIDE=11,
        MAX_QUERY_LENGTH=13,
        LEARNING_RATE=1e-3,
        TRAIN_BATCH_SIZE=5,
        EPOCHS=1.7,
        EVALUATIONS=2,
        LOG_STEPS=1,
        OWN_TEXT=TEXT,
        OWN_QUESTIONS=QUESTIONS,
    )
    return SimpleNamespace(notebook=notebook, folder=folder, output=folder / "output")


def test_it_trains_on_some_of_the_questions_and_scores_all(squad):
    assert_clean(squad.notebook, squad.folder, "output")
    assert len(pictures(squad.notebook)) == 3  # curves, probabilities, attention
    text = printed(squad.notebook)
    assert "train: 12 questions about 12 paragraphs" in text
    assert "dev: 11 questions about 11 paragraphs" in text
    lines = (squad.output / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    trained = [record for record in records if record["phase"] == "train"]
    assert [record["step"] for record in trained] == [1, 2, 3, 4]
    assert all(math.isfinite(record["loss"]) for record in trained)
    assert [record["step"] for record in records if record["phase"] == "eval"] == [2, 4]
    assert len(json.loads((squad.output / "predictions.json").read_text())) == 11
    assert text.count("\n    right: ") == 10


def test_the_exported_model_answers_as_the_command_did(squad):
    lines = (squad.output / "data" / "own_answers.json").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    by_export = printed(squad.notebook).splitlines()[-len(QUESTIONS) :]
    assert by_export == [
        f"{question} → {answer['answer']} (characters {answer['start']} to {answer['end']})"
        if answer["answer"]
        else f"{question} → no answer"
        for question, answer in zip(QUESTIONS, answers, strict=True)
    ]
