"""Tests for LiteRT files, run in a process without TensorFlow and this package."""

import json
import math
import os
import pickle
import random
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.files import WriteError
from albert_tf.labels import Labels
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForTokenClassification,
)
from albert_tf.modeling.original_names import original_names
from albert_tf.serving import litert
from albert_tf.serving.agreement import compare
from albert_tf.serving.litert import QUANTIZATIONS, LiteRTExport, labels_file, outputs_of
from albert_tf.serving.onnx_export import OnnxExport
from tests.full_disk import file_size_limit
from tests.serving import batch
from tests.small_model import dropping_config, small_config

LABELS = Labels(("no", "maybe", "да"))
# Runs files with the interpreter only.
PROGRAM = """
import os, pickle, sys
from ai_edge_litert.interpreter import Interpreter

answers = []
for path, inputs in pickle.load(open(sys.argv[1], "rb")):
    interpreter = Interpreter(path)
    run = interpreter.get_signature_runner()
    try:
        details = [run.get_input_details(), run.get_output_details()]
        kinds = [{k: v["dtype"].__name__ for k, v in side.items()} for side in details]
        answers.append((kinds, run(**inputs)))
    except (RuntimeError, ValueError) as error:
        answers.append(str(error))
assert not {"albert_tf", "tensorflow"} & set(sys.modules)
pickle.dump(answers, open(sys.argv[2], "wb"))
"""


# Sizes that the converter quantizes, and a block that runs twice.
CONFIG = dropping_config(
    vocab_size=307,
    embedding_size=24,
    hidden_size=48,
    intermediate_size=700,
    num_hidden_layers=2,
    num_hidden_groups=1,
    inner_group_num=1,
)


def new_model(kind, *arguments):
    """Creates a model whose heads have different outputs for different inputs."""
    random.seed(5)
    model = kind(CONFIG, *arguments)
    rng = np.random.default_rng(4)
    for name, variable in original_names(model).items():
        if not name.startswith("bert/"):
            variable.assign(rng.normal(size=variable.shape, scale=0.5))
    return model


def ask(folder, questions) -> list:
    """Returns the answers or errors of another process."""
    files = [folder / "questions", folder / "answers"]
    files[0].write_bytes(pickle.dumps(questions))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", PROGRAM, *files], cwd=folder, env=environment, check=True)
    return pickle.loads(files[1].read_bytes())


# By quantization: model, batch size, length (None for any) and shapes of requests.
CASES = {
    "none": ((AlbertEncoder,), None, None, ((4, 7), (1, 16))),
    "float16": ((AlbertForClassification, 1), 2, 5, ((2, 5),)),
    "int8": ((AlbertForClassification, 3), None, 13, ((2, 13), (3, 13))),
    "int8-spans": ((AlbertForQuestionAnswering,), 1, None, ((1, 12), (1, 5))),
}


@pytest.fixture(scope="module")
def all_exported(tmp_path_factory):
    """Returns model, file and answers of another process by case."""
    folder, exported, questions = tmp_path_factory.mktemp("litert"), {}, []
    for name, (kind, batch_size, length, shapes) in CASES.items():
        model = new_model(*kind)
        path = str(folder / f"{name}.tflite")
        labels = LABELS if kind[-1] == 3 else None
        quantization = name.partition("-")[0]
        LiteRTExport(model, path, quantization, length, batch_size, labels).write()
        batches = [batch(*shape) for shape in shapes]
        exported[name] = SimpleNamespace(model=model, path=path, batches=batches)
        questions += [(path, inputs) for inputs in batches]
    path = exported["none"].path
    questions += [
        (path, batch(2, 17)),
        (path, {**batch(2, 3), "input_ids": batch(3, 4)["segment_ids"]}),
        (path, {**batch(2, 3), "input_mask": batch(1, 3)["input_mask"]}),
        (path, {**batch(2, 3), "segment_ids": batch(1, 3)["segment_ids"]}),
    ]
    answers = ask(folder, questions)
    for found in exported.values():
        found.answers = [answers.pop(0) for _ in found.batches]
    exported["refused"] = answers
    return exported


