"""Exports models as ONNX files, for ONNX Runtime, OpenVINO, browsers and many servers."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import onnx
import onnxruntime
import tensorflow as tf
from onnx import TensorProto, helper

from albert_tf.data.errors import UserError
from albert_tf.labels import Labels
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
    AlbertForTokenClassification,
)
from albert_tf.modeling.original_names import original_names
from albert_tf.serving.agreement import Agreement, Arrays, Compute, compare, sample_batches
from albert_tf.serving.litert import check_export, write_export
from albert_tf.serving.onnx_graph import INPUTS, IR_VERSION, NONE, OPSET, AlbertGraph
from albert_tf.serving.saved_model import INPUTS as ORIGINAL_INPUTS
from albert_tf.serving.saved_model import Outputs, float32_copy
from albert_tf.version import __version__

# Largest accepted difference in float32; relative to the largest value if it exceeds 1.
_TOLERANCE = 1e-5

BATCH, CHOICES, SEQUENCE = "batch", "choices", "sequence"  # names of axes of any size

# Outputs of models whose outputs have other names in the file, the names of Hugging Face.
_NAMES = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "masked_lm_logits": "logits",
    "sentence_order_logits": "sop_logits",
}


class Output(NamedTuple):
    """An output of a graph."""

    tensor: str
    shape: Sequence[str | int]
    dtype: int = TensorProto.FLOAT


@dataclasses.dataclass(frozen=True, eq=False)
class OnnxExport:
    """An export of a model to an ONNX file. The constructor checks its arguments (`ValueError`).

    The file contains only standard operations. Inputs are `input_ids`, `attention_mask` (1 = real
    token, 0 = padding) and `token_type_ids`, int64 [B, S], or [B, C, S] for multiple choice, of any
    size. Outputs, float32, have the names of Hugging Face:

    * encoder: `last_hidden_state` [B, S, H] and `pooler_output` [B, H];
    * pretrained model: `logits` [B, S, V] of the masked LM, and `sop_logits` [B, 2] with a
      sentence-order head;
    * classifier or regression: `logits` [B, K]; token classifier: `logits` [B, S, K];
    * multiple choice: `logits` [B, C], -1e30 for missing options;
    * SQuAD 1.1: `start_logits` and `end_logits` [B, S], without masks;
    * SQuAD 2.0: `start_top_log_probs`, `end_top_log_probs`, `cls_logits`, and, as int64,
      `start_top_index` and `end_top_index`; see `SpanBeamHead.call`.

    Differs: the original has no such export.
    """

    model: keras.Model
    output_file: str
    quantization: str = NONE  # type of the weights, see `Graph`
    labels: Labels | None = None  # of a classifier; their names are written next to the file
    texts: tuple[str, ...] = ()  # for the comparison, see `sample_batches`

    def __post_init__(self) -> None:
        check_export(self.model, self.output_file, self.quantization, self.labels)

    def write(self) -> dict[str, Agreement]:
        """Creates the graph, compares outputs, and writes the file; returns the comparisons.

        Raises `ValueError` if outputs differ, or `WriteError` if the file cannot be written.
        """
        with tf.device("/CPU:0"):  # accelerators may round products
            copy = float32_copy(self.model)
            content = onnx_model(copy, self.quantization).SerializeToString()
            batches = sample_batches(self.model, self.texts, None, None)
            if isinstance(copy, AlbertForMultipleChoice):
                batches = [{k: values[None] for k, values in batch.items()} for batch in batches]
            tolerance = _TOLERANCE if self.quantization == NONE else None
            found = run(content, batches)
            agreements = compare(found, outputs_of(copy), batches, "ONNX", tolerance)
        write_export(copy, content, self.output_file, self.labels)
        return agreements


def outputs_of(model: keras.Model) -> Compute:
    """Returns a function that computes the outputs of a model, by their names in the file."""

    def compute(inputs: dict[str, tf.Tensor]) -> Outputs:
        outputs = model(inputs, training=False)
        return {_NAMES.get(name, name): values for name, values in outputs.items()}

    return compute


def run(content: bytes, batches: Sequence[Arrays]) -> list[Arrays]:
    """Returns the outputs of an ONNX file per batch, or raises `ValueError` if it fails."""
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        found = []
        for batch in batches:
            values = (batch[name].astype(np.int64) for name in ORIGINAL_INPUTS)
            results = session.run(names, dict(zip(INPUTS, values, strict=True)))
            found.append(dict(zip(names, results, strict=True)))
    except Exception as error:  # ONNX Runtime raises many classes
        raise UserError(f"The ONNX model does not run: {error}") from error
    return found


def onnx_model(model: keras.Model, quantization: str = NONE) -> onnx.ModelProto:
    """Returns an ONNX model that has been checked. `model` is in float32."""
    weights = {name: np.asarray(variable) for name, variable in original_names(model).items()}
    graph = AlbertGraph(model.config, weights, quantization)
    is_choice = isinstance(model, AlbertForMultipleChoice)
    shape = [BATCH, CHOICES, SEQUENCE] if is_choice else [BATCH, SEQUENCE]
    inputs = list(INPUTS)
    if is_choice:
        inputs = [graph.op("Flatten", name, axis=2) for name in INPUTS]
    if isinstance(model, AlbertForQuestionAnsweringWithBeamSearch):
        inputs = graph.pad(inputs, max(model.start_n_top, model.end_n_top))
    outputs = _outputs(graph, model, inputs)
    for name, output in outputs.items():
        graph.op("Identity", output.tensor, name=name)
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            type(model).__name__,
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in INPUTS],
            [helper.make_tensor_value_info(k, o.dtype, o.shape) for k, o in outputs.items()],
            list(graph.initializers.values()),
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="albert_tf",
        producer_version=__version__,
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _outputs(graph: AlbertGraph, model: keras.Model, inputs: Sequence[str]) -> dict[str, Output]:
    """Returns the outputs by their names in the file."""
    pools = isinstance(model, AlbertForClassification | AlbertForMultipleChoice)
    x = graph.encode(*inputs, first_only=pools)
    tokens = (BATCH, SEQUENCE)
    match model:
        case AlbertEncoder():
            return {
                "last_hidden_state": Output(x, (*tokens, model.config.hidden_size)),
                "pooler_output": Output(graph.pool(x), (BATCH, model.config.hidden_size)),
            }
        case AlbertForPretraining():
            outputs = {"logits": Output(graph.masked_lm(x), (*tokens, model.config.vocab_size))}
            if model.has_sentence_order_head:
                order = graph.classify(graph.pool(x), "cls/seq_relationship/")
                outputs["sop_logits"] = Output(order, (BATCH, 2))
            return outputs
        case AlbertForClassification():
            return {"logits": Output(graph.classify(graph.pool(x)), (BATCH, model.num_labels))}
        case AlbertForTokenClassification():
            return {"logits": Output(graph.classify(x), (*tokens, model.num_labels))}
        case AlbertForMultipleChoice():
            scores = graph.choose(graph.classify(graph.pool(x)), INPUTS[1])
            return {"logits": Output(scores, (BATCH, CHOICES))}
        case AlbertForQuestionAnswering():
            scores = graph.classify(x, "cls/squad/")
            parts = graph.op("Split", scores, outputs=2, axis=-1, num_outputs=2)
            names = ("start_logits", "end_logits")
            squeezed = [graph.op("Squeeze", part, graph.constant([-1])) for part in parts]
            return {k: Output(part, tokens) for k, part in zip(names, squeezed, strict=True)}
        case AlbertForQuestionAnsweringWithBeamSearch():
            (_, mask, segments), starts, ends = inputs, model.start_n_top, model.end_n_top
            shapes = {
                "start_top_log_probs": (BATCH, starts),
                "start_top_index": (BATCH, starts),
                "end_top_log_probs": (BATCH, starts * ends),
                "end_top_index": (BATCH, starts * ends),
                "cls_logits": (BATCH,),
            }
            found = zip(
                shapes, graph.search_answers(x, mask, segments, (starts, ends)), strict=True
            )
            dtypes = {True: TensorProto.INT64, False: TensorProto.FLOAT}
            return {k: Output(v, shapes[k], dtypes[k.endswith("index")]) for k, v in found}
    raise UserError(f"Models of the class {type(model).__name__} cannot be exported to ONNX.")
