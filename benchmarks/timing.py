"""Wall times of functions, and the memory of the process."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def peak_memory() -> float:
    """Returns the peak memory of this process in GB. Only Linux is supported.

    `getrusage` would include the memory of the parent process before `exec`.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) * 1024 / 1e9


def seconds(run: Callable[[], object]) -> float:
    """Returns the wall time of one call in seconds. The function must wait for its result."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def best_seconds(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Calls functions alternately. Returns the shortest time of each in seconds."""
    times = [{name: seconds(run) for name, run in functions.items()} for _ in range(rounds)]
    return {name: min(taken[name] for taken in times) for name in functions}
