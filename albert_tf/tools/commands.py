"""Runs the commands of this package in separate processes; reads and tabulates their results."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from albert_tf.data.files import file_exists, read_utf8, write_files
from albert_tf.training.run_records import NUMBER, STEP

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def run_command(name: str, arguments: Sequence[str], log: IO[bytes] | None = None) -> int:
    """Runs a command and returns its exit status.

    Its output is written to `log`, or shown if `log` is `None`. Signals are forwarded to the
    command, so that a training saves its last step; then `SystemExit` is raised.
    """
    received: list[int] = []

    def forward(number: int, frame: Any) -> None:
        received.append(number)
        process.send_signal(number)

    root = str(Path(__file__).parents[2])
    environment = dict(os.environ)
    paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    with subprocess.Popen(
        [sys.executable, "-m", f"albert_tf.cli.{name}", *arguments],
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,  # otherwise Ctrl-C would reach the command twice
    ) as process:
        earlier = {number: signal.signal(number, forward) for number in _SIGNALS}
        status = process.wait()
    for number, handler in earlier.items():
        signal.signal(number, handler)
    if received:
        raise SystemExit(128 + received[0])
    return status


def command_arguments(flags: Mapping[str, object]) -> list[str]:
    """Returns flags as they are typed. True and False become --flag and --noflag."""
    return [
        f"--{'' if value else 'no'}{flag}" if isinstance(value, bool) else f"--{flag}={value}"
        for flag, value in flags.items()
    ]


def read_evaluations(output_dir: str) -> dict[int, dict[str, float]]:
    """Returns the finite scores in `eval_results.txt` by step, or no scores without a file."""
    path = os.path.join(output_dir, "eval_results.txt")
    evaluations = {}
    for block in read_utf8(path).split("=" * 50) if file_exists(path) else ():
        if step := re.search(rf"^global_step = ({STEP})$", block, re.MULTILINE):
            lines = re.findall(rf"^(\w+) = ({NUMBER})$", block, re.MULTILINE)
            scores = {name: float(text) for name, text in lines if math.isfinite(float(text))}
            others = ("global_step", "best")
            evaluations[int(step[1])] = {n: v for n, v in scores.items() if n not in others}
    return evaluations


def write_table(
    path: str,
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    content: Any,
    figure: bytes = b"",
) -> str:
    """Writes `<path>.md`, `.json` and, with a figure, `.png`. Returns the table with its notes.

    The first row is the header. The first two columns are texts, the others numbers.
    """
    header, *others = rows
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *others]
    table = "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes]) + "\n"
    text = json.dumps(content, indent=2) + "\n"
    figures = {f"{path}.png": figure} if figure else {}
    write_files({f"{path}.md": table, f"{path}.json": text, **figures})
    return table
