"""What is kept of evaluations of a model that answers questions, and in which order."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.finetuning.predictor import Predictor
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.squad.answers import OUTPUTS
from albert_tf.squad.data import Question, SquadData
from albert_tf.squad.evaluation import SquadRun, SquadSettings, threshold_without_references
from albert_tf.squad.features import squad_features
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.training.distribution import create_strategy
from albert_tf.training.evaluation import BestCheckpoint
from tests.small_model import small_config

CONTEXTS = ["The tower of Porto was built in 1874 by the sea.", "A market opened in Riga."]
MODELS = {1: AlbertForQuestionAnswering, 2: AlbertForQuestionAnsweringWithBeamSearch}


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def run(request, golden, tmp_path):
    version = request.param
    questions = [
        Question("a", "When?", 0, (("1874", 32),), False),
        Question("b", "Where?", 1, (("Riga", 19),), False),
        Question("c", "Who?", 1, (), True),
    ]
    if version == 1:
        questions = questions[:2]
    data = SquadData(CONTEXTS, questions, "dev.json")
    tokenizer = load_tokenizer(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))
    features = squad_features(
        data, tokenizer, max_seq_length=16, doc_stride=4, max_query_length=5, is_training=False
    )
    model = MODELS[version](small_config(vocab_size=1000))
    predictor = Predictor(
        model, create_strategy(), outputs=OUTPUTS[version], max_seq_length=16, tokens_per_batch=64
    )
    kept = []
    settings = SquadSettings(str(tmp_path), version, n_best_size=3)
    squad = SquadRun(data, features, predictor, settings, kept.append)
    squad.kept = kept
    return squad


def record(run, folder, scores):
    """Evaluates at steps 5, 10, ...; the scores are made up."""
    best = BestCheckpoint(TrainingDirectory(str(folder)), run.best_metric)
    evaluation = run.evaluation(best)
    for number, score in enumerate(scores, start=1):
        results = {**evaluation.evaluate(), run.best_metric: score}
        evaluation.record(5 * number, results)
    return best


def test_the_best_answers_stay(run, tmp_path):
    best = record(run, tmp_path, [10.0, 30.0])
    before = (tmp_path / "nbest_predictions.json").read_bytes()
    variable = run.predictor.model.encoder.trainable_variables[0]
    variable.assign(variable + 1.0)
    record(run, tmp_path, [20.0])  # another start: the best is read back, and is better
    assert (tmp_path / "nbest_predictions.json").read_bytes() == before
    assert (tmp_path / "best_trial.txt").read_text() == "5:10:30.0"
    assert best.step == 10
    assert len(run.kept) == (2 if run.settings.version == 2 else 0)


@pytest.mark.parametrize("run", [1], indirect=True)
def test_the_best_answers_in_chinese_are_those_with_the_best_characters(run, tmp_path):
    questions = [
        dataclasses.replace(question, answers=((text, 0),))
        for question, text in zip(run.data.questions, ("北京", "5 years"), strict=True)
    ]
    # Half is not most.
    for answer, metric in (("5 years", "f1"), ("在北京", "char_f1")):
        questions[1] = dataclasses.replace(questions[1], answers=((answer, 0),))
        data = dataclasses.replace(run.data, questions=questions)
        squad = SquadRun(data, run.features, run.predictor, run.settings)
        assert squad.best_metric == metric
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), squad.best_metric)
    evaluation = squad.evaluation(best)
    for step, f1, char_f1 in ((5, 30.0, 50.0), (10, 20.0, 70.0), (15, 40.0, 60.0)):
        evaluation.record(step, {**evaluation.evaluate(), "f1": f1, "char_f1": char_f1})
    assert (tmp_path / "best_trial.txt").read_text() == "15:10:70.0:char_f1"
    lines = (tmp_path / "eval_results.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("best ")] == [
        "best char_f1 = 50.0",
        "best char_f1 = 70.0",
        "best char_f1 = 70.0",
        "best perf happened at step: 10",
    ]


def test_what_is_written_is_not_computed_again(run, tmp_path, monkeypatch):
    record(run, tmp_path, [10.0, 5.0])
    evaluated = (tmp_path / "eval_results.txt").read_bytes()

    def fail(*_):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(run.predictor, "batches", fail)
        run.predict(5, keeps_scores=False)
        with pytest.raises(AssertionError, match="computed again"):
            run.predict(10, keeps_scores=False)
    run.predict(10, keeps_scores=False)
    assert (tmp_path / "eval_results.txt").read_bytes() == evaluated
    run.predict(15, keeps_scores=True)
    assert (tmp_path / "eval_results.txt").read_bytes() != evaluated


def test_a_run_cut_off_before_the_model_is_kept_evaluates_it_again(run, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDirectory, "save_best", fail)
        with pytest.raises(OSError, match="no space left"):
            record(run, tmp_path, [10.0])
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), run.best_metric)
    assert (best.last_step, best.step) == (-1, -1)


def test_memory_does_not_hold_what_the_model_says_of_windows(run):
    """Of a window the best few positions stay, whatever its length."""
    selector = run._selector()
    for rows, outputs in run.predictor.batches(run.features.sequences):
        selector.add(rows, outputs)
    size = sum(values.nbytes for values in selector._kept.values())
    assert size <= len(run.features) * 8 * max(2 * 3, 1 + 2 * (5 + 25))


@pytest.mark.parametrize(
    ("version", "given", "known", "expected"),
    [(1, 3.0, 2.0, None), (2, 3.0, 2.0, 3.0), (2, None, 2.0, 2.0), (2, None, None, 0.0)],
)
def test_threshold_without_references(version, given, known, expected):
    settings = SquadSettings("out", version, threshold=given, known_threshold=known)
    assert threshold_without_references(settings) == expected


def test_scores_are_those_of_the_answers(run):
    answers = run.answers()
    scores = run.scores(answers)
    texts = answers.predictions()
    if run.settings.version == 1:
        right = [texts["a"] == "1874", texts["b"] == "Riga"]
        assert scores["exact_match"] == pytest.approx(100 * np.mean(right))
    else:
        assert scores["total"] == 3
        assert scores["best_f1"] >= scores["predictions_f1"] - 1e-9
    assert json.dumps(scores)
    assert all(map(np.isfinite, scores.values()))
