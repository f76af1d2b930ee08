"""A classifier as a SavedModel, served by a process that has TensorFlow and nothing of ours."""

import json
import os
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.original.names import original_names
from albert_tf.classification.export import export_classifier
from albert_tf.data.files import WriteError
from albert_tf.data.text_examples import Labels
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.training.distribution import create_strategy
from tests.full_disk import file_size_limit
from tests.killed import Writer
from tests.serving import batch, serve
from tests.small_model import dropping_config

CLASSES = Labels(("negative", "neutral", "пози\ttive"))
NUMBER = Labels()
LENGTH = 7
SHAPES = ((4, LENGTH), (1, 16), (5, 2), (3, 1))  # of batches; the model has 16 positions


def new_model(labels: Labels, **options) -> AlbertForClassification:
    """A model whose outputs differ clearly from one input to the next."""
    keras.utils.set_random_seed(5)
    # Two layers that share feed-forward parts only, and a third one; or all in two groups.
    sharing = "all" if labels.is_regression else "ffn"
    config = dropping_config(num_hidden_layers=3, inner_group_num=1, parameter_sharing=sharing)
    model = AlbertForClassification(config, labels.num_outputs, **options)
    random = np.random.default_rng(4)
    for variable in (model.classifier.output_weights, model.classifier.output_bias):
        variable.assign(random.normal(size=variable.shape))
    return model


def serialized(features: dict[str, np.ndarray]) -> np.ndarray:
    """The rows of a batch as `tf.train.Example`s."""
    examples = []
    for row in range(len(features["input_ids"])):
        example = tf.train.Example()
        for name, values in features.items():
            example.features.feature[name].int64_list.value.extend(values[row].tolist())
        examples.append(example.SerializeToString())
    return np.array(examples, object)


@pytest.fixture(scope="module", params=["classes", "number"])
def served(request, tmp_path_factory):
    """A model, its labels, and what a process that loaded its export answered."""
    labels = CLASSES if request.param == "classes" else NUMBER
    model, folder = new_model(labels), tmp_path_factory.mktemp("export")
    path = export_classifier(model, labels, str(folder / "exports"), LENGTH, threshold=0.625)
    ragged = batch(*SHAPES[0])
    requests = [("tokens", batch(*shape)) for shape in SHAPES]
    requests += [
        ("serving_default", {"input": serialized(ragged)}),
        ("serving_default", {"input": serialized(ragged)[2:3]}),
        ("tokens", batch(2, 17)),
        ("tokens", {**ragged, "input_mask": ragged["input_mask"][:1]}),
        ("tokens", {**ragged, "segment_ids": ragged["segment_ids"][:, :1]}),
        ("serving_default", {"input": serialized(batch(2, LENGTH - 1))}),
    ]
    return model, labels, serve(folder, [(path, *request) for request in requests])


