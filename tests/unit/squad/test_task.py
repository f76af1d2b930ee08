"""The task of question answering: its batches and losses, and that training learns and resumes."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.data.sequences import TokenSequences
from albert_tf.finetuning.predictor import Predictor
from albert_tf.modeling.models import position_mask
from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.task import SquadTask
from tests.small_model import dropping_config, small_config
from tests.small_task import (
    assert_losses_weigh_examples,
    assert_split_batches_report_what_whole_ones_do,
    make_trainer,
    train,
    weights,
)

LENGTH, MARK = 13, 5
ONE_BLOCK = {
    "num_hidden_layers": 1,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "type_vocab_size": 2,
}
DROPPING, PLAIN = dropping_config(**ONE_BLOCK), small_config(**ONE_BLOCK)
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}


def some_features(count=29, seed=1, is_training=True):
    """Windows whose answer is the one token MARK; every third has none."""
    random = np.random.default_rng(seed)
    questions = random.integers(1, 4, count)
    contexts = random.integers(2, LENGTH - 3 - questions + 1)
    lengths = questions + contexts + 3
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(MARK + 1, 31, starts[-1], dtype=np.int32)
    answers = questions + 2 + random.integers(0, contexts)
    is_impossible = np.arange(count) % 3 == 1
    answers[is_impossible] = 0
    tokens[(starts[:-1] + answers)[~is_impossible]] = MARK
    positions = answers.astype(np.int32)
    numbers = np.arange(count, dtype=np.int32)
    return SquadFeatures(
        sequences=TokenSequences(tokens, starts, (questions + 2).astype(np.int32)),
        question_indices=numbers,
        doc_span_index=0 * numbers,
        paragraph_indices=numbers,
        window_starts=0 * numbers,
        token_starts=np.zeros(contexts.sum(), np.int32),
        token_ends=np.zeros(contexts.sum(), np.int32),
        paragraph_offsets=np.concatenate([[0], np.cumsum(contexts)]),
        start_positions=positions if is_training else None,
        end_positions=positions.copy() if is_training else None,
        is_impossible=is_impossible if is_training else None,
    )


def make_task(version, features=None, config=PLAIN, **options):
    features = some_features() if features is None else features
    return SquadTask(config, version, features, max_seq_length=LENGTH, **options)


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_has_what_losses_and_metrics_need(version):
    task = make_task(version)
    batch = next(iter(task.train_dataset(4, seed=3)))
    assert {name for name in batch if batch[name].shape == (4,)} == (
        {"start_positions", "end_positions", "example_weights"}
        | ({"is_impossible"} if version == 2 else set())
    )
    outputs = assert_losses_weigh_examples(task, batch)
    assert task.metrics(outputs, batch).keys() == {"start_accuracy", "end_accuracy"} | (
        {"answerability_accuracy"} if version == 2 else set()
    )


def test_metrics_count_what_is_right():
    task = make_task(2)
    outputs = {
        "start_log_probs": tf.constant([[0.0, -9], [-9, 0], [0, -9]]),
        "end_log_probs": tf.constant([[0.0, -9], [0, -9], [0, -9]]),
        "cls_logits": tf.constant([0.3, -0.2, 0.1]),
    }
    features = {
        "start_positions": tf.constant([0, 1, 1]),
        "end_positions": tf.constant([1, 1, 0]),
        "is_impossible": tf.constant([1.0, 0.0, 0.0]),
        "example_weights": tf.constant([1.0, 2.0, 0.5]),
    }
    hits = {name: float(x.sum) for name, x in task.metrics(outputs, features).items()}
    assert hits == {"start_accuracy": 3.0, "end_accuracy": 0.5, "answerability_accuracy": 3.0}


def test_padding_moves_the_loss_of_version_2_nowhere():
    """Version 1 chooses among the padding too, as the original does."""
    for version in (1, 2):
        batches = [
            next(iter(make_task(version, padding=padding).train_dataset(3, seed=8)))
            for padding in ("longest", "max")
        ]
        for batch in batches:
            for name in ("input_ids", "input_mask", "segment_ids"):
                batch[name] = tf.pad(batch[name], [[0, 0], [0, 0 if batch is batches[0] else 2]])
        task = make_task(version)
        model = task.build_model()
        short, long = (
            float(task.total_loss(task.losses(model(batch), batch))) for batch in batches
        )
        assert (abs(short - long) < 1e-5) == (version == 2)


@pytest.mark.parametrize("version", [1, 2])
def test_training_learns(version, tmp_path):
    task = make_task(version, some_features(count=60), padding="max")
    trainer = train(tmp_path, task, last_step=200, save_steps=200, learning_rate=0.003)
    unseen = some_features(count=50, seed=2)
    predictor = Predictor(
        trainer.model,
        trainer.strategy,
        outputs=("start_logits",) if version == 1 else ("start_top_index", "cls_logits"),
        max_seq_length=LENGTH,
        tokens_per_batch=100,
    )
    is_possible = ~unseen.is_impossible
    if version == 1:
        found = np.zeros(50)
        for rows, outputs in predictor.batches(unseen.sequences):
            batch = unseen.sequences.padded(rows, outputs["start_logits"].shape[1])
            is_masked = position_mask(batch["input_mask"], batch["segment_ids"])
            found[rows] = np.where(is_masked, -np.inf, outputs["start_logits"]).argmax(axis=1)
    else:
        outputs = predictor.predict(unseen.sequences)
        found = outputs["start_top_index"][:, 0]
        assert np.mean((outputs["cls_logits"] > 0) == unseen.is_impossible) > 0.8
    assert np.mean((found == unseen.start_positions)[is_possible]) > 0.8


@pytest.mark.slow  # how losses weigh examples is tested above, how steps add sums for classes
def test_split_batches_report_what_whole_ones_do(tmp_path):
    assert_split_batches_report_what_whole_ones_do(tmp_path, make_task(2, dropout_prob=0.0))


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_pooler_is_kept_without_moments(micro_batches, tmp_path):
    """As in the checkpoints of the original, where no gradient reaches it."""
    fresh = weights(make_trainer(tmp_path, make_task(1)))
    trained = weights(train(tmp_path, make_task(1), last_step=2, micro_batches=micro_batches))
    _, shapes = open_checkpoint(str(tmp_path / "model.ckpt-2"))
    moments = {f"{name}/{slot}" for name in fresh.keys() - POOLER for slot in ("adam_m", "adam_v")}
    assert shapes.keys() == fresh.keys() | moments | {"global_step"}
    for name in POOLER:
        np.testing.assert_array_equal(trained[name], fresh[name])


def test_the_input_is_described_by_its_content():
    def description(features=None, version=2, **options):
        return make_task(version, features or some_features(), **options).describe_input()

    first = description()
    assert first == description()
    assert first["examples"] == 29
    for change in ("start_positions", "end_positions", "is_impossible"):
        changed = some_features()
        array = getattr(changed, change)
        array[6] = not array[6] if change == "is_impossible" else array[6] - 1
        assert description(changed)["digest"] != first["digest"], change
    changed = some_features()
    changed.sequences.tokens[3] -= 1
    assert description(changed)["digest"] != first["digest"]
    assert description(version=1) != first
    assert description(padding="max") != first


def test_refuses_what_cannot_be_trained_on():
    with pytest.raises(ValueError, match=r"with answer positions. Received: 29 windows without"):
        make_task(1, some_features(is_training=False))
    with pytest.raises(ValueError, match=r"Received: 0 windows$"):
        make_task(1, some_features(count=0))
    with pytest.raises(ValueError, match=r"--squad_version must be 1 or 2\. Received: 3"):
        make_task(3)
    with pytest.raises(ValueError, match="--max_seq_length"):
        SquadTask(PLAIN, 1, max_seq_length=17)
    with pytest.raises(ValueError, match="training data"):
        SquadTask(PLAIN, 1, max_seq_length=LENGTH).train_dataset(4, seed=1)
