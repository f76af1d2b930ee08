"""The pretraining task: losses, masking while training, and the records that it accepts."""

import json
import random
import shutil
from functools import cache
from itertools import islice

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.facts import Meeting
from albert_tf.data.tfrecord import RecordError, frame_records
from albert_tf.modeling.losses import MASKED_LM_EPSILON
from albert_tf.pretraining.instances import PREDICTION_FEATURES
from albert_tf.pretraining.masking import MaskingSettings, OnlineMasking
from albert_tf.pretraining.record_checks import check_sentence_pairs
from albert_tf.pretraining.task import (
    SENTENCE_LOSS_KEY,
    PretrainingTask,
    compare_loss,
    trained_sentence_loss,
)
from albert_tf.training.run_log import RunLog
from tests.small_model import small_config
from tests.small_records import (
    LENGTH,
    PREDICTIONS,
    damage_record,
    plain_columns,
    pretraining_batch,
    pretraining_columns,
    write_records,
)

NAMES = {"sop": "sentence_order", "nsp": "next_sentence", "none": None}


@cache
def numbers(sentence_loss):
    """Returns losses, loss weights, metrics and the total loss of a batch."""
    task = PretrainingTask(
        small_config(),
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        sentence_loss=sentence_loss,
    )
    random.seed(5)
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
def test_names_of_losses_and_metrics(sentence_loss):
    losses, weights, metrics, total = numbers(sentence_loss)
    parts = ["masked_lm", *filter(None, [NAMES[sentence_loss]])]
    assert [*losses] == [*weights] == [f"{part}_loss" for part in parts]
    assert [*metrics] == [f"{part}_accuracy" for part in parts]
    for name, weight in weights.items():
        np.testing.assert_array_equal(losses[name].weight, weight, err_msg=name)
    if sentence_loss == "nsp":  # the same computation
        np.testing.assert_array_equal([*losses.values()], [*numbers("sop")[0].values()])
        assert total == numbers("sop")[3]


def test_the_default_losses_of_the_model_equal_the_total_loss():
    *_, total = numbers("sop")
    features = dict(pretraining_batch(7, seed=2))
    task = PretrainingTask(
        small_config(), max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS
    )
    random.seed(5)
    model = task.build_model()
    model.compile(loss=model.default_loss(), run_eagerly=True)  # tracing takes longer
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


def test_without_a_sentence_loss_the_total_is_the_masked_lm_loss():
    losses, _, _, total = numbers("none")
    masked_lm = losses["masked_lm_loss"]
    expected = float(masked_lm.sum) / (float(masked_lm.weight) + MASKED_LM_EPSILON)
    np.testing.assert_allclose(total, expected, rtol=2e-7, atol=0)
    # The head is created last, so the other weights have the same initial values as with it.
    theirs = numbers("sop")
    np.testing.assert_array_equal(masked_lm.sum, theirs[0]["masked_lm_loss"].sum)
    assert total < theirs[3]


def test_sentence_loss_of_a_directory(tmp_path, caplog):
    directory = str(tmp_path)
    for content in (None, {}, {"config": {"model": 1}}, {"config": "nsp"}):
        if content is not None:
            (tmp_path / "run_config.json").write_text(json.dumps(content))
        assert trained_sentence_loss(directory) is None
    log = RunLog(directory, total_steps=3)
    log.write_config({"model": {"vocab_size": 7}, SENTENCE_LOSS_KEY: "nsp"})
    log.close()
    assert trained_sentence_loss(directory) == "nsp"
    checkpoint = f"{directory}/model.ckpt-3"
    compare_loss(checkpoint, "nsp", Meeting.RESUME)
    with pytest.raises(ValueError, match=r"'nsp' in .*ckpt-3, but 'sop' in this run.*`output_dir`"):
        compare_loss(checkpoint, "sop", Meeting.RESUME)
    assert not caplog.messages
    compare_loss(checkpoint, "none", Meeting.EVALUATE)
    assert "sentence_loss is 'nsp' in " in caplog.text


