"""Scores of SQuAD and CMRC 2018. tests/golden compares further scores with the original."""

import math

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


class TestSecondVersion:
    def test_scores_at_a_given_threshold(self):
        scores = v2_scores(QUESTIONS, ANSWERS, ODDS, threshold=0.75)
        expected = {
            "exact": 2 / 5,
            "f1": (1 + HALF + 1) / 5,
            "HasAns_exact": 1 / 3,
            "HasAns_f1": (1 + HALF) / 3,
            "NoAns_exact": 1 / 2,
            "NoAns_f1": 1 / 2,
            "predictions_exact": 2 / 5,
            "predictions_f1": (1 + HALF + 1) / 5,
        }
        for name, share in expected.items():
            assert scores[name] == pytest.approx(100 * share), name
        assert (scores["HasAns_total"], scores["NoAns_total"]) == (3, 2)

    def test_questions_with_odds_above_1_are_unanswered_except_in_predictions(self):
        odds = {**ODDS, "right": 1.5, "none": 1.0}
        scores = v2_scores(QUESTIONS, ANSWERS, odds, threshold=10.0)
        assert scores["exact"] == pytest.approx(100 * 1 / 5)  # without "right"
        assert scores["predictions_exact"] == pytest.approx(100 * 2 / 5)

    def test_the_threshold_is_0_if_it_is_best_to_answer_nothing(self):
        questions = QUESTIONS[2:]
        odds = {key: value - 10 for key, value in ODDS.items()}
        scores = v2_scores(questions, ANSWERS, odds)
        assert scores["best_f1"] == pytest.approx(100 * 2 / 3)
        assert scores["null_score_diff_threshold"] == 0.0
        assert scores["f1"] == pytest.approx(100 * 1 / 3)  # all are answered

    def test_equal_odds_keep_the_order_of_the_questions(self):
        odds = dict.fromkeys(ODDS, -1.0)
        assert v2_scores(QUESTIONS, ANSWERS, odds)["best_f1"] == pytest.approx(100 * (3 + HALF) / 5)
        backwards = v2_scores(QUESTIONS[::-1], ANSWERS, odds)
        assert backwards["best_f1"] == pytest.approx(100 * (2 - 1 + 1 + HALF) / 5)

    def test_references_without_words(self):
        questions = [question("q", "the"), question("r", "the", "red")]
        scores = v2_scores(questions, {"q": "", "r": ""}, {"q": 0.0, "r": 0.0}, threshold=math.inf)
        assert scores["exact"] == scores["f1"] == 50.0
        assert "NoAns_total" not in scores
        # With odds above 1, only questions without references are correct.
        scores = v2_scores(questions, {"q": "", "r": ""}, {"q": 2.0, "r": 2.0}, threshold=math.inf)
        assert (scores["exact"], scores["predictions_exact"]) == (0.0, 50.0)

    def test_unmarked_questions_are_unanswerable(self, warnings):
        questions = [*QUESTIONS[3:], question("q")]
        scores = v2_scores(questions, {**ANSWERS, "q": ""}, {**ODDS, "q": 0}, 10.0)
        assert scores["NoAns_total"] == 3
        assert len(warnings) == 1
        assert "1 of 3 questions have neither" in warnings[0]


def test_unanswerable_questions_are_scored_only_in_the_second_version():
    unanswerable, unknown = question("q", is_impossible=True), question("q")
    assert [has_references([unanswerable], version) for version in (1, 2)] == [False, True]
    assert not has_references([unknown], 2)
