"""The commands of this package run from Python, as the demo runs them."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import albert_tf

_LOG_LINE = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ \w+\.\w+:\d+\] ")
_KINDS = {"I": "", "W": "warning: ", "E": "error: ", "F": "error: "}


def run(name: str, **flags: object) -> None:
    """Shows a command as it can be typed, runs it, and shows what it says while it runs.

    Off a terminal, lines of the log are shown without time and place.

    Args:
        name: a module of `albert_tf.cli`.
        **flags: see `command_arguments`.

    Raises:
        ValueError: the command failed; what it printed says why.
    """
    arguments = command_arguments(flags)
    print(f"$ python -m albert_tf.cli.{name}", *map(shlex.quote, arguments), sep=" \\\n    ")
    sys.stdout.flush()
    is_terminal = sys.stdout.isatty()  # whose progress bars can be shown
    with started(name, arguments, None if is_terminal else subprocess.PIPE) as process:
        if process.stdout is not None:
            # Lines of progress bars keep the carriage return with which they replace each other.
            for line in io.TextIOWrapper(process.stdout, errors="replace", newline=""):
                print(readable(line), end="", flush=True)
    if process.returncode:
        raise ValueError(f"the command {name} above ended with status {process.returncode}")


@contextmanager
def started(
    name: str, arguments: Sequence[str], output: IO[bytes] | int | None
) -> Iterator[subprocess.Popen[Any]]:
    """Runs a command in a process of its own, to its end.

    Stopping the caller (Ctrl-C, SIGTERM) stops the command as
    SIGTERM does: a training saves its last step first.

    What it prints and logs goes to `output`, see `subprocess.Popen`.
    """
    root = os.path.dirname(os.path.dirname(albert_tf.__file__))  # wherever the caller was started
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    with subprocess.Popen(
        [sys.executable, "-m", f"albert_tf.cli.{name}", *arguments],
        stdout=output,
        stderr=output and subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # a signal reaches it once, from here; a second one would not wait
    ) as process:
        try:
            yield process
            process.wait()
        except BaseException:
            process.terminate()
            raise


def command_arguments(flags: dict[str, object]) -> list[str]:
    """Flags as they are typed.

    True and False become --flag and --noflag, None is left out, a tuple gives the flag once for
    each of its values.
    """
    arguments = []
    for flag, given in flags.items():
        for value in given if isinstance(given, tuple) else (given,):
            if isinstance(value, bool):
                arguments.append(f"--{'' if value else 'no'}{flag}")
            elif value is not None:
                arguments.append(f"--{flag}={value}")
    return arguments


def readable(line: str) -> str:
    """A line of output for people: of a line of the log, its severity and its message."""
    logged = _LOG_LINE.match(line)
    return line if logged is None else _KINDS[logged[1]] + line[logged.end() :]
