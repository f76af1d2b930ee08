"""`QuestionAnswerer`: threshold, settings and invalid arguments.

tests/e2e/test_run_squad.py compares its answers with the answers that the command writes.
"""

import math
import random

import numpy as np
import pandas
import pytest

from albert_tf import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
    QuestionAnswerer,
)
from albert_tf.checkpoints.stored_task import SQUAD_TASKS, THRESHOLD, StoredTask
from albert_tf.squad.answers import AnswerSettings
from tests.squad_run import questions
from tests.text_models import CONFIG, assert_rejected, write_model

pytestmark = pytest.mark.usefixtures("eager")

SETTINGS = {"doc_stride": 7, "max_query_length": 9}
MEDIAN = -0.176  # of the null odds of the model's answers
CONTEXTS, QUESTIONS, _ = zip(*questions(40, 3, 2), strict=True)


@pytest.fixture(scope="module", params=[1, 2])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def model(version):
    random.seed(3)
    if version == 1:
        return AlbertForQuestionAnswering(CONFIG)
    return AlbertForQuestionAnsweringWithBeamSearch(CONFIG, 3, 2)


@pytest.fixture(scope="module")
def directory(version, model, tokenizer, tmp_path_factory):
    settings = dict(SETTINGS)
    if version == 2:
        settings |= {"start_n_top": 3, "end_n_top": 2, THRESHOLD: MEDIAN}
    task = StoredTask(SQUAD_TASKS[version], max_seq_length=22, settings=settings)
    return write_model(tmp_path_factory.mktemp("trained"), model, tokenizer, task)


def test_the_threshold_decides_whether_questions_are_answered(version, directory, caplog):
    answerer = QuestionAnswerer.load(directory, null_score_diff_threshold=math.inf)
    assert ("`null_score_diff_threshold` has no effect" in caplog.text) == (version == 1)
    (found,) = answerer(QUESTIONS[:1], contexts=CONTEXTS[:1])
    assert CONTEXTS[0][found.start : found.end] == found.answer == found.n_best[0].text
    assert [type(v) for v in found[:4]] == [str, float, int, int]
    assert (found.null_odds is None) == (version == 1)
    if version == 2:
        none = QuestionAnswerer.load(directory, null_score_diff_threshold=-math.inf)
        (found,) = none(QUESTIONS[:1], contexts=CONTEXTS[:1])
        assert found[:4] == ("", None, None, None)


def test_settings_come_from_arguments_or_the_training(version, model, directory, tokenizer):
    loaded = QuestionAnswerer.load(directory, max_answer_length=4).settings
    threshold = MEDIAN if version == 2 else None
    expected = AnswerSettings(version, 22, 7, 9, max_answer_length=4, threshold=threshold)
    assert loaded == expected
    in_memory = QuestionAnswerer(model, tokenizer, max_query_length=5).settings
    threshold = 0.0 if version == 2 else None
    assert in_memory == AnswerSettings(version, 24, 128, 5, threshold=threshold)


def test_rows_are_answered_like_texts(directory):
    answerer = QuestionAnswerer.load(directory)
    rows = [{"question": q, "context": c} for q, c in zip(QUESTIONS[:2], CONTEXTS[:2], strict=True)]
    columns = {"passage": [*CONTEXTS[:2]], "query": [*QUESTIONS[:2]], "id": [*range(2)]}
    expected = answerer(QUESTIONS[:2], contexts=CONTEXTS[:2])
    for given in (rows, iter(rows), columns, {"version": "1.1", "data": rows}):
        assert answerer(given) == expected
    (found,) = answerer({**rows[0], "id": 7, "answers": {"text": []}})
    assert found.answer == expected[0].answer
    assert_rejected([
        (lambda: answerer(QUESTIONS[:2]), TypeError, "contexts must be a list of texts"),
        (lambda: answerer([{"question": "?"}]), ValueError, r"\[0\].context is missing"),
    ])  # fmt: skip


def test_answers_may_be_values_of_arrays_and_tables(directory):
    evaluate = QuestionAnswerer.load(directory).evaluate
    asked = QUESTIONS[:3], CONTEXTS[:3]
    expected = evaluate(*asked, ["tower", {"text": ["1", "2"], "answer_start": [3, 4]}, None])
    for answers in (
        [np.str_("tower"), {"text": np.array(["1", "2"]), "answer_start": np.arange(2)}, math.nan],
        [("tower",), {"text": ["1", "2"], "answer_start": [np.int64(3), 4]}, pandas.NA],
        [np.array(["tower"]), ("1", "2"), []],
    ):
        assert evaluate(*asked, answers) == expected


def test_invalid_arguments_are_rejected(directory):
    load = QuestionAnswerer.load
    assert_rejected([
        (lambda: load("mini"), ValueError, "path must be a model that answers questions"),
        (lambda: load(directory, stride=3), TypeError, "stride"),
        (lambda: load(directory, doc_stride=0), ValueError, "doc_stride must be at least 1"),
        (lambda: load(directory, max_query_length=30), ValueError, "max_query_length"),
        (lambda: load(directory, null_score_diff_threshold=math.nan), ValueError,
         "null_score_diff_threshold must be a number"),
        (lambda: load(directory).evaluate(QUESTIONS[:1], CONTEXTS[:1], [1889]), TypeError,
         r"answers\[0\] must be a text, .* Received: 1889"),
    ])  # fmt: skip


def test_a_model_of_squad_1_needs_answers(version, directory, caplog):
    answerer, data = QuestionAnswerer.load(directory), (QUESTIONS[:3], CONTEXTS[:3], [None] * 3)
    if version == 2:
        assert answerer.evaluate(*data)["total"] == 3
        assert "unanswerable" not in caplog.text  # as in a file that lacks `is_impossible`
        return
    assert_rejected([
        (lambda: answerer.evaluate(*data), ValueError, "`answers` must contain at least one"),
        (lambda: answerer.fit(*data), ValueError, "WithBeamSearch in Python"),
    ])  # fmt: skip
