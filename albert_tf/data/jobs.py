"""Progress bars, and parallel work in processes with ordered results.

Each worker process has a thread in this process, which sends one item at a time and waits for the
result. If the worker is killed, its connection is closed, so the thread never waits forever. A
`ProcessPoolExecutor` can wait forever, for example if a worker is killed while it starts.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

# Yields the result of a method of the shared object for each item, in order.
OrderedMap = Callable[[Callable[[Any, Any], Any], Iterable[Any]], Iterator[Any]]
_SECONDS_WITHOUT_BAR = 3
_ITEMS_AHEAD = 2  # per process
_SECONDS_TO_END = 5.0  # of a process that has closed its connection


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
    order. If `number` is 1, no process is started. Raises ChildProcessError if a process is killed
    or cannot be started.
    """
    if number == 1:
        yield lambda method, items: (method(shared, item) for item in items)
        return
    workers: list[_Worker] = []
    idle: SimpleQueue[_Worker] = SimpleQueue()
    deaths: list[str] = []

    def call(method: Callable[[Any, Any], Any], item: Any) -> Any:
        request = pickle.dumps((method, item))
        worker = idle.get()
        try:
            reply = worker.exchange(request)
        except (EOFError, OSError):
            deaths.append(worker.cause_of_death())
            for other in workers:  # an earlier item would be waited for first
                other.process.kill()
            raise ChildProcessError(f"One of {number} processes {deaths[0]}") from None
        finally:
            idle.put(worker)
        result, error = pickle.loads(reply)
        if error is not None:
            raise error
        return result

    content = pickle.dumps(shared)
    threads = ThreadPoolExecutor(number)
    try:
        with _isolated_workers():
            for _ in range(number):
                workers.append(_Worker(content))
                idle.put(workers[-1])
        yield lambda method, items: _run_ahead(threads, call, method, items, number * _ITEMS_AHEAD)
    finally:
        for worker in workers:
            worker.process.kill()
        threads.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()


def _run_ahead(
    threads: ThreadPoolExecutor,
    call: Callable[[Callable[[Any, Any], Any], Any], Any],
    method: Callable[[Any, Any], Any],
    items: Iterable[Any],
    limit: int,
) -> Iterator[Any]:
    waiting: deque[Future] = deque()
    for item in items:
        waiting.append(threads.submit(call, method, item))
        if len(waiting) >= limit:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Worker:
    """A process that calls methods of a shared object, which is given as pickled bytes."""

    def __init__(self, shared: bytes) -> None:
        # Spawned, because forking a process with threads, such as TensorFlow's, can deadlock.
        context = get_context("spawn")
        self._connection, of_worker = context.Pipe()
        # The arguments must fit in a pipe: `start` waits forever if the process is killed before it
        # has read them.
        self.process = context.Process(target=_work, args=(of_worker,), daemon=True)
        self._unsent = [shared]
        with of_worker:
            self.process.start()

    def exchange(self, request: bytes) -> bytes:
        """Returns the reply to a request. Raises EOFError or OSError if the process has ended."""
        for message in (*self._unsent, request):
            self._connection.send_bytes(message)
        self._unsent.clear()
        return self._connection.recv_bytes()

    def cause_of_death(self) -> str:
        """Returns how the process has ended, and advice."""
        self.process.join(_SECONDS_TO_END)
        code = self.process.exitcode
        if code == -signal.SIGKILL:
            return (
                "was killed, probably because the memory was exhausted. Free memory, or use a "
                "smaller `num_workers`."
            )
        return f"ended unexpectedly with exit code {code}."

    def close(self) -> None:
        """Waits until the killed process has ended."""
        self._connection.close()
        self.process.join()
        self.process.close()


@contextmanager
def _isolated_workers() -> Iterator[None]:
    """Context manager. Processes started in it do not import `__main__`, and block signals."""
    # `multiprocessing` imports the calling script in each process. A script without a `__main__`
    # guard would start its work again. It also sends the arguments, which may not fit in a pipe.
    program, arguments = sys.modules["__main__"], sys.argv
    sys.modules["__main__"], sys.argv = ModuleType("__main__"), arguments[:1]
    # SIGTERM is not blocked: `multiprocessing` uses it to end processes at exit.
    blocked = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    except OSError as error:
        raise ChildProcessError(
            f"A process cannot be started: {error}. Use a smaller `num_workers`."
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sys.modules["__main__"], sys.argv = program, arguments


def _work(connection: Connection) -> None:
    """Replies to requests until the connection is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):  # raised if the parent has ended
        shared = pickle.loads(connection.recv_bytes())
        while True:
            connection.send_bytes(_reply(shared, connection.recv_bytes()))


def _reply(shared: Any, request: bytes) -> bytes:
    """Returns the pickled result of a request, and its error."""
    try:
        method, item = pickle.loads(request)
        return pickle.dumps((method(shared, item), None))
    except Exception as error:
        error.__notes__ = [traceback.format_exc()]  # printed below the parent's stack trace
        return pickle.dumps((None, error))


def _end_with_parent() -> None:
    """Ends this process if its parent was killed, even during a long request."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
