"""Tests for Hugging Face directories and models that are rejected."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.formats.choose import stored_task
from albert_tf.checkpoints.formats.huggingface.tensors import open_tensors, write_safetensors
from albert_tf.checkpoints.loading import read_model
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.labels import Labels
from tests.changed_json import change_json
from tests.huggingface.models import our_contents
from tests.small_model import small_config

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def contents() -> StoredModel:
    return our_contents({}, {})


@pytest.fixture(scope="module")
def whole(contents, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole")
    assert huggingface.unsupported_weights(contents) == []
    huggingface.write(str(path), contents)
    return path


@pytest.fixture
def model(whole, tmp_path) -> Path:
    """Returns a copy to change."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def read(path: Path):
    return huggingface.read(str(path))


def tensors(path: Path) -> dict[str, np.ndarray]:
    file = open_tensors(str(path))
    return {name: file.get(name) for name in file.shapes}


CLASSIFIER = {"architectures": ["AlbertForSequenceClassification"]}
NAMED = {**CLASSIFIER, "id2label": {"1": "good", "0": "bad"}, "num_labels": 2}
SEVERAL = {"problem_type": "multi_label_classification"}
BAD_OR_GOOD = StoredTask("custom", Labels(("bad", "good")), is_pair=None)


def custom(*names, **settings) -> StoredTask:
    return StoredTask("custom", Labels(names, **settings), is_pair=None)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ({}, BAD_OR_GOOD),
        ({"finetuning_task": "sst2"}, StoredTask("sst-2", Labels(("bad", "good")), False)),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, None),
        (SEVERAL, custom("bad", "good", multi_label=True)),
        ({"problem_type": "regression"}, None),
        ({"id2label": {"0": "score"}}, custom()),
        ({"id2label": {"0": 3, "1": 4}}, custom("3", "4")),
        ({"id2label": None, "num_labels": 10**12}, None),
        ({"id2label": {"1": "x"}, "architectures": ["AlbertModel"]}, None),
        *(({"label2id": ids}, BAD_OR_GOOD) for ids in ({"bad": 0, "good": 1}, {"bad": "0"}, [3])),
        ({"label2id": {"LABEL_0": 0, "LABEL_1": 1}}, BAD_OR_GOOD),
    ],
)
def test_labels_of_the_configuration(model, values, task):
    change_json(model / "config.json", **{**NAMED, **values})
    assert read(model).task == task


INVALID_LABELS = [
    *({"id2label": dict.fromkeys(ids, "x")} for ids in ("02", "12", ["0", "x"], ["00", "1"])),
    *({"id2label": {"0": "a", "1": other}} for other in (["b"], None, True, "\ud800")),
    *({**NAMED, **SEVERAL, "multi_label_threshold": value} for value in (1.5, "high")),
    {**SEVERAL, "id2label": {"0": "a"}},
]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "model_type"),
        ({"model_type": None, "num_hidden_groups": None, "architectures": 5}, "model_type|whole"),
        ({"hidden_act": "silu"}, "hidden_act.*silu.*gelu_new"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps.*1e-12.*1e-05"),
        ({"hidden_size": 13}, "hidden_size"),
        ({"num_hidden_layers": 18, "num_hidden_groups": 14}, "num_hidden_groups"),
        *((values, "id2label|multi_label_classification") for values in INVALID_LABELS),
        *(({**NAMED, "label2id": {"good": i}}, "id2label, .* in label2id") for i in (0, 3, [1])),
    ],
)
def test_invalid_configurations_are_rejected(model, values, message):
    change_json(model / "config.json", **{**CLASSIFIER, **values})
    with pytest.raises(UserError, match=rf"config\.json.*({message})"):
        read(model)


def test_missing_sizes_have_the_defaults_of_transformers(model):
    """Sizes that the weights do not determine are required."""
    content = {"model_type": "albert", "num_hidden_layers": 12, "num_attention_heads": 64}
    path = model / "config.json"
    path.write_text(json.dumps(content))
    assert read(model).config == AlbertConfig(vocab_size=30000)
    for key in ("num_hidden_layers", "num_attention_heads"):
        path.write_text(json.dumps({k: v for k, v in content.items() if k != key}))
        with pytest.raises(LoadError, match=rf"config\.json.*{key}"):
            read(model)


