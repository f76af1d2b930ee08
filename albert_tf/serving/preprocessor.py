"""Writes a tokenizer as a SavedModel with the text preprocessing interface of TensorFlow Hub.

Loaded with `hub.load` or `tf.saved_model.load` (`import tensorflow_text` first), it offers

* `preprocessor(texts)`: texts, string [B], to `input_word_ids`, `input_mask` and
  `input_type_ids`, int32 [B, seq_length]; `seq_length=` may be given;
* `preprocessor.tokenize(texts)`: ids, int32 [B, (tokens)], without special tokens;
* `preprocessor.tokenize.get_special_tokens_dict()`: ids of the special tokens, by name;
* `preprocessor.tokenize_with_offsets(texts)`: ids and their bytes in the texts;
* `preprocessor.bert_pack_inputs([segment])` or `([first, second])`: ids to the three inputs of an
  encoder; `seq_length=` may be given;
* the signature `serving_default`, with the input `sentences`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text

from albert_tf.checkpoints.tf2_hub.writing import DEFAULT_SIGNATURE
from albert_tf.data.errors import UserError
from albert_tf.serving.tokenizer_graph import GraphTokenizer, Offsets
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_TEXTS = tf.TensorSpec([None], tf.string, name="sentences")
_LENGTH = tf.TensorSpec([], tf.int32, name="seq_length")

# Tokens of a text, or words of a text and tokens of a word.
_IDS = (tf.RaggedTensorSpec([None, None], tf.int32), tf.RaggedTensorSpec([None] * 3, tf.int32))


def write(directory: str, tokenizer: Tokenizer, seq_length: int) -> None:
    """Writes a preprocessor for a tokenizer's models into a directory that is new or empty.

    The vocabulary is in it, twice: in the graph, and as the file it came from among the assets.
    Where a caller names no length, results have `seq_length` tokens, special ones included.

    Raises:
        ValueError: `seq_length` leaves no room for text; before anything is written.
    """
    check_length(seq_length)
    preprocessor = Preprocessor(tokenizer, seq_length)
    served = preprocessor.__call__.get_concrete_function(_TEXTS)
    preprocessor.__call__.get_concrete_function(_TEXTS, _LENGTH)
    for ids in _IDS:
        for segments in ([ids], [ids, ids]):
            preprocessor.bert_pack_inputs.get_concrete_function(segments)
            preprocessor.bert_pack_inputs.get_concrete_function(segments, _LENGTH)
    tf.saved_model.save(preprocessor, directory, {DEFAULT_SIGNATURE: served})


def check_length(seq_length: int) -> None:
    """Raises ValueError unless there is room for text between [CLS] and [SEP]."""
    if seq_length < _least_length(1):
        raise UserError(
            f"A seq_length of {seq_length} leaves no tokens for text between [CLS] and [SEP]: it "
            f"must be at least {_least_length(1)}."
        )


class Preprocessor(tf.Module):
    """Texts to the inputs of an encoder; see the module for what each part does."""

    def __init__(self, tokenizer: Tokenizer, seq_length: int) -> None:
        """Takes a tokenizer, and the length of results where a caller names none."""
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
        """Gives the inputs of an encoder for texts, string [B]."""
        return self._inputs([self.tokenize.graph.tokenize(sentences)], seq_length)

    @tf.function(autograph=False)
    def bert_pack_inputs(
        self, inputs: Sequence[tf.RaggedTensor], seq_length: tf.Tensor | int | None = None
    ) -> dict[str, tf.Tensor]:
        """Gives the inputs of an encoder for one or two segments of ids, int32 [B, (tokens)]."""
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
        """Truncates, joins and pads; traced once for each number of segments."""
        least = _least_length(len(segments))
        message = f"seq_length must be at least {least}, to hold {len(segments)} segments"
        with tf.control_dependencies([tf.debugging.assert_greater_equal(length, least, message)]):
            room = length - (len(segments) + 1)
        graph = self.tokenize.graph
        segments = tensorflow_text.RoundRobinTrimmer(room).trim(segments)
        ids, types = tensorflow_text.combine_segments(segments, graph.cls_id, graph.sep_id)
        ids, mask = tensorflow_text.pad_model_inputs(ids, length, graph.pad_id)
        types, _ = tensorflow_text.pad_model_inputs(types, length)
        return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}


class _Subobject(tf.Module):
    """What a loaded preprocessor shows beside itself."""

    def __init__(self, graph: GraphTokenizer) -> None:
        super().__init__()
        self.graph = graph

    @tf.function(input_signature=[], autograph=False)
    def get_special_tokens_dict(self) -> dict[str, tf.Tensor]:
        """Gives the ids of the special tokens and the size of the vocabulary, int32 []."""
        numbers = {
            "start_of_sequence_id": self.graph.cls_id,
            "end_of_segment_id": self.graph.sep_id,
            "padding_id": self.graph.pad_id,
            "mask_id": self.graph.mask_id,
            "vocab_size": self.graph.vocab_size,
        }
        return {name: tf.constant(number, tf.int32) for name, number in numbers.items()}


class _Tokenize(_Subobject):
    @tf.function(input_signature=[_TEXTS], autograph=False)
    def __call__(self, sentences: tf.Tensor) -> tf.RaggedTensor:
        """Gives ids, int32 [B, (tokens)]."""
        return self.graph.tokenize(sentences)


class _TokenizeWithOffsets(_Subobject):
    @tf.function(input_signature=[_TEXTS], autograph=False)
    def __call__(self, sentences: tf.Tensor) -> Offsets:
        """Gives ids and the first and one past the last byte of each, int32 [B, (tokens)]."""
        return self.graph.tokenize_with_offsets(sentences)


def _least_length(segments: int) -> int:
    """The shortest sequence with room for a token of each segment."""
    return 2 * segments + 1
