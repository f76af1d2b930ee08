"""Damaged records are skipped, logged and counted; the others are read as usual."""

from functools import partial
from itertools import islice

import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import FeatureSpec, encode_examples, frame_records, masked_crc32c
from albert_tf.pretraining.batching import readable_files, training_batches
from albert_tf.training.task import SkippedRecords, input_positions
from tests.small_records import cut_in_record, damage_record

SPECS = (FeatureSpec("ids", "int64", 2, limit=100),)
COUNTS = (6, 9, 0, 7, 5)  # of each file; 27 records
BATCH = 4


@pytest.fixture(autouse=True)
def _global_seed():
    tf.random.set_seed(5)  # affects the order; set by the trainer


def records(numbers):
    columns = {"ids": tf.constant([[number, number] for number in numbers], tf.int64).numpy()}
    return encode_examples(columns, SPECS)


@pytest.fixture
def files(tmp_path):
    paths, start = [], 0
    for index, count in enumerate(COUNTS):
        messages = records(range(start, start + count)) if count else []
        if index == 3:  # records 17, 18 and 21 cannot be parsed
            messages[2:4] = [b"\xff" * 40, records([17, 120])[1]]
            messages[6] = b"\xff" * 40
        path = tmp_path / f"part-{index}"
        path.write_bytes(b"".join(frame_records(messages)))
        paths.append(path)
        start += count
    return paths


@pytest.fixture
def damaged(files):
    damage_record(files[0], number=3)  # 2 .. 5 are lost
    cut_in_record(files[4], number=5)  # 26 is lost
    return [str(path) for path in files]


GOOD = {*range(27)} - {2, 3, 4, 5, 17, 18, 21, 26}
PLACES = {"part-0\t3\t-1", "part-3\t3\t4", "part-3\t7\t-1", "part-4\t5\t-1"}


def batches(paths, **settings):
    return training_batches(paths, SPECS, BATCH, seed=1, shuffle_buffer_size=6, **settings)


def read(dataset, count):
    """Returns the numbers in `count` batches, and the skipped records."""
    skipped = SkippedRecords()
    numbers = []
    for batch in islice(dataset, count):
        numbers += skipped.take_from(batch)["ids"][:, 0].numpy().tolist()
    return numbers, skipped


def short(skipped):
    return {place.rsplit("/", 1)[1] for place in skipped.places}


def test_all_other_records_are_read_once_per_pass(damaged, caplog):
    numbers, skipped = read(batches(damaged, skip_damaged=True), 19)  # four passes of 19
    for start in range(0, 76, 19):
        assert {*numbers[start : start + 19]} == GOOD
    assert short(skipped) == PLACES
    assert skipped.count == 5
    messages = [message for message in caplog.messages if "Skipped as damaged" in message]
    assert len(messages) == 4  # each place once
    assert any(message.endswith("part-0, record 3 and all after it") for message in messages)
    assert any(message.endswith("part-3, records 3 to 4") for message in messages)
    assert any(message.endswith("part-3, record 7 and all after it") for message in messages)
    # A resumed run does not log them again.
    caplog.clear()
    again = SkippedRecords(list(skipped.places))
    for batch in islice(batches(damaged, skip_damaged=True), 10):
        again.take_from(batch)
    assert again.places == skipped.places
    assert not caplog.messages


def test_the_order_of_intact_files_does_not_change(files):
    whole = [str(files[0]), str(files[1]), str(files[4])]
    numbers, skipped = read(batches(whole, skip_damaged=True), 20)
    assert numbers == read(batches(whole), 20)[0]
    assert skipped.count == 0


def test_a_restored_input_skips_the_same_records(damaged, tmp_path):
    make = partial(batches, damaged, skip_damaged=True)
    iterator = make()
    for _ in range(3):
        next(iterator)
    tf.train.Checkpoint(**input_positions(iterator)).write(str(tmp_path / "position"))
    expected = [next(iterator) for _ in range(9)]
    again = make()
    prefix = str(tmp_path / "position")
    tf.train.Checkpoint(**input_positions(again)).read(prefix).assert_consumed()
    for batch in expected:
        restored = next(again)
        for name, values in batch.items():
            assert restored[name].numpy().tolist() == values.numpy().tolist()


@pytest.mark.parametrize("damage", ["checksum", "cut short", "empty", "no example"])
def test_files_that_begin_with_a_damaged_record(files, damage, caplog):
    if damage == "checksum":
        damage_record(files[0], number=1)
    elif damage == "cut short":
        cut_in_record(files[0], number=1)
    else:
        first = b"" if damage == "empty" else b"\xff" * 40
        files[0].write_bytes(b"".join(frame_records([first, *records([1, 2])])))
    paths = [str(path) for path in files]
    assert readable_files(paths) == paths[1:]
    assert any(f"{files[0]}, record 1" in message for message in caplog.messages)


@pytest.mark.parametrize("damage", ["empty record", "zeros", "length beyond the file"])
def test_empty_records_and_zeros_are_skipped(tmp_path, damage):
    """Records after an empty record are read, those after invalid data are not."""
    path = tmp_path / "part"
    frames = frame_records(records(range(4)))
    length = (1 << 30).to_bytes(8, "little")
    frames[2:2] = {
        "empty record": frame_records([b"", b""]),
        "zeros": [bytes(64)],
        "length beyond the file": [length + masked_crc32c(length)],
    }[damage]
    path.write_bytes(b"".join(frames))
    numbers, skipped = read(batches([str(path)], skip_damaged=True), 3)
    if damage == "empty record":
        assert {*numbers} == {0, 1, 2, 3}
        assert short(skipped) == {"part\t3\t4"}
    else:
        assert {*numbers} == {0, 1}
        assert short(skipped) == {"part\t3\t-1"}
