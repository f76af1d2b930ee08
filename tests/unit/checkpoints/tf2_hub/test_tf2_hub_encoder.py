"""Tests for reusable SavedModels, run and trained in a process without this package."""

import os
import pickle
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import tf2_hub
from albert_tf.checkpoints.loading import load_weights, read_model
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.tf2_hub.writing import next_seed
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.programs import isolated_python
from tests.small_model import dropping_config, pretraining_inputs, small_config

PROGRAM = Path(__file__).with_name("tf2_hub_program.py")
CONFIG = dropping_config(vocab_size=1000, num_hidden_layers=2, inner_group_num=1)
INPUTS = ("input_ids", "input_mask", "segment_ids")
EXACT = {"rtol": 0, "atol": 1e-6}
ENCODER_OUTPUTS = ("pooled_output", "sequence_output", "encoder_outputs")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    model = AlbertForPretraining(CONFIG)
    random = np.random.default_rng(8)
    for variable in model.weights:  # biases and layer norms too
        if variable.dtype == "float32":
            variable.assign_add(random.normal(0, 0.1, variable.shape))
    return model


@pytest.fixture(scope="module")
def contents(model, golden):
    tokenizer = tokenizer_from_files(
        spm_model_file=golden / "tokenizer" / "small_1000.model", do_lower_case=False
    )
    weights = {name: variable.numpy() for name, variable in original_names(model).items()}
    others = {"output_weights": np.ones((2, 12)), "bert/pooler/dense/bias/adam_m": np.ones(12)}
    return StoredModel.in_memory(CONFIG, {**weights, **others}, tokenizer, do_lower_case=False)


@pytest.fixture(scope="module")
def saved(contents, tmp_path_factory):
    """Writes the model; returns the directory and the unsupported weights."""
    directory = tmp_path_factory.mktemp("saved")
    tf2_hub.write(str(directory), contents)
    return directory, tf2_hub.unsupported_weights(contents)


def run_program(directory, folder, *ways):
    """Runs the program; returns its results."""
    np.savez(folder / "batch.npz", **pretraining_inputs())
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [isolated_python(), PROGRAM, directory, folder / "batch.npz", folder / "results", *ways],
        cwd=folder,
        env=environment,
        check=True,
    )
    return pickle.loads((folder / "results").read_bytes())


@pytest.fixture(scope="module")
def used(saved, tmp_path_factory):
    """Returns the results of a program that uses only TensorFlow."""
    return run_program(saved[0], tmp_path_factory.mktemp("results"), "tensorflow")["tensorflow"]


def assert_same_structure(actual, expected):
    """Compares dictionaries of arrays or lists of arrays."""
    assert sorted(actual) == sorted(expected)
    for name, values in expected.items():
        for one, other in zip(tf.nest.flatten(actual[name]), tf.nest.flatten(values), strict=True):
            np.testing.assert_allclose(one, other, **EXACT, err_msg=name)
            assert one.dtype == np.float32


@pytest.fixture(scope="module")
def expected(model):
    """Returns the outputs of the model by the names of the callables."""
    outputs = model(pretraining_inputs(), output_hidden_states=True)
    encoder = {name: outputs[name] for name in ENCODER_OUTPUTS}
    order = outputs["sentence_order_logits"]
    return {
        "encoder": {**encoder, "default": encoder["pooled_output"]},
        "mlm": {**encoder, "mlm_logits": outputs["masked_lm_logits"]},
        "sop": {**encoder, "sop_logits": order, "sop_log_probs": tf.nn.log_softmax(order)},
    }


@pytest.mark.parametrize("part", ["encoder", "mlm", "sop"])
def test_outputs_of_callables_equal_the_model(used, expected, part):
    by_names_of_tf_hub = used[f"{part}, names of TF-Hub"]
    assert isinstance(by_names_of_tf_hub["encoder_outputs"], list)
    assert_same_structure(by_names_of_tf_hub, expected[part])
    if part in used:  # by the original's names; `sop` has a signature for them
        assert_same_structure(used[part], expected[part])


def test_outputs_of_signatures(used, expected):
    parts = {"serving_default": "encoder", "tokens": "encoder", "mlm": "mlm", "sop": "sop"}
    assert sorted(used["signatures"]) == sorted(parts)
    for signature, part in parts.items():
        named = {name: v for name, v in expected[part].items() if name != "encoder_outputs"}
        assert_same_structure(used["signatures"][signature], named)


def test_other_batch_sizes_and_lengths(used, model):
    inputs = {name: values[:1, :2] for name, values in pretraining_inputs().items()}
    outputs = model.encoder(inputs)["sequence_output"]
    np.testing.assert_allclose(used["other sizes"], outputs, **EXACT)


def test_lists_of_variables(used, model):
    names = set(original_names(model))
    heads = {scope: {n for n in names if n.startswith(scope)} for scope in ("cls/p", "cls/s")}
    encoder = names - heads["cls/p"] - heads["cls/s"]
    trainable, of_mlm, of_sop = map(set, used["trainable"])
    assert trainable == encoder
    assert of_mlm == encoder | heads["cls/p"]
    assert of_sop == encoder | heads["cls/s"]
    assert set(used["variables"]) == encoder | {"dropout_state"}
    assert used["losses"] == [0, 0, 0]