MASKING = OnlineMasking(MaskingSettings(0.3, PREDICTIONS), mask_id=4, vocab_size=31)
COUNT = 12


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Returns record files by kind. In `zeros`, all prediction features are 0."""
    folder = tmp_path_factory.mktemp("records")
    zeros = pretraining_columns(COUNT, seed=1)
    for name in PREDICTION_FEATURES:
        zeros[name] *= 0
    rare = pretraining_columns(COUNT, seed=1)
    rare["masked_lm_weights"][0] = 0
    kinds = {
        "masked": pretraining_columns(COUNT, seed=1),
        "plain": plain_columns(COUNT, seed=1),
        "zeros": zeros,
        "masked_but_the_first": rare,
    }
    return {name: str(write_records(folder / name, columns)) for name, columns in kinds.items()}


def task_on(train=(), evaluate=(), masking=MASKING):
    return PretrainingTask(
        small_config(),
        train_files=train,
        eval_files=evaluate,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        shuffle_buffer_size=5,
        masking=masking,
    )


def examples(batches):
    """Rows of all batches, one bytes object each."""
    rows = [
        b"".join(batch[name][row].numpy().tobytes() for name in sorted(batch))
        for batch in batches
        for row in range(len(batch["input_ids"]))
    ]
    return np.array(rows, object)


def test_batches_of_plain_and_masked_records_have_the_same_features(files):
    theirs = next(task_on([files["masked"]], masking=None).train_dataset(6, seed=3))
    for kind in ("plain", "zeros"):
        ours = next(task_on([files[kind]]).train_dataset(6, seed=3))
        assert {k: (v.shape, v.dtype) for k, v in ours.items()} == {
            k: (v.shape, v.dtype) for k, v in theirs.items()
        }
        assert (ours["masked_lm_weights"].numpy().sum(axis=1) > 0).all()


def test_masks_depend_on_seed_pass_and_example(files):
    tf.random.set_seed(5)  # affects the order; set by the trainer
    task = task_on([files["plain"]])
    rows = examples(islice(task.train_dataset(4, seed=3), 6))
    again = islice(task.train_dataset(8, seed=3), 3)
    assert (examples(again) == rows).all()
    first, second = set(rows[:COUNT]), set(rows[COUNT:])
    assert len(first) == COUNT
    assert len(first & second) < COUNT / 3  # a short example may be masked alike twice
    assert len(first & set(examples(islice(task.train_dataset(4, seed=4), 3)))) < COUNT / 3


def test_all_evaluations_use_the_same_masks(files):
    rows = examples(task_on([], [files["plain"]]).eval_dataset(5))
    assert len(rows) == COUNT
    other = task_on([files["plain"]], [files["plain"]])
    assert (examples(other.eval_dataset(12)) == rows).all()


def test_evaluation_on_masked_records(files):
    task = task_on([files["plain"]], [files["masked"]])
    without = task_on([], [files["masked"]], masking=None)
    assert (examples(task.eval_dataset(5)) == examples(without.eval_dataset(5))).all()
    with pytest.raises(RecordError, match=rf"{files['masked']} are already masked"):
        task_on([], [files["plain"], files["masked"]])


def test_records_must_be_masked_once(files, tmp_path):
    for kind in ("masked", "masked_but_the_first"):
        with pytest.raises(RecordError, match=rf"{files[kind]} are already .*`masked_lm_prob`"):
            task_on([files["plain"], files[kind]])
    for kind in ("plain", "zeros"):
        with pytest.raises(RecordError, match=rf"{files[kind]} are not masked.*`masked_lm_prob`"):
            task_on([files["masked"], files[kind]], masking=None)
        with pytest.raises(RecordError, match=files[kind]):
            task_on([files["masked"]], [files[kind]], masking=None)
    path = write_records(tmp_path / "other", {"input_ids": np.ones((3, LENGTH), int)})
    for masking in (None, MASKING):
        with pytest.raises(RecordError, match="'input_mask' is missing"):
            task_on([str(path)], masking=masking)


@pytest.mark.parametrize("is_evaluated", [False, True])
def test_a_record_that_is_damaged_during_training_is_named(files, tmp_path, is_evaluated):
    path = shutil.copy(files["masked"], tmp_path / "damaged")
    task = task_on([str(path)], [files["masked"]] * is_evaluated, masking=None)
    damage_record(path, 3)
    with pytest.raises(RecordError, match="damaged, record 3"), task.explain_read_errors():
        raise tf.errors.DataLossError(None, None, "corrupted record")


def test_pairs_are_required_for_a_sentence_loss(tmp_path):
    columns = pretraining_columns(3, seed=1)
    single = {**columns, "segment_ids": np.zeros_like(columns["segment_ids"])}
    nothing = {name: values[:0] for name, values in columns.items()}
    paths = {"pairs": columns, "single": single, "nothing": nothing}
    paths = {name: str(write_records(tmp_path / name, rows)) for name, rows in paths.items()}
    check_sentence_pairs([paths["pairs"], paths["nothing"]], "nsp")
    check_sentence_pairs([*paths.values()], "none")
    for loss in ("sop", "nsp"):
        with pytest.raises(RecordError, match=f"^{paths['single']} .*`sentence_loss`={loss}"):
            check_sentence_pairs([*paths.values()], loss)
    (tmp_path / "bad").write_bytes(frame_records([b"\xff" * 40])[0])
    with pytest.raises(RecordError, match="bad, record 1"):
        check_sentence_pairs([str(tmp_path / "bad")], "sop")


def test_equal_sentence_labels_are_reported(tmp_path, caplog):
    columns = pretraining_columns(30, seed=1)
    for share, expected in ((0.5, False), (1.0, True), (0.0, True)):
        labels = (np.arange(30) < 30 * share).astype(int)[:, None]
        path = str(write_records(tmp_path / "a", {**columns, "next_sentence_labels": labels}))
        caplog.clear()
        check_sentence_pairs([path], "none")
        assert not caplog.messages
        check_sentence_pairs([path], "sop")
        assert ("labels of the first records of" in caplog.text) == expected
