"""Functions that the exports share.

SavedModels take texts or token ids: `input_ids`, `input_mask` (1 = real token, 0 = padding) and
`segment_ids`, int32, of any number of examples and any length up to `max_position_embeddings`.
They compute in float32 without dropout.

`Sequences` and the functions after it create token sequences in a graph, as `data.sequences` does
with arrays. Texts are rows of a `tf.RaggedTensor`, int32 [N, (tokens)].
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.checkpoints.model_directory import CONFIG_FILE
from albert_tf.checkpoints.signatures import DEFAULT_SIGNATURE
from albert_tf.data.files import finish, folder_names, temporary_folder, write_file
from albert_tf.data.tfrecord import frame_records, proto_field
from albert_tf.labels import Labels
from albert_tf.modeling.models import EncoderAndHead
from albert_tf.modeling.original_names import original_names

TEXT_FOLDER = "text"  # subdirectory for models that take texts
INPUTS = ("input_ids", "input_mask", "segment_ids")

# Directory in a SavedModel for files that TensorFlow does not read.
_EXTRA_FOLDER = "assets.extra"

# The requests that TensorFlow Serving runs before a model becomes available. The first request
# optimizes the graph; further ones only touch longer texts and larger batches.
_WARMUP_FILE = "tf_serving_warmup_requests"
_WARMUP_SHAPES = ((1, 8), (1, 128), (4, 32))  # number of examples, words of each text
Outputs = dict[str, tf.Tensor]
_Model = TypeVar("_Model", bound=EncoderAndHead)


def float32_copy(model: _Model) -> _Model:
    """Returns a float32 copy of a model on one device."""
    settings = {"dtype": "float32", "use_one_hot_embeddings": False, "lora_rank": None}
    copy = type(model).from_config({**model.get_config(), **settings})
    variables = original_names(copy)
    for name, variable in original_names(model).items():
        variables[name].assign(tf.cast(tf.convert_to_tensor(variable), tf.float32))
    return copy


def check_labels(model: keras.Model, labels: Labels) -> None:
    """Raises `ValueError` if a classifier has another number of labels."""
    numbers = {"the model": model.num_labels, "the arguments": labels.num_outputs}
    settle(stated("num_labels", numbers), Meeting.GIVEN)


def labels_json(labels: Labels) -> str:
    """Returns the names of classes as JSON, in the order of the probabilities."""
    return json.dumps(labels.names, ensure_ascii=False, indent=1)


def tokens_function(compute: Callable[[Outputs], Outputs], rank: int = 2) -> Callable:
    """Creates a signature for token ids, [B, S], or [B, C, S] if `rank` is 3.

    `compute` maps `input_ids`, `input_mask` and `segment_ids` to outputs, both by name.
    """

    def from_tokens(*inputs: tf.Tensor) -> Outputs:
        for name, values in zip(INPUTS[1:], inputs[1:], strict=True):
            # Prevents broadcasting.
            tf.debugging.assert_equal(
                tf.shape(values), tf.shape(inputs[0]), f"{name} must have the shape of input_ids."
            )
        return compute(dict(zip(INPUTS, inputs, strict=True)))

    specs = [tf.TensorSpec([None] * rank, tf.int32, name=name) for name in INPUTS]
    return tf.function(from_tokens, specs, autograph=False)


def write_text_model(
    model: EncoderAndHead,
    tokenizer: tf.Module,
    compute: Callable[[Outputs], Outputs],
    ranks: Mapping[str, int],
    export_dir: str,
    extra_files: Mapping[str, str | bytes] | None = None,
) -> str:
    """Writes a SavedModel that takes texts into `export_dir`/text; see `write_saved_model`.

    `compute` maps texts to outputs, both by name. `ranks` maps each input to its rank. TensorFlow
    Serving warms the model up with the requests in `assets.extra/tf_serving_warmup_requests`.
    """
    names = list(ranks)

    def from_texts(*inputs: tf.Tensor) -> Outputs:
        for name, values in zip(names[1:], inputs[1:], strict=True):
            counts = (tf.shape(texts)[0] for texts in (values, inputs[0]))
            tf.debugging.assert_equal(*counts, f"There must be as many {name} as {names[0]}.")
        return compute(dict(zip(names, inputs, strict=True)))

    specs = [tf.TensorSpec([None] * rank, tf.string, name) for name, rank in ranks.items()]
    signatures = {DEFAULT_SIGNATURE: tf.function(from_texts, specs, autograph=False)}
    folder = os.path.join(export_dir, TEXT_FOLDER)
    files = {**(extra_files or {}), _WARMUP_FILE: _warmup_requests(ranks)}
    return write_saved_model(model, signatures, folder, files, tokenizer)


def _warmup_requests(ranks: Mapping[str, int]) -> bytes:
    """Returns a TFRecord file of `PredictionLog` protos, as TensorFlow Serving reads it."""
    logs = []
    for count, words in _WARMUP_SHAPES:
        text = " ".join(["word"] * words)
        request = b""  # a PredictRequest, of the loaded model's default signature
        for name, rank in ranks.items():
            tensor = tf.make_tensor_proto(np.full([count, 2][:rank], text, object))
            request += proto_field(
                2, proto_field(1, name.encode()) + proto_field(2, tensor.SerializeToString())
            )
        logs.append(proto_field(6, proto_field(1, request)))
    return b"".join(frame_records(logs))


def write_saved_model(
    model: EncoderAndHead,
    signatures: Mapping[str, Callable],
    export_dir: str,
    extra_files: Mapping[str, str | bytes] | None = None,
    tokenizer: tf.Module | None = None,
) -> str:
    """Writes a SavedModel into a new subdirectory of `export_dir`, atomically; returns its path.

    The subdirectory is named after the time in seconds, but its number is always larger than the
    numbers of earlier exports. `albert_tf.load` can read it, because it contains the weights by the
    original's names and, in `assets.extra`, the configuration. `extra_files` maps file names to
    contents. `signatures` are TensorFlow functions that use the variables of `model` and
    `tokenizer`. Raises `WriteError` if the directory cannot be written.
    """
    root = tf.Module()
    root.weights = {name: variable.value for name, variable in original_names(model).items()}
    if tokenizer is not None:
        root.tokenizer = tokenizer
    config = json.dumps(model.config.to_dict(), indent=2)
    # Servers ignore the temporary name.
    with temporary_folder(os.path.join(export_dir, "export")) as temporary:
        tf.saved_model.save(root, temporary, dict(signatures))
        for name, text in {CONFIG_FILE: config, **(extra_files or {})}.items():
            write_file(os.path.join(temporary, _EXTRA_FOLDER, name), text)
        path = os.path.join(export_dir, next_version(export_dir))
        finish(temporary, path)
    logging.info("Exported the model to %s", path)
    return path


def next_version(export_dir: str) -> str:
    """Returns the name of the next export: the time in seconds, but larger than all others."""
    # Servers use the largest number, and the clock may have been set back.
    versions = filter(re.compile("[0-9]+").fullmatch, folder_names(export_dir))
    return str(max([int(time.time()), *(int(name) + 1 for name in versions)]))


class Sequences(NamedTuple):
    """N sequences of one or two segments, see `TokenSequences`."""

    ids: tf.RaggedTensor  # int32 [N, (tokens)]
    first_lengths: tf.Tensor  # int32 [N]; lengths of segment 0, including special tokens

    def rows(self, rows: tf.Tensor) -> Sequences:
        """Returns the sequences with these indices, int [n]."""
        return Sequences(tf.gather(self.ids, rows), tf.gather(self.first_lengths, rows))

    def padded(self) -> Outputs:
        """Returns a batch padded to the longest sequence, or to 1 token if it is empty."""
        ids = self.ids.to_tensor()
        ids = tf.pad(ids, [[0, 0], [0, tf.cast(tf.shape(ids)[1] == 0, tf.int32)]])
        lengths = tf.cast(self.ids.row_lengths(), tf.int32)
        positions = tf.range(tf.shape(ids)[1])
        is_real = positions < lengths[:, None]
        is_second = is_real & (positions >= self.first_lengths[:, None])
        columns = (ids, tf.cast(is_real, tf.int32), tf.cast(is_second, tf.int32))
        return dict(zip(INPUTS, columns, strict=True))


def row_parts(
    rows: tf.RaggedTensor, starts: tf.Tensor, lengths: tf.Tensor, owners: tf.Tensor
) -> tf.RaggedTensor:
    """Returns n parts of rows [N, (tokens)].

    Part i has `lengths[i]` tokens and begins at token `starts[i]` of row `owners[i]`.
    """
    begins = tf.gather(rows.row_starts(), owners) + tf.cast(starts, tf.int64)
    places = tf.ragged.range(begins, begins + tf.cast(lengths, tf.int64))
    return places.with_flat_values(tf.gather(rows.flat_values, places.flat_values))


def first_tokens(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first tokens of each row, at most `lengths`, int64 [N]."""
    lengths = tf.minimum(rows.row_lengths(), lengths)
    return row_parts(rows, tf.zeros_like(lengths), lengths, tf.range(rows.nrows()))


