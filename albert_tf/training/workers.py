"""Communication between the workers of a run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, cast

import numpy as np
import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.training.distribution import LostWorkerError, local_replicas, worker_shard


def values_of_workers(strategy: tf.distribute.Strategy, value: int) -> list[int]:
    """Returns the values of all workers in order, given the value of this worker.

    All workers must call this function, which waits for the others. Raises LostWorkerError if
    another worker has ended.
    """
    shard = worker_shard(strategy)
    own = np.zeros(shard.count, np.int64)
    own[shard.index] = value
    return cast(list[int], sum_over_workers(strategy, own).tolist())


def sum_over_workers(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """Returns the sum of arrays over all workers. See `values_of_workers`."""
    if worker_shard(strategy).count == 1:
        return values
    with explain_lost_workers():
        return cast(np.ndarray, _sum(strategy)(tf.constant(values)).numpy())


@cache
def _sum(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the same graph for all calls; workers match reductions by the number of the graph."""
    replicas = local_replicas(strategy)

    def summed(values: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        is_first = context.replica_id_in_sync_group % replicas == 0
        own = tf.where(is_first, values, tf.zeros_like(values))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

    @tf.function(autograph=False)
    def run(values: tf.Tensor) -> tf.Tensor:
        results = strategy.run(summed, args=(values,))
        return strategy.experimental_local_results(results)[0]

    return run


def is_any_worker(strategy: tf.distribute.Strategy, condition: bool) -> bool:
    """Returns whether the condition is true on any worker. See `values_of_workers`."""
    return any(values_of_workers(strategy, int(condition)))


def wait_for_workers(strategy: tf.distribute.Strategy) -> None:
    """Waits for all workers, because a worker that ends early causes errors on the others."""
    values_of_workers(strategy, 0)
    # A worker could end while others still wait for its part of the first reduction. The second
    # reduction completes only after all workers have completed the first one.
    with suppress(LostWorkerError):
        values_of_workers(strategy, 0)


def check_same_step(strategy: tf.distribute.Strategy, step: int, output_dir: str) -> None:
    """Raises ValueError unless all workers resume from the same step of `output_dir`."""
    steps = values_of_workers(strategy, step)
    if len(set(steps)) > 1:
        seen = ", ".join(f"worker {number}: {step}" for number, step in enumerate(steps))
        raise UserError(
            f"The workers do not see the same checkpoints in `output_dir`={output_dir} (newest "
            f"step of {seen}). Use a directory on a shared file system or gs://."
        )


def check_same_settings(strategy: tf.distribute.Strategy, settings: Any) -> None:
    """Raises ValueError unless all workers have the same `settings`, which must be JSON."""
    digests = values_of_workers(strategy, zlib.crc32(json.dumps(settings).encode()))
    if len(set(digests)) > 1:
        raise UserError(
            "The settings, or the names or sizes of the input files, differ between the workers "
            f"(digests by worker: {', '.join(map(str, digests))}). Use the same settings and files "
            "on all workers."
        )


@contextmanager
def explain_lost_workers() -> Iterator[None]:
    """Context manager that raises LostWorkerError if a reduction over the workers failed."""
    try:
        yield
    except tf.errors.OpError as error:
        lines = [line for line in str(error).splitlines() if "ollective" in line]
        if not lines:
            raise
        reason = next((line for line in lines if "node" not in line), lines[0])
        raise LostWorkerError(
            "Another worker ended or cannot be reached, so this worker stops; see the log of the "
            "other worker for the reason. Start all workers again with the same settings to resume "
            f"from the newest checkpoint in `output_dir`. TensorFlow reported: {reason}"
        ) from error
