"""From what a model says of windows to answers: the best spans of every question.

Outputs arrive batch by batch, in any order. Of a window only the best candidates are kept, so the
memory needed is some hundred bytes a window, whatever its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from albert_tf.squad.data import SquadData
from albert_tf.squad.features import SquadFeatures

NO_WINDOW_ODDS = 1e6  # null odds of a question without windows
OUTPUTS = {
    1: ("start_logits", "end_logits"),
    2: (
        "start_top_log_probs",
        "start_top_index",
        "end_top_log_probs",
        "end_top_index",
        "cls_logits",
    ),
}

# What stands for a question none of whose spans can be an answer, as in the original release: its
# text and its two numbers.
_FALLBACKS = {1: ("empty", 0.0), 2: ("", -1e6)}
_WINDOWS_AT_ONCE = 2048


@dataclass(frozen=True)
class AnswerSettings:
    """How questions are answered.

    Attributes:
        version: 1 or 2, of SQuAD.
        max_seq_length: longest window with its question, in tokens (--max_seq_length).
        doc_stride: tokens between the beginnings of two windows (--doc_stride).
        max_query_length: tokens of a question; what is more is cut off (--max_query_length).
        n_best_size: most candidates of a question, and starts and ends of a window in SQuAD 1.1.
        max_answer_length: longest answer, in tokens.
        threshold: null odds from which on a question is not answered; None always takes the best
            candidate. For SQuAD 2.0 alone.
    """

    version: int
    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    n_best_size: int = 20
    max_answer_length: int = 30
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerCandidate:
    """One entry of the list of best answers.

    Attributes:
        text: the answer, without white space around it.
        probability: among the candidates of the question.
        start_log_prob: what the model says of its first token; in SQuAD 1.1 a logit.
        end_log_prob: the same of its last token.
        start: where it begins in the context, in characters; -1 if it is no part of the context.
        end: behind its last character; -1 if it is no part of the context.
    """

    text: str
    probability: float
    start_log_prob: float
    end_log_prob: float
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class SquadAnswers:
    """The best answers of Q questions, from the best down.

    Attributes:
        ids: the Q questions' ids.
        first: int64 [Q + 1]; where a question's candidates begin; the last one is T. Every
            question has at least one.
        texts: of the T candidates.
        probabilities: float64 [T]; the softmax of the sums of start and end.
        start_log_probs: float64 [T].
        end_log_probs: float64 [T].
        ranges: int64 [T, 2]; characters of the context, the end exclusive; -1 if there are none.
        null_odds: float64 [Q], the higher the less answerable; None for SQuAD 1.1.
    """

    ids: list[str]
    first: np.ndarray
    texts: list[str]
    probabilities: np.ndarray
    start_log_probs: np.ndarray
    end_log_probs: np.ndarray
    ranges: np.ndarray
    null_odds: np.ndarray | None = None

    def __len__(self) -> int:
        """Q, the number of questions."""
        return len(self.ids)

    def predictions(self, threshold: float | None = None) -> dict[str, str]:
        """Returns the answer of each question by its id.

        Args:
            threshold: null odds from which on the answer is ""; None always takes the best one.
        """
        texts = [self.texts[place] for place in self.first[:-1]]
        if threshold is not None and self.null_odds is not None:
            is_answered = self.null_odds < threshold
            texts = [text if kept else "" for text, kept in zip(texts, is_answered, strict=True)]
        return dict(zip(self.ids, texts, strict=True))

    def null_odds_by_id(self) -> dict[str, float]:
        """Returns each question's null odds; none for SQuAD 1.1."""
        if self.null_odds is None:
            return {}
        return dict(zip(self.ids, self.null_odds.tolist(), strict=True))

    def candidates(self, number: int) -> list[AnswerCandidate]:
        """Returns the best answers of a question, from the best down.

        Args:
            number: which question.
        """
        part = slice(self.first[number], self.first[number + 1])
        starts, ends = self.ranges[part].T.tolist()
        columns = (self.probabilities, self.start_log_probs, self.end_log_probs)
        numbers = (column[part].tolist() for column in columns)
        return [
            AnswerCandidate(*entry)
            for entry in zip(self.texts[part], *numbers, starts, ends, strict=True)
        ]


def check_sizes(n_best_size: int, max_answer_length: int) -> None:
    """Raises ValueError unless there can be an answer."""
    for flag, value in (
        ("--n_best_size", n_best_size),
        ("--max_answer_length", max_answer_length),
    ):
        if value < 1:
            raise ValueError(f"{flag} must be at least 1. Received: {value}")


