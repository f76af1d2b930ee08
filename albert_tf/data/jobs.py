"""Progress bars, and parallel work in processes with ordered results."""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from types import ModuleType
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

# Yields the result of a method of the shared object for each item, in order.
OrderedMap = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]
_SECONDS_WITHOUT_BAR = 3
_ITEMS_AHEAD = 2  # per process

_shared: Any = None  # in a worker process: the argument of `worker_processes`


def progress_bar(*args: Any, hidden: bool = False, **kwargs: Any) -> tqdm:
    """Returns a tqdm bar that is shown only on terminals and in notebooks."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    is_notebook = hasattr(shell, "kernel")
    # With `disable=None`, tqdm shows the bar only on a terminal.
    return tqdm(*args, disable=True if hidden else False if is_notebook else None, **kwargs)


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """Yields the items, and shows a progress bar after three seconds."""
    return progress_bar(items, description, total, leave=False, delay=_SECONDS_WITHOUT_BAR)


def available_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_processes(number: int, shared: Any) -> Iterator[OrderedMap]:
    """Starts worker processes, each with a copy of `shared`.

    Yields a function `run(method, items)` that yields `method(shared, item)` for each item, in
    order. If `number` is 1, no process is started. Raises ChildProcessError if a process is killed.
    """
    if number == 1:
        yield lambda method, items: (method(shared, item) for item in items)
        return
    # Spawned, because forking a process with threads, such as TensorFlow's, can deadlock.
    with _isolated_workers():
        pool = ProcessPoolExecutor(number, get_context("spawn"), _initialize, (shared,))
    try:
        yield lambda method, items: _run_ahead(pool, method, items, number * _ITEMS_AHEAD)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"One of {number} processes was killed, probably because the memory was exhausted. Use "
            "a smaller `num_workers`."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _run_ahead(
    pool: ProcessPoolExecutor, method: Callable[[Any, Any], Any], items: Iterable[Any], limit: int
) -> Iterator[Any]:
    waiting: deque[Future] = deque()
    for item in items:
        with _isolated_workers():  # `submit` starts the processes
            waiting.append(pool.submit(_call, method, item))
        if len(waiting) >= limit:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _isolated_workers() -> Iterator[None]:
    """Context manager. Processes started in it do not import `__main__`, and block signals."""
    # `multiprocessing` imports the calling script in each process. A script without a `__main__`
    # guard would start its work again.
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    # SIGTERM is not blocked: the pool uses it to end its processes after a process has died.
    blocked = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sys.modules["__main__"] = program


def _initialize(shared: Any) -> None:
    global _shared
    _shared = shared
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process if its parent was killed; otherwise it would wait for items forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(method: Callable[[Any, Any], T], item: Any) -> T:
    return method(_shared, item)
