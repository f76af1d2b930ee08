"""A model of multiple choice, served by a process that has TensorFlow and nothing of ours."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.export import export_choice
from tests.serving import batch, serve
from tests.small_model import dropping_config

SHAPES = ((2, 3, 7), (1, 5, 16), (4, 2, 1), (3, 1, 6))  # B, C, S; the model has 16 positions


@pytest.fixture(scope="module")
def model():
    """A model whose scores differ clearly from one option to the next."""
    keras.utils.set_random_seed(5)
    model = AlbertForMultipleChoice(dropping_config(num_hidden_layers=3, inner_group_num=1))
    random = np.random.default_rng(4)
    model.classifier.output_weights.assign(
        random.normal(size=model.classifier.output_weights.shape)
    )
    return model


def options(questions: int, choices: int, length: int) -> dict[str, np.ndarray]:
    """A ragged batch; the last question has one option less, if it can."""
    features = {
        name: values.reshape(questions, choices, length)
        for name, values in batch(questions * choices, length).items()
    }
    if choices > 1:
        features["input_mask"][-1, -1] = 0
    return features


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    """The path of the export, and what a process that loaded it answered."""
    folder = tmp_path_factory.mktemp("export")
    path = export_choice(model, str(folder / "exports"))
    first = options(*SHAPES[0])
    requests = [("tokens", options(*shape)) for shape in SHAPES]
    requests += [
        ("serving_default", first),
        ("tokens", options(2, 2, 17)),
        ("tokens", {**first, "input_mask": first["input_mask"][:, :1]}),
    ]
    return path, serve(folder, [(path, *request) for request in requests])


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_any_number_of_questions_options_and_tokens_gets_the_models_answer(served, model, number):
    answer = served[1][number]
    features = options(*SHAPES[number])
    scores = model(features, training=False)["logits"]
    np.testing.assert_allclose(answer["probabilities"], tf.nn.softmax(scores), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(answer["predictions"], np.argmax(scores, axis=1))
    assert answer["probabilities"].shape == SHAPES[number][:2]
    assert answer["predictions"].dtype == np.int32
    assert set(answer) == {"probabilities", "predictions"}
    if SHAPES[number][1] > 1:
        assert answer["probabilities"][-1, -1] == 0
        assert np.all(np.delete(answer["probabilities"].ravel(), -1) > 0)


def test_both_signatures_are_the_same_and_say_what_goes_in(served):
    path, answers = served
    for name, values in answers[0].items():
        np.testing.assert_array_equal(answers[len(SHAPES)][name], values)
    signatures = tf.saved_model.load(path).signatures
    assert set(signatures) == {"serving_default", "tokens"}
    assert signatures["tokens"].structured_input_signature == (
        (),
        {
            name: tf.TensorSpec([None, None, None], tf.int32, name)
            for name in ("input_ids", "input_mask", "segment_ids")
        },
    )
    outputs = signatures["tokens"].structured_outputs
    assert outputs["probabilities"].shape.as_list() == [None, None]


def test_unusable_requests_are_refused(served):
    too_long, one_mask = served[1][len(SHAPES) + 1 :]
    assert "longer than the model has positions: 16" in too_long
    assert "input_mask must have the shape of input_ids" in one_mask


def test_an_export_holds_the_weights_of_its_model_at_that_time(model, tmp_path):
    path = export_choice(model, str(tmp_path))
    weights = model.classifier.output_weights
    before = np.array(weights)
    weights.assign(-before)
    loaded = tf.saved_model.load(path)
    tokens = loaded.signatures["tokens"]
    features = options(*SHAPES[0])
    actual = tokens(**{name: tf.constant(values) for name, values in features.items()})
    changed = model(features, training=False)["logits"]
    weights.assign(before)
    kept = model(features, training=False)["logits"]
    np.testing.assert_allclose(actual["probabilities"], tf.nn.softmax(kept), rtol=0, atol=1e-6)
    assert np.abs(actual["probabilities"] - tf.nn.softmax(changed)).max() > 0.01
