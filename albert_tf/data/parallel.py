"""Progress bars, and parallel work in processes with ordered results.

Each worker process has a thread in this process, which sends one item at a time and waits for the
result. If the worker is killed, its connection is closed, so no thread waits forever. In a
`ProcessPoolExecutor`, the thread that starts the workers would.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

# Yields the result of a method of the shared object for each item, in order.
OrderedMap = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]
_SECONDS_WITHOUT_BAR = 3
_is_hidden = ContextVar("_is_hidden", default=False)
_ITEMS_AHEAD = 2  # per process

# A process, a connection to it, and the shared object until it is sent.
_Worker = tuple[BaseProcess, Connection, list[bytes]]


def progress_bar(*args: Any, hidden: bool = False, **kwargs: Any) -> tqdm:
    """Returns a tqdm bar that is shown only on terminals and in notebooks."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    is_notebook = hasattr(shell, "kernel")
    # `tqdm.auto` would import asyncio in every process, and log a warning without ipywidgets.
    if is_notebook and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as bar
    else:
        bar = tqdm
    # With `disable=None`, tqdm shows the bar only on a terminal.
    kwargs = {"disable": False if is_notebook else None, **kwargs}
    if hidden or _is_hidden.get():
        kwargs["disable"] = True
    return bar(*args, **kwargs)


@contextmanager
def hidden_progress(is_hidden: bool) -> Iterator[None]:
    """Context manager in which progress bars are hidden or shown."""
    token = _is_hidden.set(is_hidden)
    try:
        yield
    finally:
        _is_hidden.reset(token)


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    """Yields the items. After three seconds, shows a progress bar, unless there is one item."""
    if isinstance(items, Sized) and len(items) == 1:  # a bar would add 2% to a short prediction
        return items
    return progress_bar(items, description, total, leave=False, delay=_SECONDS_WITHOUT_BAR)


def available_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_processes(number: int, shared: Any) -> Iterator[OrderedMap]:
    """Starts worker processes, each with a copy of `shared`.

    Yields a function `run(method, items)` that yields `method(shared, item)` for each item, in
    order. If `number` is 1, no process is started. Raises ChildProcessError if a process is killed
    or cannot be started.
    """
    if number == 1:
        yield lambda method, items: (method(shared, item) for item in items)
        return
    workers: list[_Worker] = []
    idle: SimpleQueue[_Worker] = SimpleQueue()
    exit_codes: list[int | None] = []

    def call(method: Callable[[Any, Any], Any], item: Any) -> Any:
        process, connection, unsent = worker = idle.get()
        try:
            if unsent:
                connection.send_bytes(unsent.pop())
            connection.send((method, item))
            result, error = connection.recv()
        except (EOFError, ConnectionError):
            process.join(5)  # seconds; its connection is already closed
            exit_codes.append(process.exitcode)
            for other, *_ in workers:  # their results may be waited for first
                other.kill()
            raise ChildProcessError(
                f"One of {number} processes was killed or crashed (exit code {exit_codes[0]}). If "
                "the memory was exhausted, use a smaller `num_workers`."
            ) from None
        finally:
            idle.put(worker)
        if error is not None:
            raise error
        return result

    def run(method: Callable[[Any, Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        started = (threads.submit(call, method, item) for item in items)
        return _results(started, ahead=number * _ITEMS_AHEAD)

    # Spawned, because forking a process with threads, such as TensorFlow's, can deadlock.
    context, content = get_context("spawn"), pickle.dumps(shared)
    threads = ThreadPoolExecutor(number)
    try:
        with _isolated_workers():
            for _ in range(number):
                connection, of_worker = context.Pipe()
                process: BaseProcess = context.Process(target=_work, args=(of_worker,), daemon=True)
                with of_worker:
                    process.start()
                workers.append((process, connection, [content]))
                idle.put(workers[-1])
        yield run
    finally:
        for process, *_ in workers:
            process.kill()
        threads.shutdown(cancel_futures=True)
        for process, connection, _ in workers:
            process.join()
            connection.close()


def _results(futures: Iterator[Future], ahead: int) -> Iterator[Any]:
    """Yields the results of futures in order, and takes futures while `ahead` are not finished."""
    waiting: deque[Future] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _isolated_workers() -> Iterator[None]:
    """Context manager. Processes started in it do not import `__main__`, and block signals."""
    ensure_running()  # a helper of `multiprocessing`, whose start unblocks SIGINT
    # `multiprocessing` imports the calling script in each process. A script without a `__main__`
    # guard would start its work again. `multiprocessing` also sends the arguments. If they do not
    # fit in a pipe, it waits forever for a process that was killed before it has read them.
    program, arguments = sys.modules["__main__"], sys.argv
    sys.modules["__main__"], sys.argv = ModuleType("__main__"), arguments[:1]
    # SIGTERM is not blocked: `multiprocessing` uses it to end processes at exit.
    blocked = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    except OSError as error:
        raise ChildProcessError(
            f"A process cannot start: {error}. Reduce `num_workers`."
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sys.modules["__main__"], sys.argv = program, arguments


def _work(connection: Connection) -> None:
    """Receives the shared object and requests, and sends results and errors."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):  # the parent has ended
        shared = pickle.loads(connection.recv_bytes())
        while True:
            request = connection.recv_bytes()
            try:
                method, item = pickle.loads(request)
                reply = pickle.dumps((method(shared, item), None))
            except Exception as error:
                error.add_note(traceback.format_exc())  # printed after the stack trace
                reply = pickle.dumps((None, error))
            connection.send_bytes(reply)


def _end_with_parent() -> None:
    """Ends this process if its parent was killed, even during a request."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
