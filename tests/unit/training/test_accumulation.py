"""Gradient accumulation gives the same weights as whole batches."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.losses import LossSum
from albert_tf.modeling.original_names import original_names
from albert_tf.training.evaluation import pad_batch
from albert_tf.training.step import accumulate
from tests import small_training
from tests.small_model import dropping_config, small_config
from tests.small_records import pretraining_batch
from tests.small_training import ONE_BLOCK, make_task, reports_of

KEY_BIAS = "self/key/bias"  # its gradient is 0 except for rounding, because of the softmax


def make_trainer(folder, replicas, micro_batches, *, batch_size=8, config=small_config):
    return small_training.make_trainer(
        folder,
        make_task(config=config(**ONE_BLOCK)),
        replicas=replicas,
        optimizer={"learning_rate": 0.02, "num_warmup_steps": 0},
        train_batch_size=batch_size,
        gradient_accumulation_steps=micro_batches,
    )


def weights_of(trainer):
    return {name: v.numpy() for name, v in original_names(trainer.model).items()}


def ragged_batches():
    """Batches of 8 rows with 1 to 3 predictions each; of the second, only 5 rows are examples."""
    return [pretraining_batch(8, seed=1), pad_batch(pretraining_batch(5, seed=2), 8)]


@pytest.mark.parametrize("num_rows", [6, None])
def test_accumulate_adds_sums_and_gradients(num_rows):
    dense = keras.Variable(np.array([1.0, 2.0], np.float32), name="dense")
    table = keras.Variable(np.zeros((4, 2), np.float32), name="table")
    unused = keras.Variable(np.zeros(3, np.float32), name="unused")
    traces, seen = [], []

    def function(part, number):
        traces.append(part["x"].shape)
        tf.py_function(
            lambda n, x: seen.append((int(n), x.numpy().tolist())), (number, part["x"]), []
        )
        weights = tf.cast(number + 1, tf.float32)
        sparse = tf.IndexedSlices(part["x"] * weights, part["ids"], tf.constant([4, 2]))
        sums = {
            "loss": LossSum(tf.reduce_sum(part["x"]), weights),
            "rows": tf.shape(part["ids"])[0],
        }
        return sums, [tf.reduce_sum(part["x"], axis=0), None, sparse]

    @tf.function(
        input_signature=[tf.TensorSpec([num_rows, 2]), tf.TensorSpec([num_rows], tf.int32)]
    )
    def run(x, ids):
        return accumulate(function, {"x": x, "ids": ids}, [dense, unused, table], 3)

    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    sums, (to_dense, to_unused, to_table) = run(x, tf.constant([0, 3, 3, 3, 0, 1]))
    assert seen == [(n, x[2 * n : 2 * n + 2].tolist()) for n in range(3)]
    assert len(traces) == 1
    assert sums["loss"] == LossSum(66.0, 6.0)
    assert sums["rows"] == 6
    assert to_unused is None
    np.testing.assert_array_equal(to_dense, [30, 36])
    np.testing.assert_array_equal(to_table, [[24, 28], [30, 33], [0, 0], [22, 27]])


def test_only_one_micro_batch_is_in_memory(tmp_path):
    """By default, a graph's loop runs up to ten independent iterations at once."""
    trainer = make_trainer(tmp_path, 1, 4)
    graph = trainer.train_step.get_concrete_function(ragged_batches()[0]).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    (loop,) = (node for node in nodes if node.op in ("While", "StatelessWhile"))
    assert loop.attr["parallel_iterations"].i == 1


def test_weights_do_not_depend_on_the_split(tmp_path):
    """Unequal masked-LM weights, a ragged last batch; within 1e-5 of the largest entry.

    The first updates divide a gradient by its own size, so the rounding of the smallest shows.
    """
    results = {}
    for replicas, micro_batches in [(1, 1), (2, 4)]:
        trainer = make_trainer(tmp_path, replicas, micro_batches)
        reports = reports_of(trainer, ragged_batches())
        results[replicas, micro_batches] = weights_of(trainer), reports
    whole, whole_reports = results.pop((1, 1))
    assert whole_reports[1]["sums"]["sentence_order_loss"].weight == 5.0
    for split, (weights, reports) in results.items():
        np.testing.assert_allclose(
            tf.nest.flatten(reports), tf.nest.flatten(whole_reports), rtol=1e-5, atol=1e-7
        )
        for name, expected in whole.items():
            atol = 1e-5 if name.endswith(KEY_BIAS) else 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(
                weights[name], expected, rtol=0, atol=atol, err_msg=f"{name} {split}"
            )


@pytest.mark.slow
def test_micro_batches_have_different_dropout_masks(tmp_path):
    """With equal masks, the loss of a repeated half would double."""
    half = {name: values[:4] for name, values in ragged_batches()[0].items()}
    twice = {name: tf.concat([values, values], axis=0) for name, values in half.items()}

    def loss(micro_batches, batch):
        size = len(batch["input_ids"])
        trainer = make_trainer(tmp_path, 1, micro_batches, batch_size=size, config=dropping_config)
        return float(trainer.train_step(batch)["sums"]["masked_lm_loss"].sum)

    assert abs(loss(2, twice) / (2 * loss(1, half)) - 1.0) > 1e-4


def test_batch_must_be_a_multiple_of_all_parts(tmp_path):
    with pytest.raises(ValueError, match=r"`train_batch_size` .* multiple of 6 .*Received: 9.* 12"):
        make_trainer(tmp_path, 2, 3, batch_size=9)
