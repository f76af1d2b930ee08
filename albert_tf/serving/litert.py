"""Exports models as LiteRT (TensorFlow Lite) files, for phones and other small devices.

The weights become constants of the graph, so that LiteRT stores the weights of shared blocks once
and uses its fast kernels. The result is compared with the model before it is written.
"""

import dataclasses
import math
import os
import warnings
from collections.abc import Sequence

import keras
import tensorflow as tf
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import check_file, write_files
from albert_tf.labels import Labels
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import class_outputs
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    LabelModel,
)
from albert_tf.modeling.original_names import original_names
from albert_tf.serving.agreement import Agreement, Arrays, Compute, compare, sample_batches
from albert_tf.serving.saved_model import INPUTS, Outputs, check_labels, float32_copy, labels_json

QUANTIZATIONS = NONE, FLOAT16, INT8 = "none", "float16", "int8"

ORIGINAL_FILE = "albert_model.tflite"  # the original's name for models of SQuAD 1.1
_LARGEST_MODEL = 2**31 - 2**24  # bytes; a graph with its constants is limited to 2 GB

# Largest accepted difference in float32; relative to the largest value if it exceeds 1.
# ALBERT-xlarge reaches a third of this limit, because long sums are computed in another order.
_TOLERANCE = 3e-5


@dataclasses.dataclass(frozen=True, eq=False)
class LiteRTExport:
    """An export of a model to a LiteRT file. The constructor checks its arguments (`ValueError`).

    The file contains only built-in operations and has one signature with the inputs `input_ids`,
    `input_mask` (1 = real token, 0 = padding) and `segment_ids`, int32 [B, S]. Outputs:

    * encoder or pretrained model, without heads: `sequence_output`, float32 [B, S, H], and
      `pooled_output`, float32 [B, H];
    * classifier: `probabilities`, float32 [B, K], and `predictions`, int32 [B], the most likely
      class; multi-label classifier: `predictions` are int32 [B, K], 1 = predicted; regression: both
      contain the number, float32 [B, 1] and [B];
    * token classifier: the same outputs per token, [B, S, K] and [B, S];
    * SQuAD 1.1: the logits `start_log_prob` and `end_log_prob`, float32 [B, S], without masks.

    Source: run_squad_v1.py of the original release, main.
    Differs: the original writes only float32, SQuAD 1.1 and one sequence of a fixed length.
    """

    model: keras.Model
    output_file: str
    quantization: str = NONE  # type of the weights; "int8" only applies to matrices
    max_seq_length: int | None = None  # S; if `None`, any length up to `max_position_embeddings`
    batch_size: int | None = 1  # B; if `None`, any number
    labels: Labels | None = None  # of a classifier; their names are written next to the file
    texts: tuple[str, ...] = ()  # for the comparison, see `sample_batches`

    def __post_init__(self) -> None:
        model = self.exported
        if not isinstance(model, (AlbertEncoder, LabelModel, AlbertForQuestionAnswering)):
            raise UserError(
                "LiteRT files support encoders, pretrained models, classifiers and models of SQuAD "
                f"1.1. Received: {type(model).__name__}. For SQuAD 2.0 and multiple choice, write "
                "SavedModels with `export_dir` of run_squad.py and run_race.py."
            )
        check_export(model, self.output_file, self.quantization, self.labels)
        if self.max_seq_length is not None:
            model.config.check_sequence_length(self.max_seq_length)
        if self.batch_size is not None and self.batch_size < 1:
            raise UserError(f"`batch_size` must be at least 1. Received: {self.batch_size}")

    @property
    def exported(self) -> keras.Model:
        """The encoder of a pretrained model; otherwise `model`."""
        is_pretrained = isinstance(self.model, AlbertForPretraining)
        return self.model.encoder if is_pretrained else self.model

    def write(self) -> dict[str, Agreement]:
        """Converts the model, compares outputs, and writes the file; returns the comparisons.

        Raises `ValueError` if outputs differ, or `WriteError` if the file cannot be written.
        """
        if self.exported is not self.model:
            logging.info("The encoder of the pretrained model is exported, without its heads.")
        with tf.device("/CPU:0"):  # accelerators may round products
            copy = float32_copy(self.exported)
            compute = outputs_of(copy, self.labels)
            converted = self._convert(copy, compute)
            shape = (self.batch_size, self.max_seq_length)
            batches = sample_batches(self.model, self.texts, *shape)
            tolerance = _TOLERANCE if self.quantization == NONE else None
            agreements = compare(run(converted, batches), compute, batches, "LiteRT", tolerance)
        write_export(copy, converted, self.output_file, self.labels)
        return agreements

    def _convert(self, model: keras.Model, compute: Compute) -> bytes:
        shape = [self.batch_size, self.max_seq_length]
        specs = [tf.TensorSpec(shape, tf.int32, name) for name in INPUTS]
        weights = [(variable, variable.numpy()) for variable in original_names(model).values()]

        def from_tokens(*inputs: tf.Tensor) -> Outputs:
            if None in shape:
                # Prevents broadcasting.
                inputs = tuple(tf.reshape(values, tf.shape(inputs[0])) for values in inputs)
            constants = [(variable, tf.constant(values)) for variable, values in weights]
            with keras.StatelessScope(state_mapping=constants):
                return compute(dict(zip(INPUTS, inputs, strict=True)))

        function = tf.function(from_tokens, specs, autograph=False).get_concrete_function()
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module())
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if self.quantization != NONE:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if self.quantization == FLOAT16:
            converter.target_spec.supported_types = [tf.float16]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorFlow warns about its interpreter
            return converter.convert()


