"""Batches by length and training batches: complete, little padding, exact resuming."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.sequences import PADDINGS, TokenSequences
from albert_tf.finetuning.batches import num_padded_lengths, padded_length, training_batches
from albert_tf.finetuning.predictor import batches_by_length
from albert_tf.training.objective import WHOLE, Shard

NAMES = ("input_ids", "input_mask", "segment_ids")


def random_sequences(count, longest=30, seed=3):
    """Returns sequences of 3 to `longest` tokens; the first token is the number of the sequence."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(3, longest + 1, count)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = generator.integers(1, 900, starts[-1], dtype=np.int32)
    tokens[starts[:-1]] = np.arange(count)
    return TokenSequences(tokens, starts, generator.integers(2, lengths + 1).astype(np.int32))


def training_set(sequences, batch_size, **settings):
    count = len(sequences) // settings.get("sequences_per_example", 1)
    columns = {
        "label_ids": np.arange(count, dtype=np.int32) * 7,
        "scores": np.arange(2 * count, dtype=np.float32).reshape(count, 2),
    }
    settings = {"seed": 1, "max_seq_length": 32, **settings}
    return training_batches(sequences, columns, batch_size, **settings)


def order_of(count, batch_size, batches, seed=1):
    """Returns the numbers of the examples in the order of training."""
    data = training_set(random_sequences(count), batch_size, seed=seed).take(batches)
    return [int(label) // 7 for batch in data for label in batch["label_ids"]]


@pytest.mark.parametrize("max_seq_length", [5, 33, 128, 500, 512])
@pytest.mark.parametrize("padding", PADDINGS)
def test_padded_lengths_are_sufficient_few_and_within_the_limit(padding, max_seq_length):
    lengths = [padded_length(n, max_seq_length, padding) for n in range(max_seq_length + 1)]
    assert all(n <= length <= max_seq_length for n, length in enumerate(lengths))
    assert lengths == sorted(lengths)
    assert len(set(lengths)) <= {"longest": 20, "buckets": 5, "max": 1}[padding]
    assert lengths[-1] == max_seq_length
    assert num_padded_lengths(max_seq_length, padding) == len(set(lengths[1:]))


def test_examples_of_padded_lengths():
    assert [padded_length(n, 384, "longest") for n in (1, 9, 65, 129, 257, 321)] == [
        *(8, 16, 80, 160, 320, 384)
    ]
    assert [padded_length(n, 384, "buckets") for n in (1, 33, 64, 65, 257)] == [
        *(32, 64, 64, 128, 384)
    ]
    with pytest.raises(ValueError, match="`max_seq_length`=40"):
        padded_length(41, 40, "longest")


@pytest.mark.parametrize("multiple_of", [1, 2, 3])
@pytest.mark.parametrize("tokens_per_batch", [1, 100, 777, 10**6])
@pytest.mark.parametrize("padding", PADDINGS)
def test_batches_contain_every_row_once_longest_first(padding, tokens_per_batch, multiple_of):
    lengths = np.random.default_rng(5).integers(2, 61, 203).astype(np.int32)
    batches = batches_by_length(
        lengths, tokens_per_batch, max_seq_length=61, padding=padding, multiple_of=multiple_of
    )
    rows = np.concatenate([rows for rows, _ in batches])
    assert sorted(rows.tolist()) == [*range(203)]
    assert rows.dtype == np.int64
    assert (np.diff(lengths[rows]) <= 0).all()
    for number, (rows, length) in enumerate(batches):
        count = len(rows)
        assert lengths[rows].max() <= length <= 61
        assert count == 1 or count * length <= tokens_per_batch
        if tokens_per_batch >= multiple_of * length and number < len(batches) - 1:
            assert count % multiple_of == 0
    if padding == "max":
        assert {length for _, length in batches} == {61}


@pytest.mark.parametrize(("tokens_per_batch", "count"), [(8192, 3668), (2048, 408)])
def test_evaluation_pads_little(tokens_per_batch, count):
    """The lengths are similar to MRPC: 59 tokens on average, from 20 to 120."""
    lengths = np.random.default_rng(7).normal(59, 16, count).clip(20, 120).astype(np.int32)
    batches = batches_by_length(lengths, tokens_per_batch, max_seq_length=128)
    assert sum(len(rows) * length for rows, length in batches) < lengths.sum() / 0.97
    # All batches except the last contain at least a quarter of the allowed tokens.
    for rows, length in batches[:-1]:
        assert (len(rows) + 1) * length > tokens_per_batch / 4


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("choices", [1, 3])
def test_training_batches_equal_batches_made_with_numpy(padding, choices):
    sequences = random_sequences(choices * 13)
    data = training_set(sequences, 5, padding=padding, sequences_per_example=choices)
    middle = [] if choices == 1 else [choices]
    for batch in data.take(6):
        examples = batch["label_ids"].numpy() // 7
        rows = (examples[:, None] * choices + np.arange(choices)).ravel()
        length = padded_length(int(sequences.lengths[rows].max()), 32, padding)
        for name, expected in sequences.padded(rows, length).items():
            values = batch[name].numpy()
            assert values.dtype == np.int32
            np.testing.assert_array_equal(values, expected.reshape([5, *middle, length]))
        np.testing.assert_array_equal(
            batch["scores"], np.stack([2 * examples, 2 * examples + 1], axis=1)
        )
        np.testing.assert_array_equal(batch["example_weights"], np.ones(5, np.float32))


def test_fixed_sizes_are_static():
    sequences = random_sequences(12)
    for padding, length in [("longest", None), ("buckets", None), ("max", 32)]:
        spec = training_set(sequences, 5, padding=padding).element_spec
        assert {spec[name].shape.as_list()[1] for name in NAMES} == {length}
        assert all(part.shape.as_list()[0] == 5 for part in spec.values())
    spec = training_set(sequences, 5, padding="max", sequences_per_example=4).element_spec
    assert spec["input_ids"].shape.as_list() == [5, 4, 32]


@pytest.mark.parametrize(("count", "batch_size"), [(1, 3), (2, 5), (13, 4), (6, 6), (17, 40)])
def test_every_epoch_has_every_example_once(count, batch_size):
    epochs = 12
    order = order_of(count, batch_size, -(-epochs * count // batch_size))
    passes = [tuple(order[start : start + count]) for start in range(0, epochs * count, count)]
    assert all(sorted(part) == [*range(count)] for part in passes)
    if count > 10:
        assert len(set(passes)) == epochs
        # The examples at each position differ between epochs.
        assert all(len(set(column)) > 3 for column in zip(*passes, strict=True))


def test_the_seed_determines_the_order():
    seeds = (2, 257, -1, 2**31 + 1, 2**32 + 1)
    orders = {seed: order_of(29, 29, 1, seed) for seed in seeds}
    assert len({*map(tuple, orders.values())}) == len(seeds)
    assert order_of(29, 5, 6, -1)[:29] == orders[-1]  # the batch size does not matter


@pytest.mark.parametrize("done", [0, 4, 9])  # before, within the first epoch, within the third
def test_restored_iterators_continue_with_the_same_batches(tmp_path, done):
    sequences = random_sequences(23)
    iterator = iter(training_set(sequences, 5))
    for _ in range(done):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "state"))
    assert sum(Path(path).stat().st_size for path in tmp_path.iterdir()) < 5000
    restored = iter(training_set(sequences, 5))
    next(restored)
    tf.train.Checkpoint(iterator=restored).read(saved).assert_consumed()
    for _ in range(8):
        ours, theirs = next(restored), next(iterator)
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.mark.parametrize(
    ("choices", "padding"),
    [(3, "buckets"), *(pytest.param(1, p, marks=pytest.mark.slow) for p in ("longest", "max"))],
)
def test_workers_share_the_rows_and_the_position_of_a_batch(tmp_path, choices, padding):
    """All workers pad to the same length."""
    sequences = random_sequences(15)
    settings = {"sequences_per_example": choices, "padding": padding}

    def iterator(shard):
        return iter(training_set(sequences, 6, shard=shard, **settings))

    shards = [WHOLE, Shard(0, 2), Shard(1, 2), Shard(2, 3)]
    iterators = {shard: iterator(shard) for shard in shards}
    for number in range(8):
        if number == 5:
            prefix = tf.train.Checkpoint(iterator=iterators[Shard(0, 2)]).write(
                str(tmp_path / "state")
            )
            for shard in shards:
                iterators[shard] = iterator(shard)
                tf.train.Checkpoint(iterator=iterators[shard]).read(prefix).assert_consumed()
        batch = next(iterators[WHOLE])
        for shard in shards[1:]:
            part = next(iterators[shard])
            assert part.keys() == batch.keys()
            for name, values in batch.items():
                np.testing.assert_array_equal(part[name], values[shard.rows(6)], err_msg=name)