def cut_pairs(
    first: tf.RaggedTensor, second: tf.RaggedTensor, max_seq_length: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Truncates the end of the longer text, as `finetuning.texts.text_sequences` does.

    Single texts have an empty `second`. `max_seq_length` includes the special tokens.
    """
    lengths, others = first.row_lengths(), second.row_lengths()
    is_pair = others > 0
    room = tf.where(is_pair, max_seq_length - 3, max_seq_length - 2)
    room = tf.cast(room, tf.int64)
    half = tf.where(is_pair, room // 2, 0)
    return (
        first_tokens(first, tf.maximum(room - others, room - half)),
        first_tokens(second, tf.maximum(room - lengths, half)),
    )


def joined(
    first: tf.RaggedTensor, second: tf.RaggedTensor, tokenizer: Any, *, ends_empty: bool = False
) -> Sequences:
    """Returns the sequences [CLS] a [SEP], or [CLS] a [SEP] b [SEP] if b is not empty.

    With `ends_empty`, the second [SEP] is also added if b is empty.
    """
    rows = tf.ones([first.nrows(), 1], tf.int32)
    begins, ends = (
        tf.RaggedTensor.from_tensor(rows * i) for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    is_ended = tf.ones_like(rows[:, 0], tf.bool) if ends_empty else second.row_lengths() > 0
    lasts = tf.ragged.boolean_mask(ends, is_ended[:, None])
    ids = tf.concat([begins, first, ends, second, lasts], axis=1)
    return Sequences(ids, tf.cast(first.row_lengths() + 2, tf.int32))
