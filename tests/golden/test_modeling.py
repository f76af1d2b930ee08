"""Tensors, losses, gradients and metrics of the original release, in eight configurations."""

import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import match_names
from albert_tf.config import AlbertConfig
from albert_tf.modeling import ops
from albert_tf.modeling.layers import ACTIVATIONS
from albert_tf.modeling.losses import means
from albert_tf.modeling.original_names import original_names
from tests.golden.reference import (
    CONFIGURATIONS,
    DATA,
    Reference,
    assert_close,
    numbered,
    pretraining_gradients,
    pretraining_outputs,
    read_arrays,
    read_json,
)
from tests.unpadding import UnpaddingOps

# The attention of this block of config_5 is saturated: the largest entries of its query and key
# gradients are 3e-4 to 9e-4, compared with a global norm of 42, so rounding errors are visible.
# Relative to the largest entry of a float64 computation, the recorded values have errors of 5e-5 to
# 1e-4, ours of 4e-5 to 5e-5. 1e-7 is the precision of float32.
SATURATED = tuple(
    f"bert/encoder/transformer/group_1/inner_group_1/attention_1/self/{name}"
    for name in ("query/", "key/")
)


# One group; two inner groups; two groups of two inner groups.
SOME_CONFIGURATIONS = pytest.mark.parametrize(
    "reference", ["config_0", "config_4", "config_5"], indirect=True
)


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def reference(request):
    return Reference(request.param)


@pytest.fixture(scope="module")
def model(reference):
    return reference.model()


def assert_outputs_equal(outputs, reference):
    recorded = reference.arrays("outputs")
    ids_only = {name for name in recorded if name.endswith("_ids_only")}
    assert outputs.keys() == recorded.keys() - ids_only
    for name, output in outputs.items():
        assert_close(output, recorded[name], name=name)


def assert_gradients_equal(gradients, reference):
    recorded = reference.arrays("gradients")
    assert gradients.keys() == recorded.keys()
    for name, gradient in gradients.items():
        if name.endswith("self/key/bias"):
            # The gradient of this bias is 0, because softmax ignores it; the rest is noise.
            np.testing.assert_allclose(gradient, 0 * recorded[name], rtol=0, atol=1e-6)
            continue
        saturated = reference.folder.name == "config_5" and name.startswith(SATURATED)
        assert_close(gradient, recorded[name], at_least=1e-7 if saturated else 0.0, name=name)


def test_names_shapes_and_order_of_variables(reference, model):
    recorded = reference.values("variables")
    variables = original_names(model)
    assert [(name, list(v.shape), v.dtype) for name, v in variables.items()] == [
        (row["name"], row["shape"], row["dtype"]) for row in recorded["trainable"]
    ]
    assert {id(v) for v in variables.values()} == {id(v) for v in model.trainable_variables}
    assert model.count_params() == recorded["num_trainable_parameters"]


def test_outputs_and_losses_equal_the_original(reference, model):
    assert_outputs_equal(pretraining_outputs(model, reference.task, reference.inputs), reference)


def test_default_of_segments(reference, model):
    """The original's default of the mask is ones; ours is 0 for the id of the padding token."""
    recorded, ids = reference.arrays("outputs"), reference.inputs["input_ids"]
    outputs = model.encoder({"input_ids": ids, "input_mask": np.ones_like(ids)})
    for name in ("sequence_output", "pooled_output"):
        assert_close(outputs[name], recorded[f"{name}_ids_only"], name=name)


def test_gradients_equal_the_original(reference, model):
    gradients = pretraining_gradients(model, reference.task, reference.inputs)
    assert_gradients_equal(gradients, reference)


def test_gradients_without_padding_equal_the_original(reference, model):
    ops = UnpaddingOps()
    gradients = pretraining_gradients(model, reference.task, reference.inputs, ops=ops)
    assert_gradients_equal(gradients, reference)
    ops.assert_removed(reference.inputs["input_mask"])


