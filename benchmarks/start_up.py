"""Measures the start of a process until a model is loaded, and until its first answer.

    python -m benchmarks.start_up --runs=7

Each measurement is a new process. Programs run alternately. The table contains the shortest wall
and CPU time of each program, and their ratios to `import tensorflow, keras`.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Sequence

from absl import app, flags

from benchmarks.timing import seconds

_RUNS = flags.DEFINE_integer("runs", 7, "Number of runs of each program.", lower_bound=1)
_MODEL = flags.DEFINE_string("model", "mini", "Path or name of a model without a classifier.")

_IMPORT = "import tensorflow, keras"
_CLASSIFIER = "from albert_tf import TextClassifier; model = TextClassifier.load({!r}, labels=[])"
_PROGRAMS = {
    _IMPORT: ["-c", _IMPORT],
    "albert_tf.load": ["-c", "import albert_tf; albert_tf.load({!r})"],
    "TextClassifier.load": ["-c", _CLASSIFIER],
    "TextClassifier.load and one text": ["-c", f"{_CLASSIFIER}; model(['A good film.'])"],
    "albert_tf inspect": ["-m", "albert_tf", "inspect", "{}"],
    "albert_tf run_classifier --help": ["-m", "albert_tf", "run_classifier", "--help"],
    "albert_tf --help": ["-m", "albert_tf", "--help"],
}


def measure(arguments: Sequence[str]) -> tuple[float, float]:
    """Runs Python with arguments. Returns the wall time and the CPU time in seconds."""
    command = [sys.executable, *(argument.format(_MODEL.value) for argument in arguments)]
    # Installed packages have compiled modules.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = seconds(
        lambda: subprocess.run(command, env=environment, capture_output=True, check=True)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(_: Sequence[str]) -> None:
    """Prints the table. The first round, which may compile modules, is not counted."""
    runs = [{n: measure(a) for n, a in _PROGRAMS.items()} for _ in range(1 + _RUNS.value)]
    times = {name: [run[name] for run in runs[1:]] for name in _PROGRAMS}
    best = {name: (min(w for w, _ in t), min(c for _, c in t)) for name, t in times.items()}
    for name, (wall, cpu) in best.items():
        ratios = f"{wall / best[_IMPORT][0]:6.2f} {cpu / best[_IMPORT][1]:6.2f}"
        print(f"{name:34} wall {wall:6.2f} s  CPU {cpu:6.2f} s  ratios {ratios}", flush=True)


if __name__ == "__main__":
    app.run(main)
