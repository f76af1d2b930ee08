import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import FeatureSpec, RecordError, encode_examples, frame_records
from albert_tf.pretraining.batching import parse_batch
from albert_tf.pretraining.record_checks import check_record_files, explain_read_errors

IDS = FeatureSpec("ids", "int64", 7, 50, "max_seq_length", "vocab_size")
WEIGHTS = FeatureSpec("weights", "float32", 3)
SPECS = (IDS, WEIGHTS)


def data(rows: int = 5) -> dict[str, np.ndarray]:
    ids = np.arange(rows * 7).reshape(rows, 7) % 50
    return {"ids": ids, "weights": (ids[:, :3] / 4).astype(np.float32)}


def write(path: Path, columns: dict[str, np.ndarray], specs: tuple = SPECS) -> str:
    path.write_bytes(b"".join(frame_records(encode_examples(columns, specs))))
    return str(path)


def read_all(path: str, specs: tuple = SPECS) -> list[dict[str, tf.Tensor]]:
    dataset = tf.data.TFRecordDataset(path).batch(2)
    with explain_read_errors([(path, specs)]):
        return list(dataset.map(lambda batch: parse_batch(batch, specs)))


def test_intact_files(tmp_path):
    columns = data()
    parsed = parse_batch(encode_examples(columns, SPECS), SPECS)
    types = {name: value.dtype for name, value in parsed.items()}
    assert types == {"ids": tf.int32, "weights": tf.float32}
    for name, value in parsed.items():
        np.testing.assert_array_equal(value, columns[name])
    path = write(tmp_path / "good", columns)
    empty = write(tmp_path / "empty", data(0))
    check_record_files([empty, path], SPECS)
    assert sum(len(batch["ids"]) for batch in read_all(path)) == 5
    with pytest.raises(RecordError, match=r"There is no record in the files: .*empty"):
        check_record_files([empty], SPECS)


DAMAGE = {
    "length": "'ids' contains 6 values, but 7 were expected. Set `max_seq_length`",
    "missing": "'weights' is missing. The record contains 'ids', 'other'",
    "type": "'weights' must contain float32",
    "high": "'ids' contains 50, but values must be in \\[0, 50\\), the limit set by vocab_size",
    "protobuf": "not a tf.train.Example",
    "empty": "the record is empty",
}


def damaged_message(kind: str) -> bytes:
    columns, specs = data(1), SPECS
    if kind == "length":
        columns["ids"] = columns["ids"][:, :6]
        specs = (FeatureSpec("ids", "int64", 6), WEIGHTS)
    elif kind == "missing":
        columns["other"] = columns["weights"]
        specs = (IDS, FeatureSpec("other", "float32", 3))
    elif kind == "type":
        columns["weights"] = columns["weights"].astype(int)
        specs = (IDS, FeatureSpec("weights", "int64", 3))
    elif kind == "high":
        columns["ids"][0, 2] = 50
    else:
        return b"\xff" * 40 if kind == "protobuf" else b""
    return encode_examples(columns, specs)[0]


@pytest.mark.parametrize("kind", DAMAGE)
def test_errors_name_the_record(tmp_path, kind):
    path = tmp_path / "bad"
    path.write_bytes(b"".join(frame_records([damaged_message(kind)])))
    good = write(tmp_path / "good", data())
    with pytest.raises(RecordError, match=f"bad, record 1: .*{DAMAGE[kind]}"):
        check_record_files([good, str(path)], SPECS)
    messages = encode_examples(data(), SPECS)
    messages[3] = damaged_message(kind)
    path.write_bytes(b"".join(frame_records(messages)))
    check_record_files([str(path)], SPECS)
    with pytest.raises(RecordError, match=f"bad, record 4: .*{DAMAGE[kind]}"):
        read_all(str(path))


@pytest.mark.parametrize("in_its_place", ["nothing", "a folder"])
def test_errors_name_a_removed_file(tmp_path, in_its_place):
    path = write(tmp_path / "gone", data())
    records = tf.data.TFRecordDataset([write(tmp_path / "good", data()), path]).batch(5)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # it opens files too early
    dataset = iter(records.with_options(options))
    next(dataset)
    os.remove(path)
    if in_its_place == "a folder":
        os.mkdir(path)
    with pytest.raises(RecordError, match=path), explain_read_errors([(path, SPECS)]):
        next(dataset)


def test_errors_name_a_record_that_only_tensorflow_rejects(tmp_path):
    """A feature with two values, which protobuf accepts."""
    messages = encode_examples(data(), SPECS)
    entry = b"\x0a\x01x" + b"\x12\x05\x1a\x03\x0a\x01\x07" * 2
    features = messages[3][2:] + b"\x0a" + bytes([len(entry)]) + entry
    messages[3] = b"\x0a" + bytes([len(features)]) + features
    path = tmp_path / "bad"
    path.write_bytes(b"".join(frame_records(messages)))
    with pytest.raises(RecordError, match="bad, record 4"):
        read_all(str(path))


def test_other_errors_are_unchanged(tmp_path):
    path = write(tmp_path / "good", data())
    kind = tf.errors.InvalidArgumentError
    with pytest.raises(kind, match="mine"), explain_read_errors([(path, SPECS)]):
        tf.debugging.assert_equal(1, 2, message="mine")
