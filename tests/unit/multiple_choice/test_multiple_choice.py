"""Scores and choices of a model of multiple choice, whatever batches and options there are."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.data.text_examples import DEV
from albert_tf.finetuning.results import EvaluationResults
from albert_tf.multiple_choice.run import MultipleChoiceJob, MultipleChoiceSettings
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.training.distribution import create_strategy
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.settings import resolve
from tests.small_model import small_config

OPTIONS = ("cat", "horse", "whale", "sparrow", "ant")


def write_examples(path, is_labelled):
    rows = [
        {
            "id": f"q{number}",
            "context": "I saw a cat and a horse. " * (1 + number),
            "question": "Who was _?",
            "options": OPTIONS[: 2 + number],
        }
        for number in range(4)
    ]
    if is_labelled:
        rows = [{**row, "label": number % 2} for number, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def run(golden, tmp_path_factory, tmp_path):
    files = tmp_path_factory.mktemp("files")
    settings = MultipleChoiceSettings(
        output_dir=str(tmp_path),
        do_train=False,
        do_predict=True,
        dev_choices=write_examples(files / "dev.jsonl", is_labelled=True),
        test_choices=write_examples(files / "test.jsonl", is_labelled=False),
        max_seq_length=16,
        max_qa_length=9,
        eval_batch_size=3,
        predict_batch_size=2,
    )
    config = small_config(vocab_size=1000)
    tokenizer = load_tokenizer(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))
    source = ModelSource(config, None, tokenizer, True, None)
    job = MultipleChoiceJob(resolve(settings), "race", None, source)
    job.use(job.make_task(config, use_one_hot_embeddings=False).build_model(), create_strategy())
    job.results = EvaluationResults(str(tmp_path))
    return job


def expected_logits(run):
    """The model's logits of all questions at once, [N, C]; -1e30 where there is no option."""
    features = run.features[DEV]
    padded = features.sequences.padded(np.arange(len(features.sequences)), 16)
    shape = (len(features), features.num_choices, 16)
    inputs = {name: tf.constant(values.reshape(shape)) for name, values in padded.items()}
    return run.model(inputs)["logits"].numpy()


def test_options_scored_alone_score_as_those_scored_together(run):
    logits = run.logits(DEV, 3, "scoring")
    mask = run.features[DEV].choice_mask > 0
    assert mask.sum() == 2 + 3 + 4 + 5
    np.testing.assert_allclose(logits[mask], expected_logits(run)[mask], rtol=0, atol=1e-5)


def test_an_evaluation_scores_what_is_recorded(run, tmp_path):
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), "eval_accuracy")
    levels = ["middle", "high", "high", "high"]
    run.features[DEV] = dataclasses.replace(run.features[DEV], levels=levels)
    results = run.evaluate()
    is_right = expected_logits(run).argmax(axis=1) == run.features[DEV].label_ids
    assert results["eval_accuracy"] == pytest.approx(is_right.mean())
    assert results["eval_accuracy_middle"] == is_right[0]
    assert results["eval_accuracy_high"] == pytest.approx(is_right[1:].mean(), abs=1e-6)
    run.record(7, results, best, keeps_best=True)
    assert best.step == 7
    assert "global_step = 7" in (tmp_path / "eval_results.txt").read_text()


def test_a_checkpoint_that_is_no_candidate_is_not_kept(run, tmp_path):
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), "eval_accuracy")
    run.record(7, run.evaluate(), best, keeps_best=False)
    assert [path.name for path in tmp_path.iterdir()] == ["eval_results.txt"]


def test_questions_without_labels_are_predicted_and_not_scored(run, tmp_path):
    run.predict(7)
    lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "id\tquestion\tprediction\tA\tB\tC\tD\tE"
    chosen = expected_logits(run).argmax(axis=1)
    assert [line.split("\t")[2] for line in lines[1:]] == ["ABCDE"[i] for i in chosen]
    assert not (tmp_path / "predict_results.txt").exists()