def check_export(
    model: keras.Model, output_file: str, quantization: str, labels: Labels | None
) -> None:
    """Checks the arguments that LiteRT and ONNX exports share."""
    if labels is not None and isinstance(model, LabelModel):
        check_labels(model, labels)
    size = 4 * sum(math.prod(variable.shape) for variable in original_names(model).values())
    if size > _LARGEST_MODEL:
        raise UserError(
            "`model` must have at most 2 GB of weights, a limit of LiteRT and ONNX. Received: "
            f"{size / 1e9:.1f} GB. Models that share their parameters are smaller."
        )
    if quantization not in QUANTIZATIONS:
        raise UserError(
            f"`quantization` must be one of {', '.join(QUANTIZATIONS)}. Received: {quantization!r}"
        )
    check_file(output_file)


def write_export(
    model: keras.Model, content: bytes, output_file: str, labels: Labels | None
) -> None:
    """Writes a file and, next to it, the names of its classes."""
    files: dict[str, str | bytes] = {output_file: content}
    if labels and labels.names and isinstance(model, LabelModel):
        files[labels_file(output_file)] = labels_json(labels)
    write_files(files)
    logging.info("Exported %s: %.1f MB", output_file, len(content) / 1e6)


def labels_file(output_file: str) -> str:
    """Returns the path of the JSON file with the names of the classes."""
    return f"{os.path.splitext(output_file)[0]}.labels.json"


def outputs_of(model: keras.Model, labels: Labels | None = None) -> Compute:
    """Returns a function that computes the outputs of a model, by their names in the file."""
    threshold = None
    if isinstance(model, AlbertForClassification) and model.multi_label:
        threshold = labels.threshold if labels else Labels.threshold

    def compute(inputs: dict[str, tf.Tensor]) -> Outputs:
        values = model(inputs, training=False, output_hidden_states=True)
        if isinstance(model, AlbertForQuestionAnswering):
            return {"start_log_prob": values["start_logits"], "end_log_prob": values["end_logits"]}
        if isinstance(model, LabelModel):
            return class_outputs(values["logits"], threshold)
        return {name: values[name] for name in ("sequence_output", "pooled_output")}

    return compute


def run(converted: bytes, batches: Sequence[Arrays]) -> list[Arrays]:
    """Returns the outputs of a LiteRT model per batch, or raises `ValueError` if it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow recommends another interpreter
        try:
            runner = tf.lite.Interpreter(model_content=converted).get_signature_runner()
            return [runner(**batch) for batch in batches]
        except (RuntimeError, ValueError) as error:
            raise UserError(f"The LiteRT model does not run: {error}") from error
