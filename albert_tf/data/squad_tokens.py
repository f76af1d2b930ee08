"""Tokens of questions and contexts, each text tokenized once, in several processes if so wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from albert_tf.data.jobs import OrderedMap, worker_processes
from albert_tf.data.squad import SquadData
from albert_tf.tokenization import Tokenizer

_CONTEXTS_AT_ONCE = 64
_QUESTIONS_AT_ONCE = 4096
_SECONDS_WITHOUT_BAR = 3


class _Tokens(NamedTuple):
    """Tokens of some texts: ids, first characters, ends and the number of each text's tokens."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True, eq=False)
class SquadTokens:
    """Tokens of all contexts (T) and all questions, one after the other.

    Attributes:
        context_ids: int32 [T].
        starts: int32 [T]; first character of the context that a token comes from.
        ends: int32 [T]; one past the last such character.
        paragraph_offsets: int64 [contexts + 1]; where a context begins in these.
        question_ids: int32; of all questions, cut off.
        question_offsets: int64 [questions + 1]; where a question begins in these.
    """

    context_ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    paragraph_offsets: np.ndarray
    question_ids: np.ndarray
    question_offsets: np.ndarray


def squad_tokens(
    data: SquadData, tokenizer: Tokenizer, max_query_length: int, num_workers: int
) -> SquadTokens:
    """Tokenizes.

    Args:
        data: questions and contexts.
        tokenizer: what the model was trained with.
        max_query_length: tokens of a question at most.
        num_workers: processes; with 1 this one does the work.
    """
    questions = [question.question for question in data.questions]
    with worker_processes(num_workers, tokenizer) as run:
        contexts = _tokenized(run, _encode_contexts, data.contexts, _CONTEXTS_AT_ONCE, "contexts")
        asked = _tokenized(run, _encode_questions, questions, _QUESTIONS_AT_ONCE, "questions")
    kept = np.minimum(asked.lengths, max_query_length)
    begins = np.cumsum(asked.lengths) - asked.lengths
    is_kept = np.arange(len(asked.ids)) < np.repeat(begins + kept, asked.lengths)
    return SquadTokens(
        contexts.ids,
        contexts.starts,
        contexts.ends,
        _offsets(contexts.lengths),
        asked.ids[is_kept],
        _offsets(kept),
    )


def _tokenized(
    run: OrderedMap,
    encode: Callable[[Tokenizer, Sequence[str]], _Tokens],
    texts: Sequence[str],
    at_once: int,
    name: str,
) -> _Tokens:
    """Tokenizes texts in batches; the result does not depend on the number of processes."""
    batches = (texts[begin : begin + at_once] for begin in range(0, len(texts), at_once))
    parts = []
    with tqdm(
        total=len(texts),
        desc=f"tokenizing {name}",
        unit="text",
        delay=_SECONDS_WITHOUT_BAR,
        disable=None,
        leave=False,
    ) as bar:
        for part in run(encode, batches):
            parts.append(part)
            bar.update(len(part.lengths))
    return _Tokens(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _encode_contexts(tokenizer: Tokenizer, texts: Sequence[str]) -> _Tokens:
    encodings = [tokenizer.encode_with_offsets(text) for text in texts]
    ids, starts, ends = (_flat(lists) for lists in zip(*encodings, strict=True))
    return _Tokens(ids, starts, ends, _lengths(encoding.ids for encoding in encodings))


def _encode_questions(tokenizer: Tokenizer, texts: Sequence[str]) -> _Tokens:
    ids = tokenizer.encode_batch(texts)
    nothing = np.zeros(0, np.int32)
    return _Tokens(_flat(ids), nothing, nothing, _lengths(ids))


def _flat(lists: Sequence[list[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(lists), np.int32)


def _lengths(lists: Iterable[list[int]]) -> np.ndarray:
    return np.fromiter(map(len, lists), np.int64)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    """Where pieces of these lengths begin, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
