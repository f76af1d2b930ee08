"""Gradient accumulation: one update from several passes over parts of a batch.

The gradient of a large batch is the sum of those of its parts, because losses are divided by the
weights of the whole batch. Memory is that of one part, plus one gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

# Sums of any structure; for each variable its gradient, None where it has none.
SumsAndGradients = tuple[Any, list[tf.Tensor | None]]


def accumulate(
    function: Callable[[Mapping[str, tf.Tensor], tf.Tensor], SumsAndGradients],
    features: Mapping[str, tf.Tensor],
    variables: Sequence[keras.Variable],
    num_steps: int,
) -> SumsAndGradients:
    """Adds up what a function returns of each part of a batch, one part after the other.

    Call it while a `tf.function` is traced; it becomes a loop of the graph, in which `function`
    stands once.

    Args:
        function: maps the features of a micro-batch, [B / num_steps, ...] each, and its number,
            int32 [] in 0..num_steps-1, to sums and gradients.
        features: each [B, ...]; micro-batch i has the rows from i * B / num_steps on.
        variables: what the gradients belong to.
        num_steps: A, micro-batches; divides B.

    Returns:
        The sums over all micro-batches; dense gradients, None where `function` gave None.
    """
    parts = {name: _in_parts(values, num_steps) for name, values in features.items()}

    def part(number: tf.Tensor) -> dict[str, tf.Tensor]:
        return {name: tf.gather(values, number) for name, values in parts.items()}

    step = tf.function(function, autograph=False)
    # Traced here to learn what it returns; the loop calls the same trace.
    first = tf.constant(0)
    sums, gradients = step.get_concrete_function(part(first), first).structured_outputs
    trained = [variable for variable, g in zip(variables, gradients, strict=True) if g is not None]
    zeros = (
        tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), sums),
        [tf.zeros(variable.shape, variable.dtype) for variable in trained],
    )

    def add(number: tf.Tensor, totals: Any) -> tuple[tf.Tensor, Any]:
        sums, gradients = step(part(number), number)
        dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        return number + 1, tf.nest.map_structure(tf.add, totals, (sums, dense))

    _, (sums, totals) = tf.while_loop(
        lambda number, _: number < num_steps,
        add,
        (first, zeros),
        # No micro-batch needs the one before it: unasked, ten would be in memory at a time.
        parallel_iterations=1,
        maximum_iterations=num_steps,
    )
    remaining = iter(totals)
    return sums, [None if g is None else next(remaining) for g in gradients]


def _in_parts(values: tf.Tensor, num_parts: int) -> tf.Tensor:
    """[B, ...] as [num_parts, B / num_parts, ...]; static dimensions stay static."""
    batch_size, *inner = values.shape
    rows = -1 if batch_size is None else batch_size // num_parts
    dynamic = tf.shape(values)
    sizes = [dynamic[axis] if n is None else n for axis, n in enumerate(inner, start=1)]
    return tf.reshape(values, [num_parts, rows, *sizes])