def assert_answers(answer, model, labels, features):
    logits = model(features, training=False)["logits"].numpy()
    if labels.is_regression:
        expected, predictions = logits, logits[:, 0]
    else:
        expected, predictions = tf.nn.softmax(logits).numpy(), logits.argmax(axis=1)
    np.testing.assert_allclose(answer["probabilities"], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(answer["predictions"], predictions, rtol=0, atol=1e-6)
    assert answer["probabilities"].dtype == np.float32
    assert answer["predictions"].dtype == (np.float32 if labels.is_regression else np.int32)
    assert answer["threshold"] == np.float32(0.625)


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_token_ids_of_any_batch_and_length_get_the_models_answer(served, number):
    model, labels, answers = served
    answer = answers[number]
    assert_answers(answer, model, labels, batch(*SHAPES[number]))
    names = answer.pop("predicted_labels", None)
    if labels.is_regression:
        assert names is None
    else:
        assert [name.decode() for name in names] == [labels.names[i] for i in answer["predictions"]]
    assert set(answer) == {"probabilities", "predictions", "threshold"}


def test_serialized_examples_get_the_models_answer(served):
    model, labels, answers = served
    features = batch(*SHAPES[0])
    several, one = answers[len(SHAPES) : len(SHAPES) + 2]
    assert_answers(several, model, labels, features)
    assert_answers(one, model, labels, {name: values[2:3] for name, values in features.items()})
    assert set(several) == {"probabilities", "predictions", "threshold"}


def test_unusable_requests_are_refused(served):
    _, _, (*_, too_long, one_mask, one_segment, too_short) = served
    assert "longer than the model has positions: 16" in too_long
    assert "input_mask must have the shape of input_ids" in one_mask
    assert "segment_ids must have the shape of input_ids" in one_segment
    assert "output shape: [7]" in too_short


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """An export without a threshold."""
    folder = str(tmp_path_factory.mktemp("exported"))
    return Path(export_classifier(new_model(CLASSES), CLASSES, folder, LENGTH))


def test_signatures_are_the_originals_and_one_of_token_ids(exported):
    signatures = tf.saved_model.load(str(exported)).signatures
    assert set(signatures) == {"serving_default", "tokens"}
    assert signatures["serving_default"].structured_input_signature == (
        (),
        {"input": tf.TensorSpec([None], tf.string, "input")},
    )
    assert signatures["tokens"].structured_input_signature == (
        (),
        {
            name: tf.TensorSpec([None, None], tf.int32, name)
            for name in ("input_ids", "input_mask", "segment_ids")
        },
    )
    probabilities = signatures["serving_default"].structured_outputs["probabilities"]
    assert (probabilities.shape.as_list(), probabilities.dtype) == ([None, 3], tf.float32)
    assert "threshold" not in signatures["serving_default"].structured_outputs
    assert "threshold" not in signatures["tokens"].structured_outputs


def test_no_threshold_is_written_for_the_value_of_a_flag_left_out(tmp_path):
    path = export_classifier(new_model(NUMBER), NUMBER, str(tmp_path), LENGTH, float("nan"))
    outputs = tf.saved_model.load(path).signatures["serving_default"].structured_outputs
    assert set(outputs) == {"probabilities", "predictions"}


def test_files_hold_the_weights_alone_and_the_names_of_the_classes(exported):
    names = json.loads((exported / "assets.extra" / "labels.json").read_text())
    assert names == list(CLASSES.names)
    stored = tf.train.list_variables(str(exported / "variables" / "variables"))
    shapes = sorted(tuple(shape) for name, shape in stored if name[0] != "_")
    assert shapes == sorted(tuple(v.shape) for v in original_names(new_model(CLASSES)).values())


@pytest.mark.parametrize(
    ("precision", "strategy", "atol"),
    [("float32", "mirrored", 1e-6), ("mixed_bfloat16", "one_device", 0.05)],
)
def test_any_model_is_exported_in_single_precision(tmp_path, precision, strategy, atol):
    """A model of half precision is near its export, but the export has no half precision in it."""
    with create_strategy(strategy).scope():
        model = new_model(CLASSES, dtype=precision)
    loaded = tf.saved_model.load(export_classifier(model, CLASSES, str(tmp_path), LENGTH))
    tokens, features = loaded.signatures["tokens"], batch(*SHAPES[0])
    features = {name: tf.constant(values) for name, values in features.items()}
    expected = tf.nn.softmax(tf.cast(model(features, training=False)["logits"], tf.float32))
    actual = tokens(**features)["probabilities"]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)
    assert all(variable.dtype == tf.float32 for variable in tokens.variables)
    graph = tokens.graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    types = {value.type for node in nodes for value in node.attr.values()}
    assert tf.float32.as_datatype_enum in types
    assert tf.bfloat16.as_datatype_enum not in types


def test_exports_get_subfolders_of_rising_numbers_and_nothing_else_is_left(tmp_path):
    model = new_model(NUMBER)
    paths = [export_classifier(model, NUMBER, str(tmp_path / "a" / "b"), n) for n in (3, 16)]
    assert paths == sorted(paths)
    assert sorted(map(str, (tmp_path / "a" / "b").iterdir())) == paths
    assert all(os.path.basename(path).isdigit() for path in paths)


def test_a_failed_or_killed_export_leaves_nothing_that_stays(tmp_path):
    model = new_model(NUMBER)
    Writer("folder", tmp_path / "export").kill()
    for size in (100, 5000):  # for nothing, for all but the weights
        with file_size_limit(size), pytest.raises(WriteError, match=f"--export_dir: {tmp_path} "):
            export_classifier(model, NUMBER, str(tmp_path), LENGTH)
        assert list(tmp_path.iterdir()) == []


def test_mistakes_are_named_before_anything_is_written(tmp_path):
    model, path = new_model(CLASSES), tmp_path / "exports"
    with pytest.raises(ValueError, match=r"--max_seq_length must be in 1\.\.16.*17"):
        export_classifier(model, CLASSES, str(path), 17)
    with pytest.raises(ValueError, match=r"has 3 outputs, the labels need 2: yes, no"):
        export_classifier(model, Labels(("yes", "no")), str(path), LENGTH)
    with pytest.raises(ValueError, match=r"has 3 outputs, the labels need 1: one number"):
        export_classifier(model, NUMBER, str(path), LENGTH)
    assert not path.exists()
    path.write_text("a file")
    with pytest.raises(WriteError, match=f"--export_dir: {path} "):
        export_classifier(model, CLASSES, str(path), LENGTH)
