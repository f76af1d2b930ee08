"""Fused passes have the values and gradients of the plain functions."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.ops import PLAIN
from albert_tf.modeling.ops_fused import FusedOps
from tests.usual import usual

B, S, N, D, F = 4, 12, 2, 5, 7
H = N * D


def draw(*shape, dtype=tf.float32, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return tf.cast(tf.constant(rng.normal(size=shape), tf.float32), dtype)


LABELS = tf.constant([[6, 0], [3, 3], [1, 5], [2, 4]])
MASK = tf.sequence_mask([12, 9, 1, 4], S, tf.int32)

# Functions and their arguments; biases and parameters of norms are float32.
FUNCTIONS = {
    "biased_gelu": (
        lambda ops, x, bias: ops.biased_gelu(x, bias),
        lambda dtype: [draw(B * S, F, dtype=dtype), draw(F)],
    ),
    "biased_exact_gelu": (
        lambda ops, x, bias: ops.biased_gelu(x, bias, exact=True),
        lambda dtype: [draw(B * S, F, dtype=dtype), draw(F)],
    ),
    "biased_heads": (
        lambda ops, x, bias: ops.biased_heads(x, bias, 0.3, N),
        lambda dtype: [draw(B, S, H, dtype=dtype), draw(H)],
    ),
    "recomputed": (
        lambda ops, x, bias: ops.recomputed(ops.biased_gelu, x, bias),
        lambda dtype: [draw(B * S, F, dtype=dtype), draw(F)],
    ),
    "masked_softmax": (
        lambda ops, scores: ops.masked_softmax(scores, MASK),
        lambda dtype: [draw(B, N, S, S, dtype=dtype)],
    ),
    "residual_norm": (
        lambda ops, *arguments: ops.residual_norm(*arguments),
        lambda dtype: [
            *(draw(B, S, H, dtype=dtype), draw(B * S, H, dtype=dtype, seed=1)),
            *(draw(H), draw(H, seed=2), draw(H, seed=3)),
        ],
    ),
    "cross_entropy": (
        lambda ops, logits: ops.cross_entropy(logits, LABELS),
        lambda dtype: [draw(B, 2, F)],
    ),
}


def value_and_gradients(name, arguments, *, is_fused, specs=None):
    """Returns the result of a function and gradients. Fused functions are traced for `specs`."""
    function, _ = FUNCTIONS[name]
    ops = FusedOps() if is_fused else PLAIN
    shape = function(PLAIN, *arguments).shape

    def run(*arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            result = function(ops, *arguments)
            # The same in both precisions.
            weights = tf.cast(draw(*shape, seed=4, dtype=tf.bfloat16), tf.float32)
            score = tf.reduce_sum(tf.cast(result, tf.float32) * weights)
            gradients = tape.gradient(score, arguments)
        return result, *gradients

    if not is_fused:
        return run(*arguments)
    concrete = tf.function(run, autograph=False).get_concrete_function(*(specs or arguments))
    assert any("PartitionedCall" in op.type for op in concrete.graph.get_operations())
    return concrete(*arguments)


def unknown(argument, name):
    """Returns a spec with unknown numbers of rows and classes."""
    last = None if name == "cross_entropy" else argument.shape[-1]
    return tf.TensorSpec([None] * (argument.shape.rank - 1) + [last], argument.dtype)


SHAPES = [(name, is_static) for is_static in (True, False) for name in FUNCTIONS]


@pytest.mark.parametrize(
    "case", usual(SHAPES, *SHAPES[: len(FUNCTIONS)], ("residual_norm", False)), ids=str
)
def test_fused_functions_equal_plain_functions(case):
    name, is_static = case
    arguments = FUNCTIONS[name][1](tf.float32)
    specs = None if is_static else [unknown(argument, name) for argument in arguments]
    plain = value_and_gradients(name, arguments, is_fused=False)
    fused = value_and_gradients(name, arguments, is_fused=True, specs=specs)
    for expected, received in zip(plain, fused, strict=True):
        np.testing.assert_allclose(received, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"cross_entropy"}))
def test_half_precision_is_rounded_once(name):
    """Results differ from results for float32 arguments by one rounding."""
    arguments = FUNCTIONS[name][1](tf.bfloat16)
    half = value_and_gradients(name, arguments, is_fused=True)
    widened = [tf.cast(argument, tf.float32) for argument in arguments]
    wide = value_and_gradients(name, widened, is_fused=True)
    assert half[0].dtype == tf.bfloat16
    # The gradient uses the rounded probabilities.
    atol = 2.0**-8 if name == "masked_softmax" else 1e-5
    for expected, received in zip(wide, half, strict=True):
        np.testing.assert_allclose(tf.cast(received, tf.float32), expected, rtol=2.0**-8, atol=atol)
