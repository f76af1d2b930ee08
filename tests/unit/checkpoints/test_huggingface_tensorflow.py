"""Tests for models that transformers' TensorFlow classes stored. Version 5 has only PyTorch's.

The record contains the configurations, shapes of variables, and outputs of transformers 4.57. Each
variable was filled with `values_of(seed(name), shape)`.
"""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

import albert_tf
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.loading import build, read_model
from tests.huggingface import models
from tests.huggingface.values import values_of

TOLERANCE = 3e-6
RECORDS = json.loads((models.RECORDED / "tensorflow.json").read_text())["models"]
PLACES, LENGTHS = np.arange(7, dtype=np.int32)[None], np.array([[7], [4], [1]], np.int32)
MASK = (PLACES < LENGTHS).astype(np.int32)
INPUTS = {
    "input_ids": (PLACES * 5 + LENGTHS * 3) % 31 * MASK,
    "input_mask": MASK,
    "segment_ids": (PLACES > 2) * MASK,
}


def seed(name: str) -> str:
    """Returns the name of a variable without group and model."""
    parts = name.split("/")
    model = next((i for i, part in enumerate(parts) if part.startswith("tf_albert")), -1)
    return "/".join(parts[model + 1 :])


def write(folder: Path, record: dict) -> Path:
    """Writes a recorded model as transformers stored it."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(record["config"]))
    for name, index in (record["index"] or {}).items():
        (folder / name).write_text(json.dumps(index))
    for file, shapes in record["files"].items():
        tensors = {name: values_of(seed(name), shape) for name, shape in shapes.items()}
        if file.endswith(".h5"):
            with h5py.File(folder / file, "w") as target:
                for name, value in tensors.items():
                    target.create_dataset(name, data=value)
        else:
            save_file(tensors, folder / file, metadata={"format": "pt"})
    return folder


def assert_outputs_equal(model, record: dict) -> None:
    expected = {name: np.array(values) for name, values in record["outputs"].items()}
    models.assert_outputs_equal(model, INPUTS, expected, TOLERANCE)


@pytest.mark.parametrize("name", RECORDS)
def test_outputs_equal_transformers(tmp_path, name):
    path = write(tmp_path / "model", RECORDS[name])
    contents, report = read_model(str(path))
    assert not report.ignored
    assert_outputs_equal(build(contents)[0], RECORDS[name])
    if name == "tokens":
        assert_outputs_equal(albert_tf.load(path / "tf_model.h5"), RECORDS[name])


class TestHdf5Files:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other["bias"] = np.ones(12, "f")
        (tmp_path / "other.raw").write_bytes(bytes(48))
        return write(tmp_path / "model", RECORDS["classifier"]) / "tf_model.h5"

    @pytest.mark.parametrize("kind", ["external", "virtual", "compressed", "unwritten", "link"])
    def test_values_outside_of_the_file_are_not_read(self, path, tmp_path, kind):
        other = str(tmp_path / "other.h5")
        with h5py.File(path, "r+") as file:
            group = file["albert/tf_albert_for_sequence_classification/albert/pooler"]
            del group["bias:0"]
            if kind == "link":
                group["bias:0"] = h5py.ExternalLink(other, "bias")
            elif kind == "virtual":
                layout = h5py.VirtualLayout(shape=(12,), dtype="f")
                layout[:] = h5py.VirtualSource(other, "bias", shape=(12,))
                group.create_virtual_dataset("bias:0", layout)
            else:
                options = {
                    "external": {"external": [(str(tmp_path / "other.raw"), 0, 48)]},
                    "compressed": {"compression": "gzip", "data": np.ones(12, "f")},
                    "unwritten": {"chunks": (4,), "fillvalue": 7.0},
                }
                group.create_dataset("bias:0", (12,), "f", **options[kind])
        expected = "bert/pooler" if kind == "link" else "bias:0' is compressed, incomplete"
        with pytest.raises(LoadError, match=expected):
            read_model(str(path.parent))

    def test_damaged_files_and_files_of_two_models_are_rejected(self, path):
        content = path.read_bytes()
        for damaged in (content[:3000], b"", b"x" * 2048):
            path.write_bytes(damaged)
            with pytest.raises(LoadError, match=r"tf_model\.h5"):
                read_model(str(path.parent))
        path.write_bytes(content)
        with h5py.File(path, "r+") as file:
            file["other/tf_albert_model/albert/embeddings/LayerNorm/beta:0"] = np.ones(8, "f")
            file["other/tf_albert_model/classifier/classifier/bias:0"] = np.ones(3, "f")
        with pytest.raises(LoadError, match="twice"):
            read_model(str(path.parent))
