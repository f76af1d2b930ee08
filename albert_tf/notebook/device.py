"""Where the commands that a notebook runs shall compute."""

from __future__ import annotations

import importlib.util
import os

from albert_tf.data.streams import discarded_standard_error

_TPU_FILES = ("/dev/accel0", "/dev/vfio/0")  # one of them is there on a machine with a TPU


def choose_device() -> dict[str, object]:
    """Says which devices there are, and returns the flags with which commands use the best.

    This process itself keeps to the CPU from now on: an accelerator belongs to the process that
    takes it first, and the commands need it more.

    Returns:
        Flags for `run` of the commands; none where they find the device themselves.
    """
    # Libraries write there which drivers they looked for, and did not find.
    with discarded_standard_error():
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices([], "GPU")
    if is_tpu_here():
        print("The commands compute on this machine's TPU.")
        return {"use_tpu": True, "tpu_name": "local"}
    if gpus:
        names = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
        print(f"The commands compute on {len(gpus)} GPU: {', '.join(map(str, names))}.")
    else:
        print(f"The commands compute on this machine's CPU ({os.cpu_count()} cores).")
    return {}


def is_tpu_here() -> bool:
    """Whether this machine has a TPU and the library that drives it; neither is started."""
    return importlib.util.find_spec("libtpu") is not None and any(map(os.path.exists, _TPU_FILES))
