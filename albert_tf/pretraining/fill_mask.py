"""Fills in blanks: what a pretrained model expects at each [MASK] of a text."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.checkpoints.model_source import ModelSettings, resolve_model, stored_model
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import WORD_START

MASK = "[MASK]"


class Candidate(NamedTuple):
    """A token that may stand at a blank, and its probability in [0, 1]."""

    token: str
    probability: float


class MaskFiller:
    """A pretrained model and its tokenizer.

    Args:
        model: where it lies, in any format; see `load`.
        do_lower_case: whether the model was trained on lower-cased text; None takes what the model
            says, and True where it says nothing.
        flag: the flag the path came from, for messages.

    Raises:
        ValueError: something is missing, or does not fit the rest.
    """

    def __init__(
        self, model: str, do_lower_case: bool | None = None, flag: str = "--model_dir"
    ) -> None:
        stored = stored_model(model, flag)
        if stored is None or not stored.checkpoint:
            raise ValueError(f"{flag} names no model. Received: {model!r}")
        source = resolve_model(ModelSettings(do_lower_case=do_lower_case), stored)
        if source.tokenizer is None:
            raise ValueError(f"{flag} must hold a tokenizer. Received: {model!r}, which has none")
        self.tokenizer = source.tokenizer
        # Without the other head, models that were trained without it will do as well.
        self.model = AlbertForPretraining(source.config, has_sentence_order_head=False)
        load_weights(self.model, stored.checkpoint).check_complete()

    @classmethod
    def of(cls, model: AlbertForPretraining, tokenizer: Tokenizer) -> MaskFiller:
        """Makes one of a model that has its masked-LM head, and of the tokenizer it learnt with."""
        filler = cls.__new__(cls)
        filler.model, filler.tokenizer = model, tokenizer
        return filler

    def fill(self, text: str, top_k: int = 5) -> list[list[Candidate]]:
        """Finds the likeliest tokens of each [MASK], every blank seen on its own.

        Args:
            text: with [MASK] at one place or several; each stands for a single token.
            top_k: tokens to return of each.

        Returns:
            For each [MASK], in order, its `top_k` likeliest tokens, the likeliest first.

        Raises:
            ValueError: there is no [MASK], or the text is too long for the model.
        """
        ids = self._encode(text)
        positions = [i for i, token_id in enumerate(ids) if token_id == self.tokenizer.mask_id]
        if not positions:
            raise ValueError(
                f"The text must contain {MASK} where the model is to fill in a "
                f"token. Received: {text!r}"
            )
        self.model.config.check_sequence_length(len(ids), "The number of tokens of the text")
        outputs = self.model(
            {"input_ids": tf.constant([ids]), "masked_lm_positions": tf.constant([positions])}
        )
        probabilities = tf.nn.softmax(outputs["masked_lm_logits"][0])
        values, tokens = tf.math.top_k(probabilities, min(top_k, self.tokenizer.vocab_size))
        return [
            [
                Candidate(self.tokenizer.tokens[i], float(p))
                for i, p in zip(row, scores, strict=True)
            ]
            for row, scores in zip(tokens.numpy(), values.numpy(), strict=True)
        ]

    def _encode(self, text: str) -> list[int]:
        """[CLS], the ids of the text with `mask_id` at its blanks, [SEP]."""
        tokenizer = self.tokenizer
        first, *rest = text.split(MASK)
        ids = tokenizer.encode(first)
        for part in rest:
            part_ids = tokenizer.encode(part)
            # The tokenizer opens every text with a word; after "[MASK]." none is opened.
            if part_ids and part[:1].strip() and tokenizer.tokens[part_ids[0]] == WORD_START:
                del part_ids[0]
            ids += [tokenizer.mask_id, *part_ids]
        return [tokenizer.cls_id, *ids, tokenizer.sep_id]
