"""Token sequences of texts and pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from absl import logging

from albert_tf.data.jobs import progress
from albert_tf.data.sequences import TokenSequences, check_room
from albert_tf.data.text_examples import TextExample
from albert_tf.tokenization.base import Tokenizer

_EXAMPLES_AT_ONCE = 4096  # limits the memory of ids as Python integers


def text_examples(texts: Sequence[str], text_pairs: Sequence[str] | None) -> list[TextExample]:
    """Returns texts or pairs of texts as examples without labels, named by their numbers."""
    return [
        TextExample(str(number), text, text_pairs[number] if text_pairs else None)
        for number, text in enumerate(texts)
    ]


def text_sequences(
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    warns: bool = False,
) -> TokenSequences:
    """Tokenizes and truncates N texts or pairs.

    Args:
        examples: N texts or pairs.
        tokenizer: the tokenizer.
        max_seq_length: maximum length of a sequence.
        warns: whether the number of truncated examples is logged as a warning.

    Returns:
        N sequences of at most `max_seq_length` tokens, see `TokenSequences.from_segments`.

    Raises:
        ValueError: there is no room for a token of each text, or a text is not a string.
    """
    check_room(any(example.text_b is not None for example in examples), max_seq_length)
    parts, cut = [], 0
    for start in progress(range(0, len(examples), _EXAMPLES_AT_ONCE), "tokenizing"):
        tokens, lengths = _encoded(examples[start : start + _EXAMPLES_AT_ONCE], tokenizer)
        sequences = TokenSequences.from_segments(
            tokens,
            lengths,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            max_length=max_seq_length,
        )
        cut += int((sequences.lengths < lengths.sum(axis=1) + 2 + (lengths[:, 1] > 0)).sum())
        parts.append(sequences)
    if cut:
        level = logging.WARNING if warns else logging.INFO
        numbers = (cut, len(examples), max_seq_length)
        logging.log(level, "truncated=%d of=%d max_seq_length=%d", *numbers)
    return TokenSequences.concatenate(parts)


def _encoded(
    examples: Sequence[TextExample], tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of both texts of all examples, int32 [T], and their lengths, int64 [N, 2]."""
    pairs = [(example.text_a, example.text_b) for example in examples]
    texts = [text for pair in pairs for text in pair if text is not None]
    is_there = np.array([text is not None for pair in pairs for text in pair])
    ids = tokenizer.encode_batch(texts)
    lengths = np.zeros(len(is_there), np.int64)
    lengths[is_there] = np.fromiter(map(len, ids), np.int64, len(ids))
    tokens = np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum()))
    return tokens, lengths.reshape(-1, 2)