class AnswerSelector:
    """Collects the outputs of all windows and picks the answers.

    A candidate of a window is a pair of a start and an end: in SQuAD 1.1 of the `n_best_size` best
    of each, in 2.0 a pair of the model's beams. Left out are spans that end before they start, are
    too long, reach beyond the window's context, or start where another window has more context. Of
    the rest of all windows of a question, each text counts once, for its best span.

    Args:
        data: the questions.
        features: their windows.
        version: 1 or 2, of SQuAD.
        n_best_size: most candidates of a question, and starts and ends of a window in SQuAD 1.1.
        max_answer_length: longest answer, in tokens.
        ranks_padding: whether the logits of padding take part in the choice of the best starts
            and ends of SQuAD 1.1. They never make an answer, but can take the place of what does.

    Raises:
        ValueError: a number is below 1.

    Source: squad_utils.py of the original release, accumulate_predictions and write_predictions.
    Differs: the original ranks padding, always of `max_seq_length`. Here the answers do not depend
        on padding unless asked for, and candidates are those of the original and possibly more.
    """

    def __init__(
        self,
        data: SquadData,
        features: SquadFeatures,
        *,
        version: int,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        ranks_padding: bool = False,
    ) -> None:
        check_sizes(n_best_size, max_answer_length)
        self.data = data
        self.features = features
        self.version = version
        self.n_best_size = n_best_size
        self.max_answer_length = max_answer_length
        self.ranks_padding = ranks_padding
        self._is_added = np.zeros(len(features.sequences), bool)
        self._kept: dict[str, np.ndarray] = {}  # [N, ...] each

    def add(self, rows: np.ndarray, outputs: Mapping[str, np.ndarray]) -> None:
        """Takes the outputs of n windows.

        Args:
            rows: integer [n]; which windows.
            outputs: by name, see `OUTPUTS`. SQuAD 1.1: float [n, S], S being at least the windows'
                lengths. SQuAD 2.0: beams [n, K] and [n, K * M], the ends of the first start before
                those of the second; `cls_logits` float [n].
        """
        if self.version == 1:
            start_index, start_score = self._best(outputs["start_logits"], rows)
            end_index, end_score = self._best(outputs["end_logits"], rows)
            kept = {
                "start_index": start_index,
                "start_score": start_score,
                "end_index": end_index[:, None],
                "end_score": end_score[:, None],
            }
        else:
            beams = (len(rows), outputs["start_top_index"].shape[1], -1)
            kept = {
                "start_index": outputs["start_top_index"].astype(np.int32),
                "start_score": outputs["start_top_log_probs"],
                "end_index": outputs["end_top_index"].astype(np.int32).reshape(beams),
                "end_score": outputs["end_top_log_probs"].reshape(beams),
                "null_odds": outputs["cls_logits"],
            }
        for name, values in kept.items():
            if name not in self._kept:
                shape = (len(self._is_added), *values.shape[1:])
                self._kept[name] = np.zeros(shape, values.dtype)
            self._kept[name][rows] = values
        self._is_added[rows] = True

    def _best(self, logits: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best positions of each window, the first of equals first, and their logits.

        Both [n, n_best_size]; position -1 where there are no more.
        """
        if not self.ranks_padding:
            is_real = np.arange(logits.shape[1]) < self.features.sequences.lengths[rows][:, None]
            logits = np.where(is_real, logits, -np.inf)
        order = np.argsort(-logits, axis=1, kind="stable")[:, : self.n_best_size]
        best = np.take_along_axis(logits, order, axis=1)
        missing = [(0, 0), (0, self.n_best_size - order.shape[1])]
        index = np.where(np.isfinite(best), order, -1).astype(np.int32)
        return np.pad(index, missing, constant_values=-1), np.pad(best, missing)

    def answers(self) -> SquadAnswers:
        """Returns the answers of all questions, in their order.

        Raises:
            ValueError: the outputs of a window have not been added.
        """
        if not self._is_added.all():
            raise ValueError(
                f"{np.sum(~self._is_added)} of {len(self._is_added)} windows have no outputs yet."
            )
        questions = self.data.questions
        fallback_text, fallback_score = _FALLBACKS[self.version]
        texts: list[str] = []
        entries: list[tuple[float, float, int, int]] = []
        first = np.zeros(len(questions) + 1, np.int64)
        for number, found in self._spans_by_question():
            distinct = self._distinct(self.data.contexts[questions[number].paragraph], *found)
            texts.extend(distinct or [fallback_text])
            entries.extend(distinct.values() or [(fallback_score, fallback_score, -1, -1)])
            first[number + 1] = len(texts)
        columns = np.array(entries, np.float64).reshape(-1, 4)
        sums = columns[:, 0] + columns[:, 1]
        return SquadAnswers(
            [question.qas_id for question in questions],
            first,
            texts,
            _softmax(sums, first),
            columns[:, 0],
            columns[:, 1],
            columns[:, 2:].astype(np.int64),
            self._null_odds(),
        )

    def _distinct(
        self, context: str, starts: list, ends: list, start_scores: list, end_scores: list
    ) -> dict[str, tuple[float, float, int, int]]:
        """The first `n_best_size` different texts: their numbers and their range of characters."""
        found: dict[str, tuple[float, float, int, int]] = {}
        for start, end, *scores in zip(starts, ends, start_scores, end_scores, strict=True):
            piece = context[start : end + 1]
            text = piece.strip()
            if text in found:
                continue
            start += len(piece) - len(piece.lstrip()) if text else 0
            found[text] = (*scores, start, start + len(text))
            if len(found) == self.n_best_size:
                break
        return found

    def _spans_by_question(self) -> Iterator[tuple[int, tuple[list, list, list, list]]]:
        """Yields each question and its spans, the best first.

        Of a span: its first and last character, and what the model says of its start and end.
        """
        windows = np.searchsorted(
            self.features.question_indices, np.arange(len(self.data.questions) + 1)
        )
        begin = 0
        while begin < len(windows) - 1:
            # As many questions as have the windows wanted at once, and at least one.
            limit = windows[begin] + _WINDOWS_AT_ONCE
            end = max(begin + 1, int(np.searchsorted(windows, limit, side="right")) - 1)
            questions, *spans = self._sorted_spans(np.arange(windows[begin], windows[end]))
            starts, ends, start_scores, end_scores = (column.tolist() for column in spans)
            bounds = np.searchsorted(questions, np.arange(begin, end + 1)).tolist()
            for number, (low, high) in enumerate(pairwise(bounds), begin):
                part = slice(low, high)
                yield number, (starts[part], ends[part], start_scores[part], end_scores[part])
            begin = end

    def _sorted_spans(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """The candidates of some windows: questions, characters, scores, sorted."""
        row, starts, ends, start_scores, end_scores = self._candidates(rows)
        features = self.features
        questions = features.question_indices[row]
        # Stable: of equals the first window, start and end is first.
        order = np.lexsort((-(start_scores + end_scores), questions))
        row, starts, ends = row[order], starts[order], ends[order]
        base = (
            features.paragraph_offsets[features.paragraph_indices[row]]
            + features.window_starts[row]
            - features.first_context_position[row]
        )
        return (
            questions[order],
            features.token_starts[base + starts],
            features.token_ends[base + ends],
            start_scores[order],
            end_scores[order],
        )

    def _candidates(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """The possible spans of some windows, each once: window, start, end and their scores."""
        features = self.features
        starts = self._kept["start_index"][rows]
        ends = self._kept["end_index"][rows]
        context_ends = features.first_context_position[rows] + features.context_lengths(rows)
        can_start = features.is_max_context(rows, starts)
        is_span = (
            can_start[:, :, None]
            & (ends >= starts[:, :, None])
            & (ends < context_ends[:, None, None])
            & (ends - starts[:, :, None] < self.max_answer_length)
        )
        window, beam, rank = np.nonzero(is_span)
        chosen = rows[window]
        start, start_score = (
            self._kept[name][chosen, beam] for name in ("start_index", "start_score")
        )
        # The ends of SQuAD 1.1 are those of every start.
        beam = np.minimum(beam, ends.shape[1] - 1)
        end, end_score = (
            self._kept[name][chosen, beam, rank] for name in ("end_index", "end_score")
        )
        scores = start_score.astype(np.float64), end_score.astype(np.float64)
        return _each_once(chosen, start, end, *scores)

    def _null_odds(self) -> np.ndarray | None:
        """The least of the windows' null odds of each question, float64 [Q]."""
        if self.version == 1:
            return None
        odds = np.full(len(self.data.questions), NO_WINDOW_ODDS)
        if "null_odds" in self._kept:
            np.minimum.at(odds, self.features.question_indices, self._kept["null_odds"])
        return odds


def _each_once(
    rows: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    start_scores: np.ndarray,
    end_scores: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Spans without repetition, at their first place, with the means of their numbers."""
    spans = np.stack([rows, starts, ends]).astype(np.int64)
    width = spans[1:].max(initial=0) + 1
    keys = (spans[0] * width + spans[1]) * width + spans[2]
    _, place, inverse, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    if len(place) == len(keys):
        return rows, starts, ends, start_scores, end_scores
    order = np.argsort(place)
    means = (
        (np.bincount(inverse, scores) / counts)[order] for scores in (start_scores, end_scores)
    )
    return (*(column[place[order]] for column in (rows, starts, ends)), *means)


def _softmax(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The softmax within each part [first[i], first[i + 1]) of values [T]; no part is empty."""
    if not len(values):
        return values
    counts = np.diff(first)
    exponentials = np.exp(values - np.repeat(np.maximum.reduceat(values, first[:-1]), counts))
    return exponentials / np.repeat(np.add.reduceat(exponentials, first[:-1]), counts)
