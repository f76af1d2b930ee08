"""Tests for reusable SavedModels, used like an encoder of TF-Hub.

A slow test of tests/unit/serving/test_tf2_hub_preprocessor.py calls one without this package.
"""

import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats import tf2_hub
from albert_tf.checkpoints.formats.tf2_hub.writing import next_seed
from albert_tf.checkpoints.loading import load_weights, read_model
from albert_tf.checkpoints.signatures import HUB_INPUTS, ORIGINAL_INPUTS, POSITIONS
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.training.strategies import create_strategy
from tests.lazily import Lazily
from tests.small_model import (
    ONE_BLOCK,
    dropping_config,
    pretraining_inputs,
    small_config,
    weights_of,
)

tensorflow_hub = Lazily("tensorflow_hub")

CONFIG = dropping_config(vocab_size=1000, num_hidden_layers=2, inner_group_num=1)
INVALID = (ValueError, tf.errors.InvalidArgumentError)
EXACT = {"rtol": 0, "atol": 1e-6}
ENCODER_OUTPUTS = ("pooled_output", "sequence_output", "encoder_outputs")


@pytest.fixture(scope="module")
def model():
    random.seed(3)
    model = AlbertForPretraining(CONFIG)
    rng = np.random.default_rng(8)
    for variable in model.weights:  # biases and layer norms too
        if variable.dtype == "float32":
            variable.assign_add(rng.normal(0, 0.1, variable.shape))
    return model


@pytest.fixture(scope="module")
def contents(model, golden):
    tokenizer = tokenizer_from_files(
        spm_model_file=golden / "tokenizer" / "small_1000.model", do_lower_case=False
    )
    weights = weights_of(model)
    others = {"output_weights": np.ones((2, 12)), "bert/pooler/dense/bias/adam_m": np.ones(12)}
    return StoredModel.in_memory(CONFIG, {**weights, **others}, tokenizer, do_lower_case=False)


@pytest.fixture(scope="module")
def saved(contents, tmp_path_factory):
    """Writes the model; returns the directory and the unsupported weights."""
    directory = tmp_path_factory.mktemp("saved")
    tf2_hub.write(str(directory), contents)
    return directory, tf2_hub.unsupported_weights(contents)


@pytest.fixture(scope="module")
def loaded(saved):
    return tensorflow_hub.load(str(saved[0]))


@pytest.fixture(scope="module")
def batch():
    return pretraining_inputs()


@pytest.fixture(scope="module")
def tokens(batch):
    """Returns the inputs of the encoder by the original's names."""
    return {name: batch[name] for name in ORIGINAL_INPUTS}


@pytest.fixture(scope="module")
def hub_tokens(tokens):
    """Returns the inputs of the encoder by the names of TF-Hub."""
    return dict(zip(HUB_INPUTS, tokens.values(), strict=True))


def assert_same_structure(actual, expected):
    """Compares dictionaries of arrays or lists of arrays."""
    assert sorted(actual) == sorted(expected)
    for name, values in expected.items():
        for one, other in zip(tf.nest.flatten(actual[name]), tf.nest.flatten(values), strict=True):
            np.testing.assert_allclose(one, other, **EXACT, err_msg=name)
            assert one.dtype == tf.float32


def names_of(variables):
    return {variable.name.split(":")[0] for variable in variables}


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
def test_outputs_of_callables_equal_the_model(loaded, batch, tokens, hub_tokens, expected, part):
    function = loaded if part == "encoder" else getattr(loaded, part)
    positions = {POSITIONS: batch[POSITIONS]} if part == "mlm" else {}
    outputs = function({**hub_tokens, **positions}, training=False)
    assert isinstance(outputs["encoder_outputs"], list)
    assert_same_structure(outputs, expected[part])
    if part != "sop":  # has a signature for the original's names
        assert_same_structure(function({**tokens, **positions}), expected[part])


def test_outputs_of_signatures(loaded, batch, tokens, hub_tokens, expected, model):
    parts = {
        "serving_default": ("encoder", hub_tokens),
        "tokens": ("encoder", tokens),
        "mlm": ("mlm", batch),
        "sop": ("sop", tokens),
    }
    assert sorted(loaded.signatures) == sorted(parts)
    for signature, (part, inputs) in parts.items():
        named = {name: v for name, v in expected[part].items() if name != "encoder_outputs"}
        assert_same_structure(loaded.signatures[signature](**inputs), named)
    inputs = {name: values[:1, :2] for name, values in tokens.items()}
    shorter = model.encoder(inputs)["sequence_output"]
    np.testing.assert_allclose(loaded(inputs)["sequence_output"], shorter, **EXACT)


def test_lists_of_variables(loaded, model):
    names = set(original_names(model))
    heads = {scope: {n for n in names if n.startswith(scope)} for scope in ("cls/p", "cls/s")}
    encoder = names - heads["cls/p"] - heads["cls/s"]
    assert names_of(loaded.trainable_variables) == encoder
    assert names_of(loaded.mlm.trainable_variables) == encoder | heads["cls/p"]
    assert names_of(loaded.sop.trainable_variables) == encoder | heads["cls/s"]
    assert names_of(loaded.variables) == encoder | {"dropout_state"}
    for part in (loaded, loaded.mlm, loaded.sop):
        assert len(part.regularization_losses) == 0


