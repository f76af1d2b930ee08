"""Runs the scripts in separate processes.

They are forked from one process that has imported TensorFlow already, which saves seconds each
time; nothing else is shared.
"""

import atexit
import contextlib
import functools
import itertools
import json
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import warm_python as server_program
from tests.warm_python import serve, write_client

ROOT = Path(__file__).parents[1]

_numbers = itertools.count()
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        "triton",  # where there is one: PyTorch's, which must not come after TensorFlow
        *(
            f"albert_tf.{job}.run"
            for job in (
                "pretraining",
                "classification",
                "token_classification",
                "squad",
                "multiple_choice",
            )
        ),
    ]
)


@dataclass
class Result:
    """Result of a script.

    Attributes:
        code: exit status, or minus the number of the signal that ended it.
        output: what it printed, errors included.
    """

    code: int
    output: str


class Program:
    """A running script.

    Args:
        script: its file name in the root of the repository.
        folder: takes what it prints, as a file.
        flags: by name; a bool becomes `--name` or `--noname`, None is left out.
        environment: variables to be set, by name.
    """

    def __init__(
        self,
        script: str,
        folder: Path,
        flags: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._printed = folder / f"printed-{next(_numbers)}.txt"
        self._process = new_process(
            _run,
            script,
            command_line(flags),
            str(self._printed),
            dict(environment or {}),
            str(warm_python()),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.is_alive()

    def printed(self) -> str:
        """Returns the output up to now."""
        return self._printed.read_text() if self._printed.exists() else ""

    def kill(self) -> None:
        """Kills the process."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process."""
        os.kill(self._process.pid, number)

    def wait(self, seconds: float = 120.0) -> Result:
        """Waits for the end of the process, with a timeout."""
        self._process.join(seconds)
        if self.is_running():
            self.kill()
            raise AssertionError(f"No end after {seconds} s:\n{self._printed.read_text()}")
        return Result(self._process.exitcode, self._printed.read_text())


def run_program(script: str, folder: Path, flags: Mapping[str, Any]) -> Result:
    """Runs a script and waits for its end; see `Program`."""
    return Program(script, folder, flags).wait()


@functools.cache
def warm_python() -> Path:
    """Returns a `python` for programs that start other programs; see tests/warm_python.py."""
    folder, client = _new_client()
    server = new_process(_serve, folder)
    atexit.register(server.terminate)
    _await_server(folder, server.is_alive)
    return client


@functools.cache
def strangers_python() -> Path:
    """Returns a `python` that has imported only TensorFlow.

    Our package is on its path only where a program's folder or environment puts it there.
    """
    folder, client = _new_client()
    server = subprocess.Popen(
        [sys.executable, "-I", server_program.__file__, folder, "tensorflow"],
        stdin=subprocess.PIPE,  # ends with this process
    )
    atexit.register(server.terminate)
    _await_server(folder, lambda: server.poll() is None)
    return client


def _new_client() -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp(prefix="albert_tf-"))
    atexit.register(shutil.rmtree, folder)
    return folder, write_client(folder)


def _serve(folder: Path) -> None:
    serve(folder, multiprocessing.parent_process().sentinel)


def _await_server(folder: Path, is_alive: Callable[[], bool]) -> None:
    while not (folder / "s").exists():
        assert is_alive()
        time.sleep(0.01)


def command_line(flags: Mapping[str, Any]) -> list[str]:
    """Returns flags as command-line arguments."""
    arguments = []
    for name, value in flags.items():
        if isinstance(value, bool):
            arguments.append(f"--{'' if value else 'no'}{name}")
        elif value is not None:
            arguments.append(f"--{name}={value}")
    return arguments


def new_process(target: Callable[..., None], *arguments: Any) -> Any:
    """Forks a process from the one that has imported TensorFlow, and returns it."""
    _start_server()
    process = _processes.Process(target=target, args=arguments)
    process.start()
    return process


def _start_server() -> None:
    here = os.getcwd()
    os.chdir(ROOT)  # the server imports from there
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.chdir(here)


def start_workers(
    script: str, folder: Path, flags: Mapping[str, Any], count: int = 2
) -> list[Program]:
    """Starts a script for each worker of a cluster on this machine, the chief first."""
    cluster = {"worker": [f"localhost:{port}" for port in _free_ports(count)]}
    configs = (
        {"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(count)
    )
    return [Program(script, folder, flags, {"TF_CONFIG": json.dumps(c)}) for c in configs]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for own in sockets:
            own.bind(("localhost", 0))
        return [own.getsockname()[1] for own in sockets]


def _run(
    script: str,
    arguments: list[str],
    printed: str,
    environment: Mapping[str, str],
    executable: str,
) -> None:
    with open(printed, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(ROOT)
    os.environ.update(environment)
    sys.argv = [script, *arguments]
    sys.executable = executable  # for programs that start others
    runpy.run_path(str(ROOT / script), run_name="__main__")
