"""Scores of answers as defined by SQuAD 1.1, SQuAD 2.0 and CMRC 2018, in percent."""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial

import numpy as np
from absl import logging

from albert_tf.squad.data import Question

_NO_ANSWER_LIMIT = 1.0  # default of the official script, which expects probabilities
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")

# Punctuation that CMRC's script ignores.
_CMRC_PUNCTUATION = re.compile(r"[-:_*^/\\~`+=，。：？！“”；’《》…·、「」（）－～『』]")
_CHINESE = "\u4e00-\u9fff"
_SEGMENT = re.compile(rf"[{_CHINESE}]|[^\s{_CHINESE}]+")


def normalize_answer(text: str) -> str:
    """Returns an answer in lower case, without ASCII punctuation, articles and extra spaces."""
    words = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", words).split())


def exact_match(prediction: str, references: Sequence[str]) -> float:
    """Returns 1 if the normalized prediction equals a reference, otherwise 0."""
    words = normalize_answer(prediction)
    return float(any(words == normalize_answer(reference) for reference in references))


def f1(prediction: str, references: Sequence[str], version: int) -> float:
    """Returns the word F1 of the prediction and the best reference.

    If both have no words, it is 0 in SQuAD 1.1 (`version` 1) and 1 in SQuAD 2.0 (`version` 2).
    """
    words = normalize_answer(prediction).split()
    return max(_word_f1(words, normalize_answer(text).split(), version) for text in references)


def _word_f1(predicted: list[str], wanted: list[str], version: int) -> float:
    if not predicted or not wanted:
        return float(version == 2 and predicted == wanted)
    return _harmonic_mean(sum((Counter(predicted) & Counter(wanted)).values()), predicted, wanted)


def _harmonic_mean(common: int, predicted: Sequence[str], wanted: Sequence[str]) -> float:
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def has_references(questions: Sequence[Question], version: int) -> bool:
    """Returns whether any question has a reference or, in SQuAD 2.0, is unanswerable."""
    return any(
        question.answers or (version == 2 and question.is_impossible) for question in questions
    )


def is_chinese(questions: Sequence[Question]) -> bool:
    """Returns whether most first references contain Chinese characters."""
    firsts = [question.answers[0][0] for question in questions if question.answers]
    return sum(bool(re.search(f"[{_CHINESE}]", text)) for text in firsts) * 2 > len(firsts)


