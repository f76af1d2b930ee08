"""Without padding, and with only the vectors that a head reads, losses and gradients are equal."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
    AlbertForTokenClassification,
)
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.modeling.ops_fused import FusedOps
from albert_tf.modeling.original_names import original_names
from tests.small_model import small_config
from tests.unpadding import UnpaddingOps
from tests.usual import usual

B, C, S, P, K = 5, 3, 14, 4, 2
MODELS = {
    "classification": (lambda config: AlbertForClassification(config, K), [B, S]),
    "tokens": (lambda config: AlbertForTokenClassification(config, K), [B, S]),
    "choices": (lambda config: AlbertForMultipleChoice(config), [B, C, S]),
    "pretraining": (lambda config: AlbertForPretraining(config), [B, S]),
    "span": (lambda config: AlbertForQuestionAnswering(config), [B, S]),
    "beam": (lambda config: AlbertForQuestionAnsweringWithBeamSearch(config), [B, S]),
}


def inputs_of(shape, vocab_size):
    """Returns inputs with a ragged mask, a mask with holes, and a row of padding."""
    rng = np.random.default_rng(5)
    mask = (np.arange(S) < rng.integers(2, S - 3, [*shape[:-1], 1])).astype(np.int32)
    mask[1] = rng.random(mask[1].shape) < 0.5
    mask[2] = 0
    inputs = {
        "input_ids": rng.integers(1, vocab_size, shape),
        "input_mask": mask,
        "segment_ids": rng.integers(0, 2, shape),
    }
    if len(shape) == 2:  # other positions than tokens are also read
        inputs["masked_lm_positions"] = rng.integers(0, S, (B, P))
        inputs["start_positions"] = np.argmax(mask * rng.random(shape), axis=1)  # a token
    return {name: tf.constant(values, tf.int32) for name, values in inputs.items()}


def loss_of(outputs, mask):
    """Returns a weighted sum of the outputs. Vectors of padding tokens have the weight 0."""
    terms = []
    for name, values in sorted(outputs.items()):
        weights = tf.random.stateless_normal(values.shape, [len(name), 3])
        if values.shape[:2] == mask.shape[:2] and values.shape.rank == 3 and "lm" not in name:
            weights *= tf.cast(mask, tf.float32)[..., None]
        terms.append(tf.reduce_sum(weights * tf.tanh(values / 8.0)))
    return tf.add_n(terms)


def loss_and_gradients(model, inputs, ops, **options):
    variables = {name: v for name, v in original_names(model).items() if v.trainable}
    with tf.GradientTape() as tape:
        outputs = model(inputs, ops=ops, training=True, **options)
        scores = {name: values for name, values in outputs.items() if "log" in name}
        loss = loss_of(scores, inputs["input_mask"])
    gradients = tape.gradient(loss, [v.value for v in variables.values()])
    return loss, dict(zip(variables, map(tf.convert_to_tensor, gradients), strict=True))


@cache
def model_and_expected(name):
    """Returns a model without dropout, its inputs, and the result if everything is computed."""
    build, shape = MODELS[name]
    model = build(small_config())
    if hasattr(model, "dropout_prob"):
        model = type(model).from_config({**model.get_config(), "dropout_prob": 0.0})
    for variable in model.trainable_variables:
        variable.assign(variable + tf.random.stateless_normal(variable.shape, [1, 2], stddev=0.1))
    inputs = inputs_of(shape, model.config.vocab_size)
    return model, inputs, loss_and_gradients(model, inputs, PLAIN, output_hidden_states=True)


OPS = {"padded": Ops(), "unpadded": Ops(unpads=True), "fused": FusedOps(unpads=True)}


@pytest.mark.parametrize("remat", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ops", usual(OPS, "padded", "unpadded"))
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_do_not_depend_on_the_layout(name, ops, remat):
    model, inputs, (expected, gradients) = model_and_expected(name)
    model.encoder.remat = remat
    loss, found = loss_and_gradients(model, inputs, OPS[ops])
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    largest = max(np.abs(values).max() for values in gradients.values())
    for variable, values in gradients.items():
        # Small gradients are differences of large numbers, in float32.
        atol = max(1e-5 * np.abs(values).max(), 1e-6 * largest)
        np.testing.assert_allclose(found[variable], values, rtol=0, atol=atol, err_msg=variable)


def test_padding_is_removed():
    model = AlbertForClassification(small_config(), K)
    inputs = inputs_of([B, S], model.config.vocab_size)
    ops = UnpaddingOps()
    model(inputs, ops=ops)
    ops.assert_removed(inputs["input_mask"])


class RowCountingOps(Ops):
    """See `Ops`. Counts the rows of the feed-forward part of each layer."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def recomputed(self, function, inner, *arguments):
        self.rows.append(inner.shape[0])
        return super().recomputed(function, inner, *arguments)


@pytest.mark.parametrize(
    ("name", "last"),
    [("classification", B), ("pretraining", B * (1 + P)), ("choices", B * C), ("tokens", B * S)],
)
def test_the_last_layer_computes_only_what_is_read(name, last):
    build, shape = MODELS[name]
    model, ops = build(small_config()), RowCountingOps()
    inputs = inputs_of(shape, model.config.vocab_size)
    model(inputs, ops=ops)
    *others, found = ops.rows
    assert found == last
    assert {*others} == {np.prod(shape)}


@pytest.mark.parametrize("ops", ["padded", "unpadded"])
def test_positions_beyond_the_sequence_fail(ops):
    model = AlbertForPretraining(small_config())
    inputs = inputs_of([B, S], model.config.vocab_size)
    inputs["masked_lm_positions"] = tf.fill([B, P], S)
    # GPUs do not check indices.
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
        model(inputs, ops=OPS[ops])


def test_everything_is_computed_for_hidden_states():
    model = AlbertForClassification(small_config(), K)
    inputs = inputs_of([B, S], model.config.vocab_size)
    expected = model(inputs, output_hidden_states=True)
    outputs = model(inputs, ops=Ops(unpads=True), output_hidden_states=True)
    assert outputs["sequence_output"].shape == [B, S, model.config.hidden_size]
    for name in ("sequence_output", "pooled_output", "logits"):
        np.testing.assert_array_equal(outputs[name], expected[name])


def executed_graphs(function):
    """Runs a function and returns the graphs that TensorFlow executes."""
    context.enable_run_metadata()
    try:
        function()
        metadata = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    return [graph.post_optimization_graph for graph in metadata.function_graphs]


@pytest.mark.parametrize("policy", usual(["float32", "mixed_bfloat16"], "mixed_bfloat16"))
@pytest.mark.parametrize("ops", usual(OPS, "unpadded"))
def test_sums_have_a_fixed_order(ops, policy, traced, optimized_graphs):
    """The sum of three tensors overwrites the first one that nothing else uses and begins with it.

    What else uses a tensor may have finished or not, so one of the first two needs no other use.
    """
    model = AlbertForPretraining(small_config(), dtype=policy)
    inputs = inputs_of([B, S], model.config.vocab_size)
    step = tf.function(lambda: loss_and_gradients(model, inputs, OPS[ops]), autograph=False)
    num_sums = 0
    for graph in executed_graphs(step):
        uses = Counter(name.partition(":")[0] for node in graph.node for name in node.input)
        for node in graph.node:
            if node.op == "AddN" and node.attr["N"].i > 2:
                num_sums += 1
                first = [name.partition(":")[0] for name in node.input[:2]]
                assert min(uses[name] for name in first) == 1, (node.name, node.input)
    assert num_sums  # gradients of query, key and value
