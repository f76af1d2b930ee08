import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import (
    FeatureSpec,
    RecordError,
    count_records,
    encode_examples,
    estimate_records,
    frame_records,
    masked_crc32c,
    read_records,
)


def payloads(number: int) -> list[bytes]:
    rng = random.Random(number)
    return [rng.randbytes(rng.randint(0, 77)) for _ in range(number)]


def write(path: Path, number: int) -> list[bytes]:
    data = payloads(number)
    path.write_bytes(b"".join(frame_records(data)))
    return data


LENGTHS = [0, 1, 2, 3, 4, 5, 8, 4093, 30000]


def test_files_equal_those_of_tensorflow(tmp_path):
    data = [random.Random(length).randbytes(length) for length in LENGTHS]
    (tmp_path / "ours").write_bytes(b"".join(frame_records(data)))
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for payload in data:
            writer.write(payload)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert list(read_records(str(tmp_path / "ours"))) == data
    assert frame_records([]) == []


def test_records_are_counted_and_estimated(tmp_path):
    paths = [str(tmp_path / name) for name in "abc"]
    for path, number in zip(paths, (7, 0, 14), strict=True):
        write(Path(path), number)
    assert count_records(paths) == estimate_records(paths) == 21
    total = sum(Path(path).stat().st_size for path in paths)
    four = sum(16 + len(payload) for payload in payloads(7)[:4])
    assert estimate_records(paths, num_records=4) == round(total / four * 4)
    Path(paths[2]).write_bytes(Path(paths[2]).read_bytes()[:-1])  # an error when it is read
    assert estimate_records(paths) in (20, 21)


@pytest.mark.parametrize("missing", [1, 5, 20])
def test_truncated_files_are_rejected(tmp_path, missing):
    path = tmp_path / "cut"
    data = write(path, 9)
    path.write_bytes(path.read_bytes()[: -min(missing, len(data[-1]) + 15)])
    message = "cut, record 9: the file ends inside this record"
    records = read_records(str(path))
    assert [next(records) for _ in range(8)] == data[:8]
    with pytest.raises(RecordError, match=message):
        next(records)
    with pytest.raises(RecordError, match=message):
        count_records([str(path)])


FRAMES = frame_records(payloads(4))
HUGE = (1 << 62).to_bytes(8, "little")


def changed(frame: bytes, place: int) -> bytes:
    data = bytearray(frame)
    data[place] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "number"),
    [
        ([bytes(12), *FRAMES], 1),
        ([*FRAMES[:2], bytes(16), *FRAMES[2:]], 3),
        ([FRAMES[0], HUGE + masked_crc32c(HUGE)], 2),
        ([*FRAMES[:2], changed(FRAMES[2], 14)], 3),  # payload
        ([b"one sentence a line\n" * 30], 1),
    ],
)
def test_damaged_files_are_rejected(tmp_path, content, number):
    path = tmp_path / "bad"
    path.write_bytes(b"".join(content))
    with pytest.raises(RecordError, match=f"bad, record {number}: .*TFRecord file"):
        list(read_records(str(path)))


SPECS = (
    FeatureSpec("ids", "int64", 7),
    FeatureSpec("weights", "float32", 3),
    FeatureSpec("label", "int64", 1),
)


@pytest.mark.parametrize(
    "highest", [0, 1, 127, 128, 16383, 16384, 2**21, 2**28 - 1, 2**28, 2**56 - 1]
)
def test_protobuf_reads_the_examples(highest):
    rng = np.random.default_rng(highest)
    data = {
        "ids": rng.integers(0, highest, (5, 7), endpoint=True),
        "weights": rng.normal(size=(5, 3)).astype(np.float32),
        "label": np.arange(5)[:, None] % 2 == 0,
    }
    data["ids"][2, 4] = highest
    messages = encode_examples(data, SPECS)
    assert len(messages) == 5
    for row, message in enumerate(messages):
        feature = tf.train.Example.FromString(message).features.feature
        assert sorted(feature) == ["ids", "label", "weights"]
        assert list(feature["ids"].int64_list.value) == data["ids"][row].tolist()
        assert list(feature["label"].int64_list.value) == [int(data["label"][row, 0])]
        np.testing.assert_array_equal(feature["weights"].float_list.value, data["weights"][row])
    assert encode_examples({name: values[:0] for name, values in data.items()}, SPECS) == []


def test_invalid_columns_are_rejected():
    with pytest.raises(ValueError, match=r"'ids' .* 7 .*\(2, 6\)"):
        encode_examples({"ids": np.zeros((2, 6), int)}, SPECS[:1])
    for value in (2**56, -3):
        with pytest.raises(ValueError, match=rf"'ids' must be in \[0, 2\*\*56\).*{value}"):
            encode_examples({"ids": np.full((2, 7), value)}, SPECS[:1])
