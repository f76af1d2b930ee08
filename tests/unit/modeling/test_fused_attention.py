"""Fused attention, tested without a GPU."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from albert_tf.config import AlbertConfig
from albert_tf.modeling import fused_attention
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.fused_attention import CompiledAttention, FusedAttention
from albert_tf.modeling.layers import SelfAttention, TransformerBlock
from albert_tf.modeling.ops import PLAIN, Ops, byte_threshold, random_bytes
from benchmarks.pretraining import pretraining_trainer
from tests.small_model import ONE_BLOCK, small_config

B, S, H = 4, 10, 12


def pretend_tpu(monkeypatch):
    monkeypatch.setattr(tf.distribute, "TPUStrategy", type(tf.distribute.get_strategy()))


def wide(*tensors):
    return [tf.cast(tensor, tf.float32) for tensor in tensors]


def lowered(scores, lengths):
    """Masks scores like cuDNN: padding has a probability of 0."""
    is_real = tf.sequence_mask(lengths, scores.shape[-1])[:, None, None, :]
    return tf.where(is_real, scores, float("-inf"))


def forward(query, key, value, lengths):
    """Computes the results of cuDNN's forward kernel."""
    dtype = query.dtype
    query, key, value = wide(query, key, value)
    scores = lowered(tf.matmul(query, key, transpose_b=True), lengths)
    statistics = tf.reduce_logsumexp(scores, axis=-1)
    context = tf.matmul(tf.exp(scores - statistics[..., None]), value)
    return tf.cast(context, dtype), statistics


def backward(query, key, value, lengths, context, statistics, upstream):
    """Computes the results of cuDNN's backward kernel."""
    dtype = query.dtype
    query, key, value, context, upstream = wide(query, key, value, context, upstream)
    scores = lowered(tf.matmul(query, key, transpose_b=True), lengths)
    probabilities = tf.exp(scores - statistics[..., None])
    along = tf.reduce_sum(context * upstream, axis=-1, keepdims=True)
    to_scores = probabilities * (tf.matmul(upstream, value, transpose_b=True) - along)
    gradients = (
        tf.matmul(to_scores, key),
        tf.matmul(to_scores, query, transpose_a=True),
        tf.matmul(probabilities, upstream, transpose_a=True),
    )
    return tuple(tf.cast(gradient, dtype) for gradient in gradients)


REFERENCE = FusedAttention(forward, backward)
SEED = tf.constant([4, 5])
MASK = tf.sequence_mask([S, 6, 1, 8], S, tf.int32)


def outputs_and_gradients(attention, mask, *, in_encoder=False):
    """Returns results of an attention layer, or of an encoder with `remat`."""
    rng = np.random.default_rng(3)
    config = small_config(num_hidden_layers=2, num_hidden_groups=1, inner_group_num=1)
    layer = AlbertEncoder(config) if in_encoder else SelfAttention(config)
    layer.remat = True
    inputs = tf.constant(rng.normal(size=(B, S, H)), tf.float32)
    ids = tf.constant(rng.integers(5, 31, (B, S)), tf.int32)
    for weight in layer.trainable_variables:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    weights = [variable.value for variable in layer.trainable_variables]
    factors = tf.constant(rng.normal(size=(B, S, H)), tf.float32)

    ops = Ops(attention)
    with tf.GradientTape() as tape:
        if in_encoder:
            features = {"input_ids": ids, "input_mask": mask}
            output = layer(features, training=True, ops=ops)["sequence_output"]
        else:
            output = layer.output_projection(layer.context(inputs, mask, None, ops, inputs)[0])
        return output, tape.gradient(output * factors, weights)


