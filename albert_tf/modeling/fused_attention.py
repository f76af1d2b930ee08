"""Attention of compiled training steps: cuDNN's flash attention, and an efficient form for XLA.

Scores and probabilities, [B, N, S, S], are most of the data that a layer writes and reads. cuDNN's
kernels keep them on the chip; the backward kernel recomputes them from one number per query, the
logarithm of its sum of exponentials. XLA forwards custom calls with the kernels' names to cuDNN.

The kernels take lengths, so a mask must be ones followed by zeros, as in all training features. For
any other mask the context is NaN, so the step fails visibly.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.python.framework.config import is_op_determinism_enabled

from albert_tf.config import FLOAT32, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.modeling.layouts import on_tpu
from albert_tf.modeling.ops import MASKED_SCORE, byte_threshold, random_bytes

_MIN_CAPABILITY = (8, 0)
_MAX_HEAD_SIZE = 128  # limit of cuDNN's backward kernel before Hopper; applied to all GPUs
# Largest allowed difference between a kernel and plain attention in float32, relative to the norm.
# Rounding to bfloat16 reaches a quarter of it. A wrong mask or scale causes ten times the limit.
TOLERANCE = 0.01

# Maps (query, key, value, lengths of the keys) to (context, statistics). Query, key, value and
# context are float [B, N, S, D], lengths int32 [B] in 1..S, and statistics float32 [B, N, S].
Forward = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
# Maps (query, key, value, lengths, context, statistics, gradient of the context) to the gradients
# of query, key and value.
Backward = Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]


class FusedAttention:
    """Attention by a pair of kernels. If `is_required`, shapes unknown in tracing are an error."""

    def __init__(self, forward: Forward, backward: Backward, *, is_required: bool = False) -> None:
        self._forward = forward
        self._backward = backward
        self._is_required = is_required
        self._logged = ""

    def takes(self, query: tf.Tensor, key: tf.Tensor) -> bool:
        """Returns whether the shapes are known during tracing, and equal; logs the former."""
        is_known = query.shape.is_fully_defined()
        if not is_known and self._is_required:
            raise UserError(
                "`attention`=cudnn requires that all batches have the same padded length. In "
                f"fine-tuning, use `padding`=max. Received: queries of shape {query.shape}"
            )
        name = "cudnn" if is_known else "plain, as batches have several padded lengths"
        if name != self._logged:
            logging.debug("attention=%s", name)
        self._logged = name
        return is_known and query.shape == key.shape  # else only some positions are read

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        attention_mask: tf.Tensor,
        dropout_rate: float = 0.0,
        dropout_seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns softmax(query key^T) value, float [B, N, S, D], over the real tokens.

        Args:
            query: bfloat16 or float16 [B, N, S, D], scaled.
            key: as `query`, not scaled.
            value: as `key`.
            attention_mask: [B, S] of any number type; 1 = a key to attend to, 0 = padding. A row of
                zeros has the same effect as a row of ones. Other rows must be ones followed by
                zeros; otherwise, the result for the sequence is NaN.
            dropout_rate: must be 0.
            dropout_seed: ignored.
        """
        assert dropout_rate == 0.0, dropout_rate
        lengths, is_valid = key_lengths(attention_mask)

        @tf.custom_gradient
        def attend(*tensors: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
            arguments = [tf.identity(tensor) for tensor in (*tensors, lengths)]
            context, statistics = self._forward(*arguments)
            return context, lambda upstream: self._backward(
                *arguments, context, statistics, upstream
            )

        poison = tf.where(is_valid, 0.0, float("nan"))[:, None, None, None]
        return attend(query, key, value) + tf.cast(poison, query.dtype)


class CompiledAttention:
    """Attention for XLA in half precision.

    XLA keeps the exponentials of a softmax in float32, and reads and writes them several times.
    Here they are rounded once. The context is divided by the sums of the exponentials, so that the
    probabilities are not computed. TPUs compute the sums together with the exponentials. On GPUs
    without dropout, the product with the values also yields the sums, through a column of ones.

    Dropout is only efficient on TPUs. The exponentials of dropped probabilities are stored as
    negative numbers, so that the mask needs no memory.
    """

    def takes(self, query: tf.Tensor, key: tf.Tensor) -> bool:
        """Returns True: all shapes are supported."""
        return True

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        attention_mask: tf.Tensor,
        dropout_rate: float = 0.0,
        dropout_seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the context for any mask; for the other arguments see `FusedAttention`.

        Dropout is applied if `dropout_rate` is positive and `dropout_seed`, int32 [2], is not
        `None`. The exact rate is `byte_threshold(dropout_rate)[0] / 256`.
        """
        lowered = MASKED_SCORE * (1.0 - tf.cast(attention_mask, tf.float32))[:, None, None, :]
        drops = dropout_seed is not None and dropout_rate > 0.0
        threshold, scale = byte_threshold(dropout_rate) if drops else (0, 1.0)

        @tf.custom_gradient
        def attend(*tensors: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
            query, key, value = map(tf.identity, tensors)
            scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32) + lowered
            exponentials = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
            total = tf.reduce_sum(exponentials, axis=-1, keepdims=True)
            if drops:
                # On TPUs, XLA stores the scores in this order of axes.
                shape = tf.gather(tf.shape(scores), [0, 1, 3, 2])
                is_kept = random_bytes(shape, dropout_seed) >= threshold
                is_kept = tf.transpose(is_kept, [0, 1, 3, 2])
                exponentials = tf.where(is_kept, exponentials, -exponentials)
            # Without the barrier, XLA would also store the float32 exponentials.
            (signed,) = xla.optimization_barrier(tf.cast(exponentials, query.dtype))
            kept = tf.nn.relu(signed) if drops else signed
            if drops or on_tpu():
                sums = _product(kept, value)
            else:
                sums = _product(kept, tf.concat([value, tf.ones_like(value[..., :1])], axis=-1))
                sums, total = sums[..., :-1], sums[..., -1:]
            context = sums * scale / total

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                scaled = tf.cast(upstream, tf.float32) / total
                mean = tf.reduce_sum(scaled * context, axis=-1, keepdims=True)
                scaled = tf.cast(scaled * scale, query.dtype)
                to_kept = tf.cast(tf.matmul(scaled, value, transpose_b=True), tf.float32)
                wide = tf.cast(signed, tf.float32)
                # A dropped exponential e is stored as -e. The gradient of its score is -e * mean.
                factor = tf.where(wide > 0.0, to_kept - mean, mean) if drops else to_kept - mean
                (to_scores,) = xla.optimization_barrier(tf.cast(wide * factor, query.dtype))
                return (
                    tf.matmul(to_scores, key),
                    tf.matmul(to_scores, query, transpose_a=True),
                    tf.matmul(kept, scaled, transpose_a=True),
                )

            return tf.cast(context, query.dtype), gradient

        return attend(query, key, value)


def _product(probabilities: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Maps [B, N, S, T] and [B, N, T, D] in half precision to float32 [B, N, S, D]."""
    axes = xla_data_pb2.DotDimensionNumbers(
        lhs_contracting_dimensions=[3],
        rhs_contracting_dimensions=[2],
        lhs_batch_dimensions=[0, 1],
        rhs_batch_dimensions=[0, 1],
    )
    return xla.dot_general(probabilities, value, axes, preferred_element_type=tf.float32)


def key_lengths(attention_mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the length of each sequence, int32 [B], and whether its mask is valid, bool [B].

    The mask is [B, S] of any number type. It is valid if it is ones followed by zeros. A row of
    zeros has length S: as in the original, all its scores are lowered equally.
    """
    mask, length = tf.cast(attention_mask, tf.float32), tf.shape(attention_mask)[1]
    count = tf.reduce_sum(tf.cast(tf.equal(mask, 1.0), tf.int32), axis=1)
    is_valid = tf.reduce_all(tf.equal(mask, tf.sequence_mask(count, length, tf.float32)), axis=1)
    return tf.where(count > 0, count, length), is_valid


def cudnn_forward(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, lengths: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Calls cuDNN's kernel as a `Forward`."""
    context, statistics, _ = _call(
        "__cudnn$fmhaSoftmax",
        [query, key, value, *_both_lengths(query, lengths)],
        [tf.TensorSpec(query.shape, query.dtype), tf.TensorSpec(query.shape[:3])],
        {"bmm1": (3, 3), "bmm2": (3, 2)},
    )
    return context, statistics


def cudnn_backward(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    lengths: tf.Tensor,
    context: tf.Tensor,
    statistics: tf.Tensor,
    upstream: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Calls cuDNN's kernel as a `Backward`."""
    inputs = [query, key, value]
    to_query, to_key, to_value, _ = _call(
        "__cudnn$fmhaSoftmaxBackward",
        [*inputs, statistics, upstream, context, *_both_lengths(query, lengths)],
        [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs],
        {
            "bmm1_grad_gemm1": (2, 2),
            "bmm1_grad_gemm2": (3, 2),
            "bmm2_grad_gemm1": (2, 2),
            "bmm2_grad_gemm2": (3, 3),
        },
    )
    return to_query, to_key, to_value


def _both_lengths(query: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the lengths of queries, S for each sequence, and of keys."""
    return tf.fill([query.shape[0]], query.shape[2]), lengths


def _call(
    target: str,
    operands: Sequence[tf.Tensor],
    results: Sequence[tf.TensorSpec],
    contracted: dict[str, tuple[int, int]],
) -> list[tf.Tensor]:
    """Calls cuDNN. The last result is an empty workspace, which XLA enlarges.

    `contracted` contains, for each matrix product of the kernel, the axes of the left and of the
    right factor that are summed over.
    """
    B, N, S, _ = operands[0].shape
    products = {
        f"{name}_dot_dimension_numbers": {
            "lhs_contracting_dimensions": [left],
            "rhs_contracting_dimensions": [right],
            "lhs_batch_dimensions": [0, 1],
            "rhs_batch_dimensions": [0, 1],
        }
        for name, (left, right) in contracted.items()
    }
    settings = {
        "algorithm": {"algo_id": 0, "is_cudnn_frontend": True},
        "fmha_scale": 1.0,
        "dropout_rate": 0.0,
        "seed": 0,
        "is_flash_attention": True,
        "mask_type": "PADDING",
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "intermediate_tensor_shape": {
            "element_type": "BF16" if operands[0].dtype == tf.bfloat16 else "F16",
            "dimensions": [B, N, S, S],
            "is_dynamic_dimension": [False] * 4,
            "layout": {"minor_to_major": [3, 2, 1, 0]},
        },
        **products,
    }
    return xla.custom_call_v2(
        target,
        operands,
        [*results, tf.TensorSpec([0], tf.uint8)],
        backend_config=json.dumps({"cudnn_fmha_backend_config": settings}),
    )


def choose(
    name: str, config: AlbertConfig, precision: str, length: int, *, jit_compile: bool
) -> FusedAttention | None:
    """Returns the attention of training steps. If it is plain, logs this and returns `None`.

    "auto" is "cudnn" if it is supported. The kernels are first compared with plain attention on the
    device. If they differ or fail, a warning is logged, and plain attention is used. Raises
    ValueError if `name` is "cudnn", but cuDNN's attention is not supported.
    """
    capabilities = compute_capabilities()
    reasons = unsupported(config, precision, capabilities, jit_compile=jit_compile)
    if name == "cudnn" and reasons:
        raise UserError(
            f"`attention`=cudnn cannot be used: {'; '.join(reasons)}. Use `attention`=auto or plain"
        )
    if name == "plain" or reasons:
        explains = capabilities and name != "plain"
        why = f" (cudnn cannot be used: {'; '.join(reasons)})" if explains else ""
        logging.log(logging.INFO if why else logging.DEBUG, "attention=plain%s", why)
        return None
    shape = (config.num_attention_heads, length, config.head_size)
    problem = disagreement(cudnn_forward, cudnn_backward, shape, precision)
    if problem is None:
        return FusedAttention(cudnn_forward, cudnn_backward, is_required=name == "cudnn")
    logging.warning("attention=plain, because cuDNN's attention does not work here: %s", problem)
    return None


def unsupported(
    config: AlbertConfig,
    precision: str,
    capabilities: Sequence[tuple[int, int]],
    *,
    jit_compile: bool,
) -> list[str]:
    """Returns the reasons why GPUs with these capabilities cannot use cuDNN's attention."""
    size, rate = config.head_size, config.attention_probs_dropout_prob
    conditions = {
        "it needs NVIDIA GPUs of compute capability 8.0 or higher": bool(capabilities)
        and min(capabilities) >= _MIN_CAPABILITY,
        "it needs `xla`": jit_compile,
        f"it does not compute in `precision`={precision}": precision != FLOAT32,
        f"it needs a head size that is a multiple of 8 and at most {_MAX_HEAD_SIZE}, and the "
        f"head size of the model is {size}": size % 8 == 0 and size <= _MAX_HEAD_SIZE,
        # Its seed is part of the compiled program, so all steps would have the same mask.
        "it does not support attention dropout, and the model has "
        f"attention_probs_dropout_prob={rate:g}": rate == 0.0,
        "it is not deterministic, but `deterministic` is set": not is_op_determinism_enabled(),
    }
    return [reason for reason, is_met in conditions.items() if not is_met]


def compute_capabilities() -> list[tuple[int, int]]:
    """Returns the compute capabilities of all GPUs; (0, 0) if a GPU is not by NVIDIA."""
    details: list[dict[str, Any]] = [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    return [detail.get("compute_capability", (0, 0)) for detail in details]


def disagreement(
    forward: Forward, backward: Backward, shape: tuple[int, int, int], dtype: str
) -> str | None:
    """Compares kernels with plain attention on random numbers; returns the problem or `None`.

    The batch contains a full sequence, a padded sequence, and a sequence of only padding. Values
    and gradients must agree with plain attention in float32 within `TOLERANCE`. `shape` is
    [N, S, D].
    """
    S = shape[1]
    query, key, value, upstream = (
        tf.cast(tf.random.stateless_normal([3, *shape], [0, number]), dtype) for number in range(4)
    )
    mask = tf.sequence_mask([S, S // 2 + 1, 0], S, tf.int32)

    def plain(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        lowered = tf.where(tf.cast(mask, tf.bool), 0.0, -1e4)[:, None, None, :]
        return tf.nn.softmax(query @ tf.linalg.matrix_transpose(key) + lowered) @ value

    @tf.function(jit_compile=True, autograph=False)
    def run(attend: Callable[..., tf.Tensor], *arguments: tf.Tensor) -> list[tf.Tensor]:
        *inputs, upstream = arguments
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            context = attend(*inputs, mask)
        return [context, *tape.gradient(context, inputs, upstream)]

    arguments = (query * tf.cast(shape[2] ** -0.5, dtype), key, value, upstream)
    try:
        found = run(FusedAttention(forward, backward), *arguments)
        found = [tf.cast(tensor, tf.float32).numpy() for tensor in found]
    except Exception as error:  # plain attention is used instead
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    expected = run(plain, *(tf.cast(tensor, tf.float32) for tensor in arguments))
    names = ("context", "gradient of queries", "gradient of keys", "gradient of values")
    for name, ours, theirs in zip(names, found, expected, strict=True):
        difference = float(tf.norm(ours - theirs) / tf.norm(theirs))
        if not difference <= TOLERANCE:
            return f"the {name} differs by {difference:.2g} of its norm, more than {TOLERANCE}"
    return None
