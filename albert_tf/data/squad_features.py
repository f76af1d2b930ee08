"""From questions and contexts to windows: token sequences with the characters they come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from absl import logging

from albert_tf.data.sequences import TokenSequences
from albert_tf.data.squad import SquadData
from albert_tf.data.squad_tokens import SquadTokens, squad_tokens
from albert_tf.data.squad_windows import Windows, answer_tokens, cut_windows, window_positions
from albert_tf.tokenization import Tokenizer

_SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]
_WINDOWS_AT_ONCE = 8192  # whose places in the text are held in memory, eight bytes a token
_IDS_NAMED = 5


@dataclass(frozen=True, eq=False)
class SquadFeatures:
    """The windows of all questions: [CLS] question [SEP] part of the context [SEP].

    Each question has at least one, and its windows stand together. One of a context without a
    token is [CLS] question [SEP].

    Attributes:
        sequences: N windows.
        question_indices: int32 [N]; places in `SquadData.questions`, never decreasing.
        doc_span_index: int32 [N]; number of a window among those of its question, from 0.
        paragraph_indices: int32 [N]; places in `SquadData.contexts`.
        window_starts: int32 [N]; the window's first token among those of its context.
        token_starts: int32 [T]; for the tokens of all contexts the first character, in the
            context, that they come from.
        token_ends: int32 [T]; the last such character itself.
        paragraph_offsets: int64 [contexts + 1]; where the tokens of a context begin in these two.
        start_positions: int32 [N]; place of the answer's first token in the sequence, 0 in windows
            without the whole answer; None unless to train on.
        end_positions: int32 [N]; the same for the last token itself.
        is_impossible: bool [N]; windows without the whole answer; None unless to train on.
    """

    sequences: TokenSequences
    question_indices: np.ndarray
    doc_span_index: np.ndarray
    paragraph_indices: np.ndarray
    window_starts: np.ndarray
    token_starts: np.ndarray
    token_ends: np.ndarray
    paragraph_offsets: np.ndarray
    start_positions: np.ndarray | None = None
    end_positions: np.ndarray | None = None
    is_impossible: np.ndarray | None = None

    def __len__(self) -> int:
        """N, the number of windows."""
        return len(self.sequences)

    @property
    def first_context_position(self) -> np.ndarray:
        """int32 [N]; place in the sequence of its first context token."""
        return self.sequences.first_lengths

    def context_lengths(self, rows: np.ndarray) -> np.ndarray:
        """How many context tokens windows have, int32 of the shape of `rows`."""
        second = self.sequences.lengths[rows] - self.sequences.first_lengths[rows]
        return np.maximum(second - 1, 0)

    def is_max_context(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Whether no other window shows a token with more context around it.

        The context of a token is what there is less of, tokens before or tokens behind it; of two
        windows with as much, the longer counts, then the first.

        Args:
            rows: integer [n]; which windows.
            positions: integer [n, ...]; places in these sequences.

        Returns:
            bool, the shape of `positions`; False for what is no context token.
        """
        shape = (-1,) + (1,) * (positions.ndim - 1)
        tokens = positions + (self.window_starts - self.first_context_position)[rows].reshape(shape)
        own = self._context_scores(rows.reshape(shape), tokens)
        is_best = own >= 0
        for distance in range(1, self._most_overlaps + 1):
            for step in (-distance, distance):
                others = np.clip(rows + step, 0, len(self) - 1)
                is_other = (others != rows) & (
                    self.question_indices[others] == self.question_indices[rows]
                )
                scores = self._context_scores(others.reshape(shape), tokens)
                better = scores >= own if step < 0 else scores > own
                is_best &= ~(is_other.reshape(shape) & better & (scores >= 0))
        return is_best

    def _context_scores(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Context of tokens, counted in their paragraph, in a window; negative if not in it."""
        lengths = self.context_lengths(rows)
        before = tokens - self.window_starts[rows]
        behind = lengths - 1 - before
        least = np.minimum(before, behind)
        return np.where(least < 0, -1.0, least + 0.01 * lengths)

    @cached_property
    def _most_overlaps(self) -> int:
        """How far apart two windows of a question can be that share a token."""
        ends = self.window_starts + self.context_lengths(np.arange(len(self)))
        for distance in range(1, len(self)):
            is_same = self.question_indices[distance:] == self.question_indices[:-distance]
            if not np.any(is_same & (self.window_starts[distance:] < ends[:-distance])):
                return distance - 1
        return max(len(self) - 1, 0)


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
    """Tokenizes questions and contexts and cuts the contexts into windows.

    Every context is tokenized once. The answer's tokens are those that its characters, or the
    nearest characters of the answer that have a token, come from.

    Args:
        data: questions and contexts.
        tokenizer: what the model was trained with.
        max_seq_length: tokens of a window at most, the question and three special tokens included.
        doc_stride: tokens by which a window begins behind the one before.
        max_query_length: tokens of a question at most; what is more is cut off.
        is_training: whether to give positions of answers.
        num_workers: processes that tokenize; the features do not depend on it.
        is_logged: whether to log how much there is of what.

    Returns:
        At least one window of every question.

    Raises:
        ValueError: the lengths leave no room, or no window has an answer to train on.

    Source: `convert_examples_to_features` of the original's squad_utils.
    Differs: the original aligns text and tokens for every question, and leaves questions out whose
        context it cannot align or that has no token.
    """
    check_lengths(max_seq_length, doc_stride, max_query_length)
    tokens = squad_tokens(data, tokenizer, max_query_length, num_workers)
    paragraphs = np.array([question.paragraph for question in data.questions], np.int64)
    windows = cut_windows(
        np.diff(tokens.paragraph_offsets)[paragraphs],
        max_seq_length - _SPECIAL_TOKENS - np.diff(tokens.question_offsets),
        doc_stride,
    )
    labels = _labels(data, tokens, windows) if is_training else {}
    if is_logged:
        logging.info(
            "questions=%d contexts=%d windows=%d max_seq_length=%d doc_stride=%d",
            len(data.questions),
            len(data.contexts),
            len(windows.starts),
            max_seq_length,
            doc_stride,
        )
    features = SquadFeatures(
        sequences=_sequences(tokens, windows, paragraphs, tokenizer),
        question_indices=windows.questions,
        doc_span_index=windows.numbers,
        paragraph_indices=paragraphs[windows.questions].astype(np.int32),
        window_starts=windows.starts,
        token_starts=tokens.starts,
        # A token made from no character ends before it begins, as the original has it.
        token_ends=np.maximum(tokens.ends - 1, 0),
        paragraph_offsets=tokens.paragraph_offsets,
        **labels,
    )
    if is_logged:
        cut = cut_questions(data, features, tokenizer, max_query_length)
        what = f"longer than --max_query_length={max_query_length} tokens, cut off"
        _warn_of_questions(data, cut, what)
    return features


def cut_questions(
    data: SquadData, features: SquadFeatures, tokenizer: Tokenizer, max_query_length: int
) -> list[int]:
    """Returns which questions were cut off, as places in `data.questions`.

    Args:
        data: the questions.
        features: their windows.
        tokenizer: that made them; one that fills the length may just fit, and is tokenized again.
        max_query_length: see `squad_features`.
    """
    is_full = features.first_context_position - 2 == max_query_length
    full = features.question_indices[is_full & (features.doc_span_index == 0)].tolist()
    ids = tokenizer.encode_batch([data.questions[index].question for index in full])
    return [
        index for index, tokens in zip(full, ids, strict=True) if len(tokens) > max_query_length
    ]


def check_lengths(max_seq_length: int, doc_stride: int, max_query_length: int) -> None:
    """Raises ValueError unless a window has room for a token beside the longest question."""
    for flag, value in (("--doc_stride", doc_stride), ("--max_query_length", max_query_length)):
        if value < 1:
            raise ValueError(f"{flag} must be at least 1. Received: {value}")
    if max_query_length + _SPECIAL_TOKENS >= max_seq_length:
        raise ValueError(
            f"--max_seq_length={max_seq_length} leaves no room for the context beside a question "
            f"of --max_query_length={max_query_length} tokens, [CLS] and two [SEP]: make the first "
            f"at least {max_query_length + _SPECIAL_TOKENS + 1}, or the second smaller."
        )


def _sequences(
    tokens: SquadTokens, windows: Windows, paragraphs: np.ndarray, tokenizer: Tokenizer
) -> TokenSequences:
    """Lays all windows out, some at a time."""
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
        # Place of every token in the pool: where its piece begins, and its number in the piece.
        flat = lengths.ravel()
        shifts = begins.ravel() - (np.cumsum(flat) - flat)
        places = np.repeat(shifts, flat) + np.arange(flat.sum())
        parts.append(
            TokenSequences.from_segments(
                pool[places], lengths, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id
            )
        )
    return TokenSequences.concatenate(parts)


def _labels(data: SquadData, tokens: SquadTokens, windows: Windows) -> dict[str, np.ndarray]:
    """Positions of the answers in the windows, and which windows have none."""
    question_lengths = np.diff(tokens.question_offsets)
    first, last = answer_tokens(data.questions, tokens)
    starts, ends, is_impossible = window_positions(windows, first, last, question_lengths + 2)
    if is_impossible.all():
        answered = sum(not question.is_impossible for question in data.questions)
        raise ValueError(
            f"{data.path}: no window holds a whole answer, so there is nothing to train on: "
            f"{answered} of {len(data.questions)} questions have an answer."
            + " A larger --max_seq_length makes longer windows."
            * (answered > 0)
        )
    hidden = _hidden_answers(data, windows.questions, is_impossible)
    what = "with an answer that is whole in no window, trained as unanswerable"
    _warn_of_questions(data, hidden, what)
    return {"start_positions": starts, "end_positions": ends, "is_impossible": is_impossible}


def _hidden_answers(
    data: SquadData, question_indices: np.ndarray, is_impossible: np.ndarray
) -> list[int]:
    """Returns which questions have an answer that no window holds, as places in `data.questions`.

    Args:
        data: the questions.
        question_indices: see `SquadFeatures`.
        is_impossible: see `SquadFeatures`.
    """
    shown = set(question_indices[~is_impossible].tolist())
    return [
        index
        for index, question in enumerate(data.questions)
        if index not in shown and not question.is_impossible
    ]


def _warn_of_questions(data: SquadData, places: list[int], what: str) -> None:
    """Warns of questions, if there are any, and names the first."""
    if places:
        logging.warning(
            "%s: questions=%d %s (ids %s%s)",
            data.path,
            len(places),
            what,
            ", ".join(data.questions[place].qas_id for place in places[:_IDS_NAMED]),
            ", ..." if len(places) > _IDS_NAMED else "",
        )
