"""The task of classification: what it trains on, and that training learns, splits and resumes."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.classification.features import TextFeatures
from albert_tf.classification.task import ClassificationTask
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.text_examples import Labels
from albert_tf.finetuning.predictor import Predictor
from albert_tf.modeling import fused_kernels
from albert_tf.training.distribution import split_batch
from albert_tf.training.divergence import TrainingDivergedError
from tests.small_model import dropping_config, small_config
from tests.small_task import (
    assert_losses_weigh_examples,
    assert_split_batches_report_what_whole_ones_do,
    make_trainer,
    train,
    weights,
)

LENGTH = 13
CLASSES, NUMBER = Labels(("no", "maybe", "yes")), Labels()
ONE_BLOCK = {"num_hidden_layers": 1, "num_hidden_groups": 1, "inner_group_num": 1}
DROPPING = dropping_config(**ONE_BLOCK, type_vocab_size=2)
PLAIN = small_config(**ONE_BLOCK, type_vocab_size=2)


def some_features(labels=CLASSES, count=29, seed=1):
    """Ragged sequences; the first token of a sequence tells its label."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, LENGTH + 1, count)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(5, 31, starts[-1], dtype=np.int32)
    tokens[starts[:-1]] = random.integers(0, 3, count)
    label_ids = tokens[starts[:-1]].copy()
    if labels.is_regression:
        label_ids = label_ids.astype(np.float32) / 2
    sequences = TokenSequences(tokens, starts, random.integers(1, lengths + 1).astype(np.int32))
    return TextFeatures(sequences, label_ids, [f"train-{i}" for i in range(count)])


def make_task(labels=CLASSES, features=None, config=PLAIN, **options):
    features = some_features(labels) if features is None else features
    return ClassificationTask(config, labels, features, max_seq_length=LENGTH, **options)


@pytest.mark.parametrize(
    ("labels", "dtype", "metrics"),
    [(CLASSES, tf.int32, {"accuracy"}), (NUMBER, tf.float32, set())],
    ids=["classes", "number"],
)
def test_a_batch_has_what_losses_and_metrics_need(labels, dtype, metrics):
    task = make_task(labels)
    batch = next(iter(task.train_dataset(4, seed=3)))
    assert batch["label_ids"].shape == (4,)
    assert batch["label_ids"].dtype == dtype
    outputs = assert_losses_weigh_examples(task, batch)
    assert task.metrics(outputs, batch).keys() == metrics


@pytest.mark.parametrize("labels", [CLASSES, NUMBER], ids=["classes", "number"])
def test_training_learns(labels, tmp_path):
    """What one token decides is learnt from a few dozen examples."""
    task = make_task(labels, some_features(labels, count=60))
    trainer = train(tmp_path, task, last_step=150, save_steps=150, learning_rate=0.003)
    unseen = some_features(labels, count=50, seed=2)
    predictor = Predictor(
        trainer.model, trainer.strategy, max_seq_length=LENGTH, tokens_per_batch=100
    )
    logits = predictor.predict(unseen.sequences)["logits"]
    if labels.is_regression:
        assert np.mean(np.square(logits[:, 0] - unseen.label_ids)) < 0.25 * unseen.label_ids.var()
    else:
        assert np.mean(logits.argmax(axis=1) == unseen.label_ids) > 0.8


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(CLASSES, id="classes"),
        pytest.param(NUMBER, marks=pytest.mark.slow, id="number"),
    ],
)
def test_split_batches_report_what_whole_ones_do(labels, tmp_path):
    assert_split_batches_report_what_whole_ones_do(
        tmp_path, make_task(labels, classifier_dropout_prob=0.0)
    )


@pytest.mark.parametrize(("replicas", "is_fused"), [(1, False), (1, True), (2, False)])
def test_a_resumed_run_repeats_the_unbroken_one(replicas, is_fused, tmp_path, monkeypatch):
    if is_fused:
        monkeypatch.setattr(fused_kernels, "_MIN_ELEMENTS", 0)
    run, copy = tmp_path / "run", tmp_path / "copy"
    unbroken = weights(train(run, make_task(config=DROPPING), replicas))
    shutil.copytree(run, copy)
    for path in copy.glob("*-6*"):
        path.unlink()
    (copy / "checkpoint").unlink()
    resumed = weights(train(copy, make_task(config=DROPPING), replicas))
    for name, expected in unbroken.items():
        np.testing.assert_array_equal(resumed[name], expected, err_msg=name)


