"""The commands of this package run from Python, as the demo and the notebooks run them."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys

_LOG_LINE = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ \w+\.\w+:\d+\] ")
_KINDS = {"I": "", "W": "warning: ", "E": "error: ", "F": "error: "}


def run(name: str, **flags: object) -> None:
    """Shows a command as it can be typed, runs it, and shows what it says while it runs.

    Off a terminal, as in a notebook, lines of the log are shown without time and place.

    Stopping the caller (Ctrl-C, the stop button of a notebook) stops the command as SIGTERM does: a
    training saves its last step first.

    Args:
        name: a module of `albert_tf.cli`.
        **flags: by name. True and False become --flag and --noflag, None is left out, a tuple gives
            the flag once for each of its values.

    Raises:
        ValueError: the command failed; what it printed says why.
    """
    arguments = command_arguments(flags)
    module = f"albert_tf.cli.{name}"
    print(f"$ python -m {module}", *map(shlex.quote, arguments), sep=" \\\n    ", flush=True)
    status = _status([sys.executable, "-m", module, *arguments])
    if status:
        raise ValueError(f"the command {name} above ended with status {status}")


def command_arguments(flags: dict[str, object]) -> list[str]:
    """Flags as they are typed; see `run`."""
    arguments = []
    for flag, given in flags.items():
        for value in given if isinstance(given, tuple) else (given,):
            if isinstance(value, bool):
                arguments.append(f"--{'' if value else 'no'}{flag}")
            elif value is not None:
                arguments.append(f"--{flag}={value}")
    return arguments


def _status(command: list[str]) -> int:
    """Runs a command to its end."""
    if sys.stdout.isatty():  # whose progress bars can be shown
        return subprocess.run(command, check=False).returncode
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # a signal reaches it once, from here; a second one would not wait
    ) as process:
        assert process.stdout is not None
        try:
            # Lines of progress bars keep the carriage return with which they replace each other.
            for line in io.TextIOWrapper(process.stdout, errors="replace", newline=""):
                print(readable(line), end="", flush=True)
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def readable(line: str) -> str:
    """A line of output for people: of a line of the log, its severity and its message."""
    logged = _LOG_LINE.match(line)
    return line if logged is None else _KINDS[logged[1]] + line[logged.end() :]
