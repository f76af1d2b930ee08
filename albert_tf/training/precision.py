"""Precision of the matrix products: what `--precision` sets on each type of device.

Half precision is a Keras policy, `mixed_bfloat16` or `mixed_float16`, on all devices: variables are
float32, activations and the factors of matrix products are rounded. Moments, losses, softmax and
layer normalization are float32 in every precision.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import keras
import tensorflow as tf
from absl import logging

from albert_tf.config import BFLOAT16, FLOAT16
from albert_tf.data.errors import UserError

Model = TypeVar("Model", bound=keras.Model)
_POLICIES = {BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}
_CPU_FLAGS = "/proc/cpuinfo"


def build_model(
    build: Callable[[], Model], precision: str, strategy: tf.distribute.Strategy
) -> Model:
    """Builds a model that computes in one of `config.PRECISIONS`.

    "float32" leaves the current Keras policy unchanged, which is float32 unless the program has set
    another one. Raises ValueError if the devices of the strategy do not support the precision.
    """
    _check(precision, device_type(strategy))
    before = keras.config.dtype_policy()
    if precision in _POLICIES:
        keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        with strategy.scope():
            return build()
    finally:
        keras.config.set_dtype_policy(before)


def device_type(strategy: tf.distribute.Strategy) -> str:
    """Returns the type of the devices that compute: CPU, GPU or TPU."""
    return str(tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type)


def _check(precision: str, device: str) -> None:
    if precision == FLOAT16 and device == "TPU":
        raise UserError("TPUs do not support float16. Use `precision`=bfloat16.")
    if precision == BFLOAT16 and device == "CPU" and _has_bfloat16_products() is False:
        logging.warning(
            "This processor has no instructions for bfloat16 (avx512_bf16 or amx_bf16): "
            "--precision=bfloat16 is emulated, and several times slower than float32."
        )
    if precision == FLOAT16 and device == "CPU":
        logging.warning("--precision=float16 is intended for GPUs: on a CPU it is very slow.")


def _has_bfloat16_products() -> bool | None:
    """Returns whether the processor multiplies bfloat16 numbers; `None` if this is unknown."""
    try:
        with open(_CPU_FLAGS) as file:
            content = file.read()
    except OSError:
        return None
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", content, re.MULTILINE)
    if not lines:
        return None
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(lines[0].split())
