"""Rematerialized blocks. tests/golden compares numbers with the original."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.rematerialization import Run, run_rematerialized
from tests.small_model import ONE_BLOCK, dropping_config, pretraining_inputs, small_config

pytestmark = pytest.mark.usefixtures("eager")

SEED = tf.constant([3, 5])
SHALLOW = {**ONE_BLOCK, "num_hidden_layers": 2}  # compiles in seconds
RESIDUAL = 1e-5  # largest rounding error, relative to the norm of a gradient
KEY_BIAS = "key/bias"  # its gradient is 0 except for rounding, because of the softmax


def loss_of(outputs):
    """Returns a loss that depends on the last, a middle, and the pooled output."""
    wide = {name: tf.nest.map_structure(_float32, outputs[name]) for name in outputs}
    return (
        tf.reduce_sum(tf.square(wide["masked_lm_logits"]))
        + tf.reduce_sum(wide["encoder_outputs"][0] ** 3)
        + tf.reduce_sum(wide["pooled_output"])
    )


def _float32(values):
    return tf.cast(values, tf.float32)


def gradient_function(model, inputs, **options):
    """Returns a function of loss and gradients of a training step with dropout."""
    variables = [variable.value for variable in model.trainable_variables]

    @tf.function(autograph=False, **options)
    def compute(seed):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            settings = {"dropout_seed": seed, "output_hidden_states": True}
            loss = loss_of(model(inputs, training=True, **settings))
        return loss, tape.gradient(loss, variables)

    return compute


def both_ways(model, compute):
    """Returns the results without and with rematerialization."""
    results = []
    for remat in (False, True):
        model.encoder.remat = remat
        results.append(compute())
    model.encoder.remat = False
    return results


def assert_same_gradients(model, actual, expected, share=RESIDUAL):
    for variable, value, target in zip(model.trainable_variables, actual, expected, strict=True):
        assert (value is None) == (target is None), variable.path
        if target is None or variable.path.endswith(KEY_BIAS):
            continue
        assert value.dtype == tf.float32
        assert tf.norm(target) > 0, variable.path
        assert tf.norm(value - target) <= share * tf.norm(target), variable.path


class TestEncoder:
    def test_gradients_are_equal_with_dropout(self):
        model = AlbertForPretraining(dropping_config(**SHALLOW))

        def compute():
            return gradient_function(model, pretraining_inputs())(SEED)

        (loss, expected), (same_loss, gradients) = both_ways(model, compute)
        # The loss is a sum of terms of both signs.
        np.testing.assert_allclose(same_loss, loss, rtol=1e-5, atol=1e-5)
        assert_same_gradients(model, gradients, expected)

    @pytest.mark.slow
    @pytest.mark.usefixtures("traced")
    def test_xla_does_not_merge_the_recomputation(self):
        model = AlbertForPretraining(small_config(**SHALLOW))

        def compute():
            step = gradient_function(model, pretraining_inputs(), jit_compile=True)
            return step.experimental_get_compiler_ir(SEED)(stage="optimized_hlo")

        plain, program = both_ways(model, compute)
        # One of two blocks is recomputed. It has eight products, but the two output projections
        # may be unnecessary.
        assert _products(program) >= _products(plain) + 6


def _products(program):
    """Returns the number of matrix products in a compiled program."""
    return sum(
        " dot(" in line or "matmul" in line.split("=")[-1][:60] for line in program.split("\n")
    )


@pytest.mark.usefixtures("traced")
class TestRuns:
    """Lists of runs that share variables in any order."""

    def _variables(self):
        return [keras.Variable(keras.random.normal([4, 4]), name=name) for name in "abc"]

    def _runs(self, variables, calls):
        a, b, c = variables

        def times(variable):
            def function(x, offset):
                calls.append(variable.name)
                return tf.tanh(tf.matmul(x, tf.convert_to_tensor(variable)) + offset)

            return function

        offsets = [tf.fill([4], 0.1 * number) for number in range(4)]
        order = [(a, [a]), (b, [b]), (a, [c, a]), (b, [b])]  # c is listed, but not used
        pairs = zip(order, offsets, strict=True)
        return [Run(times(v), (offset,), used) for (v, used), offset in pairs]

    @pytest.mark.parametrize("batch", [pytest.param(3, marks=pytest.mark.slow), None])
    def test_loops_of_xla_equal_single_runs(self, batch):
        a, b, _ = variables = self._variables()

        def times(variable):
            return lambda x, scale, offset: tf.tanh(
                tf.matmul(x, tf.convert_to_tensor(variable)) * scale + offset
            )

        def gradients(x, counts=(5, 3, 2, 1), is_rematerialized=True):
            scale = tf.constant(1.5)  # the same for all runs, like the mask
            functions, runs = {id(a): times(a), id(b): times(b)}, []
            for count, variable in zip(counts, (a, b, a, b), strict=True):
                offsets = tf.unstack(tf.reshape(tf.linspace(-0.2, 0.2, 4 * count), [count, 4]))
                function = functions[id(variable)]
                runs += [Run(function, (scale, offset), [variable]) for offset in offsets]
            with tf.GradientTape() as tape:
                tape.watch(x)
                if is_rematerialized:
                    outputs = run_rematerialized(x, runs)
                else:
                    outputs = [x := run.function(x, *run.inputs) for run in runs]
                loss = sum(place * tf.reduce_sum(y**2) for place, y in enumerate(outputs))
            return outputs, tape.gradient(loss, [variable.value for variable in variables])

        signature = [tf.TensorSpec([batch, 4])]
        compiled = tf.function(gradients, signature, autograph=False, jit_compile=True)
        x = tf.constant(np.linspace(-1, 1, 12).reshape(3, 4), tf.float32)
        received, expected = compiled(x), gradients(x, is_rematerialized=False)
        for value, target in zip(*map(tf.nest.flatten, (received, expected)), strict=True):
            if target is None:
                assert value is None
            else:
                # Every entry is a sum of terms that may cancel.
                largest = np.abs(target).max()
                np.testing.assert_allclose(value, target, rtol=0, atol=2e-6 * largest)
        sizes = []
        for counts in ((5, 3, 2, 1), (9, 7, 2, 1)):
            trace = tf.function(gradients, autograph=False, jit_compile=True)
            definition = trace.get_concrete_function(x, counts).graph.as_graph_def()
            sizes.append(sum("MatMul" in str(node.op) for node in definition.node))
            loops = [node for node in definition.node if node.op in ("While", "StatelessWhile")]
            assert len(loops) == 2 * 2 + 2  # of a, of b, and of a once more
        assert sizes == [3, 3]  # b at the end, and its gradients

    def test_gradients_are_summed_in_float32(self):
        """bfloat16 cannot count beyond 256."""

        class Half(keras.layers.Layer):
            def __init__(self, name):
                super().__init__(dtype="mixed_bfloat16", name=name)

        class Shift(Half):
            def build(self, _):
                self.shift = self.add_weight(shape=[4], name="shift")

            def call(self, x):
                assert x.dtype == tf.bfloat16
                return x + self.shift

        class Stack(Half):
            def build(self, shape):
                self.layer = Shift("layer")
                self.layer.build(shape)

            def call(self, x):
                return run_rematerialized(x, [Run(self.layer, (), self.layer.weights)] * 300)[-1]

        stack = Stack("stack")
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.cast(stack(tf.zeros([1, 4])), tf.float32))
        (gradient,) = tape.gradient(total, [stack.layer.shift.value])
        np.testing.assert_array_equal(gradient, [300.0] * 4)

    def test_runs_are_recomputed_after_the_gradients_of_later_runs(self):
        """The gradients of later runs are dependencies of each recomputation."""
        variables, calls = self._variables(), []

        @tf.function(autograph=False)
        def compute(x):
            values = [variable.value for variable in variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(values)
                loss = tf.reduce_sum(run_rematerialized(x, self._runs(variables, calls))[-1])
            return tape.gradient(loss, values[:2])

        graph = compute.get_concrete_function(tf.TensorSpec([3, 4])).graph
        tanhs = [op for op in graph.get_operations() if op.type == "Tanh"]
        assert len(tanhs) == 7
        gradients_before = [_count(_past(op), "TanhGrad") for op in tanhs]
        assert gradients_before == [0, 0, 0, 0, 1, 2, 3]
        # Includes the gradients of the matrices: four products forward, three recomputed, and six
        # backward.
        assert _count(_past(tanhs[-1]), "MatMul") == 4 + 3 + 6


def _past(op):
    """Returns all operations that this operation depends on."""
    seen, waiting = set(), [op]
    while waiting:
        current = waiting.pop()
        for earlier in [tensor.op for tensor in current.inputs] + list(current.control_inputs):
            if earlier not in seen:
                seen.add(earlier)
                waiting.append(earlier)
    return seen


def _count(operations, kind):
    return sum(operation.type == kind for operation in operations)
