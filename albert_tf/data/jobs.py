"""Work spread over processes, with its results in order."""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from types import FrameType, ModuleType
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

# Calls a method of the shared object for each item and yields the results in order.
OrderedMap = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]
_SECONDS_WITHOUT_BAR = 3
_JOBS_AHEAD = 2  # for each process: results that may wait for their turn
_CANCEL = signal.SIGUSR2

# In a worker process: what `worker_processes` was given, and the state of the work.
_shared: Any = None

_is_working = False
_is_cancelled = False


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """Yields the items, with a progress bar on a terminal if they take more than three seconds."""
    delay = _SECONDS_WITHOUT_BAR
    return tqdm(items, description, total, leave=False, disable=None, delay=delay)


def available_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def worker_processes(number: int, shared: Any) -> Iterator[OrderedMap]:
    """Starts processes that all hold a copy of one object, sent once, by pickling; 1: this process.

    Yields:
        A function `run(method, items)` that yields `method(shared, item)` for each item, in order.
        No more than a few items a process are worked on ahead of the one that is asked for.

    Raises:
        ChildProcessError: a process was ended from outside.
    """
    if number == 1:
        yield lambda method, items: (method(shared, item) for item in items)
        return
    # Spawned, not forked: forking a process with threads, such as TensorFlow's, can hang.
    with _apart():
        pool = ProcessPoolExecutor(number, get_context("spawn"), _keep, (shared,))
    try:
        yield lambda method, items: _run_ahead(pool, method, items, number * _JOBS_AHEAD)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"One of {number} processes was killed by the system, probably because memory ran "
            "out. Use a smaller --num_workers."
        ) from error
    except BaseException:  # what they work on is not needed any more
        for process_id in pool._processes or ():
            with suppress(ProcessLookupError):
                os.kill(process_id, _CANCEL)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _run_ahead(
    pool: ProcessPoolExecutor, method: Callable[[Any, Any], Any], items: Iterable[Any], limit: int
) -> Iterator[Any]:
    waiting: deque[Future] = deque()
    for item in items:
        with _apart():  # it is here that processes are started
            waiting.append(pool.submit(_call, method, item))
        if len(waiting) >= limit:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _apart() -> Iterator[None]:
    """Processes started inside get no signal of a terminal or scheduler: this one ends them.

    SIGTERM excepted, by which the pool itself ends the others when one has died. Nor do they run
    the program again, as `multiprocessing` has them do, which needs a guard in every script.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    blocked = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, _CANCEL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sys.modules["__main__"] = program


def _keep(shared: Any) -> None:
    global _shared
    _shared = shared
    signal.signal(_CANCEL, _cancel)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (_CANCEL,))
    # Left alone by a process that was killed, workers would wait for jobs for ever.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _cancel(number: int, frame: FrameType | None) -> None:
    """Gives up the present item and those to come, but not in the middle of sending a result."""
    global _is_cancelled
    _is_cancelled = True
    if _is_working:
        raise CancelledError


def _call(method: Callable[[Any, Any], T], item: Any) -> T:
    global _is_working
    _is_working = True
    try:
        if _is_cancelled:
            raise CancelledError
        return method(_shared, item)
    finally:
        _is_working = False
