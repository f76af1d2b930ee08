import pytest
import tensorflow as tf

from albert_tf.distribution import check_batch_size, create_strategy, split_batch, split_cpu


def test_a_strategy_has_the_replicas_its_name_says():
    assert create_strategy("mirrored").num_replicas_in_sync == 2  # see conftest.py
    assert create_strategy("one_device").num_replicas_in_sync == 1
    assert create_strategy("auto").num_replicas_in_sync == 1  # no GPU here


def test_models_of_two_sizes_can_be_mirrored_in_one_process():
    for shape in ([3], [2, 5]):
        strategy = create_strategy("mirrored")

        @tf.function
        def total(shape=shape, strategy=strategy):
            def replica_total():
                context = tf.distribute.get_replica_context()
                return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(shape))

            return strategy.experimental_local_results(strategy.run(replica_total))[1]

        assert total().numpy().tolist() == (2 * tf.ones(shape)).numpy().tolist()


def test_an_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match=r"one of auto, one_device, mirrored\. Received: 'tpu'"):
        create_strategy("tpu")


def test_devices_cannot_be_split_once_tensorflow_uses_them():
    tf.config.list_logical_devices()
    split_cpu(1)
    with pytest.raises(ValueError, match="--num_logical_cpu_devices came too late"):
        split_cpu(3)


def test_batch_sizes_are_multiples_of_the_replicas():
    strategy = create_strategy("mirrored")
    check_batch_size(strategy, 8, "--eval_batch_size")
    with pytest.raises(ValueError, match="--eval_batch_size=7 with 2 replicas; 8 would do"):
        check_batch_size(strategy, 7, "--eval_batch_size")


@pytest.mark.parametrize("name", ["one_device", "mirrored"])
def test_splitting_a_batch_keeps_every_row_in_its_place(name):
    strategy = create_strategy(name)
    features = {"ids": tf.reshape(tf.range(12), [4, 3]), "weights": tf.constant([1.0, 0.0, 2.0, 3])}
    replicas = strategy.run(tf.identity, args=(split_batch(strategy, features)["ids"],))
    rows = strategy.experimental_local_results(replicas)
    assert [part.shape[0] for part in rows] == [4 // len(rows)] * len(rows)
    assert tf.concat(rows, axis=0).numpy().tolist() == features["ids"].numpy().tolist()
    parts = strategy.experimental_local_results(split_batch(strategy, features)["weights"])
    assert tf.concat(parts, axis=0).numpy().tolist() == [1.0, 0.0, 2.0, 3.0]
