"""Grows models: another vocabulary or another number of positions; other weights stay unchanged."""

import dataclasses
import os
from collections.abc import Sequence

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.loading import build
from albert_tf.checkpoints.model_directory import (
    SENTENCEPIECE_FILE,
    WORDPIECE_FILE,
    with_rules,
    with_vocabulary,
)
from albert_tf.checkpoints.report import TABLES
from albert_tf.checkpoints.stored_model import GLOBAL_STEP, StoredModel, StoredTokenizer, Weights
from albert_tf.config import AlbertConfig
from albert_tf.data.arguments import as_path, check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.modeling.original_names import is_slot
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import clean_text
from albert_tf.tokenization.word_piece import CONTINUATION, word_character

WORDS, MASKED_LM_BIAS, POSITIONS = TABLES
_SPECIAL_IDS = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")


def grow(
    path: str | os.PathLike,
    *,
    tokenizer: Tokenizer | None = None,
    max_position_embeddings: int | None = None,
    seed: int = 12345,
) -> keras.Model:
    """Loads a model with another vocabulary or number of positions; logs what was kept.

    Word embeddings and masked-LM biases are kept for pieces that both vocabularies contain. Special
    tokens are matched by their role, and "▁word" of SentencePiece matches "word" of WordPiece, as
    "word" matches "##word". If only one of the tokenizers lower-cases text, pieces also match their
    lower case. The values of new pieces are random with the mean and the standard deviation of the
    old ones. New position i takes the embedding of the old position i mod P. All other weights are
    unchanged. Train the result with `run_pretraining` before you fine-tune it.

    Args:
        path: a model of any format, see `load`, with a tokenizer if `tokenizer` is given.
        tokenizer: the new tokenizer. If `None`, the vocabulary is unchanged.
        max_position_embeddings: the new number of positions. If `None`, it is unchanged.
        seed: seed of the random values.

    Returns:
        The model of the stored head, see `load`. `model.tokenizer` is the new tokenizer.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: there is no model, or its pieces cannot be matched because it has no tokenizer.
    """
    old = open_model(as_path("path", path))
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        raise TypeError(f"tokenizer must be a result of load_tokenizer. Received: {tokenizer!r}")
    if max_position_embeddings is not None:
        check_whole_number("max_position_embeddings", max_position_embeddings, at_least=1)
    return build(grown_model(old, tokenizer, max_position_embeddings, seed=seed))[0]


def grown_model(
    old: StoredModel,
    tokenizer: Tokenizer | None,
    positions: int | None,
    config: AlbertConfig | None = None,
    *,
    seed: int,
) -> StoredModel:
    """Returns a model whose tables grow when they are read, see `grow`; logs what is kept.

    If `config` is given, it determines the sizes, and `positions` is ignored.
    """
    weights, rows = old.weights, {}
    config = config or old.required_config.replace(
        vocab_size=tokenizer.vocab_size if tokenizer else old.required_config.vocab_size,
        max_position_embeddings=positions or old.required_config.max_position_embeddings,
    )
    if tokenizer is not None:
        config = with_rules(config, tokenizer.rules)
    shapes = {n: s for n, s in weights.shapes.items() if not is_slot(n) and n != GLOBAL_STEP}
    if WORDS in weights and POSITIONS in weights:  # otherwise, loading raises an error
        pieces = _old_ids(old, tokenizer, shapes[WORDS][0], config.vocab_size)
        size, old_size = config.max_position_embeddings, shapes[POSITIONS][0]
        rows = {WORDS: pieces, MASKED_LM_BIAS: pieces, POSITIONS: np.arange(size) % old_size}
        kept, used = np.count_nonzero(pieces >= 0), len(np.unique(pieces[pieces >= 0]))
        logging.info(
            "Growing %s: pieces: %d kept, %d new, %d dropped; positions: %d kept, %d copied, %d "
            "dropped",
            *(weights.source, kept, len(pieces) - kept, shapes[WORDS][0] - used),
            *(min(size, old_size), max(0, size - old_size), max(0, old_size - size)),
        )

    def read(name: str) -> np.ndarray:
        if name not in rows:
            return weights[name]
        return _take_rows(weights[name], rows[name], [seed, TABLES.index(name)])

    shapes |= {n: [len(rows[n]), *shape[1:]] for n, shape in shapes.items() if n in rows}
    grown = Weights(weights.source, shapes, read)
    return dataclasses.replace(
        old,
        config=with_vocabulary(config, None),
        stored_tokenizer=StoredTokenizer(loaded=tokenizer or old.tokenizer),
        open_weights=lambda: grown,
    )


def _take_rows(table: np.ndarray, rows: np.ndarray, seed: Sequence[int]) -> np.ndarray:
    """Returns rows of a table. Row -1 is drawn from the mean and deviation of all rows."""
    table = table.astype(np.float32)
    taken, new = table[rows], np.flatnonzero(rows < 0)
    noise = np.random.default_rng(seed).standard_normal((len(new), *table.shape[1:]), np.float32)
    taken[new] = table.mean(axis=0) + table.std(axis=0) * noise
    return taken


def _old_ids(old: StoredModel, tokenizer: Tokenizer | None, old_size: int, size: int) -> np.ndarray:
    """Returns the old id of each of `size` new pieces, or -1."""
    there = old.tokenizer
    tokenizer = tokenizer or there
    if tokenizer and tokenizer.vocab_size > size:
        raise UserError(
            f"The vocabulary {tokenizer.source} has {tokenizer.vocab_size} tokens, but "
            f"`albert_config_file` sets vocab_size {size}. Omit it to use the size of the "
            "vocabulary."
        )
    if tokenizer is there:
        return np.where(np.arange(size) < old_size, np.arange(size), -1)
    if tokenizer is None or there is None:
        raise UserError(
            f"The pieces of {old.path} cannot be matched to another vocabulary, because it has no "
            "tokenizer. Copy the tokenizer that it was trained with into the directory of the "
            f"weights, as {SENTENCEPIECE_FILE} or {WORDPIECE_FILE}. {old.stored_tokenizer.note}"
        )
    special = {getattr(tokenizer, name): getattr(there, name) for name in _SPECIAL_IDS}
    pieces = enumerate(there.tokens[:old_size])
    by_piece = {piece: i for i, piece in pieces if i not in special.values()}
    by_lower_case: dict[str, int] = {}
    if there.do_lower_case != tokenizer.do_lower_case:
        for piece, i in by_piece.items():
            by_lower_case.setdefault(clean_text(piece, True), i)
    found = np.full(size, -1)
    for i, piece in enumerate(tokenizer.tokens):
        names = _names_in(there, piece, tokenizer)
        ids = [by_piece.get(name) for name in names]
        ids += [by_lower_case.get(clean_text(name, True)) for name in names]
        found[i] = special.get(i, next((j for j in ids if j is not None), -1))
    return found


def _names_in(there: Tokenizer, piece: str, tokenizer: Tokenizer) -> list[str]:
    """Returns the names that a piece of a tokenizer can have in the vocabulary of another."""
    ours, theirs = tokenizer.word_start, there.word_start
    if bool(ours) == bool(theirs):
        return [piece.replace(ours, theirs)]
    text = piece.removeprefix(ours or CONTINUATION)
    starts_word = (text == piece) == (not ours)
    if len(text) == 1 and word_character(text) != text:  # WordPiece isolates it from both sides
        return [text] if ours else [text, theirs + text]
    if ours:
        return [text if starts_word else CONTINUATION + text]
    return [theirs + text if starts_word else text]