def test_gradients_equal_the_model(loaded, batch, model):
    def gradients(outputs_of, logits, variables):
        with tf.GradientTape() as tape:
            outputs = outputs_of()
            loss = tf.reduce_sum(tf.sin(outputs["sequence_output"]))
            loss += tf.reduce_mean(tf.cos(outputs[logits]))
            loss += tf.reduce_sum(outputs["pooled_output"] ** 2)
        return tape.gradient(loss, variables)

    ours = original_names(model)
    variables = list(loaded.mlm.trainable_variables)
    assert len(variables) == len(ours) - 2  # all but the other head's
    names = [variable.name.split(":")[0] for variable in variables]
    found = gradients(lambda: loaded.mlm(batch), "mlm_logits", variables)
    expected = gradients(
        lambda: model(batch, output_hidden_states=True),
        "masked_lm_logits",
        [ours[name].value for name in names],
    )
    for name, one, other in zip(names, found, expected, strict=True):
        one, other = map(tf.convert_to_tensor, (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)


def test_dropout_equals_the_model(loaded, tokens, hub_tokens, model):
    def output(inputs):
        return loaded(inputs, training=True)["sequence_output"].numpy()

    first, second = output(tokens), output(hub_tokens)
    state = tf.Variable([0, 0], dtype=tf.int64)
    for actual in (first, second):
        seed = next_seed(state, tokens["input_ids"])
        expected = model.encoder(tokens, training=True, dropout_seed=seed)
        np.testing.assert_allclose(actual, expected["sequence_output"], **EXACT)
    assert np.abs(first - second).max() > 0.1
    loaded.dropout_state.assign([0, 0])
    np.testing.assert_array_equal(output(hub_tokens), first)


@pytest.mark.slow
def test_xla(loaded, batch, expected):
    compiled = tf.function(
        lambda inputs: loaded.mlm(inputs)["mlm_logits"], jit_compile=True, autograph=False
    )
    logits = expected["mlm"]["mlm_logits"]
    np.testing.assert_allclose(compiled(batch), logits, rtol=0, atol=1e-5)
    with pytest.raises(INVALID, match=r"(?i)reshape"):  # checks are left out
        compiled({**batch, "input_mask": batch["input_mask"][:1]})


@pytest.mark.slow
def test_replicas_count_training_calls_separately(saved, model, tokens):
    strategy = create_strategy("mirrored")
    with strategy.scope():
        loaded = tf.saved_model.load(str(saved[0]))
    rows = [{name: values[n : n + 1] for name, values in tokens.items()} for n in range(2)]
    inputs = strategy.experimental_distribute_values_from_function(
        lambda context: rows[context.replica_id_in_sync_group]
    )
    step = tf.function(
        lambda inputs: loaded(inputs, training=True)["sequence_output"], autograph=False
    )
    found = strategy.experimental_local_results(strategy.run(step, [inputs]))
    for row, actual in zip(rows, found, strict=True):
        seed = next_seed(tf.Variable([0, 0], dtype=tf.int64), row["input_ids"])
        outputs = model.encoder(row, training=True, dropout_seed=seed)
        np.testing.assert_allclose(actual, outputs["sequence_output"], **EXACT)


def test_invalid_inputs_are_rejected(loaded, batch, tokens):
    one_mask, positions = {"input_mask": tokens["input_mask"][:1]}, batch[POSITIONS]
    too_long = {name: tf.tile(values, [1, 4]) for name, values in tokens.items()}
    for function, inputs, message in (
        (loaded, too_long, "more tokens than the model has positions: 16"),
        (loaded, {**tokens, **one_mask}, "input_mask must have the shape of the token ids"),
        (loaded.mlm, {**batch, POSITIONS: positions + 6}, "must be less than the length of the se"),
        (loaded.mlm, {**batch, POSITIONS: positions[:1]}, "must have a row for each example"),
        (loaded, {"input_ids": tokens["input_ids"]}, "match one of the following 4 option"),
    ):
        with pytest.raises(INVALID, match=message):
            function(inputs)


def test_written_encoders_are_read(saved, loaded, contents, model):
    files = [loaded.sp_model_file, loaded.albert_config_file]
    vocabulary, config = (tf.io.read_file(file.asset_path).numpy() for file in files)
    assert vocabulary == Path(contents.tokenizer.files[0]).read_bytes()
    assert b'"hidden_dropout_prob": 0.2' in config
    assert not loaded.do_lower_case
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


def test_encoder_without_heads_dropout_and_projection(tmp_path, golden, tokens):
    config = small_config(**ONE_BLOCK, embedding_size=12)
    encoder = AlbertEncoder(config)
    weights = weights_of(encoder)
    vocabulary = next((golden / "tokenizer").glob("*vocab*.txt"))
    tokenizer = tokenizer_from_files(vocab_file=vocabulary)
    tf2_hub.write(str(tmp_path), StoredModel.in_memory(config, weights, tokenizer))
    loaded = tf.saved_model.load(str(tmp_path))
    assert sorted(loaded.signatures) == ["serving_default", "tokens"]
    assert not {"mlm", "sop", "dropout_state", "sp_model_file"} & set(dir(loaded))
    assert len(loaded.variables) == len(loaded.trainable_variables) == len(weights)
    outputs = loaded(tokens, training=True)["sequence_output"]
    np.testing.assert_allclose(outputs, encoder(tokens)["sequence_output"], **EXACT)
    stored = tf2_hub.read(str(tmp_path))
    assert stored.stored_tokenizer.files[0] == str(tmp_path / "assets" / vocabulary.name)
    assert stored.do_lower_case is True
    load_weights(AlbertEncoder(config), str(tmp_path))
