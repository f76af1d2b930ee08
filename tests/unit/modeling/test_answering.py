"""Predictions in bfloat16: rounded once, compiled between products, and close to float32."""

import random

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from albert_tf.modeling import models
from albert_tf.modeling import rounded as answering
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.rounded import RoundedModel, rounded_model, warn_of_slow_bfloat16
from tests.small_model import small_config
from tests.usual import usual

CLASSES = {
    "encoder": AlbertEncoder,
    "pretraining": models.AlbertForPretraining,
    "classifier": lambda *a, **k: models.AlbertForClassification(*a, num_labels=5, **k),
    "tokens": lambda *a, **k: models.AlbertForTokenClassification(*a, num_labels=5, **k),
    "choice": models.AlbertForMultipleChoice,
    "span": models.AlbertForQuestionAnswering,
    "beam": lambda *a, **k: models.AlbertForQuestionAnsweringWithBeamSearch(
        *a, start_n_top=2, end_n_top=2, **k
    ),
}
PRODUCTS = {"MatMul", "BatchMatMulV2", "Einsum"}


def make_models(name="classifier", **changes):
    """Returns a float32 model, and a bfloat16 model with the same weights."""
    config = small_config(type_vocab_size=2, **{"num_hidden_layers": 2, **changes})
    random.seed(3)
    exact = CLASSES[name](config)
    half = CLASSES[name](config, dtype="mixed_bfloat16")
    half.set_weights(exact.get_weights())
    return exact, half


def batch(rows=3, length=7):
    random = np.random.default_rng(rows + length)
    mask = np.arange(length) < np.linspace(length, length / 2, rows)[:, None]
    ids = random.integers(1, 31, (rows, length)) * mask
    segments = (np.arange(length) > 1) & mask
    named = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    return {name: values.astype(np.int32) for name, values in named.items()}


def traced(function):
    """Returns the operations of a function of a batch of any shape."""
    specs = dict.fromkeys(batch(), tf.TensorSpec([None, None], tf.int32))
    concrete = tf.function(function, autograph=False).get_concrete_function(specs)
    return concrete.graph.get_operations()


def ancestors(operation):
    found, waiting = set(), [operation]
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op not in found:
                found.add(tensor.op)
                waiting.append(tensor.op)
    return found


@pytest.mark.parametrize("name", usual(CLASSES, "pretraining", "beam"))
def test_outputs_are_close_to_float32(name):
    exact, half = make_models(name, num_hidden_groups=2, inner_group_num=1)
    inputs = batch()
    found = RoundedModel(half, 100)(inputs)
    for key, wanted in exact(inputs).items():
        value = tf.cast(found[key], tf.float32).numpy()[tuple(slice(n) for n in wanted.shape)]
        real = inputs["input_mask"].astype(bool) if value.shape[1:2] == (7,) else np.ones(3, bool)
        if "index" in key:
            continue  # the order of nearly equal spans may differ
        if "top_log_probs" in key or key == "cls_logits":
            np.testing.assert_allclose(value, wanted, atol=0.05, err_msg=key)
            continue
        a, b = value[real].ravel(), wanted.numpy()[real].ravel()
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.9995, key
        assert name == "encoder" or found[key].dtype == tf.float32


@pytest.mark.parametrize("hidden_act", usual(["gelu", "relu"], "gelu"))
@pytest.mark.parametrize("name", usual(CLASSES, "pretraining", "beam"))
def test_nothing_is_cast_between_products_and_no_weight_in_a_call(name, hidden_act):
    _, half = make_models(name, hidden_act=hidden_act)
    operations = traced(RoundedModel(half, 100)._outputs)
    casts = [operation for operation in operations if operation.type == "Cast"]
    assert not [cast for cast in casts if cast.inputs[0].op.type == "ReadVariableOp"]
    late_casts = {cast for cast in casts if any(op.type in PRODUCTS for op in ancestors(cast))}
    for product in operations:
        if product.type in PRODUCTS:
            assert all(tensor.dtype == tf.bfloat16 for tensor in product.inputs)
            assert not ancestors(product) & late_casts
    read = [op.outputs[0] for op in operations if op.type == "ReadVariableOp"]
    # Biases, layer norms, and the tables of segments and positions.
    shapes = [tuple(value.shape) for value in read if value.dtype == tf.float32]
    assert {shape for shape in shapes if len(shape) > 1} == {(2, 8), (16, 8)}


