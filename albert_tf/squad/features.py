"""Tokenizes questions and contexts, and splits contexts into windows.

In training, a window has an answer if it contains the whole answer; otherwise it is unanswerable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.parallel import OrderedMap, progress, worker_processes
from albert_tf.data.rows import count_rows
from albert_tf.data.sequences import TokenSequences, starts_of
from albert_tf.squad.data import Question, SquadData
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import counting

_CONTEXTS_AT_ONCE = 64
_QUESTIONS_AT_ONCE = 4096
_SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]
_WINDOWS_AT_ONCE = 8192  # limits memory: 8 bytes per token


@dataclass(frozen=True, eq=False)
class _Tokens:
    """Concatenated tokens of all contexts (T) and of all questions."""

    context_ids: np.ndarray  # int32 [T]
    starts: np.ndarray  # int32 [T]; first character of each token in its context
    ends: np.ndarray  # int32 [T]; one past the last character
    paragraph_offsets: np.ndarray  # int64 [contexts + 1]; first token of each context
    question_ids: np.ndarray  # int32; truncated questions
    question_offsets: np.ndarray  # int64 [questions + 1]
    cut_questions: list[int]  # indices of truncated questions


def _tokens(
    data: SquadData, tokenizer: Tokenizer, max_length: int, num_workers: int, source: str | None
) -> _Tokens:
    questions = [question.question for question in data.questions]
    with worker_processes(num_workers, tokenizer) as run:
        contexts = _tokenized(run, _encode_contexts, data.contexts, _CONTEXTS_AT_ONCE, "contexts")
        ids, starts, ends, lengths = (np.concatenate(part) for part in zip(*contexts, strict=True))
        encode = type(tokenizer).encode_batch
        asked = _tokenized(run, encode, questions, _QUESTIONS_AT_ONCE, "questions")
    asked_ids = [row for part in asked for row in part]
    with counting(tokenizer, source) as counts:
        counts.add(tokenizer, questions, asked_ids)
        context_ids = [row.tolist() for row in np.split(ids, lengths.cumsum()[:-1])]
        counts.add(tokenizer, data.contexts, context_ids)
    kept = [row[:max_length] for row in asked_ids]
    return _Tokens(
        ids,
        starts,
        ends,
        starts_of(lengths),
        _flat(kept),
        starts_of(np.fromiter(map(len, kept), np.int64)),
        [index for index, row in enumerate(asked_ids) if len(row) > max_length],
    )


def _tokenized(
    run: OrderedMap,
    encode: Callable[[Tokenizer, Sequence[str]], Any],
    texts: Sequence[str],
    at_once: int,
    name: str,
) -> list[Any]:
    """Returns the results of `encode` for batches of texts."""
    batches = [texts[begin : begin + at_once] for begin in range(0, len(texts), at_once)]
    return list(progress(run(encode, batches), f"tokenizing {name}", len(batches)))


def _encode_contexts(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, ...]:
    """Returns the ids, starts and ends of all tokens, and the number of tokens per text."""
    encodings = [tokenizer.encode_with_offsets(text) for text in texts]
    lengths = np.array([len(encoding.ids) for encoding in encodings])
    return (*(_flat(lists) for lists in zip(*encodings, strict=True)), lengths)


def _flat(lists: Sequence[list[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(lists), np.int32)


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of all questions, grouped by question."""

    questions: np.ndarray  # int32 [N]; index of the question
    starts: np.ndarray  # int32 [N]; index of the first token in the context
    lengths: np.ndarray  # int32 [N]; number of context tokens


