"""The state of the process that a job changes: random states and settings of TensorFlow."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import (
    config as framework_config,  # no public API disables determinism
)

from albert_tf.data.log_file import collected_log

_UNSEEDED = 87654321  # TensorFlow's seed if none is set
_is_running = threading.Lock()


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Context manager for a job. Restores random states and the settings of `strategy_of`.

    TensorFlow cannot undo the initialization and splitting of devices, or the connections of
    workers and TPUs. The random sequence of TensorFlow's global seed restarts. Raises RuntimeError
    if another job is running.
    """
    if not _is_running.acquire(blocking=False):
        raise RuntimeError(
            "Another job is running in this process. Jobs share random states and devices: run one "
            "after the other, or each in a separate process."
        )
    python, numpy = random.getstate(), np.random.get_state()
    seed, _ = tf.compat.v1.get_seed(0)
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    is_deterministic = framework_config.is_op_determinism_enabled()
    try:
        with collected_log():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        tf.random.set_seed(None if seed == _UNSEEDED else seed)
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
        if not is_deterministic:
            framework_config.disable_op_determinism()
        _is_running.release()
