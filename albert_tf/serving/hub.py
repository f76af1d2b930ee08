"""Exports a model for TF-Hub: an encoder with its text preprocessor, or a module of TensorFlow 1.

A preprocessor is a SavedModel, which requires tensorflow_text. docs/exporting.md describes its
functions.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_text

from albert_tf.checkpoints.convert import ConversionReport, check_target, convert, new_directory
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.checkpoints.signatures import DEFAULT_SIGNATURE
from albert_tf.data.arguments import as_path
from albert_tf.data.errors import UserError
from albert_tf.serving.tokenizer_graph import GraphTokenizer, Offsets
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import require_own_rules
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_FORMATS = {"tf2": "tf2_hub", "tf1_hub": "tf1_hub"}  # for `albert_tf.convert`, by `format`
_LENGTH = 128  # default `seq_length`, as on TF-Hub, unless the model has fewer positions
_TEXTS = tf.TensorSpec([None], tf.string, name="sentences")
_LENGTH_SPEC = tf.TensorSpec([], tf.int32, name="seq_length")
# Tokens of texts, or of the words of texts.
_IDS = (tf.RaggedTensorSpec([None, None], tf.int32), tf.RaggedTensorSpec([None] * 3, tf.int32))


def export_hub_module(
    path: str | os.PathLike,
    export_path: str | os.PathLike,
    *,
    format: str = "tf2",
    preprocessor_path: str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
    dry_run: bool = False,
) -> ConversionReport:
    """Writes a TF-Hub encoder or module and verifies it, as `export_to_tfhub.py` does.

    Args:
        path: a model of any format, see `albert_tf.load`.
        export_path: a new or an empty directory.
        format: "tf2" for an encoder, or "tf1_hub" for a module for TensorFlow 1.
        preprocessor_path: for "tf2", directory of a preprocessor that converts texts to inputs of
            the encoder. If `None`, no preprocessor is written.
        do_lower_case: whether texts are lower-cased. If `None`, the setting of the model is used.
        keep_accents: whether accents are kept. If `None`, the setting of the model is used.
        dry_run: whether to check only that the model can be exported.

    Raises: see `convert`.
    """
    if format not in _FORMATS:
        raise UserError(f"`format` must be 'tf2' or 'tf1_hub'. Received: {format!r}")
    path = as_path("path", path)
    export_path = as_path("export_path", export_path, "path of a directory")
    rules: dict[str, Any] = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    export = partial(convert, path, _FORMATS[format], export_path, dry_run=dry_run, **rules)
    check_target(export_path)
    if not preprocessor_path:
        return export()
    preprocessor_path = os.fspath(preprocessor_path)
    if format != "tf2":
        raise UserError(
            "`preprocessor_path` requires `format`=tf2. TF1 modules take token ids and contain the "
            f"tokenizer as a file. Received: `format`={format}"
        )
    targets = [os.path.abspath(target) for target in (preprocessor_path, export_path)]
    if os.path.commonpath(targets) in targets:
        raise UserError(
            "`preprocessor_path` and `export_path` must be different, and not inside each other. "
            f"Received: {preprocessor_path} and {export_path}"
        )
    check_target(preprocessor_path)
    tokenizer = load_tokenizer(path, **rules)
    require_own_rules(tokenizer, "A preprocessor")
    config = open_model(path).config
    length = min(_LENGTH, config.max_position_embeddings) if config else _LENGTH
    if dry_run:
        return export()
    with new_directory(preprocessor_path) as directory:
        write_preprocessor(directory, tokenizer, length)
        return export()  # if this fails, the preprocessor is removed


def write_preprocessor(directory: str, tokenizer: Tokenizer, seq_length: int) -> None:
    """Writes a preprocessor into a new or an empty directory.

    The vocabulary is stored in the graph and as an asset. `seq_length` is the default number of
    tokens, including special tokens.
    """
    preprocessor = Preprocessor(tokenizer, seq_length)
    served = preprocessor.__call__.get_concrete_function(_TEXTS)
    preprocessor.__call__.get_concrete_function(_TEXTS, _LENGTH_SPEC)
    for ids in _IDS:
        for segments in ([ids], [ids, ids]):
            preprocessor.bert_pack_inputs.get_concrete_function(segments)
            preprocessor.bert_pack_inputs.get_concrete_function(segments, _LENGTH_SPEC)
    tf.saved_model.save(preprocessor, directory, {DEFAULT_SIGNATURE: served})


class Preprocessor(tf.Module):
    """Maps texts to the inputs of an encoder; see docs/exporting.md."""

    def __init__(self, tokenizer: Tokenizer, seq_length: int) -> None:
        super().__init__()
        graph = GraphTokenizer(tokenizer)
        self.tokenize = _Tokenize(graph)
        self.tokenize_with_offsets = _TokenizeWithOffsets(graph)
        self._seq_length = seq_length
        if tokenizer.files:
            asset = tf.saved_model.Asset(os.fspath(tokenizer.files[0]))
            if isinstance(tokenizer, SentencePieceTokenizer):
                self.sp_model_file = asset
            else:
                self.vocab_file = asset

    @tf.function(autograph=False)
    def __call__(
        self, sentences: tf.Tensor, seq_length: tf.Tensor | int | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the inputs of an encoder for texts, string [B]."""
        return self._inputs([self.tokenize.graph.tokenize(sentences)], seq_length)

    @tf.function(autograph=False)
    def bert_pack_inputs(
        self, inputs: Sequence[tf.RaggedTensor], seq_length: tf.Tensor | int | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns the inputs of an encoder for one or two segments of ids, int32 [B, (tokens)]."""
        return self._inputs(inputs, seq_length)

    def _inputs(
        self, segments: Sequence[tf.RaggedTensor], seq_length: tf.Tensor | int | None
    ) -> dict[str, tf.Tensor]:
        ids = [ids.merge_dims(1, -1) if ids.shape.rank > 2 else ids for ids in segments]
        if seq_length is not None:
            return self._pack(ids, tf.convert_to_tensor(seq_length))
        rows = self._pack(ids, tf.constant(self._seq_length))
        return {name: tf.ensure_shape(row, [None, self._seq_length]) for name, row in rows.items()}

    @tf.function(reduce_retracing=True, autograph=False)
    def _pack(self, segments: list[tf.RaggedTensor], length: tf.Tensor) -> dict[str, tf.Tensor]:
        least = 2 * len(segments) + 1  # special tokens, and a token per segment
        message = f"seq_length must be at least {least} for {len(segments)} segments"
        with tf.control_dependencies([tf.debugging.assert_greater_equal(length, least, message)]):
            room = length - (len(segments) + 1)
        graph = self.tokenize.graph
        segments = tensorflow_text.RoundRobinTrimmer(room).trim(segments)
        ids, types = tensorflow_text.combine_segments(segments, graph.cls_id, graph.sep_id)
        ids, mask = tensorflow_text.pad_model_inputs(ids, length, graph.pad_id)
        types, _ = tensorflow_text.pad_model_inputs(types, length)
        return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}


class _Tokenize(tf.Module):
    def __init__(self, graph: GraphTokenizer) -> None:
        super().__init__()
        self.graph = graph

    @tf.function(input_signature=[_TEXTS], autograph=False)
    def __call__(self, sentences: tf.Tensor) -> tf.RaggedTensor | Offsets:
        return self.graph.tokenize(sentences)

    @tf.function(input_signature=[], autograph=False)
    def get_special_tokens_dict(self) -> dict[str, tf.Tensor]:
        """Returns the ids of the special tokens and the size of the vocabulary, int32 []."""
        numbers = {
            "start_of_sequence_id": self.graph.cls_id,
            "end_of_segment_id": self.graph.sep_id,
            "padding_id": self.graph.pad_id,
            "mask_id": self.graph.mask_id,
            "vocab_size": self.graph.vocab_size,
        }
        return {name: tf.constant(number, tf.int32) for name, number in numbers.items()}


class _TokenizeWithOffsets(_Tokenize):
    @tf.function(input_signature=[_TEXTS], autograph=False)
    def __call__(self, sentences: tf.Tensor) -> Offsets:
        return self.graph.tokenize_with_offsets(sentences)