def cut_windows(context_lengths: np.ndarray, rooms: np.ndarray, doc_stride: int) -> Windows:
    """Splits contexts of `context_lengths` tokens into windows of `rooms` tokens, int [Q] each.

    Consecutive windows start `doc_stride` tokens apart, or `rooms` tokens apart if that is less.
    Each question has at least one window. Its windows are consecutive.
    """
    steps = np.minimum(rooms, doc_stride)
    rest = np.maximum(context_lengths - rooms, 0)
    counts = 1 + -(-rest // steps)
    questions = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(questions)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = numbers * steps[questions]
    lengths = np.minimum(rooms[questions], context_lengths[questions] - starts)
    return Windows(*(values.astype(np.int32) for values in (questions, starts, lengths)))


def _answer_tokens(questions: Sequence[Question], tokens: _Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices of the first and last tokens of answers, int64 [Q]; -1 if missing."""
    paragraphs = np.array([question.paragraph for question in questions], np.int64)
    ranges = np.full((len(questions), 2), -1)  # first and last characters
    for row, question in zip(ranges, questions, strict=True):
        if question.answers and not question.is_impossible:
            text, start = question.answers[0]
            row[:] = start, start + len(text) - 1
    offsets = tokens.paragraph_offsets
    # Characters of all contexts are numbered in one sequence, so that one search is enough.
    width = 2 + max(int(tokens.ends.max(initial=0)), int(ranges.max(initial=0)))
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * width
    keys = ranges + paragraphs[:, None] * width
    # Ends may decrease where cleaning reorders characters, but a search needs sorted values.
    furthest = np.maximum.accumulate(owners + tokens.ends)
    first = np.searchsorted(furthest, keys[:, 0], side="right") - offsets[paragraphs]
    last = np.searchsorted(owners + tokens.starts, keys[:, 1], side="right") - 1
    counts = np.diff(offsets)[paragraphs]
    first = np.clip(first, 0, counts - 1)
    last = np.clip(last - offsets[paragraphs], first, counts - 1)
    has_none = (ranges[:, 0] < 0) | (counts == 0)
    first[has_none] = last[has_none] = -1
    return first, last


@dataclass(frozen=True, eq=False)
class SquadFeatures:
    """The windows of all questions: [CLS] question [SEP] part of the context [SEP].

    Each question has at least one window. Its windows are consecutive. Without context tokens, the
    second [SEP] is missing. The columns of answers are `None` except for training.
    """

    sequences: TokenSequences  # N windows
    question_indices: np.ndarray  # int32 [N]; indices in `SquadData.questions`, never decreasing
    paragraph_indices: np.ndarray  # int32 [N]; indices in `SquadData.contexts`
    window_starts: np.ndarray  # int32 [N]; index of the first token in its context
    token_starts: np.ndarray  # int32 [T]; first character of each token of all contexts
    token_ends: np.ndarray  # int32 [T]; last character of each token
    paragraph_offsets: np.ndarray  # int64 [contexts + 1]; first token of each context
    # int32 [N]; positions of the answer in the sequence, 0 in windows without the whole answer
    start_positions: np.ndarray | None = None
    end_positions: np.ndarray | None = None
    is_impossible: np.ndarray | None = None  # bool [N]; True in windows without the whole answer
    cut_questions: Sequence[int] = ()  # indices of truncated questions

    def __len__(self) -> int:
        """Number of windows N."""
        return len(self.sequences)

    @property
    def first_context_position(self) -> np.ndarray:
        """int32 [N]; position of the first context token in the sequence."""
        return self.sequences.first_lengths

    def context_lengths(self, rows: np.ndarray) -> np.ndarray:
        """Returns the number of context tokens of windows, int32 in the shape of `rows`."""
        second = self.sequences.lengths[rows] - self.sequences.first_lengths[rows]
        return np.maximum(second - 1, 0)

    def is_max_context(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Returns whether tokens have more context in a window than in other windows, bool [n, m].

        The context of a token is the number of context tokens before or after it in the window,
        whichever is smaller, plus 0.01 times the length of the window's context. Among equal
        windows, the first is preferred. `rows`, int [n], are indices of windows, and `positions`,
        int [n, m], positions in these windows.
        """
        rows = rows[:, None]
        tokens = positions + (self.window_starts - self.first_context_position)[rows]
        own = self._context_scores(rows, tokens)
        is_best = own >= 0
        for step in range(-self._most_overlaps, self._most_overlaps + 1):
            others = np.clip(rows + step, 0, len(self) - 1)
            is_other = (others != rows) & (
                self.question_indices[others] == self.question_indices[rows]
            )
            scores = self._context_scores(others, tokens)
            better = scores >= own if step < 0 else scores > own
            is_best &= ~(is_other & better & (scores >= 0))
        return is_best

    def _context_scores(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns how much context surrounds tokens; negative outside of the window."""
        lengths = self.context_lengths(rows)
        before = tokens - self.window_starts[rows]
        least = np.minimum(before, lengths - 1 - before)
        return np.where(least < 0, -1.0, least + 0.01 * lengths)

    @cached_property
    def _most_overlaps(self) -> int:
        """Maximum distance of the rows of two windows that share a token of the context."""
        rows = np.arange(len(self))
        ends = self.window_starts + self.context_lengths(rows)
        width = 1 + int(ends.max(initial=0))
        keys = self.question_indices.astype(np.int64) * width
        following = np.searchsorted(keys + self.window_starts, keys + ends) - rows - 1
        return int(following.max(initial=0))


def squad_features(
    data: SquadData,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    num_workers: int = 1,
    is_logged: bool = True,
) -> SquadFeatures:
    """Tokenizes questions and contexts, and splits contexts into windows.

    For the lengths see `AnswerSettings`. Positions of answers are computed if `is_training` is
    true; counts and truncated questions are logged if `is_logged` is true. `num_workers` is the
    number of tokenizer processes.

    Raises:
        ValueError: the lengths leave no room for the context, or in training no window contains a
            whole answer.

    Source: squad_utils.py of the original release, convert_examples_to_features.
    Differs: the original skips questions whose context has no token or cannot be aligned.
    """
    check_lengths(max_seq_length, doc_stride, max_query_length)
    source = data.path if is_logged else None
    tokens = _tokens(data, tokenizer, max_query_length, num_workers, source)
    paragraphs = np.array([question.paragraph for question in data.questions], np.int64)
    windows = cut_windows(
        np.diff(tokens.paragraph_offsets)[paragraphs],
        max_seq_length - _SPECIAL_TOKENS - np.diff(tokens.question_offsets),
        doc_stride,
    )
    labels = _labels(data, tokens, windows) if is_training else {}
    if is_logged:
        logging.info(
            "%s: %d questions, %d contexts, %d windows of up to %d tokens, every %d tokens",
            data.path,
            len(data.questions),
            len(data.contexts),
            len(windows.starts),
            max_seq_length,
            doc_stride,
        )
        what = f"a question longer than `max_query_length`={max_query_length}, truncated"
        _warn_of_questions(data, tokens.cut_questions, what)
    return SquadFeatures(
        sequences=_sequences(tokens, windows, paragraphs, tokenizer),
        question_indices=windows.questions,
        paragraph_indices=paragraphs[windows.questions].astype(np.int32),
        window_starts=windows.starts,
        token_starts=tokens.starts,
        # Inclusive. As in the original, a token without characters ends before it starts.
        token_ends=np.maximum(tokens.ends - 1, 0),
        paragraph_offsets=tokens.paragraph_offsets,
        cut_questions=tokens.cut_questions,
        **labels,
    )


def check_lengths(max_seq_length: int, doc_stride: int, max_query_length: int) -> None:
    """Raises ValueError unless a window has room for a context token and the longest question."""
    if max_query_length + _SPECIAL_TOKENS >= max_seq_length:
        raise UserError(
            f"`max_seq_length` must be at least {max_query_length + _SPECIAL_TOKENS + 1} to leave "
            f"room for the context next to a question of `max_query_length`={max_query_length} "
            f"tokens. Received: {max_seq_length}. Increase it, or decrease `max_query_length`."
        )


def _sequences(
    tokens: _Tokens, windows: Windows, paragraphs: np.ndarray, tokenizer: Tokenizer
) -> TokenSequences:
    """Returns the sequences of all windows."""
    pool = np.concatenate([tokens.question_ids, tokens.context_ids])
    parts = []
    for begin in range(0, len(windows.starts), _WINDOWS_AT_ONCE):
        chosen = slice(begin, begin + _WINDOWS_AT_ONCE)
        questions = windows.questions[chosen]
        context_begins = tokens.paragraph_offsets[paragraphs[questions]] + windows.starts[chosen]
        begins = np.stack(
            [tokens.question_offsets[questions], len(tokens.question_ids) + context_begins], axis=1
        )
        question_lengths = np.diff(tokens.question_offsets)[questions]
        lengths = np.stack([question_lengths, windows.lengths[chosen]], axis=1)
        # Index of each token in the pool: the start of its segment plus its index in the segment.
        flat = lengths.ravel()
        shifts = begins.ravel() - (np.cumsum(flat) - flat)
        places = np.repeat(shifts, flat) + np.arange(flat.sum())
        parts.append(
            TokenSequences.from_segments(
                pool[places], lengths, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id
            )
        )
    return TokenSequences.concatenate(parts)


def _labels(data: SquadData, tokens: _Tokens, windows: Windows) -> dict[str, np.ndarray]:
    """Returns the answer columns of `SquadFeatures`."""
    owners = windows.questions
    first, last = (ends[owners] for ends in _answer_tokens(data.questions, tokens))
    is_whole = (first >= windows.starts) & (last < windows.starts + windows.lengths) & (first >= 0)
    if not is_whole.any():
        fits = (first >= 0) & (last - first < windows.lengths)
        advice = "Decrease `doc_stride`." if fits.any() else "Increase `max_seq_length`."
        raise UserError(
            f"{data.path}: no window contains a whole answer. The windows contain up to "
            f"{windows.lengths.max()} tokens of a context. {advice}"
        )
    answerable = set(owners[is_whole].tolist())
    others = [
        index
        for index, question in enumerate(data.questions)
        if index not in answerable and not question.is_impossible
    ]
    what = "an answer that does not fit into a window, trained as unanswerable"
    _warn_of_questions(data, others, what)
    before_context = np.diff(tokens.question_offsets)[owners] + 2
    starts, ends = (
        np.where(is_whole, tokens + before_context - windows.starts, 0).astype(np.int32)
        for tokens in (first, last)
    )
    return {"start_positions": starts, "end_positions": ends, "is_impossible": ~is_whole}


def _warn_of_questions(data: SquadData, indices: Sequence[int], what: str) -> None:
    if indices:
        names = [data.questions[index].qas_id for index in indices]
        logging.warning("%s: %s", data.path, count_rows("id", what, names))
