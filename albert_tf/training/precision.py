"""Precision of the matrix products.

Half precision is a Keras policy, `mixed_bfloat16` or `mixed_float16`: variables are float32, and
activations and the factors of matrix products are rounded. Moments, losses, softmax and layer
normalization are float32 in every precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import keras
import tensorflow as tf
from absl import logging

from albert_tf.config import BFLOAT16, FLOAT16
from albert_tf.data.errors import UserError

Model = TypeVar("Model", bound=keras.Model)
_POLICIES = {BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}


def build_model(
    build: Callable[[], Model], precision: str, strategy: tf.distribute.Strategy
) -> Model:
    """Builds a model in one of `config.PRECISIONS`; "float32" keeps the current Keras policy.

    Raises ValueError if the devices of the strategy do not support the precision.
    """
    device = device_type(strategy)
    if precision == FLOAT16 and device == "TPU":
        raise UserError("TPUs do not support float16. Use `precision`=bfloat16.")
    if precision == BFLOAT16 and device == "CPU":
        logging.warning(
            "`precision`=bfloat16 is several times slower than float32 on CPUs without "
            "instructions for bfloat16 (avx512_bf16 or amx_bf16)"
        )
    if precision == FLOAT16 and device == "CPU":
        logging.warning("`precision`=float16 is intended for GPUs, and very slow on CPUs")
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
