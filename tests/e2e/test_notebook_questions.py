"""The notebook about SQuAD, run whole on tiny settings."""

import ast
import json
import math
import re
from types import SimpleNamespace

import pytest

from tests.notebooks import assert_clean, pictures, printed, run_notebook, small_pretrained
from tests.squad_run import questions, write_squad

TEXT = "The mill was built in 1871. It grinds rye."
QUESTIONS = ["When was it built?", "What does it grind?", "Who owns it?"]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["files of SQuAD 1.1", "stories of SQuAD 2.0"])
def squad(request, tmp_path_factory, golden) -> SimpleNamespace:
    """The notebook with its outputs, and the folder in which it ran."""
    inputs, folder = tmp_path_factory.mktemp("inputs"), tmp_path_factory.mktemp("squad")
    for part, count, seed in (("train", 15, 1), ("dev", 11, 2)):
        write_squad(inputs / f"{part}.json", questions(count, seed, 1))
    is_files = "files" in request.param
    notebook = run_notebook(
        "question_answering_squad",
        folder,
        SQUAD_VERSION=1 if is_files else 2,
        MODEL=small_pretrained(inputs / "model", golden),
        DATA=f"{inputs.as_uri()}/{{}}.json" if is_files else "",
        PARAGRAPHS=12 if is_files else 5,
        OUTPUT_DIR="output",
        SETTINGS={
            "max_seq_length": 48,
            "doc_stride": 11,
            "max_query_length": 13,
            "learning_rate": 1e-3,
            "train_batch_size": 5,
            "num_train_epochs": 1.7 if is_files else 1.0,
            "save_checkpoints_steps": 2,
            "log_steps": 1,
        },
        OWN_TEXT=TEXT,
        OWN_QUESTIONS=QUESTIONS,
    )
    return SimpleNamespace(notebook=notebook, folder=folder, output=folder / "output")


def test_it_trains_on_some_of_the_questions_and_scores_all(squad):
    assert_clean(squad.notebook, squad.folder, "output")
    assert len(pictures(squad.notebook)) == 3  # curves, candidates, attention
    lines = (squad.output / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    trained = [record for record in records if record["phase"] == "train"]
    assert [record["step"] for record in trained] == [1, 2, 3, 4]
    assert all(math.isfinite(record["loss"]) for record in trained)
    assert [record["step"] for record in records if record["phase"] == "eval"] == [2, 4]
    asked = json.loads((squad.output / "dev.json").read_text())["data"][0]["paragraphs"]
    answered = json.loads((squad.output / "predictions.json").read_text())
    assert answered.keys() == {question["id"] for part in asked for question in part["qas"]}


def test_the_exported_model_answers_as_the_notebook_does(squad):
    shown = [line for line in printed(squad.notebook).splitlines() if " → " in line]
    answers = [line.split(" → ")[1].replace("(no answer)", "") for line in shown]
    results = [
        output.data["text/plain"]
        for cell in squad.notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "execute_result"
    ]
    assert len(answers) == len(QUESTIONS)
    found = re.search(r"array\(\[(.*)\],\s+dtype", results[-1], re.DOTALL)
    assert found
    assert ast.literal_eval(f"[{found[1]}]") == [answer.encode() for answer in answers]
