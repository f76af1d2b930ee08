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


def test_published_checksum():
    """CRC-32C of "123456789" is 0xe3069283 in every description of it."""
    crc = 0xE3069283
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert int.from_bytes(masked_crc32c(b"123456789"), "little") == masked


LENGTHS = [0, 1, 2, 3, 4, 5, 8, 4093, 30000]


@pytest.mark.parametrize("lengths", [[length] for length in LENGTHS] + [LENGTHS])
def test_tensorflow_writes_the_same_bytes(tmp_path, lengths):
    data = [random.Random(length).randbytes(length) for length in lengths]
    (tmp_path / "ours").write_bytes(b"".join(frame_records(data)))
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for payload in data:
            writer.write(payload)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_the_number_of_records_is_estimated_by_the_first_ones(tmp_path):
    paths = [str(tmp_path / name) for name in "abc"]
    for path, number in zip(paths, (7, 0, 14), strict=True):
        write(Path(path), number)
    assert estimate_records(paths) == 21
    total = sum(Path(path).stat().st_size for path in paths)
    four = sum(16 + len(payload) for payload in payloads(7)[:4])
    assert estimate_records(paths, num_records=4) == round(total / four * 4)
    Path(paths[2]).write_bytes(Path(paths[2]).read_bytes()[:-1])  # reading it will say so
    assert estimate_records(paths) in (20, 21)


def test_reading_gives_back_what_was_written(tmp_path):
    assert frame_records([]) == []
    data = write(tmp_path / "file", 300)
    assert list(read_records(str(tmp_path / "file"))) == data


def test_records_are_counted(tmp_path):
    write(tmp_path / "a", 13)
    write(tmp_path / "b", 0)
    write(tmp_path / "c", 8)
    assert count_records([str(tmp_path / name) for name in "abc"]) == 21


@pytest.mark.parametrize("missing", [1, 5, 20])
def test_cut_file_is_named_with_the_record(tmp_path, missing):
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


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("length", [12, 16, 64, 1000])
def test_zeros_are_named_with_the_record(tmp_path, place, length):
    frames = frame_records(payloads(4))
    path = tmp_path / "zeros"
    path.write_bytes(b"".join([*frames[:place], bytes(length), *frames[place:]]))
    with pytest.raises(RecordError, match=f"zeros, record {place + 1}"):
        list(read_records(str(path)))


def test_a_length_beyond_the_file_is_named_with_the_record(tmp_path):
    path = tmp_path / "long"
    header = (1 << 62).to_bytes(8, "little")
    path.write_bytes(b"".join(frame_records([b"one"])) + header + masked_crc32c(header))
    with pytest.raises(RecordError, match="long, record 2"):
        list(read_records(str(path)))


@pytest.mark.parametrize("place", ["length checksum", "payload", "checksum"])
def test_changed_byte_is_named_with_the_record(tmp_path, place):
    frames = [bytearray(frame) for frame in frame_records(payloads(6))]
    frames[3][{"length checksum": 9, "payload": 14, "checksum": -2}[place]] ^= 1
    path = tmp_path / "changed"
    path.write_bytes(b"".join(frames))
    with pytest.raises(RecordError, match="changed, record 4: the checksum differs"):
        list(read_records(str(path)))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "text"
    path.write_text("one sentence a line\n" * 30)
    with pytest.raises(RecordError, match=r"text, record 1: .* TFRecord file"):
        list(read_records(str(path)))


SPECS = (
    FeatureSpec("ids", "int64", 7),
    FeatureSpec("weights", "float32", 3),
    FeatureSpec("label", "int64", 1),
)


def columns(highest: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(highest)
    return {
        "ids": rng.integers(0, highest, (5, 7), endpoint=True),
        "weights": rng.normal(size=(5, 3)).astype(np.float32),
        "label": np.arange(5)[:, None] % 2 == 0,
    }


@pytest.mark.parametrize(
    "highest", [0, 1, 127, 128, 16383, 16384, 2**21, 2**28 - 1, 2**28, 2**56 - 1]
)
def test_protobuf_reads_what_was_written(highest):
    data = columns(highest)
    data["ids"][2, 4] = highest
    messages = encode_examples(data, SPECS)
    assert len(messages) == 5
    for row, message in enumerate(messages):
        feature = tf.train.Example.FromString(message).features.feature
        assert sorted(feature) == ["ids", "label", "weights"]
        assert list(feature["ids"].int64_list.value) == data["ids"][row].tolist()
        assert list(feature["label"].int64_list.value) == [int(data["label"][row, 0])]
        np.testing.assert_array_equal(feature["weights"].float_list.value, data["weights"][row])


def test_bytes_equal_those_of_protobuf():
    data = {"ids": np.array([[0, 127, 128, 300, 16383, 16384, 29999]])}
    (message,) = encode_examples(data, SPECS[:1])
    example = tf.train.Example()
    example.features.feature["ids"].int64_list.value.extend(data["ids"][0].tolist())
    assert message == example.SerializeToString()
    assert encode_examples({"ids": np.zeros((0, 7), np.int32)}, SPECS[:1]) == []


def test_wrong_width_is_refused():
    with pytest.raises(ValueError, match=r"'ids' .* 7 .*\(2, 6\)"):
        encode_examples({"ids": np.zeros((2, 6), int)}, SPECS[:1])


def test_values_out_of_range_are_refused():
    with pytest.raises(ValueError, match=str(2**56)):
        encode_examples({"ids": np.full((2, 7), 2**56)}, SPECS[:1])
    with pytest.raises(ValueError, match=r"'ids' must lie in \[0, 2\*\*56\).*-3"):
        encode_examples({"ids": np.full((2, 7), -3)}, SPECS[:1])
