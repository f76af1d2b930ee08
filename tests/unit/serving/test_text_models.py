"""Tests for exports that take texts, served without this package and compared with Python.

The tests of the commands serve text models of other kinds.
"""

import itertools
import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.export import export_text_classifier
from albert_tf.classification.text_classifier import TextClassifier
from albert_tf.data.text_examples import Labels
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
)
from albert_tf.multiple_choice.choose import MultipleChoice
from albert_tf.multiple_choice.export import export_text_choice
from albert_tf.squad.answers import AnswerSettings
from albert_tf.squad.ask import QuestionAnswerer
from albert_tf.squad.export import export_text_spans
from tests.hostile_texts import HOSTILE_TEXTS, choice_texts, hostile_choices
from tests.serving import serve_texts
from tests.small_model import small_config

pytestmark = pytest.mark.slow

LENGTH, QA_LENGTH = 30, 13
LABELS = {"pairs": Labels(("bad", "schön", "so, so")), "numbers": Labels()}
FIRST, SECOND = zip(*itertools.product(HOSTILE_TEXTS, HOSTILE_TEXTS[::2]), strict=True)
# Windows of one repeated word differ only by rounding.
CONTEXTS = [*HOSTILE_TEXTS[:-2], " ".join(HOSTILE_TEXTS[:9]), "\n".join(HOSTILE_TEXTS[8::-1])]
QUESTIONS = [HOSTILE_TEXTS[5 * row % len(HOSTILE_TEXTS)] for row in range(len(CONTEXTS))]
SPANS = {"doc_stride": 7, "max_query_length": 9, "n_best_size": 8, "max_answer_length": 6}


@pytest.fixture(scope="module")
def models() -> dict:
    """Creates models whose outputs differ clearly between texts."""
    keras.utils.set_random_seed(7)
    config = small_config(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=LENGTH)
    models = {
        "pairs": AlbertForClassification(config, 3),
        "numbers": AlbertForClassification(config, 1),
        "spans": AlbertForQuestionAnswering(config),
        "choices": AlbertForMultipleChoice(config),
    }
    random = np.random.default_rng(4)
    for model in models.values():
        for variable in model.trainable_variables:
            if "bert/" not in variable.path and len(variable.shape) > 1:
                variable.assign(random.normal(size=variable.shape, scale=0.3))
    return models


@pytest.fixture(scope="module")
def paths(models, tokenizer, tmp_path_factory) -> dict:
    folders = {name: str(tmp_path_factory.mktemp("text_models") / name) for name in models}
    paths = {
        name: export_text_classifier(
            models[name], labels, tokenizer, folders[name], LENGTH, name == "pairs", 0.7
        )
        for name, labels in LABELS.items()
    }
    settings = AnswerSettings(1, LENGTH, **SPANS)
    paths["spans"] = export_text_spans(models["spans"], tokenizer, settings, folders["spans"])
    paths["choices"] = export_text_choice(
        models["choices"], tokenizer, folders["choices"], LENGTH, QA_LENGTH
    )
    return paths


@pytest.fixture(scope="module")
def served(paths, tmp_path_factory) -> dict:
    """Returns the answers of another process by model, and the error of an invalid request."""
    requests = {
        "pairs": {"texts_a": FIRST, "texts_b": SECOND},
        "numbers": {"texts": HOSTILE_TEXTS},
        "spans": {"questions": QUESTIONS, "contexts": CONTEXTS},
        "choices": choice_texts(hostile_choices()),
    }
    refused = (paths["pairs"], {"texts_a": FIRST, "texts_b": SECOND[:1]})
    answers = serve_texts(
        tmp_path_factory.mktemp("served"),
        [*((paths[name], inputs) for name, inputs in requests.items()), refused],
    )
    return dict(zip((*requests, "refused"), answers, strict=True))


@pytest.mark.parametrize("name", LABELS)
def test_classification_equals_python(served, models, tokenizer, name):
    labels, answer = LABELS[name], served[name]
    settings = {"labels": labels.names, "pairs": name == "pairs", "max_seq_length": LENGTH}
    classifier = TextClassifier(models[name], tokenizer, **settings)
    expected = classifier(FIRST, SECOND) if name == "pairs" else classifier(HOSTILE_TEXTS)
    values = np.array([[*found.probabilities.values()] or [found.value] for found in expected])
    np.testing.assert_allclose(answer["probabilities"], values, rtol=0, atol=1e-5)
    np.testing.assert_allclose(answer["threshold"], np.full(len(expected), 0.7), rtol=1e-6)
    assert np.ptp(values, axis=0).max() > 0.05  # texts differ, so their order shows
    if labels.is_regression:
        assert set(answer) == {"probabilities", "predictions", "threshold"}
        np.testing.assert_array_equal(answer["predictions"], answer["probabilities"][:, 0])
    else:
        found = [label.decode() for label in answer["predicted_labels"]]
        assert found == [prediction.label for prediction in expected]
        assert found == [labels.names[number] for number in answer["predictions"]]


def test_answers_equal_python(served, models, tokenizer):
    answer = served["spans"]
    answerer = QuestionAnswerer(models["spans"], tokenizer, **SPANS)
    expected = answerer(QUESTIONS, contexts=CONTEXTS)
    assert [text.decode() for text in answer["answers"]] == [found.answer for found in expected]
    for key, missing in (("start", -1), ("end", -1), ("probability", 0)):
        values = [missing if (v := getattr(f, key)) is None else v for f in expected]
        own = answer["probabilities" if key == "probability" else key]
        np.testing.assert_allclose(own, values, rtol=0, atol=1e-5, err_msg=key)
    assert sum(bool(found.answer) for found in expected) > len(expected) / 4


def test_options_equal_python(served, models, tokenizer):
    answer, examples = served["choices"], hostile_choices()
    choose = MultipleChoice(models["choices"], tokenizer, max_qa_length=QA_LENGTH)
    expected = choose(
        [e.question for e in examples],
        contexts=[e.context for e in examples],
        options=[e.options for e in examples],
    )
    for row, found in zip(answer["probabilities"], expected, strict=True):
        wanted = found.probabilities + [0] * (4 - len(found.probabilities))
        np.testing.assert_allclose(row, wanted, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(answer["predictions"], [found.index for found in expected])
    assert len(set(answer["predictions"])) > 2
    chosen = [text.decode() for text in answer["predicted_options"]]
    assert chosen == [found.option for found in expected]


def test_unequal_numbers_of_texts_are_rejected(served):
    assert "There must be as many texts_b as texts_a" in served["refused"]


def test_directories_fit_a_server(paths):
    for path in map(Path, paths.values()):
        assert path.parent.name == "text"
        assert path.name.isdigit()
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    names = json.loads((Path(paths["pairs"]) / "assets.extra" / "labels.json").read_text())
    assert names == list(LABELS["pairs"].names)


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("numbers", {"texts": [0]}, {"predictions": (0,), "probabilities": (0, 1)}),
        (
            "choices",
            {"contexts": [0], "questions": [0], "options": [0, 4]},
            {"predictions": (0,), "probabilities": (0, 4)},
        ),
        (
            "spans",
            {"questions": [0], "contexts": [0]},
            {"answers": (0,), "n_best_answers": (0, SPANS["n_best_size"])},
        ),
    ],
)
def test_empty_batches(paths, name, shapes, expected):
    loaded = tf.saved_model.load(paths[name])
    outputs = loaded.signatures["serving_default"](
        **{key: tf.constant([], tf.string, shape) for key, shape in shapes.items()}
    )
    assert {key: tuple(outputs[key].shape) for key in expected} == expected
