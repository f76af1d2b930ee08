"""Tests for exports that take token ids.

tests/golden compares the default signatures with the original. The tests of token classifiers
and of the commands serve models in a process without this package.
"""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.export import export_classifier
from albert_tf.data.files import WriteError
from albert_tf.labels import Labels
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.modeling.original_names import original_names
from albert_tf.multiple_choice.export import export_choice
from albert_tf.squad.export import export_spans
from albert_tf.training.strategies import create_strategy
from tests.full_disk import file_size_limit, record_writes
from tests.killed_writer import Writer
from tests.serving import batch, serialized
from tests.small_model import dropping_config

pytestmark = pytest.mark.slow

CLASSES, NUMBER = Labels(("negative", "neutral", "пози\ttive")), Labels()
LABELS = {"classes": CLASSES, "number": NUMBER}
LENGTH, STARTS, ENDS = 7, 3, 4
SHAPES = ((4, LENGTH), (1, 16), (5, 2), (3, 1))  # of batches; the model has 16 positions
CHOICE_SHAPES = ((2, 3, 7), (1, 5, 16), (4, 2, 1), (3, 1, 6))  # B, C, S
KINDS = {
    "classes": (AlbertForClassification, 3),
    "number": (AlbertForClassification, 1),
    "choice": (AlbertForMultipleChoice,),
    "spans": (AlbertForQuestionAnswering,),
    "beams": (AlbertForQuestionAnsweringWithBeamSearch, STARTS, ENDS),
}


def new_model(name, layers=3, **options):
    """Creates a model whose outputs differ clearly between inputs."""
    random.seed(5)
    # Two layers that share feed-forward parts only, and a third one; or all in two groups.
    config = dropping_config(
        num_hidden_layers=layers,
        num_hidden_groups=min(layers, 2),
        inner_group_num=1,
        parameter_sharing="ffn" if name == "classes" else "all",
    )
    kind, *arguments = KINDS[name]
    model = kind(config, *arguments, **options)
    head, scale = (model.span_head, 0.3) if hasattr(model, "span_head") else (model.classifier, 1.0)
    rng = np.random.default_rng(4)
    for variable in head.trainable_variables:
        variable.assign(rng.normal(size=variable.shape, scale=scale))
    return model


def export(name, model, folder):
    if name == "choice":
        return export_choice(model, folder)
    if name in LABELS:
        return export_classifier(model, LABELS[name], folder, LENGTH, threshold=0.625)
    return export_spans(model, folder)


def inputs(name, *shape) -> dict[str, np.ndarray]:
    """Returns a ragged batch; the last option is missing; contexts are the second half."""
    *rows, length = shape
    features = batch(int(np.prod(rows)), length)
    if name == "choice":
        features = {key: values.reshape(shape) for key, values in features.items()}
        if rows[1] > 1:
            features["input_mask"][-1, -1] = 0
    elif name not in LABELS:
        half = features["input_mask"].sum(axis=1, keepdims=True) // 2
        is_context = (np.arange(length) >= half) & (features["input_mask"] == 1)
        features["segment_ids"] = is_context.astype(np.int32)
    return features


@pytest.fixture(scope="module", params=KINDS)
def served(request, tmp_path_factory):
    """Returns the kind of a model, the model, its export, and its signatures."""
    name, model = request.param, new_model(request.param)
    path = export(name, model, str(tmp_path_factory.mktemp("export") / name))
    loaded = tf.saved_model.load(path)
    return SimpleNamespace(
        name=name, model=model, path=Path(path), loaded=loaded, call=loaded.signatures["tokens"]
    )


def tensors(features) -> dict[str, tf.Tensor]:
    return {name: tf.constant(values) for name, values in features.items()}


def expected_outputs(name, model, features):
    values = model(features, training=False)
    if name in ("spans", "beams"):
        return {output: value.numpy() for output, value in values.items()}
    logits = values["logits"].numpy()
    outputs = {"probabilities": logits, "predictions": logits[:, 0]}
    if name != "number":
        predictions = logits.argmax(axis=1).astype(np.int32)
        outputs = {"probabilities": tf.nn.softmax(logits).numpy(), "predictions": predictions}
    if name == "classes":
        labels = np.array([label.encode() for label in CLASSES.names], object)
        outputs["predicted_labels"] = labels[outputs["predictions"]]
    return {**outputs, **({"threshold": np.float32(0.625)} if name in LABELS else {})}


