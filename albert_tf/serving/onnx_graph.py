"""Writes the graphs of ALBERT models in ONNX, operation by operation.

PyTorch's exporter gives shared weights an alias per layer, and ONNX Runtime's `quantize_dynamic`
then quantizes only the first layer. Here, all layers name the same weights, which are quantized as
they are written.

Axis letters are those of `modeling.layers`. Source: modeling.py of the original release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from albert_tf.config import EXACT_GELU, AlbertConfig
from albert_tf.modeling.heads import MASKED_LOGIT
from albert_tf.modeling.ops import LAYER_NORM_EPSILON, MASKED_SCORE
from albert_tf.modeling.parameter_sharing import TRANSFORMER_SCOPE, block_runs, norm_name

OPSET, IR_VERSION = 20, 10
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NONE, FLOAT16, INT8 = "none", "float16", "int8"
# Processors without VNNI add pairs of products, of up to 255 times this number, in 16 bits.
_LARGEST_INTEGER = 64
_FEWEST_COLUMNS = 16  # of a quantized matrix; smaller ones determine scores, and save no space

Weights = dict[str, np.ndarray]  # by the original's names, float32
Rows = Callable[[str], str]  # selects rows of a table


class Graph:
    """A graph in which each weight and each quantized tensor exists once.

    Tensors are represented by their names. `quantization` is the type of large weights:

    * "none": float32;
    * "float16": stored in float16, and cast to float32 when the file is loaded;
    * "int8": signed, with one scale per column of a matrix or row of a table. Factors of these
      matrices are quantized in each call, to unsigned 8 bits with one scale per row, so that
      results do not depend on the other rows of a batch.
    """

    def __init__(self, weights: Weights, quantization: str = NONE) -> None:
        self.weights = weights
        self.quantization = quantization
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.scope = ""
        self._names: set[str] = set()
        self._made: dict[tuple[str, str], Any] = {}  # what is computed once

    def op(
        self, kind: str, *inputs: str, name: str = "", outputs: int = 1, **attributes: Any
    ) -> Any:
        """Adds an operation. Returns its output, or a list of several outputs."""
        stem = "/".join(filter(None, (self.scope, name or kind)))
        unique, number = stem, 1
        while unique in self._names:
            number += 1
            unique = f"{stem}_{number}"
        self._names.add(unique)
        results = [unique] if outputs == 1 else [f"{unique}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, unique, **attributes))
        return results[0] if outputs == 1 else results

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        """Returns a constant."""
        array = np.asarray(values, dtype)
        return self._store(f"{array.dtype}{array.tolist()}".replace(" ", ""), array)

    def weight(self, name: str, values: np.ndarray | None = None) -> str:
        """Returns a weight in floating point: `values`, or the model's weight of this name."""
        values = self.weights[name] if values is None else values
        if self.quantization != FLOAT16:
            return self._store(name, values)
        key = (name, FLOAT16)
        if key not in self._made:
            stored = self._store(name, values.astype(np.float16))
            self._made[key] = self.op("Cast", stored, to=TensorProto.FLOAT)
        return self._made[key]

    def matmul(self, x: str, name: str, kernel: np.ndarray | None = None) -> str:
        """Returns x [..., I] times a kernel [I, O]."""
        kernel = self.weights[name] if kernel is None else kernel
        if self.quantization != INT8 or kernel.shape[1] < _FEWEST_COLUMNS:
            return self.op("MatMul", x, self.weight(name, kernel))
        integers, scale = self._quantized(name, kernel, axis=0)
        return self._integer_matmul(x, integers, scale)

    def linear(self, x: str, scope: str) -> str:
        """Returns x times the kernel of a projection, plus its bias."""
        product = self.matmul(x, f"{scope}/kernel")
        return self.op("Add", product, self.weight(f"{scope}/bias"))

    def rows(self, name: str, select: Rows) -> str:
        """Returns rows of a table, selected by an operation that takes the name of a tensor."""
        if self.quantization != INT8:
            return select(self.weight(name))
        integers, scale = self._quantized(name, self.weights[name], axis=1)
        values = self.op("Cast", select(integers), to=TensorProto.FLOAT)
        return self.op("Mul", values, select(scale))

    def tied_matmul(self, x: str, name: str) -> str:
        """Returns x [..., E] times the transposed table [V, E] of `rows`."""
        if self.quantization != INT8:
            return self.op("MatMul", x, self.op("Transpose", self.weight(name), perm=[1, 0]))
        integers, scale = self._quantized(name, self.weights[name], axis=1)
        columns = self.op("Reshape", scale, self.constant([-1]))
        return self._integer_matmul(x, self.op("Transpose", integers, perm=[1, 0]), columns)

    def layer_norm(self, x: str, scope: str) -> str:
        """Returns the layer normalization over the last axis."""
        gamma, beta = self.weight(f"{scope}/gamma"), self.weight(f"{scope}/beta")
        return self.op("LayerNormalization", x, gamma, beta, epsilon=LAYER_NORM_EPSILON)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Reshapes x; 0 keeps the size of an axis."""
        return self.op("Reshape", x, self.constant(shape))

    def activate(self, x: str, activation: str) -> str:
        """Applies an activation of `AlbertConfig.hidden_act`."""
        if activation == EXACT_GELU:
            return self.op("Gelu", x)
        if activation == "gelu":
            return self.op("Gelu", x, approximate="tanh")
        kinds = {"relu": "Relu", "tanh": "Tanh"}
        return self.op(kinds[activation], x) if activation in kinds else x

    def _integer_matmul(self, x: str, integers: str, scale: str) -> str:
        if (x, INT8) not in self._made:
            largest = self.op("ReduceMax", self.op("Abs", x), self.constant([-1]))
            largest = self.op("Max", largest, self.constant(1e-30, np.float32))
            step = self.op("Div", largest, self.constant(127, np.float32))
            # The cast truncates.
            shifted = self.op("Add", self.op("Div", x, step), self.constant(128.5, np.float32))
            self._made[x, INT8] = self.op("Cast", shifted, to=TensorProto.UINT8), step
        quantized, step = self._made[x, INT8]
        product = self.op("MatMulInteger", quantized, integers, self.constant(128, np.uint8))
        product = self.op("Cast", product, to=TensorProto.FLOAT)
        # ONNX Runtime would fuse a product of both scales, and then scale the bias.
        return self.op("Mul", self.op("Mul", product, step), scale)

    def _quantized(self, name: str, values: np.ndarray, axis: int) -> tuple[str, str]:
        """Returns integers and their scales: one per row if `axis` is 1, per column if it is 0."""
        largest = np.abs(values).max(axis, keepdims=axis == 1)
        scale = np.where(largest > 0, largest / _LARGEST_INTEGER, 1).astype(np.float32)
        integers = np.rint(values / scale).astype(np.int8)
        return self._store(f"{name}/int8", integers), self._store(f"{name}/scale", scale)

    def _store(self, name: str, values: np.ndarray) -> str:
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(values, name)
        return name


class AlbertGraph(Graph):
    """The encoder and the heads of ALBERT.

    The inputs have the names of `INPUTS`, int64 [B, S]. Sequences with more tokens than the model
    has positions fail in a node whose name contains the limit.
    """

    def __init__(self, config: AlbertConfig, weights: Weights, quantization: str = NONE) -> None:
        super().__init__(weights, quantization)
        self.config = config

    def encode(self, ids: str, mask: str, segments: str, *, first_only: bool = False) -> str:
        """Returns the output of the last layer, float32 [B, S, H], or [B, 1, H] of the first."""
        shape = self.op("Shape", ids)
        mask, segments = (self.op("Reshape", x, shape) for x in (mask, segments))  # no broadcasting
        x = self._embed(ids, segments, shape)
        wide = self.op("Cast", self.op("Unsqueeze", mask, self.constant([1, 2])), to=1)
        padding = self.op("Sub", self.constant(1, np.float32), wide)
        lowered = self.op("Mul", padding, self.constant(MASKED_SCORE, np.float32), name="lowered")
        runs = block_runs(self.config)
        for number, place in enumerate(runs, 1):
            self.scope = f"layer_{number}"
            scope = f"{TRANSFORMER_SCOPE}{place.scope}"
            attention = f"{scope}/attention_{place.attention}"
            selects = first_only and number == len(runs)
            context = self._attend(x, lowered, attention, selects)
            x = self.op("Add", self._first(x, [0]) if selects else x, context)
            x = self.layer_norm(x, f"{scope}/{norm_name('attention', place.attention)}")
            inner = f"{scope}/ffn_{place.feed_forward}/intermediate"
            hidden = self.activate(self.linear(x, f"{inner}/dense"), self.config.hidden_act)
            x = self.op("Add", x, self.linear(hidden, f"{inner}/output/dense"))
            x = self.layer_norm(x, f"{scope}/{norm_name('ffn', place.feed_forward)}")
        self.scope = ""
        return x

    def _embed(self, ids: str, segments: str, shape: str) -> str:
        self.scope = "embeddings"
        scope, limit = "bert/embeddings", self.config.max_position_embeddings
        length = self.op("Slice", shape, *map(self.constant, ([1], [2])))
        words = self.rows(f"{scope}/word_embeddings", lambda t: self.op("Gather", t, ids))
        positions = self.rows(
            f"{scope}/position_embeddings",
            lambda t: self.op("Slice", t, self.constant([0]), length, self.constant([0])),
        )
        kinds = self.op("Gather", self.weight(f"{scope}/token_type_embeddings"), segments)
        # A longer sequence does not match the rows of the table.
        x = self.op("Add", words, positions, name=f"at_most_{limit}_tokens_are_possible")
        x = self.layer_norm(self.op("Add", x, kinds), f"{scope}/LayerNorm")
        if self.config.projects_embeddings:
            x = self.linear(x, "bert/encoder/embedding_hidden_mapping_in")
        return x

    def _attend(self, x: str, lowered: str, scope: str, first_only: bool) -> str:
        """Returns the projected context, float32 [B, S, H] or [B, 1, H]."""
        heads, size = self.config.num_attention_heads, self.config.head_size
        joint = self._joint_projection(x, scope)
        query, *others = self.op("Split", joint, outputs=3, axis=-1, num_outputs=3)
        query, key, value = (
            self.op("Transpose", self.reshape(part, [0, 0, heads, size]), perm=order)
            for part, order in zip(
                (self._first(query, [0]) if first_only else query, *others),
                ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]),
                strict=True,
            )
        )
        scores = self.op("Add", self.op("MatMul", query, key), lowered)
        context = self.op("MatMul", self.op("Softmax", scores, axis=-1), value)
        context = self.op("Transpose", context, perm=[0, 2, 1, 3])
        return self.linear(self.reshape(context, [0, 0, heads * size]), f"{scope}/output/dense")

    def _joint_projection(self, x: str, scope: str) -> str:
        """Returns the scaled query, the key and the value, float32 [B, S, 3 * H]: one product."""
        scales = {"query": self.config.head_size**-0.5, "key": 1.0, "value": 1.0}
        kernel, bias = (
            np.concatenate(
                [
                    self.weights[f"{scope}/self/{part}/{kind}"] * np.float32(scales[part])
                    for part in scales
                ],
                axis=-1,
            )
            for kind in ("kernel", "bias")
        )
        name = f"{scope}/self/query_key_value"
        product = self.matmul(x, f"{name}/kernel", kernel)
        return self.op("Add", product, self.weight(f"{name}/bias", bias))

    def pool(self, x: str) -> str:
        """Returns the pooled output, float32 [B, H]."""
        return self.op("Tanh", self.linear(self._first(x), "bert/pooler/dense"))

    def masked_lm(self, x: str) -> str:
        """Returns scores of the vocabulary at all positions, [B, S, V]."""
        scope = "cls/predictions"
        x = self.activate(self.linear(x, f"{scope}/transform/dense"), self.config.hidden_act)
        x = self.layer_norm(x, f"{scope}/transform/LayerNorm")
        product = self.tied_matmul(x, "bert/embeddings/word_embeddings")
        return self.op("Add", product, self.weight(f"{scope}/output_bias"))

    def classify(self, x: str, scope: str = "") -> str:
        """Maps vectors, [..., H], to scores, [..., K]."""
        kernel = self.weights[f"{scope}output_weights"].T
        product = self.matmul(x, f"{scope}output_weights", kernel)
        return self.op("Add", product, self.weight(f"{scope}output_bias"))

    def choose(self, scores: str, mask: str) -> str:
        """Returns a score per option, [B, C], from [B * C, 1]; -1e30 if `mask` [B, C, S] is 0."""
        shape = self.op("Slice", self.op("Shape", mask), *map(self.constant, ([0], [2])))
        is_option = self.op("ReduceMax", mask, self.constant([2]), keepdims=0)
        masked = self.constant(MASKED_LOGIT, np.float32)
        is_option = self.op("Cast", is_option, to=TensorProto.BOOL)
        return self.op("Where", is_option, self.op("Reshape", scores, shape), masked)

    def pad(self, inputs: Sequence[str], length: int) -> list[str]:
        """Pads inputs [B, S] to at least this length."""
        size = self.op("Gather", self.op("Shape", inputs[0]), self.constant([1]))
        missing = self.op("Sub", self.constant([length]), size)
        missing = self.op("Max", missing, self.constant([0]))
        widths = self.op("Concat", self.constant([0, 0, 0]), missing, axis=0)
        return [self.op("Pad", x, widths, name=f"padded_{x}") for x in inputs]

    def search_answers(
        self, x: str, mask: str, segments: str, widths: tuple[int, int]
    ) -> list[str]:
        """Returns the outputs of `SpanBeamHead`, in its order, for beams of these widths."""
        allowed, blocked = self._answer_positions(mask, segments)

        def log_probabilities(scores: str, axis: int | None = None) -> str:
            """Normalizes scores [..., S, 1] over allowed positions."""
            kept, lowered = allowed, blocked
            if axis is not None:
                kept, lowered = (
                    self.op("Unsqueeze", part, self.constant([axis])) for part in (kept, lowered)
                )
            scores = self.op("Squeeze", scores, self.constant([-1]))
            masked = self.op("Add", self.op("Mul", scores, kept), lowered)
            return self.op("LogSoftmax", masked, axis=-1)

        starts = log_probabilities(self.linear(x, "start_logits/dense"))
        top_starts, start_index = self.op("TopK", starts, self.constant([widths[0]]), outputs=2)
        end_kernel, start_kernel = np.split(self.weights["end_logits/dense_0/kernel"], 2)
        features = self.op(
            "GatherND", x, self.op("Unsqueeze", start_index, self.constant([2])), batch_dims=1
        )
        by_start = self.matmul(features, "end_logits/dense_0/start_kernel", start_kernel)
        by_end = self.matmul(x, "end_logits/dense_0/end_kernel", end_kernel)
        by_end = self.op("Add", by_end, self.weight("end_logits/dense_0/bias"))
        hidden = self.op(
            "Add",
            self.op("Unsqueeze", by_end, self.constant([1])),
            self.op("Unsqueeze", by_start, self.constant([2])),
        )
        hidden = self.layer_norm(self.op("Tanh", hidden), "end_logits/LayerNorm")
        ends = log_probabilities(self.linear(hidden, "end_logits/dense_1"), axis=1)
        top = self.op("TopK", ends, self.constant([widths[1]]), outputs=2)
        top_ends, end_index = (self.reshape(part, [0, widths[0] * widths[1]]) for part in top)
        return [top_starts, start_index, top_ends, end_index, self._no_answer(x, starts)]

    def _answer_positions(self, mask: str, segments: str) -> tuple[str, str]:
        """Returns 1 where an answer may start or end, else 0; and 0 there, else -1e30: [B, S]."""
        zero, one = self.constant(0), self.constant(1)
        rest = self.op("Slice", mask, *map(self.constant, ([1], [2**31], [1])))
        following = self.op("Pad", rest, self.constant([0, 0, 0, 1]))
        next_is_real = self.op("Cast", following, to=TensorProto.BOOL)
        is_context = self.op("And", self.op("Equal", segments, one), next_is_real)
        length = self.op("Gather", self.op("Shape", mask), one)
        is_first = self.op("Equal", self.op("Range", zero, length, one), zero)
        is_allowed = self.op("Or", is_context, is_first)
        allowed = self.op("Cast", is_allowed, to=TensorProto.FLOAT)
        floats = (self.constant(value, np.float32) for value in (0.0, MASKED_LOGIT))
        return allowed, self.op("Where", is_allowed, *floats)

    def _no_answer(self, x: str, starts: str) -> str:
        probabilities = self.op("Unsqueeze", self.op("Exp", starts), self.constant([1]))
        start = self.op("Squeeze", self.op("MatMul", probabilities, x), self.constant([1]))
        features = self.op("Concat", start, self._first(x), axis=-1)
        hidden = self.op("Tanh", self.linear(features, "answer_class/dense_0"))
        product = self.op("MatMul", hidden, self.weight("answer_class/dense_1/kernel"))
        return self.op("Squeeze", product, self.constant([-1]))

    def _first(self, x: str, position: int | list[int] = 0) -> str:
        """Returns the first position, [B, H], or [B, 1, H] if `position` is [0]."""
        return self.op("Gather", x, self.constant(position), axis=1)
