"""Restores the global state of the process that a job changes.

`process_state_kept` restores the random states of Python and NumPy, TensorFlow's seed, and the
settings `tf32` and `deterministic`. `interruption` restores signal handlers, `precision` restores
Keras's dtype policy. TensorFlow cannot undo the following:

*   Devices are initialized. Configure threads and GPU memory growth before the first job.
*   `num_logical_cpu_devices` above 1 splits the CPU until the process ends. It must be set before
    TensorFlow computes anything, and cannot change afterwards.
*   Workers (TF_CONFIG) and TPUs stay connected. Workers must connect before TensorFlow computes
    anything.
*   TensorFlow's global seed is restored, but its random sequence starts over.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config as framework_config  # nothing public turns it off

_is_running = threading.Lock()
_UNSEEDED = 87654321  # TensorFlow's value if no seed is set


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Restores the state that the module docstring lists when the context ends.

    Raises:
        RuntimeError: another job is running in this process.
    """
    with _alone():
        python, numpy = random.getstate(), np.random.get_state()
        seed, _ = tf.compat.v1.get_seed(0)
        tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        is_deterministic = framework_config.is_op_determinism_enabled()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            tf.random.set_seed(None if seed == _UNSEEDED else seed)
            tf.config.experimental.enable_tensor_float_32_execution(tf32)
            if not is_deterministic:
                framework_config.disable_op_determinism()


@contextmanager
def _alone() -> Iterator[None]:
    if not _is_running.acquire(blocking=False):
        raise RuntimeError(
            "Another job is running in this process. Jobs share random states and devices: run one "
            "after the other, or each in a process of its own."
        )
    try:
        yield
    finally:
        _is_running.release()
