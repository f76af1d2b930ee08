import os
import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from albert_tf.data.jobs import worker_processes


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


def die(shared: int, item: int) -> None:
    os._exit(shared + item)


def test_a_killed_process_is_an_error():
    with pytest.raises(OSError, match="`num_workers`"), worker_processes(2, 1) as run:
        list(run(die, range(9)))


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
    code = "from albert_tf.data.jobs import progress_bar; [*progress_bar(range(3), desc='steps')]"
    manager, client = start_new_kernel()
    try:
        messages = []
        client.execute_interactive(code, output_hook=messages.append, timeout=60)
    finally:
        manager.shutdown_kernel(now=True)
    assert "3/3" in "".join(message["content"].get("text", "") for message in messages)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == ""