def test_answers_equal_the_model(served):
    rtol = 1e-6 if served.name in ("spans", "beams") else 0
    for shape in CHOICE_SHAPES if served.name == "choice" else SHAPES:
        features = inputs(served.name, *shape)
        answer = {name: x.numpy() for name, x in served.call(**tensors(features)).items()}
        expected = expected_outputs(served.name, served.model, features)
        assert set(answer) == set(expected)
        for name, values in answer.items():
            assert values.shape == expected[name].shape, name
            assert values.dtype == expected[name].dtype, name
            if values.dtype == object:
                np.testing.assert_array_equal(values, expected[name])
            else:
                np.testing.assert_allclose(values, expected[name], rtol, 1e-6, err_msg=name)
        if served.name == "choice" and shape[1] > 1:
            assert answer["probabilities"][-1, -1] == 0
            assert np.all(np.delete(answer["probabilities"].ravel(), -1) > 0)


def test_invalid_requests_are_rejected(served):
    shape = CHOICE_SHAPES[0] if served.name == "choice" else SHAPES[0]
    features = inputs(served.name, *shape)
    mask, segments = features["input_mask"], features["segment_ids"]
    for changes, message in (
        (inputs(served.name, *shape[:-1], 17), "more tokens than the model has positions: 16"),
        ({"input_mask": mask[:, :1]}, "input_mask must have the shape of input_ids"),
        ({"segment_ids": segments[:1]}, "segment_ids must have the shape of input_ids"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            served.call(**tensors({**features, **changes}))


def test_default_signatures(served):
    """tests/golden compares the outputs for records with the original."""
    if served.name in ("spans", "beams"):
        return
    serve = served.loaded.signatures["serving_default"]
    if served.name == "choice":
        features = tensors(inputs("choice", *CHOICE_SHAPES[0]))
        expected = served.call(**features)
        tf.nest.map_structure(np.testing.assert_array_equal, serve(**features), expected)
        return
    short = serialized(inputs(served.name, 2, LENGTH - 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"output shape: \[7\]"):
        serve(input=tf.constant(short))


def test_files_contain_weights_and_labels(served):
    path = served.path
    assert path.parent.name == ("saved_model" if served.name in ("spans", "beams") else served.name)
    assert path.name.isdigit()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    stored = tf.train.list_variables(str(path / "variables" / "variables"))
    found = sorted(tuple(shape) for name, shape in stored if name[0] != "_")
    assert found == sorted(tuple(v.shape) for v in original_names(served.model).values())
    if served.name == "classes":
        names = json.loads((path / "assets.extra" / "labels.json").read_text())
        assert names == list(CLASSES.names)


@pytest.mark.parametrize(
    ("precision", "strategy", "atol"),
    [("float32", "mirrored", 1e-6), ("mixed_bfloat16", "one_device", 0.05)],
)
def test_exports_are_float32(tmp_path, precision, strategy, atol):
    """The export of a half-precision model contains only float32."""
    with create_strategy(strategy).scope():
        model = new_model("classes", layers=1, dtype=precision)
    loaded = tf.saved_model.load(export("classes", model, str(tmp_path)))
    tokens, features = loaded.signatures["tokens"], batch(*SHAPES[0])
    expected = tf.nn.softmax(tf.cast(model(features, training=False)["logits"], tf.float32))
    actual = tokens(**tensors(features))
    np.testing.assert_allclose(actual["probabilities"], expected, rtol=0, atol=atol)
    assert all(variable.dtype == tf.float32 for variable in tokens.variables)
    graph = tokens.graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    types = {value.type for node in nodes for value in node.attr.values()}
    assert tf.float32.as_datatype_enum in types
    assert tf.bfloat16.as_datatype_enum not in types


def test_exports_are_on_disk_before_they_are_visible(tmp_path, monkeypatch):
    events = record_writes(monkeypatch)
    path = Path(export_classifier(new_model("number", layers=1), NUMBER, str(tmp_path), LENGTH))
    renamed = events.index(("replace", path.stat().st_ino))
    for file in path.rglob("*"):
        assert ("fsync", file.stat().st_ino) in events[:renamed]
    assert events[renamed + 1] == ("fsync", tmp_path.stat().st_ino)


def test_failed_exports_leave_nothing(tmp_path):
    model = new_model("number", layers=1)
    Writer("folder", tmp_path / "export").kill()
    for size in (100, 5000):  # for nothing, and for all but the weights
        with file_size_limit(size), pytest.raises(WriteError, match=f"{tmp_path}/export "):
            export_classifier(model, NUMBER, str(tmp_path), LENGTH)
        assert list(tmp_path.iterdir()) == []


def test_invalid_arguments_are_rejected_before_writing(tmp_path):
    model, path = new_model("classes", layers=1), tmp_path / "exports"
    with pytest.raises(ValueError, match=r"`max_seq_length` must be in 1\.\.16.*17"):
        export_classifier(model, CLASSES, str(path), 17)
    with pytest.raises(ValueError, match="num_labels is 3 in the model, but 2 in the arguments"):
        export_classifier(model, Labels(("yes", "no")), str(path), LENGTH)
    assert not path.exists()
    path.write_text("a file")
    with pytest.raises(WriteError, match=f"{path}/export "):
        export_classifier(model, CLASSES, str(path), LENGTH)
