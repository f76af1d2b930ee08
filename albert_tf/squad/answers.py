"""Selects the best answers from the outputs of windows.

Outputs arrive batch by batch, in any order. Only the best candidates of a window are kept, a few
hundred bytes per window of any length.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from albert_tf.data.errors import UserError
from albert_tf.data.files import write_then_rename
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

# Fallback for questions without possible spans, as in the original release.
_FALLBACKS = {1: {"empty": (0.0, 0.0, -1, -1)}, 2: {"": (-1e6, -1e6, -1, -1)}}
_WINDOWS_AT_ONCE = 1024  # limits the memory of spans


@dataclass(frozen=True)
class AnswerSettings:
    """Settings for answering questions.

    Attributes:
        version: version of SQuAD, 1 or 2.
        max_seq_length: maximum number of tokens of a window with its question.
        doc_stride: number of tokens between the starts of two windows.
        max_query_length: maximum number of tokens of a question; longer ones are truncated.
        n_best_size: maximum number of candidates of a question; in SQuAD 1.1 also of starts and of
            ends of a window.
        max_answer_length: maximum number of tokens of an answer.
        threshold: null odds from which a question is not answered, only SQuAD 2.0. If `None`, the
            best candidate is always used.
    """

    version: int
    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    n_best_size: int = 20
    max_answer_length: int = 30
    threshold: float | None = None


class AnswerCandidate(NamedTuple):
    """A candidate answer of a question.

    Attributes:
        text: the answer, stripped.
        probability: probability among the candidates of the question.
        start_log_prob: log probability of its first token; a logit in SQuAD 1.1.
        end_log_prob: log probability of its last token; a logit in SQuAD 1.1.
        start: first character in the context; -1 if the text is not in the context.
        end: one past the last character; -1 if the text is not in the context.
    """

    text: str
    probability: float
    start_log_prob: float
    end_log_prob: float
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class SquadAnswers:
    """The best answers of Q questions.

    Attributes:
        ids: Q ids.
        candidates: candidates of each question, at least one, best first.
        null_odds: float64 [Q], higher if less answerable. `None` for SQuAD 1.1.
    """

    ids: list[str]
    candidates: list[list[AnswerCandidate]]
    null_odds: np.ndarray | None = None

    def __len__(self) -> int:
        """Number of questions Q."""
        return len(self.ids)

    def predictions(self, threshold: float | None = None) -> dict[str, str]:
        """Returns answers by id, "" from null odds of `threshold`. If `None`, always the best."""
        texts = [candidates[0].text for candidates in self.candidates]
        if threshold is not None and self.null_odds is not None:
            is_answered = self.null_odds < threshold
            texts = [text if kept else "" for text, kept in zip(texts, is_answered, strict=True)]
        return dict(zip(self.ids, texts, strict=True))

    def null_odds_by_id(self) -> dict[str, float]:
        """Returns null odds by id; empty for SQuAD 1.1."""
        if self.null_odds is None:
            return {}
        return dict(zip(self.ids, self.null_odds.tolist(), strict=True))


def check_sizes(n_best_size: int, max_answer_length: int) -> None:
    """Raises ValueError unless both numbers are at least 1."""
    for flag, value in (("`n_best_size`", n_best_size), ("`max_answer_length`", max_answer_length)):
        if value < 1:
            raise UserError(f"{flag} must be at least 1. Received: {value}")


class AnswerSelector:
    """Collects the outputs of all windows and selects the answers.

    A candidate of a window is a pair of a start and an end: in SQuAD 1.1 of the `n_best_size` best
    of each, in 2.0 a pair of the model's beams. Rejected are spans that end before they start, are
    longer than `max_answer_length`, exceed the context of the window, or start where another window
    has more context. Each text counts once per question, with its best span.

    With `ranks_padding`, logits of padding are ranked among the best starts and ends of SQuAD 1.1.
    They are never part of an answer, but may displace other candidates.

    Raises:
        ValueError: a number is below 1.

    Source: squad_utils.py of the original release, accumulate_predictions and write_predictions.
    Differs: the original ranks padding, always to `max_seq_length`. Here answers do not depend on
        padding by default, and candidates are those of the original and possibly more.
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
        """Adds the outputs of the windows `rows`, int [n], by the names in `OUTPUTS`.

        SQuAD 1.1: float [n, S], S being at least the lengths of the windows. SQuAD 2.0: beams [n,
        K] and [n, K * M], the ends of the first start first; `cls_logits` float [n].
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
        """Returns the best positions, filled with -1, and their logits, [n, n_best_size]."""
        if not self.ranks_padding:
            is_real = np.arange(logits.shape[1]) < self.features.sequences.lengths[rows][:, None]
            logits = np.where(is_real, logits, -np.inf)
        order = np.argsort(-logits, axis=1, kind="stable")[:, : self.n_best_size]
        best = np.take_along_axis(logits, order, axis=1)
        missing = [(0, 0), (0, self.n_best_size - order.shape[1])]
        index = np.where(np.isfinite(best), order, -1).astype(np.int32)
        return np.pad(index, missing, constant_values=-1), np.pad(best, missing)

    def answers(self) -> SquadAnswers:
        """Returns all answers; raises ValueError if a window has no outputs yet."""
        if not self._is_added.all():
            raise UserError(
                f"{np.sum(~self._is_added)} of {len(self._is_added)} windows have no outputs yet."
            )
        questions = self.data.questions
        found = [
            self._distinct(self.data.contexts[questions[number].paragraph], spans)
            for number, spans in self._spans_by_question()
        ]
        sums = [start + end for texts in found for start, end, *_ in texts.values()]
        shares = _softmax(np.array(sums), np.cumsum([0, *map(len, found)]))
        probability = iter(shares.tolist())
        candidates = [
            [AnswerCandidate(text, next(probability), *entry) for text, entry in texts.items()]
            for texts in found
        ]
        ids = [question.qas_id for question in questions]
        return SquadAnswers(ids, candidates, self._null_odds())

    def _distinct(
        self, context: str, spans: Iterable[tuple]
    ) -> dict[str, tuple[float, float, int, int]]:
        """Returns scores and ranges of the first distinct texts, or of the fallback."""
        found: dict[str, tuple[float, float, int, int]] = {}
        for start, end, *scores in spans:
            piece = context[start : end + 1]
            text = piece.strip()
            if text in found:
                continue
            start += len(piece) - len(piece.lstrip()) if text else 0
            found[text] = (*scores, start, start + len(text))
            if len(found) == self.n_best_size:
                break
        return found or _FALLBACKS[self.version]

    def _spans_by_question(self) -> Iterator[tuple[int, Iterable[tuple]]]:
        """Yields each question and its spans, best first: first and last character, scores."""
        count = len(self.data.questions)
        windows = np.searchsorted(self.features.question_indices, np.arange(count + 1))
        begin = 0
        while begin < count:
            limit = windows[begin] + _WINDOWS_AT_ONCE
            end = max(begin + 1, int(np.searchsorted(windows, limit, side="right")) - 1)
            questions, *spans = self._spans(np.arange(windows[begin], windows[end]))
            # Stable: ties keep the order of windows, starts and ends.
            order = np.lexsort((-(spans[2] + spans[3]), questions))
            columns = [column[order].tolist() for column in spans]
            bounds = np.searchsorted(questions[order], np.arange(begin, end + 1)).tolist()
            for number, (low, high) in enumerate(pairwise(bounds), begin):
                yield number, zip(*(column[low:high] for column in columns), strict=True)
            begin = end

    def _spans(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the possible spans of windows: question, first and last character, scores."""
        features = self.features
        starts = self._kept["start_index"][rows]
        ends = self._kept["end_index"][rows]
        context_ends = features.first_context_position[rows] + features.context_lengths(rows)
        is_span = (
            features.is_max_context(rows, starts)[:, :, None]
            & (ends >= starts[:, :, None])
            & (ends < context_ends[:, None, None])
            & (ends - starts[:, :, None] < self.max_answer_length)
        )
        window, beam, rank = np.nonzero(is_span)
        # In SQuAD 1.1 all starts share the ends.
        end_beam = np.minimum(beam, ends.shape[1] - 1)
        row, start, end = rows[window], starts[window, beam], ends[window, end_beam, rank]
        # Scores of a span that occurs in several beams are averaged.
        width = np.int64(ends.max(initial=0) + 1)
        keys = (row * width + start) * width + end
        _, first, inverse, counts = np.unique(keys, True, True, True)
        order = np.argsort(first)
        scores = (
            self._kept["start_score"][row, beam],
            self._kept["end_score"][row, end_beam, rank],
        )
        means = ((np.bincount(inverse, column) / counts)[order] for column in scores)
        row, start, end = (column[first[order]] for column in (row, start, end))
        base = (
            features.paragraph_offsets[features.paragraph_indices[row]]
            + features.window_starts[row]
            - features.first_context_position[row]
        )
        return (
            features.question_indices[row],
            features.token_starts[base + start],
            features.token_ends[base + end],
            *means,
        )

    def _null_odds(self) -> np.ndarray | None:
        """Returns the minimum of the null odds of the windows of each question, float64 [Q]."""
        if self.version == 1:
            return None
        odds = np.full(len(self.data.questions), NO_WINDOW_ODDS)
        if "null_odds" in self._kept:
            np.minimum.at(odds, self.features.question_indices, self._kept["null_odds"])
        return odds


