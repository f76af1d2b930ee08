"""Work spread over processes, with its results in order."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

T = TypeVar("T")
# Calls a method of the shared object for each item and yields the results in order.
OrderedMap = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]

_JOBS_AHEAD = 2  # for each process: results that may wait for their turn
_shared: Any = None  # in a worker process: what `worker_processes` was given


def available_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def worker_processes(number: int, shared: Any) -> Iterator[OrderedMap]:
    """Starts processes that all hold a copy of one object.

    Args:
        number: how many; with 1 all work is done in this process.
        shared: what every process needs; sent once, by pickling.

    Yields:
        A function `run(method, items)` that yields `method(shared, item)` for each item, in order.
        No more than a few items a process are worked on ahead of the one that is asked for.
    """
    if number == 1:
        yield lambda method, items: (method(shared, item) for item in items)
        return
    # Spawned, not forked: forking a process with threads, such as TensorFlow's, can hang.
    pool = ProcessPoolExecutor(number, get_context("spawn"), _keep, (shared,))
    try:
        yield lambda method, items: _run_ahead(pool, method, items, number * _JOBS_AHEAD)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_ahead(
    pool: ProcessPoolExecutor,
    method: Callable[[Any, Any], Any],
    items: Iterable[Any],
    limit: int,
) -> Iterator[Any]:
    waiting: deque[Future] = deque()
    for item in items:
        waiting.append(pool.submit(_call, method, item))
        if len(waiting) >= limit:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _keep(shared: Any) -> None:
    global _shared
    _shared = shared
    # Left alone by a process that was killed, workers would wait for jobs for ever.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(method: Callable[[Any, Any], T], item: Any) -> T:
    return method(_shared, item)
