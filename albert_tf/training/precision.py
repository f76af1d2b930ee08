"""In which precision a model computes: what `--precision` means on each kind of device.

Weights, moments, losses, softmax and layer normalisation are float32 in every precision; what half
precision speeds up, and what it rounds, are the matrix products.

On a GPU or a TPU half precision is a Keras policy: variables float32, activations half. On a CPU
element-wise bfloat16 is slow, and TensorFlow's graph rewriter puts the matrix products of a float32
graph into bfloat16 instead. Left to itself it would take softmax, layer normalisation, biases'
gradients and the sums of gradients with them. Large training steps, whose element-wise operations
are compiled, do compute as under the policy there: see `fused_kernels`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeVar

import keras
import tensorflow as tf
from absl import logging

from albert_tf.config import BFLOAT16, FLOAT16, FLOAT32

Model = TypeVar("Model", bound=keras.Model)
_POLICIES = {BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}
REWRITE = "auto_mixed_precision_onednn_bfloat16"

# The rewriter's "infer list": what it would take along beside or between matrix products. Read by
# TensorFlow whenever it optimises a graph.
TAKEN_ALONG_REMOVED = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_INFERLIST_REMOVE"
_TAKEN_ALONG = (
    *("Add", "AddN", "AddV2", "AvgPool", "AvgPool3D", "AvgPool3DGrad", "AvgPoolGrad"),
    *("BiasAdd", "BiasAddGrad", "BiasAddV1", "Elu", "EluGrad", "Erf", "Erfc", "FloorDiv"),
    *("FusedBatchNormGradV2", "FusedBatchNormGradV3", "FusedBatchNormV2", "FusedBatchNormV3"),
    *("_FusedBatchNormEx", "Inv", "LeakyRelu", "LeakyReluGrad", "Log", "Log1p", "LogSoftmax"),
    *("Mean", "Mul", "Prod", "RealDiv", "Reciprocal", "Rsqrt", "Selu", "SeluGrad", "Sigmoid"),
    *("SigmoidGrad", "Softmax", "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt"),
    *("Square", "SquaredDifference", "Sub", "Sum", "Tanh", "TanhGrad"),
)

_CPU_FLAGS = "/proc/cpuinfo"


def build_model(
    build: Callable[[], Model],
    precision: str,
    strategy: tf.distribute.Strategy,
    *,
    jit_compile: bool = False,
) -> Model:
    """Makes a model that computes in a precision; its variables are float32.

    On a CPU the precision is one of the process: that of the model made last counts for all of
    them.

    Args:
        build: makes the model, in the policy that Keras has when called.
        precision: one of `config.PRECISIONS`; float32 keeps to Keras's present policy, which is
            float32 unless the program set another, float64 for one.
        strategy: the replicas.
        jit_compile: whether XLA compiles its training.

    Raises:
        ValueError: the device has no such precision.
    """
    device = device_type(strategy)
    _check(precision, device, jit_compile)
    is_rewritten = device == "CPU" and precision == BFLOAT16
    if is_rewritten:
        os.environ[TAKEN_ALONG_REMOVED] = ",".join(_TAKEN_ALONG)
    set_rewritten(is_rewritten)
    before = keras.config.dtype_policy()
    if precision != FLOAT32 and not is_rewritten:
        keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        with strategy.scope():
            return build()
    finally:
        keras.config.set_dtype_policy(before)


def set_rewritten(is_rewritten: bool) -> None:
    """Says whether the graphs that run from now on are put into bfloat16 on a CPU."""
    if is_rewritten != bool(tf.config.optimizer.get_experimental_options().get(REWRITE)):
        tf.config.optimizer.set_experimental_options({REWRITE: is_rewritten})


def device_type(strategy: tf.distribute.Strategy) -> str:
    """Returns what computes: CPU, GPU or TPU."""
    return str(tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type)


def _check(precision: str, device: str, jit_compile: bool) -> None:
    """Raises ValueError where the device has no such precision; warns where it is slow."""
    if precision == FLOAT16 and device == "TPU":
        raise ValueError("A TPU has no float16: --precision=bfloat16 is its half precision.")
    if device != "CPU":
        return
    if precision == BFLOAT16 and jit_compile:
        raise ValueError(
            "On a CPU --precision=bfloat16 rewrites the graph, which --xla compiles before it is "
            "rewritten: use one of the two."
        )
    if precision == BFLOAT16 and _has_bfloat16_products() is False:
        logging.warning(
            "This processor has no instructions for bfloat16 (avx512_bf16 or amx_bf16): "
            "--precision=bfloat16 is emulated, and several times slower than float32."
        )
    if precision == FLOAT16:
        logging.warning("--precision=float16 is meant for GPUs: on a CPU it is very slow.")


def _has_bfloat16_products() -> bool | None:
    """Whether the processor multiplies bfloat16 by itself; None where nothing tells."""
    try:
        with open(_CPU_FLAGS) as file:
            content = file.read()
    except OSError:
        return None
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", content, re.MULTILINE)
    if not lines:
        return None
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(lines[0].split())
