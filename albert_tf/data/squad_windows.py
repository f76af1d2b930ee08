"""Where windows of contexts begin and end, and where in them the answers are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from albert_tf.data.squad import Question, SquadData
from albert_tf.data.squad_tokens import SquadTokens


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of all questions, those of one question one after the other.

    Attributes:
        questions: int32 [N]; whose they are.
        numbers: int32 [N]; counted within a question, from 0.
        starts: int32 [N]; first token, counted within the context.
        lengths: int32 [N]; context tokens.
    """

    questions: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def cut_windows(context_lengths: np.ndarray, rooms: np.ndarray, doc_stride: int) -> Windows:
    """Cuts the context of every question into windows, up to the first that reaches its end.

    Args:
        context_lengths: integer [Q]; tokens of each question's context.
        rooms: integer [Q], at least 1; context tokens that fit beside each question.
        doc_stride: tokens by which a window begins behind the one before, if it is not shorter.

    Returns:
        At least one window of each question, empty if its context is.
    """
    steps = np.minimum(rooms, doc_stride)
    rest = np.maximum(context_lengths - rooms, 0)
    counts = 1 + -(-rest // steps)
    questions = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(questions)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = numbers * steps[questions]
    lengths = np.minimum(rooms[questions], context_lengths[questions] - starts)
    return Windows(*(values.astype(np.int32) for values in (questions, numbers, starts, lengths)))


def answer_tokens(
    questions: Sequence[Question], tokens: SquadTokens
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the first and the last token of every answer.

    A character that no token comes from is passed over, towards the middle of the answer.

    Returns:
        Two of int64 [Q], counted within the context; both -1 if there is no answer or no token.
    """
    paragraphs = np.array([question.paragraph for question in questions], np.int64)
    ranges = np.array([_first_and_last_character(question) for question in questions], np.int64)
    offsets = tokens.paragraph_offsets
    # Characters of all contexts in one row, so that one search serves them all.
    width = 2 + max(int(tokens.ends.max(initial=0)), int(ranges.max(initial=0)))
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * width
    keys = ranges + paragraphs[:, None] * width
    # Ends can go back where the clean-up has reordered characters; what counts is the furthest.
    furthest = np.maximum.accumulate(owners + tokens.ends)
    first = np.searchsorted(furthest, keys[:, 0], side="right") - offsets[paragraphs]
    last = np.searchsorted(owners + tokens.starts, keys[:, 1], side="right") - 1
    counts = np.diff(offsets)[paragraphs]
    first = np.clip(first, 0, counts - 1)
    last = np.clip(last - offsets[paragraphs], first, counts - 1)
    has_none = (ranges[:, 0] < 0) | (counts == 0)
    first[has_none] = last[has_none] = -1
    return first, last


def answers_through_tokens(data: SquadData, tokens: SquadTokens) -> Iterator[tuple[str, str, str]]:
    """Takes every reference answer to its tokens and back: what a perfect model would answer.

    Yields:
        The question's id, the reference answer, and the characters that its tokens come from,
        which are more where a token reaches over the end of the answer.
    """
    asked = [
        replace(question, answers=(answer,), is_impossible=False)
        for question in data.questions
        for answer in question.answers
    ]
    offsets = tokens.paragraph_offsets
    for question, first, last in zip(asked, *answer_tokens(asked, tokens), strict=True):
        context = data.contexts[question.paragraph]
        begin = tokens.starts[offsets[question.paragraph] + first]
        end = tokens.ends[offsets[question.paragraph] + last]
        yield question.qas_id, question.answers[0][0], context[begin:end] if first >= 0 else ""


def _first_and_last_character(question: Question) -> tuple[int, int]:
    if question.is_impossible or not question.answers:
        return -1, -1
    text, start = question.answers[0]
    return start, start + len(text) - 1


def window_positions(
    windows: Windows, first: np.ndarray, last: np.ndarray, before_context: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the answers in the windows.

    Args:
        windows: N windows of Q questions.
        first: integer [Q]; first token of each answer, counted within the context; -1 for none.
        last: integer [Q]; last token itself.
        before_context: integer [Q]; tokens of the sequence before the context.

    Returns:
        int32 [N] positions of first and last token in the sequences, 0 where the window does not
        hold all of the answer, and bool [N] where that is so.
    """
    first, last = first[windows.questions], last[windows.questions]
    is_whole = (first >= windows.starts) & (last < windows.starts + windows.lengths) & (first >= 0)
    shifts = before_context[windows.questions] - windows.starts
    starts, ends = (
        np.where(is_whole, tokens + shifts, 0).astype(np.int32) for tokens in (first, last)
    )
    return starts, ends, ~is_whole