def test_missing_and_repeated_weights_are_rejected(model):
    values, bias = tensors(model / WEIGHTS), "albert.pooler.bias"
    write_safetensors(str(model / WEIGHTS), {**values, bias: values["pooler.bias"]})
    with pytest.raises(LoadError, match="bert/pooler/dense/bias"):
        huggingface.open_weights(str(model / WEIGHTS))
    del values["embeddings.word_embeddings.weight"]
    write_safetensors(str(model / WEIGHTS), values)
    with pytest.raises(LoadError, match="bert/embeddings/word_embeddings"):
        read_model(str(model))
    (model / WEIGHTS).unlink()
    with pytest.raises(LoadError, match=WEIGHTS):
        read(model)


def write_tensor(folder: Path, name: str, kind: str, data: np.ndarray) -> str:
    """Writes a file with one tensor of any type."""
    header = {name: {"dtype": kind, "shape": data.shape, "data_offsets": [0, data.nbytes]}}
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data.tobytes())
    return str(folder / WEIGHTS)


def test_floating_point_types_are_read(tmp_path):
    numbers = np.array([[0.5, -2, 3], [3, -2, 0.5]])
    for kind, data in {
        **{
            kind: numbers.astype(f"<f{size}") for kind, size in (("F64", 8), ("F32", 4), ("F16", 2))
        },
        "BF16": numbers.astype("<f4").view("<u2")[:, 1::2],
    }.items():
        file = open_tensors(write_tensor(tmp_path, "a", kind, data))
        assert file.shapes == {"a": [2, 3]}
        assert file.get("a").dtype.kind == "f"
        np.testing.assert_array_equal(file.get("a"), numbers)
    for kind, message in (("F8_E4M3", "F8_E4M3"), ("I8", "int8")):
        path = write_tensor(tmp_path, "pooler.bias", kind, np.zeros(12, "i1"))
        with pytest.raises(LoadError, match=f"pooler.bias.*{message}"):
            _ = huggingface.open_weights(path)["bert/pooler/dense/bias"]


def test_views_and_remote_paths(tmp_path):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = {"turned": matrix.T, "part": matrix[:, 1], "one": np.float32(7.0)}
    remote = f"ram://{tmp_path.name}/{WEIGHTS}"
    for path in (str(tmp_path / WEIGHTS), remote):
        write_safetensors(path, values)
        file = open_tensors(path)
        for name, value in values.items():
            np.testing.assert_array_equal(file.get(name), value)
    (tmp_path / "other").touch()
    assert (tmp_path / WEIGHTS).stat().st_mode == (tmp_path / "other").stat().st_mode
    tf.io.gfile.remove(remote)
    with pytest.raises(LoadError, match=WEIGHTS):
        open_tensors(remote)


def test_names_of_the_first_versions_are_read(whole, model):
    old = tensors(model / WEIGHTS)
    for new, former in (("weight", "gamma"), ("bias", "beta")):
        pattern, target = rf"(?i)(layer_?norm)\.{new}$", rf"\1.{former}"
        old = {re.sub(pattern, target, name): value for name, value in old.items()}
    assert sum(name.endswith(("gamma", "beta")) for name in old) == 18
    old["embeddings.position_ids"] = np.arange(16.0)
    write_safetensors(str(model / WEIGHTS), old)
    found, report = read_model(str(model))
    assert not report.ignored
    np.testing.assert_equal(dict(found.weights), dict(read_model(str(whole))[0].weights))


def test_invalid_shards_and_missing_pytorch_are_rejected(model, monkeypatch):
    index = model / f"{WEIGHTS}.index.json"
    (model / WEIGHTS).rename(model / "model-00001-of-00002.safetensors")
    first = "model-00001-of-00002.safetensors"
    for file, error, message in (
        ("../x.safetensors", LoadError, r"x\.safetensors"),
        ("model-00002-of-00002.safetensors", LoadError, "model-00002-of-00002.safetensors"),
        (first, DamagedError, "'x'"),
        (index.name, LoadError, index.name),  # would be read for ever
    ):
        index.write_text(json.dumps({"weight_map": {"pooler.bias": first, "x": file}}))
        with pytest.raises(error, match=message):
            read(model)
    index.unlink()
    (model / first).rename(model / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LoadError, match="pip install torch"):
        read(model)