@pytest.mark.parametrize("in_encoder", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_equals_plain_attention(in_encoder):
    output, gradients = outputs_and_gradients(REFERENCE, MASK, in_encoder=in_encoder)
    expected, expected_gradients = outputs_and_gradients(None, MASK, in_encoder=in_encoder)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    for gradient, theirs in zip(gradients, expected_gradients, strict=True):
        assert (gradient is None) == (theirs is None)  # the pooler
        if gradient is not None:
            np.testing.assert_allclose(gradient, theirs, rtol=1e-3, atol=2e-4)


def test_row_of_zeros_attends_as_a_row_of_ones():
    zeros, gradients = outputs_and_gradients(REFERENCE, tf.sequence_mask([0, 4, S, 0], S, tf.int32))
    ones, same_gradients = outputs_and_gradients(REFERENCE, tf.sequence_mask([S, 4, S, S], S))
    np.testing.assert_array_equal(zeros, ones)
    for gradient, theirs in zip(gradients, same_gradients, strict=True):
        np.testing.assert_array_equal(gradient, theirs)
    # Plain attention lowers all scores by 10,000, so float32 has three decimal places.
    plain, _ = outputs_and_gradients(None, tf.sequence_mask([0, 4, S, 0], S, tf.int32))
    np.testing.assert_allclose(zeros, plain, rtol=0, atol=5e-3)


def test_other_masks_give_nan():
    wrong = tf.constant([[1] * 9 + [0], [1, 0] * 5, [2] + [1] * 9, [0] * 9 + [1]])
    context, _ = outputs_and_gradients(REFERENCE, wrong)
    is_nan = np.isnan(context.numpy())
    assert is_nan[1:].all()
    assert not is_nan[0].any()
    halves, _ = outputs_and_gradients(REFERENCE, tf.fill([B, S], 0.5))
    assert np.isnan(halves).all()


def test_requested_probabilities_use_plain_attention():
    encoder = AlbertEncoder(small_config(**ONE_BLOCK))
    outputs = encoder(tf.ones([2, 5], tf.int32), output_attentions=True, ops=Ops(REFERENCE))
    assert all(probabilities.shape == [2, 3, 5, 5] for probabilities in outputs["attention_probs"])


def test_dynamic_lengths_use_plain_attention_or_are_rejected():
    layer = SelfAttention(small_config())

    def run(attention):
        @tf.function(input_signature=[tf.TensorSpec([2, None, 12])], autograph=False)
        def attend(x):
            return layer.context(x, tf.ones(tf.shape(x)[:2]), None, Ops(attention), x)

        return attend.get_concrete_function().structured_outputs[1]

    assert run(REFERENCE) is not None
    with pytest.raises(ValueError, match="`padding`=max"):
        run(FusedAttention(forward, backward, is_required=True))


FITTING = AlbertConfig(
    vocab_size=31, embedding_size=8, hidden_size=48, num_attention_heads=6, num_hidden_layers=2,
    intermediate_size=20, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.0,
)  # fmt: skip
H200 = [(9, 0)]


@pytest.mark.parametrize(
    ("changes", "precision", "capabilities", "xla", "reason"),
    [
        ({}, "bfloat16", H200, True, None),
        ({}, "bfloat16", [(9, 0), (7, 5)], True, "capability"),
        ({}, "bfloat16", H200, False, "`xla`"),
        ({}, "float32", H200, True, "float32"),
        ({"hidden_size": 816}, "bfloat16", H200, True, "136"),
        ({"attention_probs_dropout_prob": 0.2}, "bfloat16", H200, True, "0.2"),
    ],
)
def test_unsupported_settings_are_named(changes, precision, capabilities, xla, reason):
    reasons = fused_attention.unsupported(
        FITTING.replace(**changes), precision, capabilities, jit_compile=xla
    )
    assert len(reasons) == (reason is not None)
    assert not reason or reason in reasons[0]


def test_determinism_is_unsupported(monkeypatch):
    monkeypatch.setattr(fused_attention, "is_op_determinism_enabled", lambda: True)
    (reason,) = fused_attention.unsupported(FITTING, "bfloat16", H200, jit_compile=True)
    assert "deterministic" in reason


def test_choose(monkeypatch, caplog):
    def choose(name, precision="bfloat16"):
        return fused_attention.choose(name, FITTING, precision, S, jit_compile=True)

    caplog.set_level("DEBUG", logger="absl")
    with pytest.raises(ValueError, match=r"capability 8\.0.*float32") as error:
        choose("cudnn", "float32")
    assert "`attention`=auto" in str(error.value)
    assert choose("auto") is None
    assert "attention=plain" in caplog.text
    monkeypatch.setattr(fused_attention, "compute_capabilities", lambda: H200)
    assert choose("plain") is None
    assert choose("auto", "float32") is None
    reason = "cudnn cannot be used: it does not compute in `precision`=float32"
    assert f"attention=plain ({reason}" in caplog.text
    # This machine has no such kernels, which the check detects.
    caplog.clear()
    assert choose("auto") is None
    assert "attention=plain, because cuDNN's attention does not work here" in caplog.text
    monkeypatch.setattr(fused_attention, "disagreement", lambda *_: None)
    assert choose("auto")
    assert choose("cudnn")


def shorter(query, key, value, lengths):
    return forward(query, key, value, tf.maximum(lengths - 1, 1))


def unscaled(*arguments):
    to_query, to_key, to_value = backward(*arguments)
    return to_query, to_key * 1.05, to_value * np.nan


def broken(*_):
    raise tf.errors.InternalError(None, None, "no engine\nmore")


@pytest.mark.parametrize(
    ("kernels", "problem"),
    [
        ((forward, backward), None),
        ((shorter, backward), "the context differs"),
        ((forward, unscaled), "the gradient of keys differs"),
        ((broken, backward), "InternalError: no engine"),
    ],
)
def test_wrong_kernels_are_detected(kernels, problem):
    dtype = "bfloat16" if kernels[0] is forward else "float16"
    found = fused_attention.disagreement(*kernels, (3, S, 4), dtype)
    assert (found is None) if problem is None else (problem in found)


def custom_calls(program):
    """Returns operands, results and settings of the calls in a serialized program, by target."""
    found = {}
    for computation in hlo_pb2.HloModuleProto.FromString(program).computations:
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        for call in (i for i in by_id.values() if i.custom_call_target):
            operands = [list(by_id[n].shape.dimensions) for n in call.operand_ids]
            results = [list(shape.dimensions) for shape in call.shape.tuple_shapes]
            settings = json.loads(call.backend_config)["cudnn_fmha_backend_config"]
            found.setdefault(call.custom_call_target, []).append((operands, results, settings))
    return found


def test_calls_of_cudnn():
    @tf.function(jit_compile=True, autograph=False)
    def run(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            attend = FusedAttention(fused_attention.cudnn_forward, fused_attention.cudnn_backward)
            context = attend(query, key, value, MASK)
        return tape.gradient(context, [query, key, value])

    heads, statistics, lengths = [B, 6, S, 8], [B, 6, S], [B]
    inputs = [tf.zeros(heads, tf.bfloat16)] * 3
    calls = custom_calls(run.experimental_get_compiler_ir(*inputs)(stage="hlo_serialized"))
    ((operands, results, settings),) = calls.pop("__cudnn$fmhaSoftmax")
    assert operands == [heads] * 3 + [lengths] * 2
    assert results == [heads, statistics, [0]]
    assert {"bmm1_dot_dimension_numbers", "bmm2_dot_dimension_numbers"} < settings.keys()
    ((operands, results, settings),) = calls.pop("__cudnn$fmhaSoftmaxBackward")
    assert operands == [heads] * 3 + [statistics, heads, heads] + [lengths] * 2
    assert results == [heads] * 3 + [[0]]
    assert settings["mask_type"] == "PADDING"
    assert settings["fmha_scale"] == 1.0
    assert settings["intermediate_tensor_shape"]["element_type"] == "BF16"
    assert settings["intermediate_tensor_shape"]["dimensions"] == [B, 6, S, S]
    products = {name for name in settings if name.endswith("dot_dimension_numbers")}
    assert len(products) == 4
    assert not calls


@pytest.mark.parametrize(
    ("on_tpu", "dtype", "tolerance", "rate"),
    [
        (False, "float32", 1e-5, 0.3),
        pytest.param(True, "float32", 1e-5, 0.0, marks=pytest.mark.slow),
        pytest.param(False, "bfloat16", 0.02, 0.0, marks=pytest.mark.slow),
        (True, "bfloat16", 0.02, 0.3),
    ],
)
def test_compiled_attention_equals_plain_attention(monkeypatch, on_tpu, dtype, tolerance, rate):
    """Also for other masks than ones followed by zeros; relative to the largest entry."""
    if on_tpu:
        pretend_tpu(monkeypatch)
    tensors = [tf.random.stateless_normal([B, 3, S, 5], [0, n]) for n in range(4)]
    mask = tf.constant([[1] * 9 + [0], [1, 0] * 5, [0] * 10, [0] * 9 + [1]])
    threshold, scale = byte_threshold(rate) if rate else (0, 1.0)

    def compiled(query, key, value):
        return CompiledAttention()(query, key, value, mask, rate, SEED)

    def plain(query, key, value):
        scores = tf.matmul(query, key, transpose_b=True)
        probabilities = PLAIN.masked_softmax(scores, mask)
        is_kept = random_bytes(tf.shape(scores), SEED) >= threshold
        is_kept = tf.linalg.matrix_transpose(is_kept)
        return tf.matmul(tf.where(is_kept, probabilities * scale, 0.0), value)

    def run(attend, tensors):
        *inputs, upstream = tensors
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            context = attend(*inputs)
        return [context, *tape.gradient(context, inputs, upstream)]

    compile = tf.function(run, jit_compile=True, autograph=False)
    found = compile(compiled, [tf.cast(tensor, dtype) for tensor in tensors])
    for ours, theirs in zip(found, run(plain, tensors), strict=True):
        assert ours.dtype == dtype
        # If all scores are lowered by 10,000, float32 has three decimal places.
        atol = max(tolerance, 2e-3) * np.abs(theirs).max()
        np.testing.assert_allclose(tf.cast(ours, tf.float32), theirs, rtol=0, atol=atol)
        rows = [0, 1, 3]
        found, wanted = tf.cast(ours, tf.float32).numpy()[rows], theirs.numpy()[rows]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.999])
