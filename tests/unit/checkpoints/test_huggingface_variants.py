"""Tests for models that transformers' TensorFlow classes stored, and for its other activations.

The results of transformers are recorded by `tests.huggingface.record_variants`.
"""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

import albert_tf
from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.loading import build, read_model
from albert_tf.checkpoints.report import LoadError
from albert_tf.config import AlbertConfig
from tests.huggingface.record_variants import OF_TORCH, inputs, recorded, seed
from tests.huggingface.values import values_of

TOLERANCE = 3e-6
RECORDS = {
    f"{library}/{name}": record
    for library in ("tensorflow", "torch")
    for name, record in json.loads(recorded(library).read_text())["models"].items()
}
NAMES = {"masked_lm_logits": "prediction_logits", "sentence_order_logits": "sop_logits"}
NAMES |= {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"}


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


def outputs_of(model) -> dict[str, np.ndarray]:
    batch = inputs(isinstance(model, albert_tf.AlbertForMultipleChoice))
    ours = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    named = {ours.get(name, name): value for name, value in batch.items()}
    if isinstance(model, albert_tf.AlbertForPretraining):
        rows, length = named["input_ids"].shape
        named["masked_lm_positions"] = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    return {name: np.asarray(value) for name, value in model(named).items()}


def assert_outputs_equal(model, record: dict) -> None:
    found, expected = outputs_of(model), {n: np.array(v) for n, v in record["outputs"].items()}
    compared = []
    for name, value in found.items():
        there = expected.get(NAMES.get(name, name), expected.get("logits"))
        if there is not None and there.shape == value.shape:
            np.testing.assert_allclose(value, there, rtol=1e-6, atol=TOLERANCE, err_msg=name)
            compared.append(name)
    assert len(compared) == len(expected)


@pytest.mark.parametrize("name", RECORDS)
def test_outputs_equal_transformers(tmp_path, name):
    path = write(tmp_path / "model", RECORDS[name])
    contents, report = read_model(str(path))
    assert not report.ignored
    assert_outputs_equal(build(contents)[0], RECORDS[name])


@pytest.mark.slow
def test_recorded_results_equal_transformers(tmp_path, monkeypatch):
    program = (
        "import json, sys; from pathlib import Path; from tests.huggingface import record_variants;"
        "print(json.dumps(record_variants.of_torch(Path(sys.argv[1]))))"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    command = [sys.executable, "-c", program, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    again = json.loads(done.stdout.splitlines()[-1])
    for name in OF_TORCH:
        record = RECORDS[f"torch/{name}"]
        assert again[name]["files"] == record["files"]
        for output, values in record["outputs"].items():
            found = again[name]["outputs"][output]
            np.testing.assert_allclose(found, values, rtol=0, atol=TOLERANCE)


def test_file_can_be_named(tmp_path):
    path = write(tmp_path / "model", RECORDS["tensorflow/tokens"])
    model = albert_tf.load(path / "tf_model.h5")
    assert_outputs_equal(model, RECORDS["tensorflow/tokens"])


class TestHdf5Files:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other["bias"] = np.ones(12, "f")
        (tmp_path / "other.raw").write_bytes(bytes(48))
        return write(tmp_path / "model", RECORDS["tensorflow/classifier"]) / "tf_model.h5"

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

    def test_damaged_files_are_rejected(self, path):
        content = path.read_bytes()
        for damaged in (content[:3000], b"", b"x" * 2048):
            path.write_bytes(damaged)
            with pytest.raises(LoadError, match=r"tf_model\.h5"):
                read_model(str(path.parent))

    def test_two_models_in_a_file_are_rejected(self, path):
        with h5py.File(path, "r+") as file:
            file["other/tf_albert_model/albert/embeddings/LayerNorm/beta:0"] = np.ones(8, "f")
            file["other/tf_albert_model/classifier/classifier/bias:0"] = np.ones(3, "f")
        with pytest.raises(LoadError, match="twice"):
            read_model(str(path.parent))


class TestExactGelu:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        return write(tmp_path / "model", RECORDS["torch/exact_gelu"])

    def test_activation_is_written_back(self, path, tmp_path):
        contents, _ = read_model(str(path))
        assert contents.config.hidden_act == "gelu_exact"
        (tmp_path / "written").mkdir()
        huggingface.write(str(tmp_path / "written"), contents)
        written = json.loads((tmp_path / "written" / "config.json").read_text())
        assert written["hidden_act"] == "gelu"
        assert_outputs_equal(albert_tf.load(tmp_path / "written"), RECORDS["torch/exact_gelu"])

    @pytest.mark.parametrize(
        "format_name", ["original", pytest.param("tf2_hub", marks=pytest.mark.slow)]
    )
    def test_other_formats_keep_the_activation(self, path, tmp_path, format_name):
        model = albert_tf.load(path)
        target = tmp_path / format_name
        if format_name == "tf2_hub":  # stores no classifier
            albert_tf.save(model.encoder, target, format=format_name)
            found, expected = albert_tf.load(target), model.encoder
            np.testing.assert_allclose(
                outputs_of(found)["pooled_output"],
                outputs_of(expected)["pooled_output"],
                rtol=0,
                atol=TOLERANCE,
            )
        else:
            albert_tf.save(model, target, format=format_name)
            assert_outputs_equal(albert_tf.load(target), RECORDS["torch/exact_gelu"])
        config = json.loads(next(target.glob("**/albert_config.json")).read_text())
        assert config["hidden_act"] == "gelu_exact"

    def test_copied_configurations_are_not_confused(self, path, tmp_path, warnings):
        """ "gelu" is another function in each of the two files."""
        copy = tmp_path / "albert_config.json"
        copy.write_bytes((path / "config.json").read_bytes())
        with pytest.raises(ValueError, match=r"ambiguous.*model_type.*'gelu_exact'"):
            AlbertConfig.from_json_file(str(copy))
        assert huggingface.read_config(str(copy)).hidden_act == "gelu_exact"
        assert "gelu_new" in warnings.pop()  # the weights may belong to the original
        keys = {"vocab_size", "num_hidden_layers", "num_attention_heads", "num_hidden_groups"}
        values = json.loads(copy.read_text())
        original = {
            k: v for k, v in values.items() if k in keys or "size" in k or k == "hidden_act"
        }
        copy.write_text(json.dumps(original))
        assert AlbertConfig.from_json_file(str(copy)).hidden_act == "gelu"
        assert not warnings
        (path / "config.json").write_text(json.dumps({**original, "net_structure_type": 0}))
        assert huggingface.read(str(path)).config.hidden_act == "gelu_exact"
        (message,) = warnings
        assert "gelu_new" in message