@pytest.fixture(params=CASES)
def exported(request, all_exported):
    return request.param, all_exported[request.param]


def test_outputs_in_another_process(exported):
    name, found = exported
    # Largest difference, of numbers up to 6.
    most = {"none": 1e-5, "float16": 0.01, "int8": 0.15, "int8-spans": 0.3}[name]
    largest = 0.0
    kinds = {
        "none": {"sequence_output": "float32", "pooled_output": "float32"},
        "float16": {"probabilities": "float32", "predictions": "float32"},
        "int8": {"probabilities": "float32", "predictions": "int32"},
        "int8-spans": {"start_log_prob": "float32", "end_log_prob": "float32"},
    }[name]
    for inputs, (types, outputs) in zip(found.batches, found.answers, strict=True):
        assert types == [dict.fromkeys(inputs, "int32"), kinds]
        is_real = inputs["input_mask"] == 1
        expected = outputs_of(found.model)({k: keras.ops.array(v) for k, v in inputs.items()})
        assert set(outputs) == set(expected)
        for output, values in outputs.items():
            wanted = np.asarray(expected[output])
            assert values.shape == wanted.shape, output
            if output == "predictions" and found.model.num_labels == 3:
                np.testing.assert_array_equal(values, outputs["probabilities"].argmax(axis=1))
                continue
            if values.shape[:2] == is_real.shape:
                values, wanted = values[is_real], wanted[is_real]
            np.testing.assert_allclose(values, wanted, rtol=0, atol=most, err_msg=output)
            largest = max(largest, np.abs(values - wanted).max())
    if name != "none":
        assert largest > 1e-5  # the weights are quantized


def test_shared_block_is_stored_once(exported):
    case, found = exported
    shapes = {name: v.shape for name, v in original_names(found.model).items()}
    if isinstance(found.model, AlbertForQuestionAnswering):
        shapes = {name: shape for name, shape in shapes.items() if "pooler" not in name}
    bytes_each = {"none": 4, "float16": 2, "int8": 1, "int8-spans": 1}[case]
    weights = bytes_each * sum(math.prod(shape) for shape in shapes.values())
    block = bytes_each * sum(math.prod(s) for name, s in shapes.items() if "group_0" in name)
    graph = 80_000  # operations, and weights that are not quantized
    size = os.path.getsize(found.path)
    assert weights < size < weights + graph
    assert 2 * block > graph  # a block that is stored twice would not fit


def test_exact_gelu(tmp_path):
    """The approximation would differ by more than 3e-4."""
    model = AlbertEncoder(CONFIG.replace(hidden_act="gelu_exact", num_hidden_layers=1))
    values = np.random.default_rng(4)
    for name, variable in original_names(model).items():
        if name.endswith(("kernel", "embeddings")):
            variable.assign(values.normal(size=variable.shape, scale=0.3))
    agreements = LiteRTExport(model, str(tmp_path / "exact.tflite"), batch_size=None).write()
    assert max(agreement.difference for agreement in agreements.values()) < 3e-5
    approximate = AlbertEncoder(CONFIG.replace(num_hidden_layers=1))
    approximate.set_weights(model.get_weights())
    inputs = {name: keras.ops.array(value) for name, value in batch(2, 9).items()}
    found, other = (np.asarray(m(inputs)["sequence_output"]) for m in (model, approximate))
    assert np.abs(found - other).max() > 3e-4


def test_invalid_inputs_are_rejected(all_exported):
    assert len(all_exported["refused"]) == 4  # too long, and of two shapes
    for answer in all_exported["refused"]:
        assert "failed to prepare" in answer or "(RESHAPE) failed" in answer


def test_labels_are_written(all_exported):
    path = labels_file(all_exported["int8"].path)
    assert path.endswith("int8.labels.json")
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == ["no", "maybe", "да"]
    assert not os.path.exists(labels_file(all_exported["float16"].path))


