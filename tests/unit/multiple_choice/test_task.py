"""The task of multiple choice: its batches and losses, and that training learns and resumes."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.sequences import TokenSequences
from albert_tf.finetuning.predictor import Predictor
from albert_tf.multiple_choice.features import ChoiceFeatures
from albert_tf.multiple_choice.task import MultipleChoiceTask
from tests.small_model import dropping_config, small_config
from tests.small_task import (
    assert_losses_weigh_examples,
    assert_split_batches_report_what_whole_ones_do,
    train,
)

LENGTH, CHOICES, MARK = 11, 3, 5
ONE_BLOCK = {
    "num_hidden_layers": 1,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "type_vocab_size": 2,
}
DROPPING, PLAIN = dropping_config(**ONE_BLOCK), small_config(**ONE_BLOCK)


def some_features(count=29, seed=1, choices=CHOICES, has_labels=True):
    """Questions of 2 options and more; that with MARK as its first token is right."""
    random = np.random.default_rng(seed)
    counts = random.integers(min(2, choices), choices + 1, count).astype(np.int32)
    is_there = np.arange(choices) < counts[:, None]
    lengths = np.where(is_there, random.integers(3, LENGTH + 1, is_there.shape), 0).ravel()
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(MARK + 1, 31, starts[-1], dtype=np.int32)
    label_ids = random.integers(0, counts, dtype=np.int32)
    tokens[starts[np.arange(count) * choices + label_ids]] = MARK
    return ChoiceFeatures(
        sequences=TokenSequences(tokens, starts, (lengths // 2).astype(np.int32)),
        choice_counts=counts,
        label_ids=label_ids if has_labels else None,
        example_ids=[f"train-{i}" for i in range(count)],
        levels=[""] * count,
    )


def make_task(features=None, config=PLAIN, **options):
    features = some_features() if features is None else features
    return MultipleChoiceTask(config, features, max_seq_length=LENGTH, **options)


def test_a_batch_has_what_losses_and_metrics_need():
    task = make_task()
    batch = next(iter(task.train_dataset(4, seed=3)))
    assert batch["input_ids"].shape[:2] == (4, CHOICES)
    assert batch["label_ids"].dtype == tf.int32
    outputs = assert_losses_weigh_examples(task, batch)
    assert task.metrics(outputs, batch).keys() == {"accuracy"}


def test_training_learns(tmp_path):
    task = make_task(some_features(count=60))
    trainer = train(tmp_path, task, last_step=150, save_steps=150, learning_rate=0.003)
    unseen = some_features(count=50, seed=2)
    predictor = Predictor(
        trainer.model, trainer.strategy, max_seq_length=LENGTH, tokens_per_batch=100
    )
    logits = predictor.predict(unseen.sequences)["logits"].reshape(50, CHOICES)
    chosen = np.where(unseen.choice_mask, logits, -np.inf).argmax(axis=1)
    assert np.mean(chosen == unseen.label_ids) > 0.9


@pytest.mark.slow  # how losses weigh examples is tested above, how steps add sums for classes
def test_split_batches_report_what_whole_ones_do(tmp_path):
    assert_split_batches_report_what_whole_ones_do(tmp_path, make_task(dropout_prob=0.0))


def test_the_input_is_described_by_its_content():
    first = make_task().describe_input()
    assert first == make_task().describe_input()
    assert first["examples"] == 29
    changed = some_features()
    changed.label_ids[4] = not changed.label_ids[4]
    assert make_task(changed).describe_input()["digest"] != first["digest"]
    assert make_task(padding="max").describe_input() != first


def test_refuses_what_cannot_be_trained_on():
    with pytest.raises(ValueError, match=r"29 questions without labels, at most 3 options"):
        make_task(some_features(has_labels=False))
    with pytest.raises(ValueError, match=r"29 questions, at most 1 options"):
        make_task(some_features(choices=1))
    with pytest.raises(ValueError, match=r"Received: 0 questions, at most 0 options"):
        make_task(some_features(count=0))
    with pytest.raises(ValueError, match="--max_seq_length"):
        MultipleChoiceTask(PLAIN, max_seq_length=17)
    with pytest.raises(ValueError, match="training data"):
        MultipleChoiceTask(PLAIN, max_seq_length=LENGTH).train_dataset(4, seed=1)
