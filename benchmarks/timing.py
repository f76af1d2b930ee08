"""Wall times of functions, and the memory of the process."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def peak_memory() -> float:
    """The most memory that this program has had so far, in GB; on Linux.

    `getrusage` also counts what the process was before: a copy of the one that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) * 1024 / 1e9


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one run, which returns when its result is there."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def best_seconds(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Times functions in turns; the shortest time of each, as other work only ever adds time."""
    times = [{name: seconds(run) for name, run in functions.items()} for _ in range(rounds)]
    return {name: min(taken[name] for taken in times) for name in functions}
