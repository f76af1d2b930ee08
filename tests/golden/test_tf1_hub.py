"""Models loaded from TF-Hub modules of the original have the outputs of the modules."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import tf1_hub
from albert_tf.checkpoints.load_weights import load_weights, open_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.tokenization.loading import load_tokenizer
from tests.small_model import resolve

MODULES = ("module", "module_cased_matmul")
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def hub(golden):
    return golden / "hub"


@pytest.fixture(scope="module")
def inputs(hub):
    with np.load(hub / "inputs.npz") as file:
        arrays = dict(file)
    arrays["masked_lm_positions"] = arrays.pop("mlm_positions")
    return {name: tf.constant(values) for name, values in arrays.items()}


def our_outputs(config, checkpoint, inputs):
    """Returns the outputs of the model, with the names of the module."""
    model = AlbertForPretraining(config)
    load_weights(model, checkpoint).check_complete()
    outputs = model(inputs, output_hidden_states=True)
    return {
        "sequence_output": outputs["sequence_output"],
        "pooled_output": outputs["pooled_output"],
        "sop_log_probs": tf.nn.log_softmax(outputs["sentence_order_logits"]),
        # The module returns the predictions of all sequences on one axis.
        "mlm_logits": tf.reshape(outputs["masked_lm_logits"], [-1, config.vocab_size]),
    }


def assert_equals_recorded(outputs, hub, name):
    with np.load(hub / "outputs.npz") as file:
        recorded = {key: values for key, values in file.items() if key.startswith(f"{name}/")}
    assert len(recorded) == 8
    for key, values in recorded.items():
        ours = outputs[key.rsplit("/", 1)[1]]
        assert ours.shape == values.shape, key
        np.testing.assert_allclose(ours, values, **TOLERANCE, err_msg=key)


@pytest.mark.parametrize("name", MODULES)
def test_outputs_of_every_signature_equal_the_original(hub, inputs, name):
    module = tf1_hub.read(str(hub / name))
    config = AlbertConfig.from_json_file(module.config_file)
    assert_equals_recorded(our_outputs(config, module.checkpoint, inputs), hub, name)


@pytest.mark.parametrize("name", MODULES)
def test_tokenization_info_equals_the_original(hub, name):
    recorded = json.loads((hub / "module_info.json").read_text())[name]
    module = tf1_hub.read(str(hub / name))
    assert module.do_lower_case is recorded["tokenization_info"]["do_lower_case"]
    assert module.tokenizer_file.endswith(recorded["tokenization_info"]["vocab_file_ends_with"])
    _, shapes = open_checkpoint(module.checkpoint)
    assert sorted(f"module/{variable}" for variable in shapes) == recorded["variables"]


@pytest.mark.parametrize(
    "handle", ["module", "albert_directory"], ids=["module", "release directory"]
)
def test_a_handle_selects_configuration_weights_and_tokenizer(hub, inputs, handle):
    source = resolve(albert_hub_module_handle=str(hub / handle))
    tokens = load_tokenizer(vocab_file=hub / "albert_directory" / "30k-clean.model").tokens
    assert source.tokenizer.tokens == tokens
    assert_equals_recorded(our_outputs(source.config, source.checkpoint, inputs), hub, "module")


def test_a_cased_module_has_a_cased_tokenizer(hub):
    source = resolve(albert_hub_module_handle=str(hub / "module_cased_matmul"))
    assert source.tokenizer.do_lower_case is False
    assert source.tokenizer.clean("A B") == "A B"
