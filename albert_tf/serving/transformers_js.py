"""Writes the directory that transformers.js loads, in browsers and in Node.js.

    config.json, tokenizer.json, tokenizer_config.json, onnx/model.onnx, onnx/model_quantized.onnx

The ONNX files are float32 and int8. Only libraries in JavaScript, ONNX Runtime and the tokenizers
library give right results for this directory: Python's transformers would rewrite its texts.
"""

import os
from typing import Any

import keras

from albert_tf.checkpoints.convert import check_target, new_directory
from albert_tf.checkpoints.formats.huggingface import CONFIG_FILE, config_json
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import javascript_files, write_json
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.data.errors import UserError
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForTokenClassification,
)
from albert_tf.serving.agreement import Agreement
from albert_tf.serving.onnx_export import OnnxExport

# Path and quantization of each ONNX file.
ONNX_FILES = {"onnx/model.onnx": "none", "onnx/model_quantized.onnx": "int8"}

# Model type and class. transformers.js has no ALBERT that classifies tokens; BERT's has the same
# inputs and outputs.
_CLASSES = {
    AlbertEncoder: ("albert", "AlbertModel"),
    AlbertForPretraining: ("albert", "AlbertForMaskedLM"),
    AlbertForClassification: ("albert", "AlbertForSequenceClassification"),
    AlbertForTokenClassification: ("bert", "BertForTokenClassification"),
    AlbertForQuestionAnswering: ("albert", "AlbertForQuestionAnswering"),
}


def export(
    model: keras.Model, stored: StoredModel, output_dir: str, texts: tuple[str, ...], dry_run: bool
) -> dict[str, Agreement]:
    """Writes the directory of a model, or of its encoder. `stored` is the model on disk.

    For `texts` see `sample_batches`. Returns the agreement of each output; names are
    `<ONNX file>:<output>`. Raises `ValueError` if transformers.js does not support the model or its
    tokenizer.
    """
    files = _json_files(model, stored)
    check_target(output_dir, has_checkpoint=False)
    if dry_run:
        return {}
    agreements: dict[str, Agreement] = {}
    with new_directory(output_dir) as directory:
        for name, content in files.items():
            write_json(directory, name, content)
        for name, quantization in ONNX_FILES.items():
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            found = OnnxExport(model, path, quantization, texts=texts).write()
            agreements |= {f"{name}:{output}": value for output, value in found.items()}
    return agreements


def _json_files(model: keras.Model, stored: StoredModel) -> dict[str, dict[str, Any]]:
    """Returns the JSON files by their names."""
    kind = type(model)
    received = kind.__name__
    if isinstance(model, AlbertForClassification) and model.num_labels == 1:
        kind, received = keras.Model, "a regression, whose results it would change to 1"
    if kind not in _CLASSES:
        raise UserError(
            "transformers.js supports encoders, masked language models, classifiers of texts or "
            f"tokens, and models of SQuAD 1.1. Received: {received}. Omit `layout`."
        )
    model_type, architecture = _CLASSES[kind]
    config = config_json(stored) | {"model_type": model_type, "architectures": [architecture]}
    return {CONFIG_FILE: config} | javascript_files(stored.required_tokenizer, model.config)
