"""Record files of features: there and back, and files that are damaged or somebody else's."""

import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import text_records as module
from albert_tf.data.records import RecordError
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.text_examples import Labels
from albert_tf.data.text_features import TextFeatures
from albert_tf.data.text_records import read_text_records, write_text_records
from tests.small_records import write_records

LENGTH, VOCABULARY, COUNT = 9, 300, 11
CLASSES, NUMBER = Labels(("a", "b", "c")), Labels()


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(module, "_RECORDS_AT_ONCE", 4)  # 11 rows: the last chunk is shorter


def random_features(labels, count=COUNT):
    """Sequences of 2 to 9 tokens, ids of one and of two bytes."""
    random = np.random.default_rng(11)
    lengths = random.integers(2, LENGTH + 1, count)
    lengths[3] = LENGTH
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(1, VOCABULARY, starts[-1], dtype=np.int32)
    sequences = TokenSequences(tokens, starts, random.integers(2, lengths + 1).astype(np.int32))
    if labels.is_regression:
        label_ids = random.normal(size=count).astype(np.float32)
    else:
        label_ids = random.integers(0, 3, count, dtype=np.int32)
    return TextFeatures(sequences, label_ids, [f"row-{i}" for i in range(count)])


def columns_of(features, labels):
    """Columns as the original writes them."""
    padded = features.sequences.padded(np.arange(len(features.guids)), LENGTH)
    columns = {name: values.astype(np.int64) for name, values in padded.items()}
    label_ids = features.label_ids[:, None]
    columns["label_ids"] = label_ids if labels.is_regression else label_ids.astype(np.int64)
    columns["is_real_example"] = np.ones_like(columns["input_ids"][:, :1])
    return columns


def assert_same(ours, theirs):
    for name in ("tokens", "starts", "first_lengths"):
        values = getattr(ours.sequences, name)
        np.testing.assert_array_equal(values, getattr(theirs.sequences, name), err_msg=name)
        assert values.dtype == getattr(theirs.sequences, name).dtype
    np.testing.assert_array_equal(ours.label_ids, theirs.label_ids)
    assert ours.label_ids.dtype == theirs.label_ids.dtype


@pytest.mark.parametrize("labels", [CLASSES, NUMBER])
def test_what_is_written_is_read(tmp_path, labels):
    features, path = random_features(labels), str(tmp_path / "a" / "records")
    write_text_records(path, features, LENGTH, labels)
    again = read_text_records(path, LENGTH, labels, VOCABULARY)
    assert_same(again, features)
    assert again.guids == [str(i + 1) for i in range(COUNT)]


@pytest.mark.parametrize("labels", [CLASSES, NUMBER])
def test_tensorflow_parses_what_is_written(tmp_path, labels):
    features, path = random_features(labels), str(tmp_path / "records")
    write_text_records(path, features, LENGTH, labels)
    kinds = {
        name: tf.io.FixedLenFeature([LENGTH], tf.int64)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    kinds["label_ids"] = tf.io.FixedLenFeature([1], tf.float32 if labels is NUMBER else tf.int64)
    kinds["is_real_example"] = tf.io.FixedLenFeature([1], tf.int64)
    batch = next(iter(tf.data.TFRecordDataset(path).batch(99)))
    parsed = tf.io.parse_example(batch, kinds)
    for name, values in columns_of(features, labels).items():
        np.testing.assert_array_equal(parsed[name], values, err_msg=name)


@pytest.mark.parametrize("labels", [CLASSES, NUMBER])
def test_rows_without_labels_are_written_with_zero(tmp_path, labels):
    features, path = random_features(labels), str(tmp_path / "records")
    write_text_records(path, TextFeatures(features.sequences, None, features.guids), LENGTH, labels)
    again = read_text_records(path, LENGTH, labels, VOCABULARY)
    assert again.label_ids.tolist() == [0] * COUNT


def test_padding_examples_are_left_out(tmp_path):
    features = random_features(CLASSES)
    columns = columns_of(features, CLASSES)
    for values in columns.values():
        values[[2, 8, 9, 10]] = 0  # one within a chunk, and all of the last one
    path = str(write_records(tmp_path / "records", columns))
    again = read_text_records(path, LENGTH, CLASSES, VOCABULARY)
    assert again.guids == ["1", "2", "4", "5", "6", "7", "8"]
    kept = [0, 1, 3, 4, 5, 6, 7]
    np.testing.assert_array_equal(
        again.sequences.padded(np.arange(7), LENGTH)["input_ids"], columns["input_ids"][kept]
    )
    np.testing.assert_array_equal(again.label_ids, features.label_ids[kept])


def edited(name, row, place, value):
    def edit(columns):
        columns[name][row, place] = value

    return edit


ODD = "input_mask must be ones"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited("input_mask", 5, 0, 0), rf"record 6: {ODD}"),
        (edited("segment_ids", 6, 0, 1), rf"record 7: {ODD}"),
        (edited("input_mask", 3, slice(4, None), 0), rf"record 4: {ODD}"),  # ids without mask
        (edited("segment_ids", 8, slice(None), 1), rf"record 9: {ODD}"),
        (edited("input_ids", 7, 1, VOCABULARY), r"record 8: .*input_ids.* 300, .*vocabulary"),
        (edited("label_ids", 10, 0, 3), r"record 11: .*label_ids.* holds 3.*task's labels"),
        (edited("label_ids", 0, 0, -1), r"record 1: .*label_ids.* holds -1"),
    ],
)
def test_a_record_that_is_no_such_sequence_is_named(tmp_path, edit, message):
    features = random_features(CLASSES)
    features.sequences.first_lengths[6] = features.sequences.lengths[6] - 1
    columns = columns_of(features, CLASSES)
    edit(columns)
    path = str(write_records(tmp_path / "records", columns))
    with pytest.raises(RecordError, match=f"{re.escape(path)}, {message}"):
        read_text_records(path, LENGTH, CLASSES, VOCABULARY)


def test_files_made_for_something_else_are_refused(tmp_path):
    path = str(tmp_path / "records")
    write_text_records(path, random_features(CLASSES), LENGTH, CLASSES)
    with pytest.raises(RecordError, match=r"record 1: .*9 values, 8 were.*--max_seq_length"):
        read_text_records(path, LENGTH - 1, CLASSES, VOCABULARY)
    with pytest.raises(RecordError, match=r"'label_ids' does not hold float32 values"):
        read_text_records(path, LENGTH, NUMBER, VOCABULARY)
    with pytest.raises(ValueError, match=r"9 tokens does not fit into 8"):
        write_text_records(str(tmp_path / "short"), random_features(CLASSES), 8, CLASSES)
    assert [entry.name for entry in tmp_path.iterdir()] == ["records"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-3], "record 11: the file ends inside"),
        (lambda data: data[:400] + b"\xff" + data[401:], r"record \d: the checksum differs"),
        (lambda data: b"", "holds no example"),
    ],
)
def test_damaged_files_are_named(tmp_path, damage, message):
    path = tmp_path / "records"
    write_text_records(str(path), random_features(CLASSES), LENGTH, CLASSES)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordError, match=message):
        read_text_records(str(path), LENGTH, CLASSES, VOCABULARY)
