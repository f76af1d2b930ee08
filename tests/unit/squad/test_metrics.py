"""Scores of SQuAD and CMRC 2018. tests/golden compares further scores with the original."""

import math
from operator import attrgetter

import pytest
from absl import logging

from albert_tf.squad.data import Question
from albert_tf.squad.metrics import has_references, v1_scores, v2_scores


def question(qas_id, *references, is_impossible=False):
    answers = tuple((text, 0) for text in references)
    return Question(qas_id, "why?", 0, answers, is_impossible)


@pytest.fixture
def warnings(monkeypatch):
    found = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: found.append(text % args))
    return found


class TestFirstVersion:
    def test_questions_without_references_are_skipped(self, warnings):
        scores = v1_scores([question("none"), question("q", "red")], {"q": "red", "none": "blue"})
        assert scores == {"exact_match": 100.0, "f1": 100.0}
        assert warnings == ["1 of 2 questions have no reference: skipped. The first is 'none'."]

    def test_chinese_is_also_scored_by_characters(self):
        questions = [
            question("a", "1998年,在北京", "北京"),
            question("b", "《红楼梦》"),
            question("c", "No 5"),
        ]
        scores = v1_scores(questions, {"a": "于北京大学", "b": "红楼梦。", "c": "no 6"})
        assert scores["exact_match"] == 0.0
        assert scores["char_exact_match"] == pytest.approx(100 / 3)
        # 2 of 5 and 2 characters; all 3 characters; 1 of 2 and 2 words.
        assert scores["char_f1"] == pytest.approx(100 * (4 / 7 + 1 + 1 / 2) / 3)
        # Only the longest common sequence counts: 甲乙.
        assert v1_scores([question("a", "甲乙丁")], {"a": "甲乙丙丁"})["char_f1"] == pytest.approx(
            100 * 4 / 7
        )


QUESTIONS = [
    question("right", "red"),
    question("half", "green grass"),
    question("wrong", "white"),
    question("none", is_impossible=True),
    question("empty", is_impossible=True),
]
ANSWERS = {"right": "Red", "half": "grass", "wrong": "black", "none": "blue", "empty": ""}
ODDS = {"right": -3.0, "half": 0.5, "wrong": -1.0, "none": -2.0, "empty": 2.0}
HALF = 2 / 3  # F1 of "grass"


AT_THRESHOLD = {
    **{
        "exact": 2 / 5,
        "f1": (1 + HALF + 1) / 5,
        "HasAns_exact": 1 / 3,
        "HasAns_f1": (1 + HALF) / 3,
    },
    **{"NoAns_exact": 1 / 2, "NoAns_f1": 1 / 2, "HasAns_total": 0.03, "NoAns_total": 0.02},
    **{"predictions_exact": 2 / 5, "predictions_f1": (1 + HALF + 1) / 5},
}
ABOVE_1 = {**ODDS, "right": 1.5, "none": 1.0}  # unanswered, except in predictions
LOW = {key: value - 10 for key, value in ODDS.items()}  # all are answered
EQUAL = dict.fromkeys(ODDS, -1.0)  # the order of the questions counts
WORDLESS = [question("q", "the"), question("r", "the", "red")]
SECOND_VERSION = [
    (QUESTIONS, ODDS, 0.75, AT_THRESHOLD),
    (QUESTIONS, ABOVE_1, 10.0, {"exact": 1 / 5, "predictions_exact": 2 / 5}),
    (QUESTIONS[2:], LOW, None, {"best_f1": 2 / 3, "f1": 1 / 3, "null_score_diff_threshold": 0.0}),
    (QUESTIONS, EQUAL, None, {"best_f1": (3 + HALF) / 5}),
    (QUESTIONS[::-1], EQUAL, None, {"best_f1": (2 - 1 + 1 + HALF) / 5}),
    (WORDLESS, {"q": 0.0, "r": 0.0}, math.inf, {"exact": 1 / 2, "f1": 1 / 2, "HasAns_total": 0.02}),
    (WORDLESS, {"q": 2.0, "r": 2.0}, math.inf, {"exact": 0.0, "predictions_exact": 1 / 2}),
]


@pytest.mark.parametrize(("questions", "odds", "threshold", "shares"), SECOND_VERSION)
def test_scores_of_the_second_version(questions, odds, threshold, shares):
    scores = v2_scores(questions, {**ANSWERS, "q": "", "r": ""}, odds, threshold)
    expected = {name: pytest.approx(100 * share) for name, share in shares.items()}
    assert {name: scores[name] for name in expected} == expected
    assert ("NoAns_total" in scores) == any(map(attrgetter("is_impossible"), questions))


def test_unmarked_questions_are_unanswerable(warnings):
    questions = [*QUESTIONS[3:], question("q")]
    scores = v2_scores(questions, {**ANSWERS, "q": ""}, {**ODDS, "q": 0}, 10.0)
    assert scores["NoAns_total"] == 3
    assert len(warnings) == 1
    assert "1 of 3 questions have neither" in warnings[0]


def test_unanswerable_questions_are_scored_only_in_the_second_version():
    unanswerable, unknown = question("q", is_impossible=True), question("q")
    assert [has_references([unanswerable], version) for version in (1, 2)] == [False, True]
    assert not has_references([unknown], 2)
