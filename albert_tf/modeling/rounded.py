"""Predictions in bfloat16 on a CPU.

Casts of weights, and casts around each operation that computes in float32, would take more time
than the matrix products. Therefore kernels are rounded once, and everything between two products of
the encoder is compiled by XLA into one pass over memory, with float32 arithmetic inside.
"""

import contextlib
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.eager.context import function_executor_type

from albert_tf.config import BFLOAT16
from albert_tf.modeling.base import ConfiguredModel, lora_rank
from albert_tf.modeling.layers import Projection
from albert_tf.modeling.layouts import rows_of, with_axes_of
from albert_tf.modeling.ops import PLAIN, as_float32
from albert_tf.modeling.ops_fused import FusedOps, one_pass

_BFLOAT16_FLAG = re.compile(r"\b(avx512_|amx_)?bf16\b")  # on Arm without prefix
_FLOAT32_TABLES = ("token_type_embeddings", "position_embeddings")


class AnsweringOps(FusedOps):
    """See `Ops`. Everything is compiled, without gradients."""

    # Kernels [H, 3 * H] and biases [3 * H] of query, key and value, by the id of the query's layer.
    joined: Mapping[int, tuple[tf.Variable, tf.Variable]]

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """See `Ops`."""
        return one_pass(function)(*arguments)

    def project_heads(
        self,
        x: tf.Tensor,
        read: tf.Tensor,
        projections: Sequence[Projection],
        scale: float,
        heads: int,
    ) -> list[tf.Tensor]:
        """See `Ops`."""
        if read is not x:
            return super().project_heads(x, read, projections, scale, heads)
        kernel, bias = self.joined[id(projections[0])]
        product = with_axes_of(x, tf.matmul(rows_of(x), kernel))
        return list(self.apply(_joined_heads, product, bias, scale, heads))

    def masked_softmax(self, scores: tf.Tensor, attention_mask: tf.Tensor) -> tf.Tensor:
        """See `Ops`."""
        return self.apply(PLAIN.masked_softmax, scores, attention_mask)


def _joined_heads(x: tf.Tensor, bias: tf.Tensor, scale: float, heads: int) -> list[tf.Tensor]:
    """Splits x + bias, [B, S, 3 * N * D], into query, key and value, [B, N, S, D] each."""
    batch, length = tf.unstack(tf.shape(x)[:2])
    split = tf.reshape(as_float32(x) + bias, [batch, length, 3, heads, x.shape[-1] // 3 // heads])
    query, key, value = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
    return [tf.cast(values, x.dtype) for values in (query * scale, key, value)]


class RoundedModel:
    """A `mixed_bfloat16` model, or a function `compute` of it, with kernels that are rounded once.

    The model is traced once, and compiled once per shape. To limit the number of shapes, sequences
    are padded to 16, 32, 48, 64, 96, 128, 192, ..., `longest` tokens, and batches to powers of two.
    Several threads may call it.
    """

    def __init__(self, model: ConfiguredModel, longest: int, compute: Any = None) -> None:
        self._compute = compute or model
        self._longest = longest
        # Rounded values, and the variables whose concatenation they round.
        self._rounded: list[tuple[tf.Variable, list[keras.Variable]]] = []
        self._scope = keras.StatelessScope()
        encoder: Any = getattr(model, "encoder", model)
        joined = {}
        for attention in dict.fromkeys(block.attention for block in encoder.blocks):
            parts = attention.query, attention.key, attention.value
            kernel = self._add([part.kernel for part in parts])
            joined[id(parts[0])] = kernel, self._add([part.bias for part in parts], tf.float32)
        self._ops = AnsweringOps()
        self._ops.joined = joined
        for v in model.variables:
            if len(v.shape) == 2 and v.name not in _FLOAT32_TABLES:
                self._scope.add_update((v, self._add([v])))
        variables = [variable for _, sources in self._rounded for variable in sources]
        # Returns the values without copying them.
        read = tf.function(lambda: [tf.convert_to_tensor(v) for v in variables])
        self._read = read.get_concrete_function()
        self._seen: tuple[list[int], list[tf.Tensor]] = [], []
        self._run: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def _add(self, sources: list[keras.Variable], dtype: tf.DType = tf.bfloat16) -> tf.Variable:
        shape = [*sources[0].shape[:-1], sum(source.shape[-1] for source in sources)]
        self._rounded.append((tf.Variable(tf.zeros(shape, dtype), trainable=False), sources))
        return self._rounded[-1][0]

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
        """Returns the outputs, also of padding, for int32 arrays by name, [B, S] or [B, P]."""
        ids = inputs["input_ids"]
        inputs = {"input_mask": np.ones_like(ids), **inputs}
        rows, length = _power_of_two(len(ids)), max(16, _power_of_two(ids.shape[1]))
        if length > 32 and ids.shape[1] <= length * 3 // 4:
            length = length * 3 // 4
        lengths, values = {"masked_lm_positions": 0}, {}
        for name, array in inputs.items():
            columns = max(array.shape[1], lengths.get(name, min(length, self._longest)))
            padded = np.zeros([rows, columns], np.int32)
            padded[: len(array), : array.shape[1]] = array
            values[name] = tf.constant(padded)
        with self._lock:
            self._refresh()
            if self._run is None:  # the concrete function takes less time than the `tf.function`
                specs = dict.fromkeys(values, tf.TensorSpec([None, None], tf.int32))
                run = tf.function(self._outputs, [specs], autograph=False)
                self._run = run.get_concrete_function()
        # Most operations take less time than starting them in another thread.
        with function_executor_type("SINGLE_THREADED_EXECUTOR"):
            return dict(self._run(values))

    def _outputs(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with self._scope:
            return dict(self._compute(inputs, ops=self._ops))

    def _refresh(self) -> None:
        """Rounds the weights, if they changed since the last call."""
        values = self._read()
        # While `_seen` refers to old values, TensorFlow stores new values at other addresses.
        addresses = [np.asarray(memoryview(value)).ctypes.data for value in values]
        if addresses != self._seen[0]:
            for rounded, sources in self._rounded:
                rounded.assign(tf.cast(tf.concat(sources, axis=-1), rounded.dtype))
            self._seen = addresses, values


def rounded_model(model: Any, longest: int, compute: Any = None) -> RoundedModel | None:
    """Returns a `RoundedModel` if the model computes in bfloat16 on a CPU, otherwise `None`."""
    if not isinstance(model, ConfiguredModel) or model.compute_dtype != BFLOAT16:
        return None
    is_supported = sys.platform == "linux" and _is_cpu_only() and not lora_rank(model)
    return RoundedModel(model, longest, compute) if is_supported else None


def warn_of_slow_bfloat16() -> None:
    """Warns if there is neither an accelerator nor a CPU with instructions for bfloat16."""
    if _is_cpu_only() and not _BFLOAT16_FLAG.search(_processor_flags()):
        logging.warning(
            "No instructions for bfloat16 (avx512_bf16 or amx_bf16) were found in this processor. "
            "Without them, `precision`=bfloat16 is several times slower than float32."
        )


def _processor_flags() -> str:
    """Returns what Linux tells about the processors; empty on other systems."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        return file.read()
    return ""


def _is_cpu_only() -> bool:
    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def _power_of_two(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()