def test_full_disk_leaves_nothing(all_exported, tmp_path, monkeypatch):
    model, path = all_exported["int8"].model, str(tmp_path / "classes.tflite")
    monkeypatch.setattr(LiteRTExport, "_convert", lambda *_: b"a model" * 200)
    monkeypatch.setattr(litert, "run", lambda *_: [])
    monkeypatch.setattr(litert, "compare", lambda *_: {})
    # The disk has space for the labels.
    with file_size_limit(1000), pytest.raises(WriteError, match="cannot be written"):
        LiteRTExport(model, path, labels=LABELS).write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["of another model", "no model"])
def test_different_results_are_not_written(all_exported, tmp_path, monkeypatch, content):
    path = tmp_path / "model.tflite"
    path.write_bytes(b"existing")
    with open(all_exported["none"].path, "rb") as file:
        converted = file.read() if content == "of another model" else b"invalid"
    monkeypatch.setattr(LiteRTExport, "_convert", lambda *_: converted)
    model = new_model(AlbertEncoder)
    model.pooler.bias.assign_add([3e-4] * 48)
    message = "pooled_output" if len(converted) > 99 else "does not run"
    with pytest.raises(ValueError, match=message):
        LiteRTExport(model, str(path)).write()
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.tflite"]
    assert path.read_bytes() == b"existing"


@pytest.mark.parametrize("tolerance", [1e-5, None])
def test_infinite_outputs_are_rejected(tolerance):
    batch = {"input_mask": np.array([[1, 1, 0]], np.int32)}
    outputs = {"pooled_output": np.ones((1, 4), np.float32)}
    source = {"pooled_output": tf.constant([[1.0, math.nan, 1.0, 1.0]])}
    with pytest.raises(ValueError, match="pooled_output"):
        compare([outputs], lambda _: source, [batch], "LiteRT", tolerance)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (LiteRTExport, {"quantization": "int8_calibrated"}, "`quantization`.*int8"),
        (LiteRTExport, {"max_seq_length": 17}, "`max_seq_length`.*17"),
        (LiteRTExport, {"batch_size": 0}, "`batch_size`"),
        (
            LiteRTExport,
            {"labels": Labels(("yes", "no"))},
            "num_labels is 3 .*, but 2 in the arguments",
        ),
        (LiteRTExport, {"output_file": "."}, "directory"),
        (LiteRTExport, {"model": AlbertForMultipleChoice(small_config())}, "MultipleChoice"),
        (OnnxExport, {"quantization": "int4"}, "`quantization`.*int4"),
        (OnnxExport, {"model": AlbertEncoder(dropping_config(vocab_size=997))}, "2 GB"),
    ],
)
def test_invalid_arguments_are_rejected_before_writing(
    tmp_path, monkeypatch, kind, options, message
):
    monkeypatch.setattr(litert, "_LARGEST_MODEL", 4 * 997 * 8)
    model = AlbertForClassification(small_config(), 3)
    arguments = {"model": model, "output_file": str(tmp_path / "model"), **options}
    with pytest.raises(ValueError, match=message):
        kind(**arguments)
    assert list(tmp_path.iterdir()) == []


KINDS = [
    (AlbertEncoder,),
    (AlbertForPretraining,),
    (AlbertForClassification, 3),
    (AlbertForClassification, 1),
    (AlbertForTokenClassification, 3),
    (AlbertForQuestionAnswering,),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(str(part) for part in kind))
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_all_models_quantizations_and_shapes(tmp_path, kind, quantization):
    """The export compares file and model."""
    model = new_model(*kind)
    for batch_size, length in ((1, 16), (3, 13), (None, 12), (None, None), (2, None)):
        path = tmp_path / f"{batch_size}-{length}.tflite"
        agreements = LiteRTExport(model, str(path), quantization, length, batch_size).write()
        assert path.exists()
        for name, agreement in agreements.items():
            assert agreement.cosine > 0.97, name
