"""What the sentence losses change in the task of pretraining."""

import json
import logging
from functools import cache

import keras
import numpy as np
import pytest

from albert_tf.modeling.losses import MASKED_LM_EPSILON
from albert_tf.pretraining.task import (
    SENTENCE_LOSS_KEY,
    PretrainingTask,
    check_continued_loss,
    trained_sentence_loss,
    warn_of_another_loss,
)
from albert_tf.training.run_log import RunLog
from tests.small_model import small_config
from tests.small_records import LENGTH, PREDICTIONS, pretraining_batch

NAMES = {"sop": "sentence_order", "nsp": "next_sentence", "none": None}


@cache
def numbers(sentence_loss):
    """Losses, weights known beforehand, metrics and the total of one batch, as numbers."""
    task = PretrainingTask(
        small_config(),
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        sentence_loss=sentence_loss,
    )
    keras.utils.set_random_seed(5)
    features = dict(pretraining_batch(7, seed=2))
    if sentence_loss == "none":
        assert features.keys() - {s.name for s in task.specs} >= {"next_sentence_labels"}
        del features["next_sentence_labels"]
    outputs = task.build_model()(features)
    losses = task.losses(outputs, features)
    return (
        losses,
        task.loss_weights(features),
        task.metrics(outputs, features),
        task.total_loss(losses),
    )


@pytest.mark.parametrize("sentence_loss", NAMES)
def test_losses_and_metrics_are_named_after_what_is_learnt(sentence_loss):
    losses, weights, metrics, _ = numbers(sentence_loss)
    parts = ["masked_lm", *filter(None, [NAMES[sentence_loss]])]
    assert [*losses] == [*weights] == [f"{part}_loss" for part in parts]
    assert [*metrics] == [f"{part}_accuracy" for part in parts]
    for name, weight in weights.items():
        np.testing.assert_array_equal(losses[name].weight, weight, err_msg=name)


def test_compiled_with_its_own_losses_a_model_has_the_total_loss():
    *_, total = numbers("sop")
    features = dict(pretraining_batch(7, seed=2))
    task = PretrainingTask(
        small_config(), max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS
    )
    keras.utils.set_random_seed(5)
    model = task.build_model()
    model.compile(loss=model.default_loss())
    labels = {
        "masked_lm_logits": features["masked_lm_ids"],
        "sentence_order_logits": features["next_sentence_labels"],
    }
    weights = {
        "masked_lm_logits": features["masked_lm_weights"],
        "sentence_order_logits": features["example_weights"],
    }
    loss = model.evaluate(
        features, labels, sample_weight=weights, batch_size=7, return_dict=True, verbose=0
    )["loss"]
    np.testing.assert_allclose(loss, total, rtol=1e-5)


def test_next_sentence_prediction_computes_what_sentence_order_does():
    """It is the records that differ."""
    for ours, theirs in zip(numbers("nsp"), numbers("sop"), strict=True):
        ours, theirs = (x.values() if isinstance(x, dict) else [x] for x in (ours, theirs))
        np.testing.assert_array_equal([*ours], [*theirs])


def test_without_a_sentence_loss_masked_tokens_alone_count():
    losses, _, _, total = numbers("none")
    masked_lm = losses["masked_lm_loss"]
    expected = float(masked_lm.sum) / (float(masked_lm.weight) + MASKED_LM_EPSILON)
    np.testing.assert_allclose(total, expected, rtol=2e-7, atol=0)
    # The rest of the model draws the same initial weights as with the head, which comes last.
    theirs = numbers("sop")
    np.testing.assert_array_equal(masked_lm.sum, theirs[0]["masked_lm_loss"].sum)
    assert total < theirs[3]


def test_unknown_losses_are_refused():
    with pytest.raises(ValueError, match=r"`sentence_loss` must be one of.*'random'"):
        PretrainingTask(small_config(), max_seq_length=LENGTH, sentence_loss="random")


@pytest.fixture
def directory(tmp_path):
    log = RunLog(str(tmp_path), total_steps=3)
    log.write_config({"model": {"vocab_size": 7}, SENTENCE_LOSS_KEY: "nsp"})
    log.close()
    return str(tmp_path)


def test_is_what_the_last_start_was_given(directory):
    assert trained_sentence_loss(directory) == "nsp"


@pytest.mark.parametrize("content", [None, {}, {"config": {"model": 1}}, {"config": "nsp"}])
def test_is_unknown_without_a_run_of_pretraining(tmp_path, content):
    if content is not None:
        (tmp_path / "run_config.json").write_text(json.dumps(content))
    assert trained_sentence_loss(str(tmp_path)) is None
    check_continued_loss(str(tmp_path), "none")


def test_a_run_goes_on_with_its_own_loss_only(directory):
    check_continued_loss(directory, "nsp")
    with pytest.raises(ValueError, match=r"`sentence_loss`=nsp, which cannot .*=sop.*`output_dir`"):
        check_continued_loss(directory, "sop")


def test_evaluation_with_another_loss_is_told(directory, caplog):
    with caplog.at_level(logging.WARNING):
        warn_of_another_loss(f"{directory}/model.ckpt-3", "nsp")
        assert not caplog.messages
        warn_of_another_loss(f"{directory}/model.ckpt-3", "none")
    (message,) = caplog.messages
    assert (
        "was trained with --sentence_loss=nsp and is evaluated with --sentence_loss=none" in message
    )