def v1_scores(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Scores answers by id as defined by SQuAD 1.1.

    Questions without references are skipped with a warning; at least one must have references.

    Returns:
        `exact_match` and `f1`, 0 to 100. If most references are Chinese, also `char_exact_match`
        and `char_f1` as defined by CMRC 2018, except that spaces separate Latin words.
    """
    _warn(questions, [q for q in questions if not q.answers], "no reference: skipped")
    pairs = [
        (predictions[question.qas_id], [text for text, _ in question.answers])
        for question in questions
        if question.answers
    ]
    scores: dict[str, Callable[..., float]] = {"exact_match": exact_match}
    scores["f1"] = partial(f1, version=1)
    if is_chinese(questions):
        scores |= {"char_exact_match": _cmrc_exact, "char_f1": _cmrc_f1}
    return {
        name: 100.0 * sum(score(*pair) for pair in pairs) / len(pairs)
        for name, score in scores.items()
    }


def _cmrc_exact(prediction: str, references: Sequence[str]) -> bool:
    texts = [_CMRC_PUNCTUATION.sub("", text.lower().strip()) for text in (prediction, *references)]
    return texts[0] in texts[1:]


def _cmrc_f1(prediction: str, references: Sequence[str]) -> float:
    """Returns the best F1 over all references, based on the longest common run of segments."""
    predicted, *wanted = (
        _SEGMENT.findall(_CMRC_PUNCTUATION.sub(" ", text.lower()))
        for text in (prediction, *references)
    )
    matcher: SequenceMatcher[str] = SequenceMatcher(None, predicted, autojunk=False)
    scores = []
    for segments in wanted:
        matcher.set_seq2(segments)
        scores.append(_harmonic_mean(matcher.find_longest_match().size, predicted, segments))
    return max(scores)


def v2_scores(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    null_odds: Mapping[str, float],
    threshold: float | None = None,
) -> dict[str, float]:
    """Scores answers and unanswered questions as defined by SQuAD 2.0.

    Questions without references count as unanswerable. `answers` contains the best answer by id,
    before a threshold is applied. `threshold` is the minimum of the `null_odds` of unanswered
    questions. If `None`, `best_f1_thresh` is used.

    Returns:
        - `exact`, `f1` and `total` at the threshold, also prefixed by `HasAns_` and `NoAns_` for
          questions with and without an answer. As in the original, questions with null odds above
          1.0 are always unanswered.
        - `predictions_exact` and `predictions_f1`: at the threshold, without this limit.
        - `best_exact`, `best_exact_thresh`, `best_f1` and `best_f1_thresh`: the best scores and
          their thresholds, which are 0 if answering no question is best. For these scores,
          questions with null odds equal to the threshold are answered.
        - `null_score_diff_threshold`: the threshold.

    Source: squad_utils.py of the original release, evaluate_v2, and the official script.
    """
    unmarked = [q for q in questions if not q.answers and not q.is_impossible]
    _warn(questions, unmarked, "neither a reference nor is_impossible: treated as unanswerable")
    pairs = [(answers[question.qas_id], _references(question)) for question in questions]
    raw = {
        "exact": np.array([exact_match(*pair) for pair in pairs]),
        "f1": np.array([f1(*pair, 2) for pair in pairs]),
    }
    odds = np.array([null_odds[question.qas_id] for question in questions], np.float64)
    has_answer = np.array([bool(question.answers) for question in questions])
    losses = np.array([-1.0 * bool(answer) for answer, _ in pairs])  # of unanswerable questions
    best: dict[str, float] = {}
    for name, values in raw.items():
        gains = np.where(has_answer, values, losses)
        best |= _best_threshold(name, float(np.sum(~has_answer)), gains, odds)
    threshold = best["best_f1_thresh"] if threshold is None else threshold
    empty_scores = np.array([texts == [""] for _, texts in pairs])  # scores of empty answers
    written = {name: np.where(odds >= threshold, empty_scores, v) for name, v in raw.items()}
    is_none = odds > _NO_ANSWER_LIMIT
    final = {name: np.where(is_none, ~has_answer, v) for name, v in written.items()}
    parts = {"": np.ones(len(questions), bool), "HasAns_": has_answer, "NoAns_": ~has_answer}
    results: dict[str, float] = {}
    for prefix, part in parts.items():
        if part.any():
            results |= {f"{prefix}{name}": _percent(values[part]) for name, values in final.items()}
            results[f"{prefix}total"] = int(part.sum())
    results |= {f"predictions_{name}": _percent(values) for name, values in written.items()}
    return {**results, **best, "null_score_diff_threshold": threshold}


def _references(question: Question) -> list[str]:
    return [text for text, _ in question.answers if normalize_answer(text)] or [""]


def _best_threshold(
    name: str, if_none: float, gains: np.ndarray, odds: np.ndarray
) -> dict[str, float]:
    """Returns the best score and its threshold."""
    # `if_none` is the sum of scores if no question is answered; each answer adds one of `gains`.
    order = np.argsort(odds, kind="stable")
    # Entry n: only the n most answerable questions are answered.
    totals = np.cumsum(np.concatenate([[if_none], gains[order]]))
    number = int(totals.argmax())
    threshold = odds[order[number - 1]] if number else 0.0
    return {
        f"best_{name}": 100.0 * float(totals[number]) / len(odds),
        f"best_{name}_thresh": float(threshold),
    }


def _percent(values: np.ndarray) -> float:
    return 100.0 * float(values.sum(dtype=np.float64)) / len(values)


def _warn(questions: Sequence[Question], chosen: Sequence[Question], what: str) -> None:
    if chosen:
        first = chosen[0].qas_id
        counts = (len(chosen), len(questions))
        logging.warning("%d of %d questions have %s. The first is %r.", *counts, what, first)
