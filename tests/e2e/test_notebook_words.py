"""The notebook about labels of words, run whole on tiny settings."""

import html
import json
import math
import re
from types import SimpleNamespace

import pytest

from tests.notebooks import (
    FEW_STEPS,
    assert_clean,
    pictures,
    printed,
    run_notebook,
    small_pretrained,
)

TEXTS = ["Florence <b>met</b> Anna & Tom.", "Nothing was said."]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["made-up sentences", "columns of plain labels"])
def words(request, tmp_path_factory, golden) -> SimpleNamespace:
    """The notebook with its outputs, and the folder in which it ran."""
    inputs, folder = tmp_path_factory.mktemp("inputs"), tmp_path_factory.mktemp("words")
    is_plain = "plain" in request.param
    for part in ("train", "dev"):
        (inputs / f"{part}.conll").write_text("the DET\ncat NOUN\n\nit PRON\nsat VERB\n\n" * 9)
    notebook = run_notebook(
        "label_words",
        folder,
        MODEL=small_pretrained(inputs / "model", golden),
        DATA=f"{inputs}/{{}}.conll" if is_plain else "",
        OUTPUT_DIR="output",
        SETTINGS=FEW_STEPS,
        OWN_TEXTS=TEXTS,
    )
    return SimpleNamespace(
        notebook=notebook, folder=folder, output=folder / "output", is_plain=is_plain
    )


def test_it_trains_evaluates_and_draws(words):
    assert_clean(words.notebook, words.folder, "output")
    assert len(pictures(words.notebook)) == 3  # curves, confusion matrix, probabilities
    lines = (words.output / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    trained = [record for record in records if record["phase"] == "train"]
    assert [record["step"] for record in trained] == [1, 2, 3, 4]
    assert all(math.isfinite(record["loss"]) for record in trained)
    evaluated = [record for record in records if record["phase"] == "eval"]
    assert [record["step"] for record in evaluated] == [2, 4]
    assert ("f1" in evaluated[0]) != words.is_plain


def test_texts_are_drawn_with_what_was_found_in_them(words):
    (drawn,) = (
        output.data["text/html"]
        for cell in words.notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    )
    names = r" <small><b>(.*?)</b></small>"
    text = re.sub(r"<[^>]*>", "", re.sub(names, "", drawn))
    assert html.unescape(text) == "".join(TEXTS)
    shown = re.findall(r" → (\S+) \d+%", printed(words.notebook))
    assert re.findall(names, drawn) == shown
    if words.is_plain:
        assert len(shown) == 17  # every word and mark has a label


def test_names_of_the_development_set_are_new(words):
    if words.is_plain:
        return
    names = {}
    for part in ("train", "dev"):
        rows = map(json.loads, (words.output / f"{part}.jsonl").read_text().splitlines())
        names[part] = {
            row["text"][found["start"] : found["end"]] for row in rows for found in row["entities"]
        }
    assert names["train"] & names["dev"] <= {"Florence", "Austin", "Victoria", "Jordan"}