def test_the_seed_decides_a_run(tmp_path):
    """That equal ones give equal runs is seen above, of runs that are resumed."""
    runs = [
        weights(train(tmp_path / str(seed), make_task(), seed=seed, last_step=1)) for seed in (5, 6)
    ]
    assert not np.array_equal(*(run["output_weights"] for run in runs))


@pytest.mark.parametrize("replicas", [1, 2])
def test_training_has_one_graph_for_all_lengths(replicas, tmp_path):
    """One made for the length that happens to come first rounds otherwise than one for all.

    A resumed run begins with another length than the unbroken one, and must compute the same.
    """
    task = make_task()
    lengths = {batch["input_ids"].shape[1] for batch in task.train_dataset(4, seed=3).take(6)}
    assert len(lengths) == 2
    trainer = train(tmp_path, task, replicas, seed=3)
    assert trainer.train_step.experimental_get_tracing_count() == 1
    # Nor do other lengths trace a step each.
    batches = task.train_dataset(4, seed=3).take(40)
    by_length = {batch["input_ids"].shape[1]: batch for batch in batches}
    assert len(by_length) == 2
    for length in (6, 9):
        by_length[length] = {
            name: values[:, :length] if values.shape.rank == 2 else values
            for name, values in by_length[LENGTH].items()
        }
    for batch in by_length.values():
        trainer.train_step(split_batch(trainer.strategy, batch))
    assert trainer.train_step.experimental_get_tracing_count() <= 2


def test_the_input_is_described_by_its_content():
    def description(features=None, **options):
        return make_task(features=features or some_features(), **options).describe_input()

    first = description()
    assert first == description()
    assert first["examples"] == 29
    features = some_features()
    for change in ("tokens", "first_lengths", "label_ids"):
        changed = some_features()
        holder = changed if change == "label_ids" else changed.sequences
        array = getattr(holder, change)
        array[7] = array[7] - 1 if array[7] else 1
        assert description(changed)["digest"] != first["digest"], change
    other_labels = TextFeatures(features.sequences, features.label_ids.astype("f4"), features.guids)
    assert description(other_labels)["digest"] != first["digest"]
    assert description(padding="max") != first


def test_a_model_of_other_labels_gives_what_fits(tmp_path):
    """Its encoder, a head but for what is left out on request; an evaluation takes nothing."""
    three = str(tmp_path / "three")
    trained = weights(train(three, make_task(), last_step=2))
    trainer = make_trainer(tmp_path / "number", make_task(NUMBER), last_step=2)
    trainer.initialize(three)
    kernel = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(weights(trainer)[kernel], trained[kernel])
    assert weights(trainer)["output_weights"].shape == (1, 12)

    trainer = make_trainer(tmp_path / "other", make_task(), last_step=2)
    fresh = weights(trainer)
    trainer.initialize(three, skip={"output_weights": "other labels"})
    np.testing.assert_array_equal(weights(trainer)["output_weights"], fresh["output_weights"])
    np.testing.assert_array_equal(weights(trainer)["output_bias"], trained["output_bias"])

    with pytest.raises(ValueError, match="--albert_config_file"):
        load_weights(make_task(NUMBER).build_model(), three).check_complete()


def test_a_run_that_diverges_names_the_flags_of_fine_tuning(tmp_path):
    features = some_features(NUMBER)
    features.label_ids[:] = np.inf
    with pytest.raises(TrainingDivergedError, match=r"a longer warm-up \(--warmup_step\)"):
        train(tmp_path, make_task(NUMBER, features), last_step=2)


def test_refuses_what_cannot_be_trained_on():
    features = some_features()
    unlabelled = TextFeatures(features.sequences, None, features.guids)
    with pytest.raises(ValueError, match=r"with labels. Received: 29 examples without"):
        make_task(features=unlabelled)
    empty = TextFeatures(TokenSequences.concatenate([]), np.zeros(0, np.int32), [])
    with pytest.raises(ValueError, match=r"with labels. Received: 0 examples$"):
        make_task(features=empty)
    with pytest.raises(ValueError, match="--max_seq_length"):
        ClassificationTask(PLAIN, CLASSES, max_seq_length=17)
    with pytest.raises(ValueError, match="training data"):
        ClassificationTask(PLAIN, CLASSES, max_seq_length=LENGTH).train_dataset(4, seed=1)
