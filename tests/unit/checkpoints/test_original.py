"""Tests for finding, reading and writing checkpoints of the original release."""

import os

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.formats.original import find_checkpoint, write_checkpoint
from albert_tf.checkpoints.loading import load_weights, match
from albert_tf.checkpoints.stored_model import Weights
from albert_tf.data.files import WriteError
from albert_tf.modeling.models import AlbertForPretraining
from tests.full_disk import file_size_limit
from tests.golden.reference import Reference

DATA = ".data-00000-of-00001"


@pytest.fixture(scope="module")
def reference():
    return Reference("config_3")  # three groups


def write(prefix, step=5, **variables):
    write_checkpoint(str(prefix), variables or {"x": np.arange(3.0)}, step)
    return str(prefix)


def contents(prefix):
    """Reads all variables of a checkpoint with TensorFlow."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


class TestFinding:
    def test_prefixes_files_and_directories(self, tmp_path):
        only = write(tmp_path / "model.ckpt-100")
        for suffix in ("", ".index", ".meta", DATA):
            assert find_checkpoint(only + suffix) == only
        assert find_checkpoint(str(tmp_path)) == only
        tf.compat.v1.train.update_checkpoint_state(str(tmp_path), "model.ckpt-99")  # long gone
        assert find_checkpoint(str(tmp_path)) == only
        newest = write(tmp_path / "model.ckpt-20")
        tf.compat.v1.train.update_checkpoint_state(str(tmp_path), "model.ckpt-20")
        assert find_checkpoint(str(tmp_path)) == find_checkpoint(f"{tmp_path}/") == newest
        best = write(tmp_path / "model.ckpt-best")
        assert find_checkpoint(str(tmp_path)) == best

    @pytest.mark.parametrize("content", [b"", b"\xff", b'model_checkpoint_path: "a\xff"'])
    def test_damaged_state_file_is_ignored(self, tmp_path, caplog, content):
        (tmp_path / "model.ckpt-20.index").touch()
        (tmp_path / "checkpoint").write_bytes(content)
        assert find_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-20")
        assert str(tmp_path / "checkpoint") in caplog.text

    def test_several_checkpoints_are_rejected(self, tmp_path):
        prefixes = [write(tmp_path / f"model.ckpt-{step}") for step in (1, 2)]
        with pytest.raises(LoadError, match="found 2: ") as error:
            find_checkpoint(str(tmp_path))
        assert all(prefix in str(error.value) for prefix in prefixes)


HEAD = ["output_weights", "output_bias"]
ENCODER = {"bert/pooler/dense/kernel": (3, 3), "bert/embeddings/LayerNorm/beta": (8,)}
CLASSES = {**ENCODER, "output_weights": (2, 12), "output_bias": (2,)}


@pytest.mark.parametrize(
    ("stored", "missing", "mismatched", "ignored", "line"),
    [
        (CLASSES, [], [], [], "stored: 4 of 4 variables restored"),
        ({**CLASSES, "output_bias/adam_m": (2,), "global_step": ()}, [], [], [], ""),
        (ENCODER, HEAD, [], [], "randomly initialized: output_weights"),
        (
            {**CLASSES, "output_weights": (3, 12), "cls/predictions/output_bias": (31,)},
            *([], ["output_weights"], ["cls/predictions/output_bias"]),
            "output_weights is [3, 12] in the checkpoint, but [2, 12] in",
        ),
    ],
)
def test_variables_are_matched(stored, missing, mismatched, ignored, line):
    weights = Weights.in_memory({name: np.ones(shape) for name, shape in stored.items()}, "stored")
    report = match(CLASSES, weights, skip={}, uses_pooler=True, warm_start=None)
    assert report.missing == missing
    assert [name for name, *_ in report.mismatched] == mismatched
    assert report.ignored == ignored
    assert report.mapped.keys() == CLASSES.keys() - {*missing, *mismatched}
    assert line in report.summary()
    if missing or mismatched:
        with pytest.raises(LoadError, match="`albert_config_file`"):
            report.check_complete()
    else:
        report.check_complete()


def test_checkpoints_of_other_models_and_sizes(reference, tmp_path):
    write(tmp_path / "other", layer=np.ones(3))
    model = AlbertForPretraining(reference.config.replace(vocab_size=81))
    before = model.get_weights()
    for allow_partial in (False, True):
        with pytest.raises(LoadError, match=r"no variable of this model.*layer"):
            load_weights(model, str(tmp_path), allow_partial=allow_partial)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    report = load_weights(model, reference.checkpoint, allow_partial=True)
    tables = {"bert/embeddings/word_embeddings", "cls/predictions/output_bias"}
    assert {name for name, *_ in report.mismatched} == tables
    stored = contents(reference.checkpoint)["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(model.encoder.pooler.kernel, stored)


def test_averages_and_slots_of_other_optimizers_are_ignored(reference, tmp_path):
    values = contents(reference.checkpoint)
    others = {
        f"{name}/{slot}": np.zeros_like(value)
        for name, value in values.items()
        for slot in ("ExponentialMovingAverage", "Adam_1", "adam_m")
        if value.ndim
    }
    model = AlbertForPretraining(reference.config)
    report = load_weights(model, write(tmp_path / "model.ckpt", **values, **others))
    kernel = "bert/pooler/dense/kernel"
    assert not report.ignored
    assert f"{kernel}/adam_m" in report.shapes
    assert f"{kernel}/Adam_1" not in report.shapes
    np.testing.assert_array_equal(model.encoder.pooler.kernel, values[kernel])


class TestWriting:
    def test_missing_step_is_zero(self, tmp_path):
        weights = open_weights(write(tmp_path / "bare", step=None))
        assert (weights.global_step, weights.shapes) == (0, {"x": [3]})

    # Bytes that suffice for nothing, for all but the last values, for all but the index.
    @pytest.mark.parametrize("size", [0, 3000, 4030])
    def test_failed_write_leaves_the_old_checkpoint(self, tmp_path, size):
        prefix = write(tmp_path / "model.ckpt", step=1)
        values = {f"{k}{'long' * 90}": np.ones(0) for k in range(15)}
        values["y"] = np.ones(1000, np.float32)
        with file_size_limit(size), pytest.raises(WriteError, match=prefix):
            write(prefix, step=2, **values)
        assert open_weights(prefix).global_step == 1
        assert len(list(tmp_path.iterdir())) == 2

    def test_index_is_removed_first_and_written_last(self, tmp_path, monkeypatch):
        prefix = write(tmp_path / "model.ckpt", step=1)
        rename, had_index = os.replace, []

        def watch(source, target):
            had_index.append(os.path.exists(prefix + ".index"))
            rename(source, target)

        monkeypatch.setattr(os, "replace", watch)
        write(prefix, step=2)
        assert had_index == [False, False]
        assert open_weights(prefix).global_step == 2
