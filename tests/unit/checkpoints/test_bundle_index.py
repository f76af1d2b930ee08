"""Checkpoints whose index says what cannot be, its checksums all right; TensorFlow would abort."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto

from albert_tf.checkpoints.bundle_index import check_index
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.original.files import (
    check_tensors,
    open_tensorflow_checkpoint,
    read_variables,
    write_checkpoint,
)
from albert_tf.checkpoints.report import DamagedError
from tests.fuzz.wire import read_table, table

NAME = b"a/kernel"
DATA = ".data-00000-of-00001"


@pytest.fixture
def prefix(tmp_path) -> str:
    """A checkpoint of a matrix, a vector and the step."""
    path = str(tmp_path / "model.ckpt-3")
    values = {"a/kernel": np.ones((3, 5), np.float32), "a/bias": np.zeros(5, np.float32)}
    write_checkpoint(path, values, 3)
    return path


def rewrite(prefix: str, change) -> None:
    """Changes the entries of an index; checksums are made to fit."""
    with open(f"{prefix}.index", "rb") as file:
        entries = dict(read_table(file.read()))
    change(entries)
    with open(f"{prefix}.index", "wb") as file:
        file.write(table(sorted(entries.items())))


def changed_entry(change):
    """What changes the entry of the matrix."""

    def rewrite_entry(entries):
        entry = BundleEntryProto.FromString(entries[NAME])
        change(entry)
        entries[NAME] = entry.SerializeToString()

    return rewrite_entry


def many_strings(entry):
    entry.dtype, entry.shape.dim[0].size = tf.string.as_datatype_enum, 1000


def test_sound_checkpoints_pass(prefix):
    check_index(prefix)
    rewrite(prefix, lambda entries: None)
    _, shapes = open_checkpoint(prefix)
    assert shapes == {"a/bias": [5], "a/kernel": [3, 5], "global_step": []}


def test_a_checkpoint_in_slices_passes(tmp_path):
    """As a partitioned variable is stored: the slices have keys of their own."""
    prefix = str(tmp_path / "sliced")
    halves = [np.full((2, 3), value, np.float32) for value in (1, 2)]
    slices = ["4 3 0,2:0,3", "4 3 2,2:0,3"]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=["v", "v"], shape_and_slices=slices, tensors=halves
    )
    reader = open_tensorflow_checkpoint(prefix)
    np.testing.assert_array_equal(
        read_variables(reader, prefix, ["v"])["v"], np.concatenate(halves)
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(changed_entry(lambda e: setattr(e, "dtype", 0)), id="no kind"),
        pytest.param(changed_entry(lambda e: setattr(e, "dtype", 999)), id="unknown kind"),
        pytest.param(changed_entry(lambda e: setattr(e, "dtype", 2)), id="another kind"),
        pytest.param(changed_entry(many_strings), id="strings without bytes"),
        pytest.param(changed_entry(lambda e: setattr(e.shape.dim[0], "size", -1)), id="below zero"),
        pytest.param(changed_entry(lambda e: setattr(e.shape.dim[0], "size", 2**62)), id="large"),
        pytest.param(changed_entry(lambda e: setattr(e.shape, "unknown_rank", True)), id="no rank"),
        pytest.param(changed_entry(lambda e: setattr(e, "size", 10**12)), id="long"),
        pytest.param(changed_entry(lambda e: setattr(e, "offset", 10**12)), id="far away"),
        pytest.param(changed_entry(lambda e: setattr(e, "offset", -8)), id="before the file"),
        pytest.param(changed_entry(lambda e: e.shape.dim.add(size=-3)), id="one more axis"),
        pytest.param(lambda entries: entries.update({NAME: b"\xff\xff"}), id="no entry"),
        pytest.param(lambda entries: entries.update({b"": b"\xff\xff"}), id="no description"),
        pytest.param(lambda entries: entries.update({b"\xff": entries[NAME]}), id="no name"),
    ],
)
def test_what_cannot_be_is_damage(prefix, change):
    rewrite(prefix, change)
    with pytest.raises(DamagedError, match=r"model\.ckpt-3") as raised:
        open_checkpoint(prefix)
    assert "\n" not in str(raised.value)


def test_an_index_that_is_none_is_damage(prefix):
    for content in (b"", b"x" * 40, bytes(100), b"\xff" * 200):
        with open(f"{prefix}.index", "wb") as file:
            file.write(content)
        with pytest.raises(DamagedError, match=r"model\.ckpt-3"):
            open_checkpoint(prefix)


@pytest.fixture
def train_state(tmp_path) -> str:
    """An object-based checkpoint with an iterator in it, which is a variant."""
    iterator = iter(tf.data.Dataset.range(30).shuffle(7, seed=1).batch(2))
    next(iterator)
    return tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "8"))


def test_a_sound_train_state_passes(train_state):
    check_tensors(train_state)


def test_every_changed_byte_of_a_train_state_is_damage(train_state):
    """Before its checksum is compared, TensorFlow decodes a variant, and may die of it."""
    with open(train_state + DATA, "rb") as file:
        data = file.read()
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 0x80
        with open(train_state + DATA, "wb") as file:
            file.write(changed)
        with pytest.raises(DamagedError, match="/8' is damaged"):
            check_tensors(train_state)


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: entries[1:],
        lambda entries: [*entries, entries[-1]],
        lambda entries: [entries[0], *entries[:0:-1]],
    ],
    ids=["without a description", "twice", "not in order"],
)
def test_keys_are_in_order_behind_the_description(prefix, change):
    with open(f"{prefix}.index", "rb") as file:
        entries = list(read_table(file.read()))
    with open(f"{prefix}.index", "wb") as file:
        file.write(table(change(entries)))
    with pytest.raises(DamagedError, match=r"model\.ckpt-3"):
        open_tensorflow_checkpoint(prefix)
