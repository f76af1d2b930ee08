"""The notebook about formats and exports, run whole on a tiny model."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import albert_tf
from tests.notebooks import assert_clean, pictures, printed, run_notebook, small_pretrained

pytestmark = pytest.mark.slow  # a minute, and needs transformers
FORMATS = ("original", "huggingface", "keras_hub", "tf1_hub")


@pytest.fixture(scope="module")
def exports(tmp_path_factory, golden) -> SimpleNamespace:
    """The notebook with its outputs, the model it was given, and the folder in which it ran."""
    inputs, folder = tmp_path_factory.mktemp("inputs"), tmp_path_factory.mktemp("exports")
    model = small_pretrained(inputs / "model", golden)
    notebook = run_notebook(
        "hub_and_exports",
        folder,
        MODEL=model,
        OUTPUT_DIR="output",
        LEARNING_RATE=1e-2,
        EPOCHS=3,
    )
    return SimpleNamespace(notebook=notebook, model=model, folder=folder, output=folder / "output")


def number_after(text: str, words: str) -> float:
    """The number that stands behind some words, which must be there once."""
    _, after = text.split(words)
    return float(after.split()[0])


def test_it_says_what_the_model_is_and_draws(exports):
    assert_clean(exports.notebook, exports.folder, "output")
    assert "heads                         masked LM, sentence order" in printed(exports.notebook)
    assert len(pictures(exports.notebook)) == 3


def test_what_was_exported_computes_what_the_model_computes(exports):
    text = printed(exports.notebook)
    differences = [float(value) for value in re.findall(r"sequence_output: (\d\S*)", text)]
    assert len(differences) == 1 + len(FORMATS)
    assert max(differences) < 1e-5
    assert number_after(text, "largest difference to the model here:") < 1e-5
    rounded = number_after(text, "largest difference of a number:")
    assert 1e-4 < rounded < 0.5
    assert number_after(text, "AlbertModel of transformers differs by") < 1e-5
    assert number_after(text, "AlbertBackbone of keras_hub differs by") < 1e-5


def test_every_format_wanted_is_written(exports):
    ids = {"input_ids": np.array([[2, 31, 97, 5, 3]])}
    expected = albert_tf.load(exports.model).encoder(ids)["sequence_output"]
    for name in FORMATS:
        actual = albert_tf.load(exports.output / name)
        found = getattr(actual, "encoder", actual)(ids)["sequence_output"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert sorted(path.name for path in exports.output.iterdir()) == sorted(
        ["encoder", "preprocessor", "classifier", "encoder.tflite", *FORMATS]
    )


def test_the_classifier_trains_and_takes_strings(exports):
    answers = [line for line in printed(exports.notebook).splitlines() if " → " in line]
    assert len(answers) == 2
    assert all(line.endswith("%)") for line in answers)
    assert {line.split(" → ")[1].split()[0] for line in answers} <= {"cooking", "sailing"}
