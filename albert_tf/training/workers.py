"""Communication between the workers of a training, and errors if a worker is lost."""

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
    """Returns the values of all workers in their order, given the value of this worker.

    All workers must call this at the same point of the program; each waits for the others. Raises
    LostWorkerError if another worker has ended.
    """
    shard = worker_shard(strategy)
    own = np.zeros(shard.count, np.int64)
    own[shard.index] = value
    return cast(list[int], sum_over_workers(strategy, own).tolist())


def sum_over_workers(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """Returns the sum of arrays of one shape of all workers. See `values_of_workers`."""
    if worker_shard(strategy).count == 1:
        return values
    with explain_lost_workers():
        return cast(np.ndarray, _sum(strategy)(tf.constant(values)).numpy())


@cache
def _sum(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns one function per strategy: workers number their reductions by their graphs."""
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
    """Waits until all workers have called this; otherwise the others fail when one ends."""
    values_of_workers(strategy, 0)
    # The first worker to return could end while others still wait for its answer. This second
    # reduction completes only after the first one has completed on all workers.
    with suppress(LostWorkerError):
        values_of_workers(strategy, 0)


def check_same_step(strategy: tf.distribute.Strategy, step: int, output_dir: str) -> None:
    """Raises ValueError unless all workers resume from the same step of `output_dir`."""
    steps = values_of_workers(strategy, step)
    if len(set(steps)) > 1:
        seen = ", ".join(f"worker {number}: {step}" for number, step in enumerate(steps))
        raise UserError(
            f"The workers do not see the same checkpoints in `output_dir`={output_dir} (newest "
            f"step of {seen}). It must be the same directory on all workers, on a shared file "
            "system or gs://."
        )


def check_same_settings(strategy: tf.distribute.Strategy, settings: Any) -> None:
    """Raises ValueError unless all workers have the same settings, as JSON, including the input."""
    digests = values_of_workers(strategy, zlib.crc32(json.dumps(settings).encode()))
    if len(set(digests)) > 1:
        raise UserError(
            "The workers have different flags, or names or sizes of input files (digests by "
            f"worker: {', '.join(map(str, digests))}). Start all workers with the same flags, on "
            "the same files."
        )


@contextmanager
def explain_lost_workers() -> Iterator[None]:
    """Context manager that raises LostWorkerError if a reduction over the workers failed."""
    try:
        yield
    except tf.errors.OpError as error:
        if "ollective" not in str(error):
            raise
        raise LostWorkerError(
            "Another worker ended or cannot be reached, so this worker stops; see the log of the "
            "other worker for the reason. Start all workers again with the same flags: training "
            "resumes from the newest checkpoint in `output_dir`. TensorFlow reported: "
            f"{_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    """Returns the line of a message that contains the cause."""
    lines = str(error).splitlines()
    return next((line for line in lines if "ollective" in line and "node" not in line), lines[0])
