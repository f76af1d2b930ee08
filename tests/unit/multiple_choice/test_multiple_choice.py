"""Scores and choices of a model of multiple choice, whatever batches and options there are."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.data.text_examples import DEV, TEST
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import ChoiceExample
from albert_tf.multiple_choice.evaluation import ChoiceRun, ChoiceSettings
from albert_tf.multiple_choice.features import choice_features
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.training.distribution import create_strategy
from albert_tf.training.evaluation import BestCheckpoint
from tests.small_model import small_config

OPTIONS = ("cat", "horse", "whale", "sparrow", "ant")


def examples(is_labelled):
    return [
        ChoiceExample(
            f"q{number}",
            "I saw a cat and a horse. " * (1 + number),
            "Who was _?",
            OPTIONS[: 2 + number],
            number % 2 if is_labelled else None,
            "high" if number else "middle",
        )
        for number in range(4)
    ]


@pytest.fixture
def run(golden, tmp_path):
    tokenizer = load_tokenizer(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))
    features = {
        split: choice_features(examples(is_labelled), tokenizer, max_seq_length=16, max_qa_length=9)
        for split, is_labelled in ((DEV, True), (TEST, False))
    }
    model = AlbertForMultipleChoice(small_config(vocab_size=1000))
    settings = ChoiceSettings(str(tmp_path), 16, eval_batch_size=3, predict_batch_size=2)
    return ChoiceRun(features, model, create_strategy(), settings)


def expected_logits(run):
    """The model's logits of all questions at once, [N, C]; -1e30 where there is no option."""
    features = run.features[DEV]
    padded = features.sequences.padded(np.arange(len(features.sequences)), 16)
    shape = (len(features), features.num_choices, 16)
    inputs = {name: tf.constant(values.reshape(shape)) for name, values in padded.items()}
    return run.model(inputs)["logits"].numpy()


def test_options_scored_alone_score_as_those_scored_together(run):
    logits = run.logits(DEV, run.predictor(DEV, 3), "scoring")
    mask = run.features[DEV].choice_mask > 0
    assert mask.sum() == 2 + 3 + 4 + 5
    np.testing.assert_allclose(logits[mask], expected_logits(run)[mask], rtol=0, atol=1e-5)


def test_an_evaluation_scores_what_is_recorded(run, tmp_path):
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), "eval_accuracy")
    evaluation = run.evaluation(best)
    results = evaluation.evaluate()
    is_right = expected_logits(run).argmax(axis=1) == run.features[DEV].label_ids
    assert results["eval_accuracy"] == pytest.approx(is_right.mean())
    assert results["eval_accuracy_middle"] == is_right[0]
    assert results["eval_accuracy_high"] == pytest.approx(is_right[1:].mean(), abs=1e-6)
    evaluation.record(7, results)
    assert best.step == 7
    assert "global_step = 7" in (tmp_path / "eval_results.txt").read_text()


def test_a_checkpoint_that_is_no_candidate_is_not_kept(run, tmp_path):
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), "eval_accuracy")
    evaluation = run.evaluation(best, keeps_best=False)
    evaluation.record(7, evaluation.evaluate())
    assert [path.name for path in tmp_path.iterdir()] == ["eval_results.txt"]


def test_questions_without_labels_are_predicted_and_not_scored(run, tmp_path):
    run.predict(7, -np.inf)
    lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "id\tquestion\tprediction\tA\tB\tC\tD\tE"
    chosen = expected_logits(run).argmax(axis=1)
    assert [line.split("\t")[2] for line in lines[1:]] == ["ABCDE"[i] for i in chosen]
    assert not (tmp_path / "predict_results.txt").exists()
