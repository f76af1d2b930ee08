"""The workers of a run, and their communication.

A run has one process (worker) per machine, which drives one or more devices (replicas). TF_CONFIG
contains the addresses of all workers and the index of this process. Only the first worker, the
chief, writes shared files.
"""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import cast

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import as_whole_number, parse_json, shown

TF_CONFIG = "TF_CONFIG"
TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["one:2222", "two:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_JOBS = ("chief", "master", "worker")  # in the order of their ranks
_PORT_SECONDS, _POLL_SECONDS, _WARNING_SECONDS = 10.0, 0.5, 60.0


class LostWorkerError(UserError):
    """Another worker has ended or cannot be reached."""


@dataclass(frozen=True)
class Cluster:
    """The workers of a run as host:port, the chief first, and the index of this process."""

    workers: tuple[str, ...]
    index: int


def cluster_from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns the cluster in TF_CONFIG, or `None`. Raises ValueError if TF_CONFIG is malformed."""
    text = environment.get(TF_CONFIG, "").strip()
    try:
        config = parse_json(text or "{}", TF_CONFIG)
        jobs = {job: [*found] for job, found in (config.get("cluster") or {}).items() if found}
        if not jobs:
            return None
        task, index = config["task"]["type"], config["task"]["index"]
        if others := sorted({task, *jobs} - {*_JOBS}):
            raise UserError(f"the jobs {others} are not supported, only chief, master and worker")
        workers = tuple(address for job in _JOBS for address in jobs.get(job, ()))
        index = as_whole_number(int(index) if isinstance(index, str) else index)
        different, most = {*map(_host_and_port, workers)}, 1 + len(jobs.get("worker", ()))
        if index is None or index < 0 or not len(workers) == len(different) <= most:
            raise UserError("expected different addresses, and at most one chief or master")
        return Cluster(workers, workers.index(jobs[task][index]))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"The environment variable {TF_CONFIG} is invalid ({type(error).__name__}: {error}). "
            f"Expected, for the first of two workers: {TF_CONFIG_EXAMPLE}. Received: {shown(text)}"
        ) from error


def num_workers() -> int:
    """Returns the number of workers in TF_CONFIG, or 1 if it is not set. Opens no connection."""
    cluster = cluster_from_environment()
    return len(cluster.workers) if cluster else 1


def _host_and_port(address: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([^][]+)\]|([^][:/]+)):([0-9]{1,5})", address)
    if not found or not 0 < int(found[3]) < 1 << 16:
        raise UserError(f"{address!r} is not host:port or [IPv6]:port, with a port up to 65535")
    return found[1] or found[2], int(found[3])


@cache
def connect_workers(cluster: Cluster) -> None:
    """Waits until all workers have started, because signals cannot interrupt TensorFlow's wait.

    The chief continues when the others listen, and the others when TensorFlow in the chief does.
    """
    workers, index = cluster.workers, cluster.index
    port, is_dual = _host_and_port(workers[index])[1], socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET  # like TensorFlow
    listen = partial(socket.create_server, ("", port), family=family, dualstack_ipv6=is_dual)
    with listen() if index else nullcontext():
        for address in workers[:1] if index else 2 * workers[1:]:  # one may end during the wait
            wait_while(partial(_why_unreachable, address))
    task = {"type": "worker", "index": index}  # TensorFlow rejects a master
    os.environ[TF_CONFIG] = json.dumps({"cluster": {"worker": workers}, "task": task})


def _why_unreachable(address: str) -> str:
    try:
        socket.create_connection(_host_and_port(address), timeout=_PORT_SECONDS).close()
    except (OSError, UnicodeError) as error:  # the latter for malformed names of hosts
        return f"worker {address}: {error}. Check whether it runs, its address and the firewall."
    return ""


def wait_while(missing: Callable[[], str]) -> None:
    """Waits until `missing` returns no text. Every minute, a warning contains its text."""
    warned = time.monotonic()
    while text := missing():
        if time.monotonic() - warned > _WARNING_SECONDS:
            warned = time.monotonic()
            logging.warning("Still waiting for %s", text)
        time.sleep(_POLL_SECONDS)


class Workers:
    """The workers of a strategy; `rank` 0 is the chief, and `size` the number of workers.

    Methods wait for the other workers, which must call the same methods in the same order. They
    raise LostWorkerError if another worker has ended.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.rank, self.size = 0, 1
        self._strategy = strategy
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            cluster = cluster_from_environment()
            assert cluster is not None
            self.rank, self.size = cluster.index, len(cluster.workers)

    @property
    def is_chief(self) -> bool:
        """Whether this process is the first worker, or the only process."""
        return self.rank == 0

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of the arrays of all workers."""
        if self.size == 1:
            return values
        with explain_lost_workers():
            return cast(np.ndarray, _sum(self._strategy)(tf.constant(values)).numpy())

    def gather(self, value: int) -> list[int]:
        """Returns the values of all workers, in the order of their ranks."""
        values = np.zeros(self.size, np.int64)
        values[self.rank] = value
        return cast(list[int], self.sum(values).tolist())

    def check_same(self, value: int, name: str) -> None:
        """Raises ValueError unless a value, which `name` describes, is the same on all workers."""
        values = {f"worker {rank}": number for rank, number in enumerate(self.gather(value))}
        settle(stated(name, values), Meeting.WORKERS)

    def any(self, condition: bool) -> bool:
        """Returns whether the condition is true on any worker."""
        return any(self.gather(int(condition)))

    def wait(self) -> None:
        """Waits for all workers, because a worker that ends early causes errors on the others."""
        self.gather(0)
        # A worker could end while others still wait for its part of the first reduction. The second
        # reduction completes only after all workers have completed the first one.
        with suppress(LostWorkerError):
            self.gather(0)


@cache
def _sum(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function with one graph, because workers match reductions by graph numbers."""
    replicas = strategy.num_replicas_in_sync // Workers(strategy).size

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