@pytest.mark.slow
def test_damaged_and_unsafe_pytorch_files_are_rejected(model):
    import torch

    (model / WEIGHTS).unlink()
    path = model / "pytorch_model.bin"
    torch.save({"pooler.bias": Path("x")}, path)
    code = path.read_bytes()
    for content in (code, b"", b"no file of PyTorch", b"PK\x03\x04" + bytes(50)):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"pytorch_model\.bin") as error:
            read(model)
        assert "\x1b" not in str(error.value)


def test_projection_of_equal_sizes_must_be_the_identity(tmp_path):
    huggingface.write(str(tmp_path), our_contents({}, {"embedding_size": 12}))
    values = tensors(tmp_path / WEIGHTS)
    name = "encoder.embedding_hidden_mapping_in.weight"
    np.testing.assert_array_equal(values[name], np.eye(12))
    write_safetensors(str(tmp_path / WEIGHTS), {**values, name: values[name] + 0.5})
    with pytest.raises(LoadError, match="embedding_size"):
        huggingface.open_weights(str(tmp_path / WEIGHTS))


def test_other_tokenizers_are_ignored(model, caplog):
    (model / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}}}')
    assert not read(model).stored_tokenizer.files
    assert str(model / "tokenizer.json") in caplog.text
    assert not read(model).tokenizer
    (model / "tokenizer.json").write_text('{"normalizer": "NFKD"}')
    assert "tokenizer.json" in read(model).stored_tokenizer.note


@pytest.mark.parametrize(
    "changes",
    [{"parameter_sharing": "attention"}, {"num_hidden_groups": 14, "num_hidden_layers": 18}],
)
def test_models_that_transformers_does_not_support_are_rejected(tmp_path, changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        huggingface.write(str(tmp_path), StoredModel.in_memory(small_config(**changes), {}))
    assert not list(tmp_path.iterdir())


def test_unsupported_weights_are_listed(contents, tmp_path):
    kernel = contents.weights["bert/pooler/dense/kernel"]
    extra = {"start_logits/dense/kernel": kernel, "bert/pooler/dense/kernel/adam_m": kernel}
    more = StoredModel.in_memory(contents.config, {**contents.weights, **extra})
    assert huggingface.unsupported_weights(more) == list(extra)
    huggingface.write(str(tmp_path), more)
    assert read(tmp_path).config == contents.config


def test_other_directories_are_not_detected_and_dropout_is_preserved(contents, tmp_path):
    assert not huggingface.is_here(str(tmp_path))
    (tmp_path / "config.json").write_text('{"class_name": "AlbertBackbone"}')
    assert not huggingface.is_here(str(tmp_path))
    config = contents.config.replace(extra={"classifier_dropout_prob": 0.3})
    huggingface.write(str(tmp_path), StoredModel.in_memory(config, contents.weights))
    assert json.loads((tmp_path / "config.json").read_text())["classifier_dropout_prob"] == 0.3
    assert read(tmp_path).config == config


def test_labels_of_both_files_are_read(model):
    BAD_OR_GOOD.write(str(model))
    change_json(model / "config.json", **NAMED)
    assert read(model).task == stored_task(str(model / WEIGHTS)) == BAD_OR_GOOD


def test_different_tokenizer_files_are_rejected(tokenizer, tmp_path, caplog):
    path = tmp_path / "model"
    path.mkdir()
    changes = {"vocab_size": tokenizer.vocab_size}
    huggingface.write(str(path), our_contents({}, changes, tokenizer=tokenizer))
    assert read_model(str(path))[0].tokenizer.tokens == tokenizer.tokens
    content = json.loads((path / "tokenizer.json").read_text())
    pieces = content["model"]["vocab"]
    pieces[500], pieces[501] = pieces[501], pieces[500]
    (path / "tokenizer.json").write_text(json.dumps(content))
    for action in (read_model, albert_tf.load, albert_tf.load_tokenizer):
        with pytest.raises(ValueError, match=r"(?s)spiece\.model.*tokenizer\.json"):
            action(str(path))
    spm_model_file = str(path / "spiece.model")
    chosen, _ = read_model(str(path), spm_model_file=spm_model_file)
    assert chosen.tokenizer.tokens == tokenizer.tokens
    (path / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}}}')
    assert albert_tf.load_tokenizer(path).tokens == tokenizer.tokens
    assert "tokenizer.json" in caplog.text
