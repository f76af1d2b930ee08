"""Text embeddings from an encoder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.checkpoints.loading import check_model, find_model
from albert_tf.data.arguments import renamed_arguments, texts_and_pairs
from albert_tf.data.errors import UserError
from albert_tf.data.sequences import check_room
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.finetuning.texts import text_examples, text_sequences
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import EncoderAndHead
from albert_tf.tokenization.base import Tokenizer

_POOLER = "bert/pooler/"
_POOLINGS = ("mean", "pooled")
_VECTORS = "vectors"


class TextEncoder:
    """Computes a vector for each text or pair of texts.

    Args:
        model: an encoder, or a model with an encoder; its heads are not run.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        pooling: "mean", the mean of `sequence_output` over all tokens except padding, including
            [CLS] and [SEP], as in sentence-transformers; or "pooled", the `pooled_output`.
        max_seq_length: maximum number of tokens of a sequence; longer ones are truncated. If
            `None`, 512, or the number of positions of the model if smaller.
        batch_size: sequences of that length per batch; batches of shorter ones are larger.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer does not match the model, `pooling` is unknown, or a number is out
            of range.
    """

    def __init__(
        self,
        model: AlbertEncoder | EncoderAndHead,
        tokenizer: Tokenizer | None = None,
        *,
        pooling: Literal["mean", "pooled"] = "mean",
        max_seq_length: int | None = None,
        batch_size: int = 8,
    ) -> None:
        self.tokenizer = check_model(model, (AlbertEncoder, EncoderAndHead), tokenizer)
        _check_pooling(pooling)
        encoder = model.encoder if isinstance(model, EncoderAndHead) else model

        def encode(
            features: Mapping[str, tf.Tensor], training: bool = False
        ) -> dict[str, tf.Tensor]:
            outputs = encoder(features, training=training)
            if pooling == "pooled":
                return {_VECTORS: outputs["pooled_output"]}
            tokens = tf.cast(outputs["sequence_output"], tf.float32)
            weights = tf.cast(features["input_mask"], tf.float32)[:, :, tf.newaxis]
            sums = tf.reduce_sum(tokens * weights, axis=1)
            return {_VECTORS: sums / tf.maximum(tf.reduce_sum(weights, axis=1), 1.0)}

        self._predictor = new_predictor(
            encode,
            model.config,
            outputs=(_VECTORS,),
            max_seq_length=max_seq_length,
            batch_size=batch_size,
        )
        check_room(False, self._predictor.max_seq_length)
        self.pooling = pooling

    @classmethod
    @renamed_arguments(where="path")
    def load(
        cls,
        path: str | os.PathLike,
        *,
        pooling: Literal["mean", "pooled"] = "mean",
        max_seq_length: int | None = None,
        batch_size: int = 8,
    ) -> TextEncoder:
        """Loads the encoder of any model.

        Args:
            path: a model of any format, see `load`. For a training directory, its best checkpoint
                is used, otherwise the newest.
            pooling: see `TextEncoder`.
            max_seq_length: see `TextEncoder`.
            batch_size: see `TextEncoder`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, it has no tokenizer, or no pooler for "pooled", or see
                `TextEncoder`.
        """
        _check_pooling(pooling)
        found = find_model(path)
        encoder = AlbertEncoder(found.source.config)
        report = load_weights(encoder, found.stored, allow_partial=True)
        poolers = [name for name in report.missing if name.startswith(_POOLER)]
        if poolers and pooling == "pooled":
            raise UserError(
                f"pooling='pooled' needs a model with a pooler. Received: path={found.path!r}, "
                "which has none; use pooling='mean'"
            )
        dataclasses.replace(report, unused=poolers).check_encoder()
        report.check_no_block_is_left()
        return cls(
            encoder,
            found.tokenizer,
            pooling=pooling,
            max_seq_length=max_seq_length,
            batch_size=batch_size,
        )

    def __call__(self, texts: Iterable[str], text_pairs: Iterable[str] | None = None) -> np.ndarray:
        """Encodes texts; how texts are batched changes vectors at most by rounding.

        Args:
            texts: N >= 1 texts.
            text_pairs: N second texts.

        Returns:
            float32 [N, H], in the order of the texts.

        Raises:
            TypeError: an argument is not a list of texts.
            ValueError: there is no text, the number of second texts differs, there is no room for a
                token of each text, or the model's output is not finite.
        """
        first, second = texts_and_pairs(texts, text_pairs)
        if second is not None:
            check_room(True, self._predictor.max_seq_length)
        length = self._predictor.max_seq_length
        examples = text_examples(first, second)
        sequences = text_sequences(examples, self.tokenizer, length, warns=True)
        return self._predictor.predict(sequences, "encoding")[_VECTORS]


def _check_pooling(pooling: object) -> None:
    if pooling not in _POOLINGS:
        raise UserError(f"pooling must be 'mean' or 'pooled'. Received: {pooling!r}")
