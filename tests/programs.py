"""Runs the scripts in separate processes, which share only imported modules."""

import contextlib
import functools
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import warm_python as warm

ROOT = Path(__file__).parents[1]
TIMEOUT = 900.0  # seconds until a test that hangs fails; busy machines are slow
_JOBS = ("pretraining", "classification", "token_classification", "squad", "multiple_choice")

_FOLDER = "ALBERT_TF_TEST_PROGRAMS"  # environment variable of a test run

_numbers = itertools.count()


@dataclass
class Result:
    """Exit status of a script, or minus the number of a signal; standard output and error."""

    code: int
    output: str


class Program:
    """A running script of the repository, whose output is written to a file in `folder`.

    A flag that is a bool becomes `--name` or `--noname`, and `None` is omitted.
    """

    def __init__(
        self,
        script: str,
        folder: Path,
        flags: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._printed = folder / f"printed-{next(_numbers)}.txt"
        with open(self._printed, "wb") as file, open(os.devnull, "rb") as empty:
            self._connection, self.pid = warm.run(
                _server("warm"),
                [script, *command_line(flags)],
                str(ROOT),
                {**os.environ, **(environment or {})},
                [empty.fileno(), file.fileno(), file.fileno()],
            )

    def is_running(self) -> bool:
        return not select.select([self._connection], [], [], 0)[0]

    def printed(self) -> str:
        """Returns the output up to now, without line breaks in long lines."""
        return unwrapped(self._printed.read_text())

    def kill(self) -> None:
        """Kills the process."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process."""
        os.kill(self.pid, number)

    def wait(self) -> Result:
        """Waits for the end of the process, with a timeout."""
        self._connection.settimeout(TIMEOUT)
        try:
            return Result(warm.status_of(self._connection), self.printed())
        except TimeoutError:
            self.kill()
            raise AssertionError(f"No end after {TIMEOUT} s:\n{self.printed()}") from None


def unwrapped(output: str) -> str:
    """Removes the line breaks that commands insert into long lines of their log."""
    return re.sub(r"\n {4}(?=\S)", " ", output)


def run_program(script: str, folder: Path, flags: Mapping[str, Any]) -> Result:
    """Runs a script and waits for its end; see `Program`."""
    return Program(script, folder, flags).wait()


class CommandRun:
    """A folder with the input of a command, and its output directory, which is `output` in it."""

    script: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns the flags of the command."""
        raise NotImplementedError

    def start(self, **changes: Any) -> Program:
        return Program(self.script, self.folder, self.flags(**changes))

    def __call__(self, **changes: Any) -> Result:
        return self.start(**changes).wait()

    def must_work(self, **changes: Any) -> str:
        """Runs the command, which must succeed, and returns its output."""
        result = self(**changes)
        assert result.code == 0, result.output
        return result.output

    def must_fail(self, **changes: Any) -> str:
        """Runs the command, which must fail with an error message, and returns the message."""
        result = self(**changes)
        assert result.code == 1, result.output
        assert "Traceback" not in result.output, result.output
        return result.output

    def log(self) -> str:
        """Returns the content of log.txt."""
        return (self.output / "log.txt").read_text()

    def metrics(self, phase: str = "train") -> dict[int, dict[str, float]]:
        """Returns the records of metrics.jsonl by step. Each step must appear once."""
        lines = (self.output / "metrics.jsonl").read_text().splitlines()
        records = [record for record in map(json.loads, lines) if record["phase"] == phase]
        steps = [record["step"] for record in records]
        assert len(steps) == len(set(steps))
        return dict(zip(steps, records, strict=True))


def warm_python() -> Path:
    """Returns a `python` that has imported this package and TensorFlow."""
    return _server("warm") / "bin" / "python"


def isolated_python() -> Path:
    """Returns a `python` that has imported only TensorFlow.

    This package is on its path only if a program's directory or environment puts it there.
    """
    return _server("isolated") / "bin" / "python"


@functools.cache
def _server(name: str) -> Path:
    """Returns the folder of a server of programs, when it runs."""
    folder = _servers() / name
    deadline = time.monotonic() + TIMEOUT
    while not (folder / "socket").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return folder


@functools.cache
def _servers() -> Path:
    """Starts the servers once for all processes of a test run. Returns their folder."""
    if folder := os.environ.get(_FOLDER):
        return Path(folder)
    folder = os.environ[_FOLDER] = tempfile.mkdtemp(prefix="albert_tf-")
    modules = [f"albert_tf.{job}.run" for job in _JOBS]
    modules += ["sklearn.metrics", "tensorboard.plugins.scalar.summary_v2"]
    command = [sys.executable, warm.__file__, folder, os.getpid(), ROOT, *modules]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, cwd=ROOT, env=environment)
    return Path(folder)


def command_line(flags: Mapping[str, Any]) -> list[str]:
    """Returns flags as command-line arguments."""
    arguments = []
    for name, value in flags.items():
        if isinstance(value, bool):
            arguments.append(f"--{'' if value else 'no'}{name}")
        elif value is not None:
            arguments.append(f"--{name}={value}")
    return arguments


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
