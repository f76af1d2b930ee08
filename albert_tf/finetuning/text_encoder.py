"""`TextEncoder`: vectors for texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.loading import check_model, new_model, open_with_tokenizer
from albert_tf.checkpoints.pickling import Picklable
from albert_tf.data.arguments import check_single, texts_and_pairs
from albert_tf.data.errors import UserError
from albert_tf.data.sequences import check_room
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.finetuning.texts import text_examples, text_sequences
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.layouts import Read
from albert_tf.modeling.models import EncoderAndHead
from albert_tf.modeling.ops import Ops
from albert_tf.tokenization.base import Tokenizer

_VECTORS = "vectors"


class TextEncoder(Picklable):
    """Computes a vector for each text or pair of texts.

    Args:
        model: an encoder, or a model with an encoder; its heads are not run.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        pooling: "mean", the mean of `sequence_output` over all tokens except padding, including
            [CLS] and [SEP], as in sentence-transformers; or "pooled", the `pooled_output`.
        max_seq_length: maximum number of tokens of a sequence. If `None`, the smaller of 512 and
            the number of positions of the model is used.
        batch_size: number of sequences of length `max_seq_length` per batch.

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
        if pooling not in ("mean", "pooled"):
            raise UserError(f"pooling must be 'mean' or 'pooled'. Received: {pooling!r}")
        encoder = model.encoder if isinstance(model, EncoderAndHead) else model

        def encode(
            features: Mapping[str, tf.Tensor], training: bool, ops: Ops
        ) -> dict[str, tf.Tensor]:
            is_token = tf.not_equal(features["input_mask"], 0)
            read: Read = "first" if pooling == "pooled" else is_token
            outputs = encoder(features, training=training, ops=ops, keras_mask=False, read=read)
            if pooling == "pooled":
                return {_VECTORS: outputs["pooled_output"]}
            tokens = tf.cast(outputs["sequence_output"], tf.float32)
            weights = tf.cast(features["input_mask"], tf.float32)[:, :, tf.newaxis]
            sums = tf.reduce_sum(tokens * weights, axis=1)
            return {_VECTORS: sums / tf.maximum(tf.reduce_sum(weights, axis=1), 1.0)}

        self._predictor = new_predictor(
            encoder,
            model.config,
            outputs=(_VECTORS,),
            max_seq_length=max_seq_length,
            batch_size=batch_size,
            compute=encode,
        )
        check_room(False, self._predictor.max_seq_length)
        self.pooling = pooling

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        pooling: Literal["mean", "pooled"] = "mean",
        max_seq_length: int | None = None,
        batch_size: int = 8,
        precision: str = "float32",
    ) -> TextEncoder:
        """Loads the encoder of any model.

        `path` is a model of any format; see `albert_tf.load`. For a training directory, the best
        checkpoint is used or, if there is none, the newest. For `pooling`, `max_seq_length` and
        `batch_size` see `TextEncoder`, for `precision` see `TextClassifier.load`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, it has no tokenizer, `pooling` is "pooled" but the model
                has no pooler, or an argument is invalid, see `TextEncoder`.
        """
        stored = open_with_tokenizer(path, precision=precision)

        def create() -> AlbertEncoder:
            encoder = AlbertEncoder(stored.required_config, dtype=stored.dtype)
            encoder.uses_pooler = pooling == "pooled"
            return encoder

        encoder, report = new_model(create, stored.weights)
        if report.unused and pooling == "pooled":
            raise UserError(
                f"pooling='pooled' needs a model with a pooler. Use pooling='mean'. Received: "
                f"path={stored.path!r}, a model without a pooler"
            )
        return cls(
            encoder,
            stored.required_tokenizer,
            pooling=pooling,
            max_seq_length=max_seq_length,
            batch_size=batch_size,
        )

    def __call__(
        self, texts: str | Iterable[str], text_pairs: str | Iterable[str] | None = None
    ) -> np.ndarray:
        """Encodes N >= 1 texts, or pairs of texts, or one text.

        Returns:
            float32 [N, H], in the order of the texts; [H] for one text.

        Raises:
            TypeError: an argument is not a list of texts.
            ValueError: there is no text, the number of second texts differs, there is no room for a
                token of each text, or the model's output is not finite.
        """
        if isinstance(texts, str):
            check_single("texts", "text_pairs", text_pairs)
            return self([texts], None if text_pairs is None else [text_pairs])[0]  # type: ignore
        examples = text_examples(*texts_and_pairs(texts, text_pairs))
        length = self._predictor.max_seq_length
        sequences = text_sequences(examples, self.tokenizer, length, warn_above=0.0)
        return self._predictor.predict(sequences, "encoding")[_VECTORS]
