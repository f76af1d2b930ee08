"""Batches contain every example once per pass, in an order that depends on the seed."""

import os
import time
from itertools import islice

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import FeatureSpec, encode_examples, frame_records
from albert_tf.pretraining.batching import (
    check_workers,
    evaluation_batches,
    num_streams,
    training_batches,
)
from albert_tf.training.objective import WHOLE, Shard
from albert_tf.training.trainer import input_positions

SPECS = (FeatureSpec("ids", "int64", 2), FeatureSpec("weights", "float32", 3))
COUNTS = (5, 0, 9, 3)  # of each file; 17 records
OFFSETS = np.array([0.0, 0.25, 0.5])


@pytest.fixture(autouse=True)
def _global_seed():
    tf.random.set_seed(5)  # affects the order; set by the trainer


def write_files(tmp_path, counts):
    """Writes files of records. `ids` contains the number of a record and its square."""
    paths, start = [], 0
    for index, count in enumerate(counts):
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


@pytest.fixture
def files(tmp_path):
    """Returns files whose sizes are too uneven for more than one stream."""
    return write_files(tmp_path, COUNTS)


FILES, PER_FILE, STREAMS = 12, 3, 6


@pytest.fixture
def even_files(tmp_path):
    """Returns twelve files, which are read as six streams for batches of 12."""
    return write_files(tmp_path, [PER_FILE] * FILES)


def numbers_of(batches):
    return [batch["ids"][:, 0].numpy().tolist() for batch in batches]


def training_numbers(files, count, *, batch_size=4, seed=1, buffer=6):
    batches = training_batches(files, SPECS, batch_size, seed=seed, shuffle_buffer_size=buffer)
    return [number for batch in numbers_of(islice(batches, count)) for number in batch]


def test_evaluation_reads_every_example_once_in_order(files):
    batches = list(evaluation_batches(files, SPECS, batch_size=7))
    assert numbers_of(batches) == [[*range(7)], [*range(7, 14)], [14, 15, 16]]
    for batch in batches:
        ids = batch["ids"].numpy()
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids[:, 1], ids[:, 0] ** 2)
        np.testing.assert_array_equal(batch["weights"], ids[:, :1] + OFFSETS)
        np.testing.assert_array_equal(batch["example_weights"], np.ones(len(ids)))


def test_passes_have_random_orders_that_mix_the_files(files):
    numbers = training_numbers(files, count=17)
    passes = {tuple(numbers[start : start + 17]) for start in range(0, 68, 17)}
    assert len(passes) == 4
    for order in passes:
        assert sorted(order) == [*range(17)]
        early = np.searchsorted(np.cumsum(COUNTS), order[:8], side="right")
        assert {*early} == {0, 2, 3}  # every file that has a record
    assert training_numbers(files, count=17) == numbers
    assert training_numbers(files, count=17, seed=2) != numbers


@pytest.mark.parametrize(
    ("sizes", "batch_size", "expected"),
    [
        ([9] * 200, 4096, 32),  # 6 or 7 files each; 3 or 4 would be too uneven
        ([9] * 256, 4096, 64),
        ([9] * 8, 8, 8),
        ([9] * 64, 256, 32),  # 8 rows of a batch
        ([100, 119], 6, 2),
        ([100, 121], 6, 1),
        ([100, 0, 100], 6, 1),
        ([100] * 4 + [30] * 4, 8, 4),  # two corpora
    ],
)
def test_numbers_of_streams(sizes, batch_size, expected):
    assert num_streams(sizes, batch_size) == expected


def test_workers_that_cannot_share_the_streams(even_files):
    message = r"^4 workers .*the 6 files .* are read as 6 streams.*train\.tfrecord@4"
    with pytest.raises(ValueError, match=message):
        check_workers(even_files[:6], 12, 4)


def sharded(files, shard=WHOLE):
    settings = {"transform": lambda batch, numbers: {**batch, "numbers": numbers}, "shard": shard}
    return training_batches(files, SPECS, 12, seed=1, shuffle_buffer_size=18, **settings)


def rows_of(batches):
    """Returns a row for each example of all batches: numbers of record and example."""
    return np.concatenate([np.stack([b["ids"][:, 0], b["numbers"]], axis=1) for b in batches])


def test_streams_have_separate_rows_passes_and_orders(even_files):
    rows = rows_of(islice(sharded(even_files), 9)).reshape(9, STREAMS, 2, 2)
    orders = set()
    for number in range(STREAMS):
        passes = rows[:, number].reshape(3, 2 * PER_FILE, 2)
        expected = [n for n in range(FILES * PER_FILE) if n // PER_FILE % STREAMS == number]
        assert (np.sort(passes[..., 0]) == expected).all()
        assert (passes[..., 1].ravel() == np.arange(18) * STREAMS + number).all()
        orders |= {tuple(order) for order in passes[..., 0].argsort()}
    assert len(orders) > 15  # of 18


def test_a_worker_opens_only_its_files(even_files):
    batches = sharded(even_files, Shard(1, 3))
    for number in {*range(FILES)} - {2, 3, 8, 9}:
        os.remove(even_files[number])
    assert {*rows_of(islice(batches, 6))[:, 0]} == {*range(6, 12), *range(24, 30)}


def test_resuming_with_another_number_of_workers(even_files, tmp_path):
    """Three workers, and then two, read the same examples as an uninterrupted run."""
    unbroken = sharded(even_files)
    prefixes: list[str] = []
    for part, count in enumerate((3, 2)):
        expected = [next(unbroken) for _ in range(4)]
        rows, written = [], []
        for index in range(count):
            batches = sharded(even_files, Shard(index, count))
            streams = input_positions(batches)
            for prefix in prefixes:
                tf.train.Checkpoint(**streams).read(prefix).expect_partial()
            rows.append(rows_of([next(batches) for _ in range(4)]).reshape(4, -1, 2))
            time.sleep(0.1)  # so that rows are prefetched
            path = str(tmp_path / f"{part}-{index}")
            written.append(tf.train.Checkpoint(**streams).write(path))
        prefixes = written
        together = np.concatenate(rows, axis=1).reshape(-1, 2)
        np.testing.assert_array_equal(together, rows_of(expected))
