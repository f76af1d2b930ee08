"""How much memory there is on what computes."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_ASK_GPUS = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


def machine_memory() -> int | None:
    """Bytes of main memory this process may use; None where the system does not tell."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    return min([total, *_container_limits()])


def _container_limits() -> list[int]:
    limits = []
    for path in _CONTAINER_LIMITS:
        with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            limits.append(int(file.read()))  # "max" where there is none
    return limits


def gpu_memory() -> int | None:
    """Bytes of the smallest GPU of this machine; None where its driver does not tell."""
    try:
        answer = subprocess.run(
            _ASK_GPUS, capture_output=True, text=True, check=True, timeout=30
        ).stdout
        return min(int(line) << 20 for line in answer.splitlines())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