def test_gradients_equal_the_model(used, model):
    variables = original_names(model)
    with tf.GradientTape() as tape:
        outputs = model(pretraining_inputs(), output_hidden_states=True)
        loss = tf.reduce_sum(tf.sin(outputs["sequence_output"]))
        loss += tf.reduce_mean(tf.cos(outputs["masked_lm_logits"]))
        loss += tf.reduce_sum(outputs["pooled_output"] ** 2)
    names = list(used["gradients"])
    gradients = tape.gradient(loss, [variables[name].value for name in names])
    assert len(names) == len(variables) - 2  # all but the other head's
    for name, gradient in zip(names, gradients, strict=True):
        np.testing.assert_allclose(
            used["gradients"][name], gradient, rtol=1e-5, atol=1e-5, err_msg=name
        )


def test_dropout_equals_the_model(used, model):
    first, second, first_again = used["with dropout"]
    inputs = pretraining_inputs()
    state = tf.Variable([0, 0], dtype=tf.int64)
    for actual in (first, second):
        seed = next_seed(state, inputs["input_ids"])
        outputs = model.encoder(inputs, training=True, dropout_seed=seed)
        np.testing.assert_allclose(actual, outputs["sequence_output"], **EXACT)
    np.testing.assert_array_equal(first_again, first)
    assert np.abs(first - second).max() > 0.1


@pytest.mark.slow
def test_xla_and_replicas(saved, model, expected, tmp_path):
    results = run_program(saved[0], tmp_path, "xla", "replicas")
    logits = expected["mlm"]["mlm_logits"]
    compiled, error = results["xla"]
    np.testing.assert_allclose(compiled, logits, rtol=0, atol=1e-5)
    assert "reshape" in error.lower()  # checks are left out
    inputs = pretraining_inputs()
    for row, actual in enumerate(results["replicas"]):
        own = {name: inputs[name][row : row + 1] for name in INPUTS}
        seed = next_seed(tf.Variable([0, 0], dtype=tf.int64), own["input_ids"])
        outputs = model.encoder(own, training=True, dropout_seed=seed)
        np.testing.assert_allclose(actual, outputs["sequence_output"], **EXACT)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("too long", "more tokens than the model has positions: 16"),
        ("mask", "input_mask must have the shape of the token ids"),
        ("position", "masked_lm_positions must be less than the length of the sequences"),
        ("rows", "masked_lm_positions must have a row for each example"),
        ("missing", "Expected these arguments to match one of the following 4 option"),
    ],
)
def test_invalid_inputs_are_rejected(used, kind, message):
    assert message in used["errors"][kind]


def test_assets(used, contents):
    tokenizer_file = Path(contents.tokenizer.files[0])
    assert used["files"]["sp_model_file"] == tokenizer_file.read_bytes()
    assert b'"hidden_dropout_prob": 0.2' in used["files"]["albert_config_file"]
    assert used["do_lower_case"] is False


def test_written_encoders_are_read(saved, contents, model):
    directory, unsupported_weights = saved
    assert unsupported_weights == ["output_weights", "bert/pooler/dense/bias/adam_m"]
    stored = tf2_hub.read(str(directory))
    assert stored.config == CONFIG
    read, report = read_model(str(directory))
    assert report.mapped.keys() == original_names(model).keys()
    assert not report.ignored
    for name in report.mapped:
        np.testing.assert_array_equal(read.weights[name], contents.weights[name])
    assert read.do_lower_case is False
    assert read.tokenizer.tokens == contents.tokenizer.tokens


def test_encoder_without_heads_dropout_and_projection(tmp_path, golden):
    config = small_config(
        num_hidden_layers=1, num_hidden_groups=1, inner_group_num=1, embedding_size=12
    )
    encoder = AlbertEncoder(config)
    weights = {name: variable.numpy() for name, variable in original_names(encoder).items()}
    vocabulary = next((golden / "tokenizer").glob("*vocab*.txt"))
    tokenizer = tokenizer_from_files(vocab_file=vocabulary)
    tf2_hub.write(str(tmp_path), StoredModel.in_memory(config, weights, tokenizer))
    loaded = tf.saved_model.load(str(tmp_path))
    assert sorted(loaded.signatures) == ["serving_default", "tokens"]
    assert not {"mlm", "sop", "dropout_state", "sp_model_file"} & set(dir(loaded))
    assert len(loaded.variables) == len(loaded.trainable_variables) == len(weights)
    inputs = {name: pretraining_inputs()[name] for name in INPUTS}
    outputs = loaded(inputs, training=True)["sequence_output"]
    np.testing.assert_allclose(outputs, encoder(inputs)["sequence_output"], **EXACT)
    stored = tf2_hub.read(str(tmp_path))
    assert stored.stored_tokenizer.files[0] == str(tmp_path / "assets" / vocabulary.name)
    assert stored.do_lower_case is True
    load_weights(AlbertEncoder(config), str(tmp_path))
