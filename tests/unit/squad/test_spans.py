"""Models of question answering, served by a process that has TensorFlow and nothing of ours."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.original.names import original_names
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.squad.export import export_spans
from tests.serving import batch, serve
from tests.small_model import dropping_config

SHAPES = ((4, 7), (1, 16), (5, 2), (3, 1))  # of batches; the model has 16 positions
STARTS, ENDS = 3, 4
SPAN_OUTPUTS = {"start_logits", "end_logits"}
BEAMS = {
    "start_top_log_probs": (tf.float32, [None, STARTS]),
    "start_top_index": (tf.int32, [None, STARTS]),
    "end_top_log_probs": (tf.float32, [None, STARTS * ENDS]),
    "end_top_index": (tf.int32, [None, STARTS * ENDS]),
    "cls_logits": (tf.float32, [None]),
}


def new_model(version: int, **options):
    """A model whose outputs differ clearly from one position to the next."""
    keras.utils.set_random_seed(5)
    config = dropping_config(num_hidden_layers=3, inner_group_num=1)
    if version == 1:
        model = AlbertForQuestionAnswering(config, **options)
    else:
        model = AlbertForQuestionAnsweringWithBeamSearch(config, STARTS, ENDS, **options)
    random = np.random.default_rng(4)
    for variable in model.span_head.trainable_variables:
        variable.assign(random.normal(size=variable.shape, scale=0.3))
    return model


def inputs(rows: int, length: int) -> dict[str, np.ndarray]:
    """A ragged batch; of each sequence the second half is the context."""
    features = batch(rows, length)
    half = features["input_mask"].sum(axis=1, keepdims=True) // 2
    is_context = (np.arange(length) >= half) & (features["input_mask"] == 1)
    return {**features, "segment_ids": is_context.astype(np.int32)}


def requests(path: str) -> list:
    ragged = inputs(*SHAPES[0])
    return [(path, "tokens", inputs(*shape)) for shape in SHAPES] + [
        (path, "serving_default", ragged),
        (path, "tokens", inputs(2, 17)),
        (path, "tokens", {**ragged, "input_mask": ragged["input_mask"][:1]}),
        (path, "serving_default", {**ragged, "segment_ids": ragged["segment_ids"][:, :1]}),
    ]


@pytest.fixture(scope="module")
def both_served(tmp_path_factory):
    """Of each version a model, the path of its export, and what a process that loaded it said."""
    folder = tmp_path_factory.mktemp("export")
    models = {version: new_model(version) for version in (1, 2)}
    paths = {v: export_spans(model, str(folder / f"v{v}")) for v, model in models.items()}
    answers = serve(folder, requests(paths[1]) + requests(paths[2]))
    half = len(answers) // 2
    return {1: (models[1], paths[1], answers[:half]), 2: (models[2], paths[2], answers[half:])}


@pytest.fixture(params=[1, 2])
def served(request, both_served):
    """A model, the path of its export, and the other process's answers."""
    return both_served[request.param]


def assert_same(answer, expected, names):
    assert set(answer) == set(names)
    for name, values in answer.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_sequences_of_any_number_and_length_get_the_models_answer(served, number):
    model, _, answers = served
    features, answer = inputs(*SHAPES[number]), answers[number]
    is_first_version = isinstance(model, AlbertForQuestionAnswering)
    assert_same(
        answer, model(features, training=False), SPAN_OUTPUTS if is_first_version else BEAMS
    )
    rows, length = SHAPES[number]
    if is_first_version:
        assert answer["end_logits"].shape == (rows, length)
    else:
        assert answer["end_top_index"].shape == (rows, STARTS * ENDS)


def test_the_default_signature_has_the_originals_names(served):
    model, _, answers = served
    answer, own = answers[len(SHAPES)], answers[0]
    if isinstance(model, AlbertForQuestionAnswering):
        own = {"start_log_prob": own["start_logits"], "end_log_prob": own["end_logits"]}
    assert set(answer) == set(own)
    for name, values in own.items():
        np.testing.assert_array_equal(answer[name], values)


def test_padding_changes_no_answer(served):
    """A server that pads to a length of its own gets what a server that does not gets."""
    model, path, _ = served
    tokens = tf.saved_model.load(path).signatures["tokens"]
    features = {name: tf.constant(values) for name, values in inputs(4, 7).items()}
    padded = {name: tf.pad(values, [[0, 0], [0, 6]]) for name, values in features.items()}
    short, long = tokens(**features), tokens(**padded)
    for name, values in short.items():
        is_real = np.ones(values.shape, bool)
        if isinstance(model, AlbertForQuestionAnswering):
            is_real = features["input_mask"].numpy() == 1
        elif name != "cls_logits":  # beams that hold positions, not only what is left
            is_real = short[name.replace("index", "log_probs")].numpy() > -1e29
        assert is_real.any()
        longer = long[name].numpy()[:, : values.shape[-1]] if values.shape.rank == 2 else long[name]
        np.testing.assert_allclose(
            longer[is_real], values.numpy()[is_real], rtol=1e-5, atol=1e-5, err_msg=name
        )


def test_unusable_requests_are_refused(served):
    _, _, (*_, too_long, one_mask, one_segment) = served
    assert "longer than the model has positions: 16" in too_long
    assert "input_mask must have the shape of input_ids" in one_mask
    assert "segment_ids must have the shape of input_ids" in one_segment


def test_signatures_say_what_goes_in_and_what_comes_out(served):
    model, path, _ = served
    signatures = tf.saved_model.load(path).signatures
    assert set(signatures) == {"serving_default", "tokens"}
    for signature in signatures.values():
        assert signature.structured_input_signature == (
            (),
            {
                name: tf.TensorSpec([None, None], tf.int32, name)
                for name in ("input_ids", "input_mask", "segment_ids")
            },
        )
    outputs = signatures["tokens"].structured_outputs
    found = {name: (spec.dtype, spec.shape.as_list()) for name, spec in outputs.items()}
    if isinstance(model, AlbertForQuestionAnswering):
        assert found == dict.fromkeys(SPAN_OUTPUTS, (tf.float32, [None, None]))
    else:
        assert found == BEAMS


def test_files_hold_the_weights_alone_where_the_original_puts_them(served):
    model, path, _ = served
    assert Path(path).parent.name == "saved_model"
    assert os.path.basename(path).isdigit()
    assert [entry.name for entry in Path(path).parent.iterdir()] == [os.path.basename(path)]
    stored = tf.train.list_variables(os.path.join(path, "variables", "variables"))
    shapes = sorted(tuple(shape) for name, shape in stored if name[0] != "_")
    assert shapes == sorted(tuple(v.shape) for v in original_names(model).values())
