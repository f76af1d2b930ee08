import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from itertools import product
from multiprocessing import active_children
from pathlib import Path

import pytest

from albert_tf.data.parallel import worker_processes
from tests.programs import TIMEOUT
from tests.usual import usual


@pytest.mark.parametrize("number", [1, 2])
def test_results_are_ordered(number):
    with worker_processes(number, 100) as run:
        assert list(run(int.__add__, range(23))) == list(range(100, 123))
        assert list(run(int.__mul__, [7])) == [700]


def test_errors_of_processes_are_raised():
    with worker_processes(2, 10) as run:
        results = run(int.__floordiv__, [5, 2, 0, 1])
        assert next(results) == 2
        with pytest.raises(ZeroDivisionError):
            list(results)


def end(shared: bytes, item: tuple[int, str]) -> str:
    """Ends this process at the item whose number is the length of `shared`."""
    number, way = item
    if number == len(shared):
        os._exit(3) if way == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    return way


@pytest.mark.parametrize("case", usual(product(("exit", "kill"), (0, 7)), ("exit", 7), ("kill", 0)))
def test_a_process_that_ends_is_an_error(case):
    way, number = case
    advice = {"exit": "exit code 3", "kill": "`num_workers`"}[way]
    items = [(k, way) for k in range(9)]
    with (
        pytest.raises(ChildProcessError, match=advice),
        worker_processes(2, bytes(number)) as run,
    ):
        list(run(end, items))
    assert not active_children()


@pytest.mark.parametrize("delay", [0, 0.1])
def test_a_process_that_is_killed_while_it_starts_is_an_error(delay):
    """A pipe does not hold the shared object and the items."""
    with worker_processes(3, bytes(1 << 20)) as run:
        time.sleep(delay)
        active_children()[0].kill()
        with pytest.raises(ChildProcessError):
            list(run(bytes.count, [bytes(1 << 20)] * 9))
    assert not active_children()


def sleep(shared: bytes, seconds: int) -> None:
    time.sleep(seconds)


def test_a_killed_process_does_not_wait_for_stopped_processes():
    with worker_processes(2, bytes(1 << 20)) as run:
        stopped, killed = active_children()
        os.kill(stopped.pid, signal.SIGSTOP)
        threading.Timer(0.1, killed.kill).start()
        with pytest.raises(ChildProcessError):
            list(run(sleep, [3600] * 9))  # the killed process works until then
    assert not active_children()


def test_processes_that_cannot_be_started_are_an_error():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    try:
        with (
            pytest.raises(ChildProcessError, match=r"Too many open files.*`num_workers`"),
            worker_processes(40, 1),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not active_children()
    assert len(os.listdir("/dev/fd")) <= used + 1  # the resource tracker


def divide(shared: int, item: int) -> float:
    return shared / item  # the failing line


def test_unexpected_errors_contain_the_stack_trace_of_the_process():
    with worker_processes(2, 1) as run, pytest.raises(ZeroDivisionError) as raised:
        list(run(divide, [3, 0]))
    lines = "".join(traceback.format_exception(raised.value))
    assert lines.count("the failing line") == 1


@pytest.mark.parametrize("script", ["create_pretraining_data.py", "run_squad.py"])
def test_processes_of_a_script_start_without_tensorflow(script):
    """Worker processes import the script under this name."""
    program = (
        "import runpy, sys, albert_tf.squad.features\n"
        f"runpy.run_path({script!r}, run_name='__mp_main__')\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0


def test_progress_is_shown_in_notebooks():
    code = "from albert_tf.data.parallel import progress_bar as bar; [*bar(range(3), desc='steps')]"
    missing = "import sys; sys.modules['ipywidgets'] = None; "
    widgets, texts = [], []
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=TIMEOUT)
    try:
        for program, messages in ((code, widgets), (missing + code, texts)):
            client.execute_interactive(program, output_hook=messages.append, timeout=TIMEOUT)
    finally:
        manager.shutdown_kernel(now=True)
    kinds = [message["header"]["msg_type"] for message in widgets]
    assert (kinds.count("display_data"), kinds.count("stream")) == (1, 0)
    assert "3/3" in "".join(message["content"].get("text", "") for message in texts)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == ""