@SOME_CONFIGURATIONS
def test_gradients_with_remat(reference):
    model = reference.model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model.encoder.remat = True
    gradients = pretraining_gradients(model, reference.task, reference.inputs, training=True)
    assert_gradients_equal(gradients, reference)


@SOME_CONFIGURATIONS
def test_one_hot_embeddings(reference):
    model = reference.model(use_one_hot_embeddings=True)
    assert_outputs_equal(pretraining_outputs(model, reference.task, reference.inputs), reference)
    gradients = pretraining_gradients(model, reference.task, reference.inputs)
    assert_gradients_equal(gradients, reference)


@pytest.mark.parametrize("is_unpadded", [False, True])
def test_evaluation_equals_the_original(reference, model, is_unpadded):
    ops = UnpaddingOps(unpads=is_unpadded)
    arrays, recorded = reference.arrays("eval_batches"), reference.values("eval_metrics")
    task, batches, losses = reference.task, [], []
    for number in range(3):
        features = numbered(arrays, number)
        outputs = model(features, ops=ops)
        batches.append({**task.losses(outputs, features), **task.metrics(outputs, features)})
        losses.append(task.total_loss(batches[-1]))
    assert_close(losses, recorded["loss_of_each_batch"])
    results = {"loss": np.mean(losses), **means(batches)}
    for name, value in results.items():
        np.testing.assert_allclose(value, recorded[name], rtol=1e-5, atol=0, err_msg=name)
    assert recorded.keys() == {*results, "loss_of_each_batch"}
    if is_unpadded:
        ops.assert_removed(arrays["batch_0/input_mask"])


@pytest.mark.parametrize(
    "jit_compile",
    [pytest.param(False, id="graph"), pytest.param(True, id="xla", marks=pytest.mark.slow)],
)
def test_compiled_steps(jit_compile):
    reference = Reference("config_4")  # two inner groups, ReLU, embeddings narrower than H
    model = reference.model()

    @tf.function(jit_compile=jit_compile, autograph=False)  # as in training
    def step(features):
        return (
            pretraining_outputs(model, reference.task, features),
            pretraining_gradients(model, reference.task, features),
        )

    outputs, gradients = step(reference.inputs)
    assert_outputs_equal(outputs, reference)
    assert_gradients_equal(gradients, reference)


def test_functions_equal_the_original():
    recorded = read_arrays(DATA / "modeling" / "functions.npz")
    x = tf.constant(recorded["x"])
    for name in ("gelu", "relu", "tanh"):
        assert_close(ACTIVATIONS[name](x), recorded[name], name=name)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.gelu(x)
    assert_close(tape.gradient(y, x), recorded["gelu_gradient"])

    rows, gamma, beta = (recorded[f"layer_norm_{name}"] for name in ("input", "gamma", "beta"))
    assert_close(
        ops.layer_norm(*map(tf.constant, (rows, gamma, beta))),
        recorded["layer_norm_output"],
    )


def group_number(name):
    found = re.search(r"/group_(\d+)/", name)
    return int(found.group(1)) if found else 0


def test_checkpoints_are_matched_by_name():
    rows = read_json(DATA / "modeling" / "assignment_maps.json")
    stored = {
        name: {row["name"] for row in Reference(name).values("variables")["trainable"]}
        for name in {row["checkpoint"] for row in rows}
    }
    assert len(rows) == 15
    for row in rows:
        groups = row["num_of_group"]
        lists = row["assignment"] if groups else [row["assignment"]]
        recorded = {ours: theirs for pairs in lists for theirs, ours in pairs}
        config = AlbertConfig(
            9,
            num_hidden_layers=3,
            num_hidden_groups=1 + max(map(group_number, row["model_variables"])),
            parameter_sharing="ffn" if "second" in row["case"] else "all",
        )
        matched = match_names(
            row["model_variables"], stored[row["checkpoint"]], config if groups > 1 else None
        )
        # If several variables have the same stored value, the original reports only the last one.
        # `initialized` contains all of them.
        assert set(matched) == set(row["initialized"]), row["case"]
        assert {name: matched[name] for name in recorded} == recorded, row["case"]