def test_masks_of_compiled_attention(rate):
    """Values are a unit matrix and scores are 0, so that the context is the scaled mask / S."""
    B, N, S = 8, 3, 64
    zeros, unit = tf.zeros([B, N, S, S]), tf.eye(S, batch_shape=[B, N])

    @tf.function(jit_compile=True, autograph=False)
    def run(seed):
        return S * CompiledAttention()(zeros, zeros, unit, tf.ones([B, S]), rate, seed)

    threshold, scale = byte_threshold(rate)
    assert scale == 256 / (256 - threshold)
    assert 1 <= threshold <= 255
    masks = [run(tf.constant(seed)).numpy() for seed in ([1, 2], [1, 3], [2, 2])]
    for mask in masks:
        np.testing.assert_allclose(mask[mask > 0], scale, rtol=1e-6)
        probability = threshold / 256
        deviation = np.sqrt(probability * (1 - probability) / mask.size)
        np.testing.assert_allclose(np.mean(mask == 0), probability, rtol=0, atol=5 * deviation)
    if rate != 0.1:
        return
    # Steps, replicas and layers have different seeds.
    parts = [masks[0][0, 0], masks[0][0, 1], masks[0][1, 0], masks[1][0, 0], masks[2][0, 0]]
    agreement = np.mean([a == b for a, b in itertools.combinations(parts, 2)], axis=(1, 2))
    np.testing.assert_allclose(agreement, 1 - 2 * probability * (1 - probability), atol=0.04)


