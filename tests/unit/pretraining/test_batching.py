"""From files to batches: nothing lost, nothing twice, an order that the seed decides."""

import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import FeatureSpec, encode_examples, frame_records
from albert_tf.pretraining.batching import evaluation_batches, training_batches
from albert_tf.training.evaluation import pad_batch
from albert_tf.training.task import WHOLE, Shard

SPECS = (FeatureSpec("ids", "int64", 2), FeatureSpec("weights", "float32", 3))
COUNTS = (5, 0, 9, 3)  # of each file; 17 records
OFFSETS = np.array([0.0, 0.25, 0.5])


@pytest.fixture(autouse=True)
def _global_seed():
    tf.random.set_seed(5)  # decides the order as well; the trainer sets it


@pytest.fixture
def files(tmp_path):
    """Records numbered through all files: `ids` holds the number and its square."""
    paths, start = [], 0
    for index, count in enumerate(COUNTS):
        numbers = np.arange(start, start + count)[:, None]
        columns = {
            "ids": np.hstack([numbers, numbers**2]),
            "weights": (numbers + OFFSETS).astype(np.float32),
        }
        path = tmp_path / str(index)
        path.write_bytes(b"".join(frame_records(encode_examples(columns, SPECS) if count else [])))
        paths.append(str(path))
        start += count
    return paths


def numbers_of(batches):
    return [batch["ids"][:, 0].numpy().tolist() for batch in batches]


def training_numbers(files, count, *, batch_size=4, seed=1, buffer=6):
    batches = training_batches(
        files, SPECS, batch_size, seed=seed, shuffle_buffer_size=buffer
    ).take(count)
    return [number for batch in numbers_of(batches) for number in batch]


def test_evaluation_reads_every_example_once_in_order(files):
    batches = list(evaluation_batches(files, SPECS, batch_size=7))
    assert numbers_of(batches) == [[*range(7)], [*range(7, 14)], [14, 15, 16]]
    for batch in batches:
        ids = batch["ids"].numpy()
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids[:, 1], ids[:, 0] ** 2)
        np.testing.assert_array_equal(batch["weights"], ids[:, :1] + OFFSETS)
        np.testing.assert_array_equal(batch["example_weights"], np.ones(len(ids)))


def test_every_pass_has_all_examples_once_in_an_order_of_its_own_that_mixes_the_files(files):
    numbers = training_numbers(files, count=17)
    passes = {tuple(numbers[start : start + 17]) for start in range(0, 68, 17)}
    assert len(passes) == 4
    for order in passes:
        assert sorted(order) == [*range(17)]
        early = np.searchsorted(np.cumsum(COUNTS), order[:8], side="right")
        assert {*early} == {0, 2, 3}  # every file that has a record


def test_the_seed_decides_the_order(files):
    first = training_numbers(files, count=9, seed=1)
    assert training_numbers(files, count=9, seed=1) == first
    assert training_numbers(files, count=9, seed=2) != first


def test_a_batch_larger_than_a_pass_is_full(files):
    numbers = training_numbers(files, count=2, batch_size=20)
    assert len(numbers) == 40
    assert sorted(numbers[:17]) == [*range(17)]


def numbered(features, numbers):
    return {**features, "numbers": numbers}


def test_examples_are_numbered_whatever_the_size_of_batches(files):
    def stream(batch_size, count):
        batches = training_batches(
            files, SPECS, batch_size, seed=1, shuffle_buffer_size=6, transform=numbered
        ).take(count)
        pairs = [np.stack([batch["ids"][:, 0], batch["numbers"]], axis=1) for batch in batches]
        return np.concatenate(pairs).tolist()

    examples = stream(batch_size=4, count=15)
    assert stream(batch_size=5, count=12) == stream(batch_size=20, count=3) == examples
    assert [number for _, number in examples] == [*range(60)]
    assert [example for example, _ in examples] == training_numbers(files, count=15)
    whole = evaluation_batches(files, SPECS, batch_size=7, transform=numbered)
    assert [n for batch in whole for n in batch["numbers"].numpy()] == [*range(17)]


def sharded_iterator(files, shard):
    return iter(
        training_batches(
            files, SPECS, 6, seed=1, shuffle_buffer_size=7, transform=numbered, shard=shard
        )
    )


@pytest.mark.parametrize(
    ("saved", "shards"),
    [(WHOLE, [Shard(1, 2)]), (Shard(0, 2), [WHOLE, Shard(0, 3)]), (Shard(2, 3), [Shard(1, 2)])],
)
def test_the_position_of_one_worker_is_that_of_any_number_of_workers(
    files, tmp_path, saved, shards
):
    """Rows made ahead must not be part of it: they are those of the worker that saved it."""
    first = sharded_iterator(files, saved)
    unbroken = sharded_iterator(files, WHOLE)
    for _ in range(4):
        batch = next(unbroken)
        np.testing.assert_array_equal(next(first)["ids"], batch["ids"][saved.rows(6)])
    time.sleep(0.1)  # for batches to be made ahead
    prefix = tf.train.Checkpoint(iterator=first).write(str(tmp_path / "state"))
    following = [next(unbroken) for _ in range(5)]
    expected = [(batch["ids"], batch["numbers"]) for batch in following]
    for shard in shards:
        restored = sharded_iterator(files, shard)
        tf.train.Checkpoint(iterator=restored).read(prefix).assert_consumed()
        for ids, numbers in expected:
            batch = next(restored)
            np.testing.assert_array_equal(batch["ids"], ids[shard.rows(6)])
            assert batch["numbers"].numpy().tolist() == numbers.numpy().tolist()[shard.rows(6)]
            assert batch["example_weights"].shape == 6 // shard.count


def test_padding_fills_a_batch_with_rows_of_no_weight(files):
    *_, last = evaluation_batches(files, SPECS, batch_size=7)
    padded = pad_batch(last, 7)
    np.testing.assert_array_equal(padded["ids"][:3], last["ids"])
    assert padded["ids"].shape == (7, 2)
    assert padded["weights"].shape == (7, 3)
    np.testing.assert_array_equal(padded["example_weights"], [1, 1, 1, 0, 0, 0, 0])
    assert pad_batch(last, 3)["ids"].shape == (3, 2)
