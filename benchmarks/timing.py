"""Wall times of functions."""

import time
from collections.abc import Callable, Mapping


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one run, which returns when its result is there."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def best_seconds(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Times functions in turns; the shortest time of each, as other work only ever adds time."""
    times = [{name: seconds(run) for name, run in functions.items()} for _ in range(rounds)]
    return {name: min(taken[name] for taken in times) for name in functions}