@pytest.mark.parametrize("on_tpu", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_blocks_in_bfloat16_with_compiled_attention(monkeypatch, on_tpu):
    if on_tpu:
        pretend_tpu(monkeypatch)

    def run(block, attention, x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output, _ = block(x, MASK, ops=Ops(attention))
        gradients = tape.gradient(output, [x, *block.trainable_variables], upstream)
        return wide(output, *gradients)

    # The exact gradient of the key bias is 0; its rounding errors are small if the weights are.
    config = small_config(initializer_range=0.1)
    dtypes = "mixed_bfloat16", "float32"
    block, float32_block = (TransformerBlock(config, dtype=dtype) for dtype in dtypes)
    float32_block.set_weights(block.get_weights())
    tensors = [tf.random.stateless_normal([B, S, H], [0, n], dtype="bfloat16") for n in (1, 2)]
    compiled = tf.function(run, jit_compile=True, autograph=False)
    found = compiled(block, CompiledAttention(), *tensors)
    for ours, theirs in zip(found, run(float32_block, None, *wide(*tensors)), strict=True):
        assert np.linalg.norm(ours - theirs) < 0.03 * max(np.linalg.norm(theirs), 0.2)


def test_use_of_compiled_attention():
    def attention_of(rate=0.0, **settings):
        config = small_config(attention_probs_dropout_prob=rate, **ONE_BLOCK)
        trainer = pretraining_trainer(config, 8, 2, train_batch_size=2, **settings)
        return trainer._training.ops.attention

    compiled = {"precision": "bfloat16", "jit_compile": True}
    assert isinstance(attention_of(**compiled), CompiledAttention)
    assert attention_of(0.1, **compiled) is None  # except on TPUs
    assert attention_of(precision="bfloat16") is None
    assert attention_of(jit_compile=True) is None