def test_query_key_and_value_are_one_product():
    _, half = make_models(num_hidden_layers=2, num_hidden_groups=1, inner_group_num=1)
    operations = traced(RoundedModel(half, 100)._outputs)
    assert sum(op.type == "BatchMatMulV2" for op in operations) == 4
    # Embedding, pooler, head; query with key and value, output, and two of the feed-forward part;
    # in the last layer, the query of fewer vectors is another product than key and value.
    assert sum(op.type == "MatMul" for op in operations) == 3 + 4 + 6


def test_casts_disappear():
    _, half = make_models()
    before, after = (
        sum(operation.type == "Cast" for operation in traced(function))
        for function in (half, RoundedModel(half, 100)._outputs)
    )
    assert before > 20 * after


def test_the_model_is_traced_once_and_compiled_for_few_shapes():
    _, half = make_models(max_position_embeddings=128)
    rounded, shapes = RoundedModel(half, 100), set()
    assert rounded(batch())["logits"].shape == (4, 5)
    assert isinstance(rounded._run, ConcreteFunction)  # never traces again
    rounded._run = lambda values: shapes.add(tuple(values["input_mask"].shape)) or {}
    for rows, length in ((1, 3), (1, 16), (3, 17), (4, 32), (4, 40), (1, 65), (1, 97), (1, 100)):
        rounded(batch(rows, length))
    assert shapes == {(1, 16), (4, 32), (4, 48), (1, 96), (1, 100)}


def test_new_weights_are_used_and_unchanged_weights_are_not_rounded_again():
    _, half = make_models()
    rounded, inputs = RoundedModel(half, 100), batch()
    before = rounded(inputs)["logits"].numpy()
    kept = [value.numpy() for value, _ in rounded._rounded]
    for value, _ in rounded._rounded:
        value.assign(tf.zeros_like(value))
    assert np.ptp(rounded(inputs)["logits"].numpy()[:3], axis=0).max() == 0  # still zeros
    for value, source in zip(rounded._rounded, kept, strict=True):
        value[0].assign(source)
    np.testing.assert_array_equal(rounded(inputs)["logits"], before)
    attention, feed_forward = half.encoder.blocks[1].attention, half.encoder.blocks[1].feed_forward
    for variable in (attention.key.bias, attention.value.kernel, feed_forward.intermediate.kernel):
        variable.assign_add(tf.ones(variable.shape))
        assert np.abs(rounded(inputs)["logits"] - before).max() > 0, variable.path
        before = rounded(inputs)["logits"].numpy()


def test_other_models_are_not_rounded():
    exact, half = make_models()
    assert rounded_model(exact, 16) is None
    assert rounded_model(lambda inputs: inputs, 16) is None
    assert rounded_model(half, 16) is not None
    half.enable_lora(2)
    assert rounded_model(half, 16) is None


@pytest.mark.parametrize(
    ("flags", "is_slow"),
    [
        ("flags : avx2 avx512f avx512_bf16 clflush", False),
        ("flags : avx2 amx_bf16 amx_tile", False),
        ("Features : asimd bf16 dgh", False),
        ("flags : avx2 avx512f avx512_vnni amx_tile", True),
        ("", True),
    ],
)
def test_the_warning_of_slow_bfloat16_depends_on_the_processor(flags, is_slow, monkeypatch, caplog):
    monkeypatch.setattr(answering, "_processor_flags", lambda: flags)
    warn_of_slow_bfloat16()
    assert ("slower" in caplog.text) == is_slow
