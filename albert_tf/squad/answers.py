"""Selects the best answers from the model outputs of all windows."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from albert_tf.checkpoints.stored_task import THRESHOLD, StoredTask
from albert_tf.data.files import write_files
from albert_tf.squad.data import SquadData
from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.words import whole_words

_NO_WINDOW_ODDS = 1e6  # null odds of a question without windows
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

# The candidates of questions without possible spans, as in the original release.
_FALLBACKS = {1: {"empty": (0.0, 0.0, -1, -1)}, 2: {"": (-1e6, -1e6, -1, -1)}}
_QUESTIONS_AT_ONCE = 256  # limits the memory for spans


_STORED = {"doc_stride", "max_query_length"}  # with the model


@dataclass(frozen=True)
class AnswerSettings:
    """Settings for answering questions."""

    version: int  # SQuAD version, 1 or 2
    max_seq_length: int = 384  # maximum number of tokens of a window with its question
    doc_stride: int = 128  # number of tokens between the starts of two windows
    max_query_length: int = 64  # number of tokens to which questions are truncated
    n_best_size: int = 20  # maximum number of candidates; in SQuAD 1.1 also of starts and ends
    max_answer_length: int = 30  # maximum number of tokens of an answer
    threshold: float | None = None  # SQuAD 2.0: minimum null odds of unanswered questions

    @classmethod
    def of_task(cls, version: int, task: StoredTask, **given: Any) -> "AnswerSettings":
        """Returns the settings of a trained model, except those that are given and not `None`."""
        names = _STORED & task.settings.keys()
        known: dict[str, Any] = {name: task.settings[name] for name in names}
        known["threshold"] = task.settings.get(THRESHOLD, 0.0)
        known |= {name: value for name, value in given.items() if value is not None}
        return cls(version, **{**known, "threshold": None} if version == 1 else known)

    @property
    def lengths(self) -> dict[str, Any]:
        """Arguments of `squad_features`."""
        names = ("max_seq_length", "doc_stride", "max_query_length")
        return {name: getattr(self, name) for name in names}


class AnswerCandidate(NamedTuple):
    """A candidate answer of a question."""

    text: str  # stripped
    probability: float  # among the candidates of the question
    start_log_prob: float  # log probability of the first token; in SQuAD 1.1 its logit
    end_log_prob: float  # log probability of the last token; in SQuAD 1.1 its logit
    start: int  # context[start:end] is the answer; -1 if the context does not contain it
    end: int


@dataclass(frozen=True, eq=False)
class SquadAnswers:
    """The best answers of Q questions."""

    ids: list[str]
    candidates: list[list[AnswerCandidate]]  # of each question, at least one, best first
    null_odds: np.ndarray | None = None  # SQuAD 2.0: float64 [Q]; higher if less answerable

    def predictions(self, threshold: float | None = None) -> dict[str, str]:
        """Returns the best answers by id; "" if the null odds are at least `threshold`."""
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


class AnswerSelector:
    """Collects the outputs of all windows and selects the answers.

    The spans of a window combine its `n_best_size` best starts and ends (SQuAD 1.1) or the model's
    beams (SQuAD 2.0). A span is rejected if it ends before it starts, is longer than
    `max_answer_length`, exceeds the context of the window, or starts at a token with more context
    in another window. Among spans of a question with the same text, only the best span is kept.

    If `ranks_padding`, the best starts and ends of SQuAD 1.1 may be padding, as in the original. If
    `whole_words`, spans are extended to whole words, unlike in the original.

    Source: squad_utils.py of the original release, accumulate_predictions and write_predictions.
    """

    def __init__(
        self,
        data: SquadData,
        features: SquadFeatures,
        settings: AnswerSettings,
        *,
        ranks_padding: bool = False,
        whole_words: bool = False,
    ) -> None:
        self.data = data
        self.features = features
        self.settings = settings
        self.ranks_padding = ranks_padding
        self.whole_words = whole_words
        self._kept: dict[str, np.ndarray] = {}  # [N, ...] each

    def add(self, rows: np.ndarray, outputs: Mapping[str, np.ndarray]) -> None:
        """Adds outputs, named as in `OUTPUTS`, of the windows with indices `rows`, int [n]."""
        if self.settings.version == 1:
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
                shape = (len(self.features), *values.shape[1:])
                self._kept[name] = np.zeros(shape, values.dtype)
            self._kept[name][rows] = values

    def _best(self, logits: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the best positions, -1 if missing, and their logits, [n, n_best_size] each."""
        if not self.ranks_padding:
            is_real = np.arange(logits.shape[1]) < self.features.sequences.lengths[rows][:, None]
            logits = np.where(is_real, logits, -np.inf)
        order = np.argsort(-logits, axis=1, kind="stable")[:, : self.settings.n_best_size]
        best = np.take_along_axis(logits, order, axis=1)
        missing = [(0, 0), (0, self.settings.n_best_size - order.shape[1])]
        index = np.where(np.isfinite(best), order, -1).astype(np.int32)
        return np.pad(index, missing, constant_values=-1), np.pad(best, missing)

    def answers(self) -> SquadAnswers:
        """Returns the answers, after the outputs of all windows have been added."""
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
        odds = None  # minimum over the windows of each question
        if self.settings.version == 2:
            odds = np.full(len(questions), _NO_WINDOW_ODDS)
            if "null_odds" in self._kept:
                np.minimum.at(odds, self.features.question_indices, self._kept["null_odds"])
        return SquadAnswers(ids, candidates, odds)

    def _distinct(
        self, context: str, spans: Iterable[tuple]
    ) -> dict[str, tuple[float, float, int, int]]:
        """Returns scores and ranges of the first `n_best_size` distinct texts, or `_FALLBACKS`."""
        found: dict[str, tuple[float, float, int, int]] = {}
        for start, end, *scores in spans:
            end += 1
            if self.whole_words:
                start, end = whole_words(context, start, end)
            piece = context[start:end]
            text = piece.strip()
            if text in found:
                continue
            start += len(piece) - len(piece.lstrip()) if text else 0
            found[text] = (*scores, start, start + len(text))
            if len(found) == self.settings.n_best_size:
                break
        return found or _FALLBACKS[self.settings.version]

    def _spans_by_question(self) -> Iterator[tuple[int, Iterable[tuple]]]:
        """Yields the index of each question and its spans, best first; for columns see `_spans`."""
        count = len(self.data.questions)
        windows = np.searchsorted(self.features.question_indices, np.arange(count + 1))
        for begin in range(0, count, _QUESTIONS_AT_ONCE):
            end = min(begin + _QUESTIONS_AT_ONCE, count)
            questions, *spans = self._spans(np.arange(windows[begin], windows[end]))
            # A stable order: equal scores keep the order of windows, starts and ends.
            order = np.lexsort((-(spans[2] + spans[3]), questions))
            columns = [column[order].tolist() for column in spans]
            bounds = np.searchsorted(questions[order], np.arange(begin, end + 1)).tolist()
            for number, (low, high) in enumerate(pairwise(bounds), begin):
                yield number, zip(*(column[low:high] for column in columns), strict=True)

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
            & (ends - starts[:, :, None] < self.settings.max_answer_length)
        )
        window, beam, rank = np.nonzero(is_span)
        # In SQuAD 1.1, all starts share the same ends.
        end_beam = np.minimum(beam, ends.shape[1] - 1)
        row, start, end = rows[window], starts[window, beam], ends[window, end_beam, rank]
        # As in the original, scores of a span that occurs in several beams are averaged.
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


