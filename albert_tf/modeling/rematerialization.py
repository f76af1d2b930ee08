"""Rematerialization: stores the inputs of blocks for the backward pass, and recomputes the rest.

In the backward pass, each run of a block except the last is recomputed, and its parameter gradients
are added to the gradients of later runs before the next recomputation starts. Therefore, the inner
tensors and parameter gradients of only one run are in memory. A gradient tape would keep the
parameter gradients of all runs, 12 x 0.8 GB for xxlarge. To sum gradients early, each run also
outputs its parameters, and later runs read these outputs. The gradient of such an output is the sum
of the gradients of all later runs.

With XLA, consecutive runs of one function form a loop, forward and backward, so the time of tracing
and compilation does not depend on their number.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from albert_tf.modeling.ops import in_xla


class Run(NamedTuple):
    """One application of a block."""

    # Maps `(x, *inputs)` to the next x, of the same shape and type. Runs of one function have
    # inputs of the same shapes, and the same variables.
    function: Callable[..., tf.Tensor]
    inputs: tuple[tf.Tensor, ...]  # without a gradient, such as masks and dropout seeds
    variables: Sequence[keras.Variable]  # all variables that the function reads


def run_rematerialized(x: tf.Tensor, runs: Sequence[Run]) -> list[tf.Tensor]:
    """Applies runs in order and returns the output of each; see the module docstring.

    A run must return the same result if it is repeated, so its dropout needs a seed in `inputs`.
    """
    variables = {id(variable): variable for run in runs for variable in run.variables}
    reader = _StoredValues(lambda: [tf.convert_to_tensor(v) for v in variables.values()])
    values = dict(zip(variables, reader(x), strict=True))
    last_use = {id(v): number for number, run in enumerate(runs) for v in run.variables}
    outputs: list[tf.Tensor] = []
    loops = itertools.groupby(runs[:-1], lambda run: id(run.function))
    parts = (list(same) for _, same in loops) if in_xla() else ([run] for run in runs[:-1])
    for same in parts:
        used = [id(variable) for variable in same[0].variables]
        number = len(outputs) + len(same) - 1
        is_used_later = [last_use[key] > number for key in used]
        arguments = x, *(values[key] for key in used)
        if len(same) == 1:
            x, *results = _rematerialized(same[0], is_used_later)(*arguments)
        else:
            x, stack, *results = _Loop(same, is_used_later)(*arguments)
            outputs += tf.unstack(stack, num=len(same))[1:]
        later = (key for key, is_later in zip(used, is_used_later, strict=True) if is_later)
        values.update(zip(later, results, strict=True))
        outputs.append(x)
    last = runs[-1]
    outputs.append(_compute(last, x, last.inputs, [values[id(v)] for v in last.variables]))
    return outputs


class _StoredValues(keras.layers.Layer):
    """Reads variables without autocasting, so that their gradients are summed in float32."""

    def __init__(self, read: Callable[[], list[tf.Tensor]]) -> None:
        super().__init__(autocast=False, name="stored_values")
        self._read = read

    def call(self, x: tf.Tensor) -> list[tf.Tensor]:
        """Returns the values. Keras requires the argument."""
        del x
        return self._read()


def _compute(
    run: Run, x: tf.Tensor, inputs: Sequence[tf.Tensor], values: Sequence[tf.Tensor]
) -> tf.Tensor:
    with keras.StatelessScope(list(zip(run.variables, values, strict=True))):
        return run.function(x, *inputs)


def _rematerialized(run: Run, is_used_later: Sequence[bool]) -> Callable[..., list[tf.Tensor]]:
    """Returns a function of x and values that returns the next x and the values for later runs."""

    @tf.custom_gradient
    def apply(*arguments: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list]]:
        # Prevents outer tapes from recording the operations of the run.
        x, *values = (tf.stop_gradient(argument) for argument in arguments)
        inputs = [tf.identity(tensor) for tensor in run.inputs]
        handed_on = list(itertools.compress(values, is_used_later))

        def gradient(to_output: tf.Tensor, *to_handed_on: tf.Tensor) -> list:
            later = [to_output, *to_handed_on]
            with tf.control_dependencies(later):
                again, *inputs_again = _after(later, [x, *inputs])
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch([again, *values])
                    output = _compute(run, again, inputs_again, values)
                to_x, *to_values = tape.gradient(output, [again, *values], to_output)
            sums = _add(to_values, to_handed_on, is_used_later)
            done = [total for total in sums if total is not None]
            with tf.control_dependencies(done):
                (to_x,) = _after(done, [to_x])
            return [to_x, *sums]

        return [_compute(run, x, inputs, values), *map(tf.identity, handed_on)], gradient

    return apply


class _Loop:
    """Does the same as `_rematerialized` for several runs, in one loop.

    A call also returns the stacked inputs x of all runs. `_after` is not needed, because XLA does
    not merge the forward loop and the backward loop.
    """

    def __init__(self, runs: Sequence[Run], is_used_later: Sequence[bool]) -> None:
        self._run, self._count, self._is_used_later = runs[0], len(runs), is_used_later
        self._inputs = [
            tf.identity(same[0]) if all(tensor is same[0] for tensor in same) else tf.stack(same)
            for same in zip(*(run.inputs for run in runs), strict=True)
        ]
        # Cast once, not in every run.
        self._dtypes = [tf.convert_to_tensor(variable).dtype for variable in runs[0].variables]

    def __call__(self, *arguments: tf.Tensor) -> list[tf.Tensor]:
        """Maps x and values to the next x, the stack, and the values for later runs."""

        @tf.custom_gradient
        def apply(*arguments: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list]]:
            x, *values = (tf.stop_gradient(argument) for argument in arguments)
            rounded = [tf.cast(v, dtype) for v, dtype in zip(values, self._dtypes, strict=True)]
            output, stack = self._forward(x, rounded)
            handed_on = map(tf.identity, itertools.compress(values, self._is_used_later))
            return [output, stack, *handed_on], lambda *upstream: self._backward(
                stack, values, rounded, *upstream
            )

        return apply(*arguments)

    def _forward(self, x: tf.Tensor, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        def step(number: tf.Tensor, x: tf.Tensor, stack: tf.Tensor) -> tuple[tf.Tensor, ...]:
            place = tf.pad(tf.expand_dims(number, 0), [[0, x.shape.rank]])
            stack = xla.dynamic_update_slice(stack, tf.expand_dims(x, 0), place)
            return number + 1, self._compute(x, number, values), stack

        empty = tf.zeros(tf.concat([[self._count], tf.shape(x)], axis=0), x.dtype)
        empty.set_shape([self._count, *x.shape])
        return self._repeat(step, x, empty)

    def _backward(
        self,
        stack: tf.Tensor,
        values: Sequence[tf.Tensor],
        rounded: Sequence[tf.Tensor],
        to_output: tf.Tensor,
        to_stack: tf.Tensor,
        *to_handed_on: tf.Tensor,
    ) -> list[tf.Tensor]:
        def step(number: tf.Tensor, to_output: tf.Tensor, *later: tf.Tensor) -> tuple:
            place = self._count - 1 - number
            again = stack[place]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([again, *rounded])
                output = self._compute(again, place, rounded)
            to_x, *to_values = tape.gradient(
                output, [again, *rounded], to_output, unconnected_gradients="zero"
            )
            sums = (a + tf.cast(b, a.dtype) for a, b in zip(later, to_values, strict=True))
            return number + 1, to_x + to_stack[place], *sums

        given = iter(to_handed_on)
        pairs = zip(values, self._is_used_later, strict=True)
        later = [next(given) if is_later else tf.zeros_like(value) for value, is_later in pairs]
        return self._repeat(step, to_output, *later)

    def _compute(self, x: tf.Tensor, number: tf.Tensor, values: Sequence[tf.Tensor]) -> tf.Tensor:
        pairs = zip(self._inputs, self._run.inputs, strict=True)
        own = [t[number] if t.shape.rank > one.shape.rank else t for t, one in pairs]
        output = _compute(self._run, x, own, values)
        output.set_shape(x.shape)
        return output

    def _repeat(self, step: Callable[..., tuple], *start: tf.Tensor) -> list[tf.Tensor]:
        """Calls `step` with the number of each run and its own results."""
        return tf.while_loop(lambda number, *_: number < self._count, step, (0, *start))[1:]


def _add(
    gradients: Sequence[tf.Tensor | None],
    of_later_runs: Sequence[tf.Tensor],
    is_used_later: Sequence[bool],
) -> list[tf.Tensor | None]:
    remaining = iter(of_later_runs)
    sums = []
    for gradient, is_later in zip(gradients, is_used_later, strict=True):
        later = next(remaining) if is_later else None
        sums.append(gradient if later is None else later if gradient is None else later + gradient)
    return sums


def _after(earlier: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the same tensors, which are computed after `earlier`.

    XLA ignores control dependencies and would merge the recomputation with the first computation.
    Therefore, a number that depends on `earlier` is added. It is 0 unless a gradient is NaN.
    """
    first_entries = [tf.cast(tf.reshape(tensor, [-1])[:1], tf.float32) for tensor in earlier]
    is_bad = tf.reduce_any(tf.math.is_nan(tf.concat(first_entries, axis=0)))
    return [tensor + tf.cast(is_bad, tensor.dtype) for tensor in tensors]
