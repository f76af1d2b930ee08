import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import FeatureSpec, encode_examples

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
def test_protobuf_reads_what_was_written(highest: int) -> None:
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


def test_bytes_equal_those_of_protobuf() -> None:
    data = {"ids": np.array([[0, 127, 128, 300, 16383, 16384, 29999]])}
    (message,) = encode_examples(data, SPECS[:1])
    example = tf.train.Example()
    example.features.feature["ids"].int64_list.value.extend(data["ids"][0].tolist())
    assert message == example.SerializeToString()


def test_no_rows_give_no_messages() -> None:
    assert encode_examples({"ids": np.zeros((0, 7), np.int32)}, SPECS[:1]) == []


def test_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'ids' .* 7 .*\(2, 6\)"):
        encode_examples({"ids": np.zeros((2, 6), int)}, SPECS[:1])


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=str(2**56)):
        encode_examples({"ids": np.full((2, 7), 2**56)}, SPECS[:1])
    with pytest.raises(ValueError, match=r"'ids' must lie in \[0, 2\*\*56\).*-3"):
        encode_examples({"ids": np.full((2, 7), -3)}, SPECS[:1])
