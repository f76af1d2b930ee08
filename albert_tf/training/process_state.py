"""What a job changes in its process, and puts back when it ends.

Put back are signal handlers (see `interruption`), the random states of Python and NumPy, the seed
of TensorFlow, Keras's dtype policy, and what `--tf32` and `--deterministic` set.
Logging and warnings are left alone. What TensorFlow cannot take back:

*   It finds its devices. Settings that must come before, such as numbers of threads or the growth
    of GPU memory, must come before the first job.
*   `num_logical_cpu_devices` above 1 splits the CPU for as long as the process lives, and must
    come before TensorFlow has computed anything, or be the number it was split into before.
*   Several workers (TF_CONFIG) and TPUs stay connected, and workers must be connected before
    TensorFlow has computed anything.
*   TensorFlow's global seed gets its value back, but the sequence it decides starts over.
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
_UNSEEDED = 87654321  # what TensorFlow uses where there is no seed


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Puts back on leaving what the module's docstring lists.

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
