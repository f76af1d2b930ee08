"""The tables of published settings and scores in the documentation equal the recipes."""

import re

import pytest

from albert_tf.finetuning.recipes import SIZES, VERSIONS, Recipe, recipe_for, recipe_names
from tests.documentation import DOCS

CLASSIFICATION, QUESTIONS = "classification.md", "question_answering.md"
TOKENS = "token_classification.md"
SETTINGS = {
    "learning rate": "learning_rate",
    "batch": "train_batch_size",
    "steps": "train_step",
    "warm-up": "warmup_step",
    "length": "max_seq_length",
    "dropout": "encoder_dropout_prob",
}
SCORES = {
    "MNLI": ("mnli", ["eval_accuracy"]),
    "SST-2": ("sst-2", ["eval_accuracy"]),
    "SQuAD 1.1 F1 / EM": ("squad1.1", ["f1", "exact_match"]),
    "SQuAD 2.0 F1 / EM": ("squad2.0", ["f1", "exact"]),
    "RACE": ("race", ["eval_accuracy"]),
}


def table(page: str, corner: str) -> dict[str, dict[str, str]]:
    """Returns the table with the first heading `corner`, by row and column."""
    lines = (DOCS / page).read_text("utf-8").splitlines()
    (start,) = (n for n, line in enumerate(lines) if line.startswith(f"| {corner} | "))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    heads, _, *bodies = rows
    return {body[0]: dict(zip(heads[1:], body[1:], strict=True)) for body in bodies}


def recipe_of(row: str) -> Recipe:
    """Returns the recipe of a row such as `CoLA`, `SQuAD 1.1` or `RACE, v2`."""
    task, _, version = row.partition(", ")
    return recipe_for(task.replace("SQuAD ", "squad"), version=version or "v2")


@pytest.mark.parametrize(
    ("page", "corner"), [(CLASSIFICATION, "task"), (QUESTIONS, "data"), (TOKENS, "task")]
)
def test_settings_equal_the_recipes(page, corner):
    rows = table(page, corner)
    assert rows
    for row, cells in rows.items():
        recipe = recipe_of(row)
        for heading, cell in cells.items():
            assert float(cell.replace(",", "")) == getattr(recipe, SETTINGS[heading]), (
                row,
                heading,
            )


def test_every_recipe_has_a_row():
    tasks = {row.lower() for row in table(CLASSIFICATION, "task")}
    tasks |= table(TOKENS, "task").keys()
    tasks |= {row.lower().split(",")[0].replace(" ", "") for row in table(QUESTIONS, "data")}
    assert tasks == {*recipe_names()} - {"ax", "mismnli"}  # these use the recipe of MNLI


@pytest.mark.parametrize("page", [CLASSIFICATION, QUESTIONS])
def test_scores_equal_the_recipes(page):
    rows = table(page, "model")
    assert set(rows) == {f"{size} {version}" for size in SIZES for version in VERSIONS}
    for row, cells in rows.items():
        size, version = row.split()
        for heading, cell in cells.items():
            task, metrics = SCORES[heading]
            published = recipe_for(task, size, version).published
            assert cell == " / ".join(str(published[metric]) for metric in metrics), (row, heading)


def test_scores_in_the_text_equal_the_recipes():
    text = " ".join((DOCS / CLASSIFICATION).read_text("utf-8").split())
    listed = re.search(r"xxlarge v1 \([^)]*\): (.*?)\. ", text)[1]
    scores = dict(item.rsplit(" ", 1) for item in listed.split(", "))
    assert set(scores) == {"QNLI", "QQP", "RTE", "MRPC", "CoLA", "STS-B"}
    for task, score in scores.items():
        (published,) = recipe_for(task, "xxlarge", "v1").published.values()
        assert score == str(published), task
