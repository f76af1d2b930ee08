"""Dropout, projections, attention and the block."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.layers import FactorizedEmbedding, Projection, SelfAttention, dropout
from albert_tf.modeling.ops import PLAIN
from tests.small_model import BATCH, LENGTH, REAL_TOKENS, dropping_config, small_config

SEED = tf.constant([3, 5])


class TestDropout:
    @pytest.mark.parametrize("rate", [0.1, 0.3, 0.999999])
    def test_rate_is_rounded_to_a_multiple_of_a_65536th(self, rate):
        n, exact = 200_000, min(round(rate * 65536), 65535) / 65536
        dropped = dropout(tf.ones([n]), rate, SEED).numpy()
        is_kept = dropped != 0
        np.testing.assert_allclose(dropped[is_kept], 1 / (1 - exact), rtol=1e-6, atol=0)
        five_deviations = 5 * np.sqrt(exact * (1 - exact) / n)
        np.testing.assert_allclose(1 - is_kept.mean(), exact, rtol=0, atol=five_deviations)

    def test_entries_are_independent(self):
        n, rate = 100_000, 0.25
        is_dropped = dropout(tf.ones([n, 8]), rate, SEED).numpy() == 0
        together = np.mean(is_dropped[:, :, None] & is_dropped[:, None, :], axis=0)
        expected = np.where(np.eye(8), rate, rate**2)
        deviations = np.sqrt(expected * (1 - expected) / n)
        assert np.all(np.abs(together - expected) < 5 * deviations)
        successive = np.mean(is_dropped[1:] & is_dropped[:-1], axis=0)
        np.testing.assert_allclose(successive, rate**2, rtol=0, atol=5 * deviations[0, 1])

    @pytest.mark.parametrize("shape", [[3, 5, 7], [4, 8]])  # 105 is not a multiple of 8
    def test_mask_does_not_depend_on_program_and_precision(self, shape):
        def apply(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                dropped = dropout(x, 0.3, SEED)
            return dropped, tape.gradient(dropped, x, x)

        unknown = [tf.TensorSpec([None] * len(shape))]
        functions = [
            tf.function(apply, autograph=False, jit_compile=jit_compile, input_signature=signature)
            for jit_compile in (False, True)
            for signature in (None, unknown)
        ]
        x = tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)
        expected = dropout(x, 0.3, SEED)
        for function in [apply, *functions]:
            for result in function(x):  # the gradient has the same mask and scale
                np.testing.assert_array_equal(result, expected)
        for dtype in (tf.float64, tf.bfloat16, tf.float16):
            dropped, gradient = apply(tf.cast(x, dtype))
            assert (dropped.dtype, gradient.dtype) == (dtype, dtype)
            np.testing.assert_array_equal(dropped, gradient)
            np.testing.assert_array_equal(dropped == 0, expected == 0)

    def test_dropout_on_tpus(self, monkeypatch):
        monkeypatch.setattr(tf.distribute, "TPUStrategy", type(tf.distribute.get_strategy()))

        @tf.function(jit_compile=True, autograph=False)
        def run(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                dropped = dropout(x, 0.1, SEED)
            return dropped, tape.gradient(dropped, x)

        dropped, gradient = run(tf.ones([300, 70]))
        np.testing.assert_array_equal(dropped, gradient)
        np.testing.assert_array_equal(dropped[dropped != 0], np.float32(256 / 230))
        np.testing.assert_allclose(np.mean(dropped == 0), 26 / 256, rtol=0, atol=0.01)


def test_bias_gradients_of_a_projection_are_summed_in_float32():
    layer = Projection(4, 3, 0.02, dtype="mixed_bfloat16")
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.cast(layer(tf.ones([5000, 4])), tf.float32))
    gradient = tape.gradient(total, layer.bias)
    np.testing.assert_allclose(gradient, [5000] * 3, rtol=0.004, atol=0)


def test_embedding_rejects_more_tokens_than_positions():
    layer = FactorizedEmbedding(small_config())
    ids = tf.zeros([2, 17], tf.int32)
    with pytest.raises(ValueError, match=r"must be in 1..16.*max_position_embeddings"):
        layer(ids, ids)
    signature = [tf.TensorSpec([None, None], tf.int32)] * 2
    unknown_length = tf.function(layer, input_signature=signature, autograph=False)
    assert unknown_length(ids[:, :16], ids[:, :16])[0].shape == (2, 16, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more tokens than the model"):
        unknown_length(ids, ids)


def test_returned_probabilities_have_no_dropout():
    layer, mask = SelfAttention(dropping_config()), tf.sequence_mask(REAL_TOKENS, LENGTH, tf.int32)
    x = tf.constant(np.random.default_rng(0).normal(size=(BATCH, LENGTH, 12)).astype(np.float32))
    dropped, probabilities = layer.context(x, mask, SEED, PLAIN, x)
    kept, expected = layer.context(x, mask, None, PLAIN, x)
    np.testing.assert_array_equal(probabilities, expected)
    assert np.all(dropped != kept)
