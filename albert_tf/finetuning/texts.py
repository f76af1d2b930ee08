"""Texts and pairs of texts, and their token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from albert_tf.data.parallel import progress
from albert_tf.data.sequences import TokenSequences, check_room, log_truncated
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import PieceCounts, counting

_EXAMPLES_AT_ONCE = 4096  # limits the memory for ids as Python integers


@dataclass(frozen=True, slots=True)
class TextExample:
    """A row of a data file. Missing texts and labels are `None`.

    `guid` is the name of the row in result files.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None


def text_examples(texts: Sequence[str], text_pairs: Sequence[str] | None) -> list[TextExample]:
    """Returns texts or pairs of texts as examples without labels, numbered from 0."""
    return [
        TextExample(str(number), text, text_pairs[number] if text_pairs else None)
        for number, text in enumerate(texts)
    ]


def text_sequences(
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    warn_above: float = 1.0,
    source: str | None = None,
) -> TokenSequences:
    """Tokenizes and truncates N texts or pairs, see `TokenSequences.from_segments`.

    For `warn_above` see `log_truncated`, for `source` see `counting`. Raises ValueError if
    `max_seq_length` leaves no room for a token of each text.
    """
    check_room(any(example.text_b is not None for example in examples), max_seq_length)
    parts, full_lengths = [], [np.zeros(0, np.int64)]
    ends = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
    with counting(tokenizer, source) as counts:
        for start in progress(range(0, len(examples), _EXAMPLES_AT_ONCE), "tokenizing"):
            part = examples[start : start + _EXAMPLES_AT_ONCE]
            tokens, lengths = _encoded(part, tokenizer, counts)
            full_lengths.append(lengths.sum(axis=1) + 2 + (lengths[:, 1] > 0))
            parts.append(
                TokenSequences.from_segments(tokens, lengths, **ends, max_length=max_seq_length)
            )
    log_truncated(np.concatenate(full_lengths), max_seq_length, warn_above)
    return TokenSequences.concatenate(parts)


def _encoded(
    examples: Sequence[TextExample], tokenizer: Tokenizer, counts: PieceCounts
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of both texts of all examples, int32 [T], and their lengths, int64 [N, 2]."""
    pairs = [(example.text_a, example.text_b) for example in examples]
    texts = [text for pair in pairs for text in pair if text is not None]
    ids = tokenizer.encode_batch(texts)
    counts.add(tokenizer, texts, ids)
    is_there = np.array([text is not None for pair in pairs for text in pair])
    lengths = np.zeros(len(is_there), np.int64)
    lengths[is_there] = np.fromiter(map(len, ids), np.int64, len(ids))
    tokens = np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum()))
    return tokens, lengths.reshape(-1, 2)