def _softmax(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Returns the softmax of each group `values[bounds[i] : bounds[i + 1]]`."""
    lengths, first = np.diff(bounds), bounds[:-1]
    shares = np.exp(values - np.repeat(np.maximum.reduceat(values, first), lengths))
    return shares / np.repeat(np.add.reduceat(shares, first), lengths)


def write_answers(output_dir: str, answers: SquadAnswers, threshold: float | None = None) -> None:
    """Writes `predictions.json`, `nbest_predictions.json` and, for SQuAD 2.0, `null_odds.json`.

    Each file contains an object with the question ids as keys. `predictions.json` contains the
    texts of `SquadAnswers.predictions`. `nbest_predictions.json` contains lists of objects with
    `text`, `probability`, `start_log_prob` and `end_log_prob`.
    """
    names = AnswerCandidate._fields[:4]
    n_best = [
        [dict(zip(names, candidate[:4], strict=True)) for candidate in candidates]
        for candidates in answers.candidates
    ]
    contents: dict[str, Mapping[str, Any]] = {
        "predictions.json": answers.predictions(threshold),
        "nbest_predictions.json": dict(zip(answers.ids, n_best, strict=True)),
    }
    if answers.null_odds is not None:
        contents["null_odds.json"] = answers.null_odds_by_id()
    write_files(
        {
            os.path.join(output_dir, name): json.dumps(content, indent=4) + "\n"
            for name, content in contents.items()
        }
    )
