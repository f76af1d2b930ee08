"""Predicts the tokens at each [MASK] of a text with a pretrained model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.loading import check_model, new_model, open_with_tokenizer
from albert_tf.checkpoints.pickling import Picklable
from albert_tf.checkpoints.stored_heads import MASKED_LM_HEAD, heads_in
from albert_tf.data.arguments import as_texts, check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.data.parallel import progress
from albert_tf.data.sequences import log_truncated
from albert_tf.modeling.base import lora_rank
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.rounded import rounded_model
from albert_tf.tokenization.base import WORD_START, Tokenizer
from albert_tf.tokenization.piece_counts import counting

MASK = "[MASK]"


class Candidate(NamedTuple):
    """A token that may replace a [MASK]."""

    token: str  # its text, such as "by" or, inside a word, "ing"
    probability: float  # in [0, 1]
    sequence: str  # the text with this token, and with the best token for every other [MASK]
    piece: str  # the token in the vocabulary, such as "▁by" or "##ing"


class FillMask(Picklable):
    """Predicts the tokens at each [MASK] of texts with a pretrained model.

    If the model has more word embeddings than the tokenizer has tokens, embeddings without a token
    are not candidates. Probabilities include these embeddings, as in transformers.

    Args:
        model: a model with a masked-LM head.
        tokenizer: the tokenizer of the model. If `None`, `model.tokenizer` is used.
        batch_size: number of sequences of maximum length per batch. If sequences are shorter, a
            batch contains more sequences.

    Raises:
        ValueError: the tokenizer does not fit the model, or `batch_size` is less than 1.
    """

    def __init__(
        self,
        model: AlbertForPretraining,
        tokenizer: Tokenizer | None = None,
        *,
        batch_size: int = 8,
    ) -> None:
        self.tokenizer = check_model(model, AlbertForPretraining, tokenizer)
        check_whole_number("batch_size", batch_size, 1)
        self.model = model
        self.batch_size = batch_size
        self._compute = rounded_model(model, model.config.max_position_embeddings) or model

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        batch_size: int = 8,
        precision: str = "float32",
        do_lower_case: bool | None = None,
        keep_accents: bool | None = None,
    ) -> FillMask:
        """Loads a pretrained model.

        Args:
            path: a model of any format, see `albert_tf.load`. If a directory contains several
                checkpoints, the newest is loaded.
            batch_size: see `FillMask`.
            precision: precision of matrix products in predictions, "float32" or "bfloat16".
            do_lower_case: whether the model was trained on lower-cased text. If `None`, the setting
                of the model is used. If the model has no such setting, the default is True.
            keep_accents: whether the model was trained on text with accents, for SentencePiece. If
                `None`, the setting of the model is used. The default of other models is False.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, or the model has no masked-LM head or no matching
                tokenizer.
        """
        rules = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
        parts = read_model(path, "path", precision=precision, **rules)
        return cls(*parts, batch_size=batch_size)

    def __call__(self, texts: str | Iterable[str], top_k: int = 5) -> list[list[list[Candidate]]]:
        """Returns the most probable tokens for each [MASK]. Each [MASK] is predicted independently.

        Texts that are longer than the model allows are truncated, with a warning.

        Args:
            texts: one or more texts. Each text must contain at least one [MASK].
            top_k: number of tokens to return, limited to the size of the vocabulary.

        Returns:
            For each text and each of its [MASK], in order, the `top_k` most probable tokens in
            descending order of probability. For one text instead of a list, only its own list.

        Raises:
            TypeError: `texts` is not a list of texts, or `top_k` is not a whole number.
            ValueError: there is no text, a text has no [MASK], a [MASK] is truncated, `top_k` is
                less than 1, or the output of the model is not finite.
        """
        if isinstance(texts, str):
            return self([texts], top_k)[0]  # type: ignore
        given = as_texts("texts", texts)
        check_whole_number("top_k", top_k, 1)
        if lora_rank(self.model):  # perhaps enabled after the last call
            self._compute = self.model
        rows = self._encode(given)
        shapes = [(len(ids), ids.count(self.tokenizer.mask_id)) for ids in rows]
        found: list[list[list[Candidate]]] = [[] for _ in rows]
        order = sorted(range(len(rows)), key=lambda index: shapes[index], reverse=True)
        batches = []
        for (length, count), same in groupby(order, key=lambda index: shapes[index]):
            members = list(same)
            # The memory also depends on the number of [MASK], because of their logits.
            room = self.batch_size * self.model.config.max_position_embeddings
            size = max(1, room // (length * count))
            batches += [members[start : start + size] for start in range(0, len(members), size)]
        for batch in progress(batches, "filling in"):
            filled = self._fill([rows[index] for index in batch], top_k)
            for index, (ids, values) in zip(batch, filled, strict=True):
                found[index] = self._candidates(given[index], ids, values)
        return found

    def _candidates(
        self, text: str, ids: list[list[int]], values: list[list[float]]
    ) -> list[list[Candidate]]:
        best, pieces = [first for first, *_ in ids], self.tokenizer.tokens

        def candidate(place: int, i: int, probability: float) -> Candidate:
            sequence = self._filled(text, [*best[:place], i, *best[place + 1 :]])
            token = self._text(i).strip() or pieces[i]
            return Candidate(token, probability, sequence, pieces[i])

        rows = enumerate(zip(ids, values, strict=True))
        return [[candidate(place, *pair) for pair in zip(*row, strict=True)] for place, row in rows]

    def _text(self, i: int) -> str:
        """Returns the text of a token, with a blank in front unless the token continues a word."""
        text = self.tokenizer.decode([self.tokenizer.unk_id, i], skip_special_tokens=False)
        return text.removeprefix(self.tokenizer.unk_token)

    def _filled(self, text: str, ids: Sequence[int]) -> str:
        """Returns the text with tokens in place of its [MASK]."""
        filled, *parts = text.split(MASK)
        for i, part in zip(ids, parts, strict=True):
            if not (token := self._text(i)).startswith(" "):
                filled = filled.rstrip()
            elif self.tokenizer.tokens[i].startswith(WORD_START) and filled[-1:].isalnum():
                filled += " "
            filled += token.strip() + part
        return filled

    def _fill(
        self, rows: Sequence[list[int]], top_k: int
    ) -> Iterator[tuple[list[list[int]], list[list[float]]]]:
        """Returns ids and probabilities for texts with equal numbers of tokens and of [MASK]."""
        ids = np.array(rows, np.int32)
        _, columns = np.nonzero(ids == self.tokenizer.mask_id)
        positions = columns.reshape(len(rows), -1).astype(np.int32)
        outputs = self._compute({"input_ids": ids, "masked_lm_positions": positions})
        logits = outputs["masked_lm_logits"][: len(rows)]
        num_tokens = self.tokenizer.vocab_size  # further rows of the embedding table have no name
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))[..., :num_tokens]
        values, tokens = tf.math.top_k(probabilities, min(top_k, num_tokens))
        if not np.isfinite(values).all():
            raise UserError(
                "The model's masked_lm_logits are not finite. The weights are damaged, or the "
                "training diverged. Use another checkpoint."
            )
        return zip(tokens.numpy().tolist(), values.numpy().tolist(), strict=True)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of the tokens of each text, truncated and with special tokens."""
        tokenizer, longest = self.tokenizer, self.model.config.max_position_embeddings
        rows, lengths = [], []
        for index, text in enumerate(texts):
            if MASK not in text:
                raise UserError(
                    f"Every text must contain at least one {MASK}. Received: texts[{index}]="
                    f"{text!r}"
                )
            ids = tokenizer.encode_special(text, special_tokens=[MASK])
            with counting(tokenizer) as counts:
                counts.add(tokenizer, [text.replace(MASK, " ")], [ids])
            kept = ids[: longest - 2]
            lengths.append(len(ids) + 2)
            if tokenizer.mask_id in ids[len(kept) :]:
                raise UserError(
                    f"texts[{index}] contains {MASK} after the first {longest - 2} tokens, the "
                    "maximum length without special tokens. Pass a shorter text."
                )
            rows.append([tokenizer.cls_id, *kept, tokenizer.sep_id])
        log_truncated(np.array(lengths), longest, 0.0)
        return rows


def read_model(path: object, name: str, **rules: Any) -> tuple[AlbertForPretraining, Tokenizer]:
    """Loads a model and its tokenizer for `FillMask`; see `open_with_tokenizer`."""
    stored = open_with_tokenizer(path, name, **rules)
    if not any(weight.startswith(MASKED_LM_HEAD) for weight in stored.weights):
        heads = ", ".join(heads_in(stored.weights.shapes)) or "none"
        raise UserError(
            f"{name} must be a model with a masked-LM head. Received: {path!r}, which has the "
            f"heads: {heads}"
        )
    # Models without a sentence-order head must also load.
    settings: dict[str, Any] = {"has_sentence_order_head": False, "dtype": stored.dtype}
    config, weights = stored.required_config, stored.weights
    model, report = new_model(lambda: AlbertForPretraining(config, **settings), weights)
    report.check_complete()
    return model, stored.required_tokenizer