def _softmax(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Returns the softmax of each of the non-empty groups of values between bounds."""
    lengths, first = np.diff(bounds), bounds[:-1]
    shares = np.exp(values - np.repeat(np.maximum.reduceat(values, first), lengths))
    return shares / np.repeat(np.add.reduceat(shares, first), lengths)


def write_answers(output_dir: str, answers: SquadAnswers, threshold: float | None = None) -> None:
    """Writes `predictions.json`, `nbest_predictions.json` and, for SQuAD 2.0, `null_odds.json`.

    Each is an object with the ids as keys, in order. The n best answers are objects with `text`,
    `probability`, `start_log_prob` and `end_log_prob`. From null odds of `threshold` an answer is
    ""; if `threshold` is `None`, it is always the best.
    """
    _write_object(output_dir, "predictions.json", _texts(answers.predictions(threshold)))
    # If an id occurs twice, the last question counts, as in the other files.
    numbers = {qas_id: number for number, qas_id in enumerate(answers.ids)}
    entries = ((json.dumps(id_), _entries(answers, number)) for id_, number in numbers.items())
    _write_object(output_dir, "nbest_predictions.json", entries)
    if answers.null_odds is not None:
        _write_object(output_dir, "null_odds.json", _texts(answers.null_odds_by_id()))


def _texts(values: Mapping[str, str] | Mapping[str, float]) -> Iterable[tuple[str, str]]:
    return ((json.dumps(key), json.dumps(value)) for key, value in values.items())


def _entries(answers: SquadAnswers, number: int) -> str:
    """Returns the n best answers like `json.dumps` with an indent of 4, but faster."""
    entries = (
        f"        {{\n"
        f'            "text": {json.dumps(candidate.text)},\n'
        f'            "probability": {candidate.probability!r},\n'
        f'            "start_log_prob": {candidate.start_log_prob!r},\n'
        f'            "end_log_prob": {candidate.end_log_prob!r}\n'
        f"        }}"
        for candidate in answers.candidates[number]
    )
    return "[\n" + ",\n".join(entries) + "\n    ]"


def _write_object(output_dir: str, name: str, items: Iterable[tuple[str, str]]) -> None:
    """Writes an object whose keys and values are JSON."""
    with write_then_rename(os.path.join(output_dir, name)) as file:
        separator = "{\n"
        for key, value in items:
            file.write(f"{separator}    {key}: {value}".encode())
            separator = ",\n"
        file.write(b"{}\n" if separator == "{\n" else b"\n}\n")
