"""Custom gradients compared with numerical ones, and half precision with float32."""

import statistics

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling import ops

HALVES = [tf.bfloat16, tf.float16]


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(1.0, 2.0, shape))


def assert_gradients_equal_differences(function, arguments):
    """Compares with central differences in float64, which have errors near 1e-8."""
    ours, numerical = tf.test.compute_gradient(function, arguments, delta=1e-4)
    assert len(ours) == len(arguments)
    for gradient, expected in zip(ours, numerical, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)


def gradient_of_sum(function, argument):
    with tf.GradientTape() as tape:
        tape.watch(argument)
        total = tf.reduce_sum(function(argument))
    return tape.gradient(total, argument)


@pytest.mark.parametrize("function", [ops.gelu, ops.exact_gelu])
def test_gradient_of_gelu(function):
    x = tf.constant([-30.0, -6.0, -1.7, -0.7, 0.0, 1e-3, 0.4, 2.5, 6.0, 30.0], tf.float64)
    assert_gradients_equal_differences(function, [x])


def test_exact_gelu_uses_the_normal_distribution():
    x = np.linspace(-9, 9, 721)
    expected = [v * statistics.NormalDist().cdf(v) for v in x]
    np.testing.assert_allclose(ops.exact_gelu(tf.constant(x)), expected, rtol=0, atol=1e-14)
    found = ops.exact_gelu(tf.constant(x, tf.float32))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    # The approximation differs by up to 4.7e-4.
    difference = np.abs(ops.gelu(tf.constant(x)) - expected).max()
    assert 4e-4 < difference < 5e-4


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_gradients_of_layer_norm(shape):
    arguments = [normal(*shape), normal(5, seed=1), normal(5, seed=2)]
    assert_gradients_equal_differences(
        # The square makes the upstream gradient differ from entry to entry.
        lambda *args: tf.square(ops.layer_norm(*args)),
        arguments,
    )


def test_gradient_of_an_embedding_lookup():
    ids = tf.constant([[3, 1, 3], [3, 0, 1]])  # 3 and 1 repeated, 2 and 4 never
    assert_gradients_equal_differences(
        lambda table: tf.square(ops.embedding_lookup(table, ids)), [normal(5, 2)]
    )


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (ops.gelu, [normal(3, 5)]),
        (ops.exact_gelu, [normal(3, 5)]),
        (ops.layer_norm, [normal(3, 5), normal(5), normal(5)]),
        (lambda table, ids: ops.embedding_lookup(table, ids), [normal(5, 2), tf.constant([3])]),
    ],
    ids=["gelu", "exact_gelu", "layer_norm", "embedding_lookup"],
)
def test_gradients_inside_a_condition(function, arguments):
    @tf.function(autograph=False)
    def conditional(condition, *args):
        return tf.cond(condition, lambda: function(*args), lambda: 2 * function(*args))

    def gradients(f, *options):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            total = tf.reduce_sum(f(*options, *arguments) ** 2)
        return tape.gradient(total, arguments)

    inside, outside = gradients(conditional, tf.constant(True)), gradients(function)
    np.testing.assert_allclose(inside[0], outside[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", HALVES)
class TestHalfPrecision:
    def test_embedding_gradients_are_summed_in_float32(self, dtype):
        ids = tf.zeros([5000], tf.int32)  # sums of ones end at 256 in bfloat16, at 2048 in float16
        table = tf.zeros([3, 2], dtype)
        gradient = gradient_of_sum(lambda table: ops.embedding_lookup(table, ids), table)
        assert gradient.dtype == dtype
        sums = tf.cast(gradient, tf.float32)[:, 0]
        np.testing.assert_allclose(sums, [5000, 0, 0], rtol=0.004, atol=0)

    @pytest.mark.parametrize("function", [ops.gelu, ops.exact_gelu])
    def test_gradient_of_gelu_at_large_values(self, dtype, function):
        x = tf.constant([-300.0, 300.0], dtype)  # the square overflows float16
        gradient = tf.cast(gradient_of_sum(function, x), tf.float32)
        np.testing.assert_allclose(gradient, [0, 1], rtol=0, atol=0)

    def test_layer_norm_computes_in_float32(self, dtype):
        parameters = tf.ones([5], dtype), tf.zeros([5], dtype)
        x = tf.cast(normal(4000, 5), dtype)
        exact = tf.cast(x, tf.float64).numpy()
        exact -= exact.mean(-1, keepdims=True)
        exact /= exact.std(-1, keepdims=True)
        ours = ops.layer_norm(x, *parameters)
        assert ours.dtype == dtype
        np.testing.assert_allclose(tf.cast(ours, tf.float64), exact, rtol=0.004, atol=0.001)
        # The epsilon underflows in float16, where a row of equal entries would be 0 / 0.
        even = tf.cast(ops.layer_norm(tf.ones([2, 5], dtype), *parameters), tf.float32)
        np.testing.assert_allclose(even, np.zeros((2, 5)), rtol=0, atol=0)

    @pytest.mark.parametrize("jit_compile", [False, True])
    def test_softmax_keeps_only_its_rounded_result(self, dtype, jit_compile):
        scores, upstream = tf.cast(normal(2, 3, 4, 5), dtype), tf.cast(normal(2, 3, 4, 5), dtype)
        mask = tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])

        @tf.function(autograph=False, jit_compile=jit_compile)
        def compute(scores, upstream):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                probabilities = ops.PLAIN.masked_softmax(scores, mask)
            return probabilities, tape.gradient(probabilities, scores, upstream)

        half = compute(scores, upstream)
        assert [result.dtype for result in half] == [dtype, dtype]
        wide = compute(tf.cast(scores, tf.float32), tf.cast(upstream, tf.float32))
        expected, to_scores = (result.numpy() for result in wide)
        rounding = {tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}[dtype]
        along = np.sum(np.abs(tf.cast(upstream, tf.float32)) * expected, axis=-1, keepdims=True)
        # The result is rounded; the gradient too, and so are the terms of its sums.
        bounds = rounding * expected, rounding * (2 * np.abs(to_scores) + expected * along)
        for result, target, bound in zip(half, (expected, to_scores), bounds, strict=True):
            error = np.abs(tf.cast(result, tf.float32) - target)
            assert np.all(error <= 1.01 * bound + 1e-7)  # smallest number of float16
        graph = compute.get_concrete_function(scores, upstream).graph
        (softmax,) = (op for op in graph.get_operations() if op.type == "Softmax")
        assert [op.type for op in softmax.outputs[0].consumers()] == ["Cast"]
        barriers = [op for op in graph.get_operations() if op.type == "XlaOptimizationBarrier"]
        # LiteRT does not support this operation.
        assert len(barriers) == jit_compile
