"""Gradient accumulation. tests/golden compares weights with whole batches."""

import pytest
import tensorflow as tf

from tests import small_training
from tests.small_model import dropping_config, small_config
from tests.small_records import pretraining_batch
from tests.small_training import ONE_BLOCK, make_task


def make_trainer(folder, replicas, micro_batches, *, batch_size=8, config=small_config):
    return small_training.make_trainer(
        folder,
        make_task(config=config(**ONE_BLOCK)),
        replicas=replicas,
        optimizer={"learning_rate": 0.02, "num_warmup_steps": 0},
        train_batch_size=batch_size,
        gradient_accumulation_steps=micro_batches,
    )


def test_only_one_micro_batch_is_in_memory(tmp_path):
    """By default, a graph's loop runs up to ten independent iterations at once."""
    trainer = make_trainer(tmp_path, 1, 4)
    graph = trainer.train_step.get_concrete_function(pretraining_batch(8, seed=1)).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    (loop,) = (node for node in nodes if node.op in ("While", "StatelessWhile"))
    assert loop.attr["parallel_iterations"].i == 1


@pytest.mark.slow
def test_micro_batches_have_different_dropout_masks(tmp_path):
    """With equal masks, the loss of a repeated half would double."""
    half = {name: values[:4] for name, values in pretraining_batch(8, seed=1).items()}
    twice = {name: tf.concat([values, values], axis=0) for name, values in half.items()}

    def loss(micro_batches, batch):
        size = len(batch["input_ids"])
        trainer = make_trainer(tmp_path, 1, micro_batches, batch_size=size, config=dropping_config)
        return float(trainer.train_step(batch)["sums"]["masked_lm_loss"].sum)

    assert abs(loss(2, twice) / (2 * loss(1, half)) - 1.0) > 1e-4


def test_batch_must_be_a_multiple_of_all_parts(tmp_path):
    with pytest.raises(ValueError, match=r"`train_batch_size` .* multiple of 6 .*Received: 9.* 12"):
        make_trainer(tmp_path, 2, 3, batch_size=9)
