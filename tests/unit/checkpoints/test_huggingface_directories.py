"""Tests for directories of transformers as other programs write them.

They are changed copies of recorded models (tests/huggingface), so the outputs must stay the same.
"""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import albert_tf
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.choose import open_model, open_weights, stored_task
from albert_tf.checkpoints.loading import build_kind, read_model
from albert_tf.checkpoints.stored_heads import head_in
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.labels import Labels
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForTokenClassification,
)
from albert_tf.tools.inspect import describe
from tests.huggingface import models
from tests.small_model import encoder_inputs
from tests.usual import usual

RECORD = json.loads((models.RECORDED / "models.json").read_text())
TAGS = ("O", "B-PER", "I-PER")
NOUNS = ("NOUN", "VERB", "ADJ")
POOLER = {
    "albert.pooler.weight": np.ones((12, 12), "f"),
    "albert.pooler.bias": np.ones(12, "f"),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    models.write_theirs(folder, RECORD)
    return folder / "theirs"


@pytest.fixture
def variant(theirs, tmp_path):
    """Returns a function that writes a changed copy of a recorded model."""

    def write(name, names=None, extra=(), rename=str, **values) -> Path:
        path = shutil.copytree(theirs / name, tmp_path / name, dirs_exist_ok=True)
        content = {**json.loads((path / "config.json").read_text()), **values}
        if names:
            content["id2label"] = dict(enumerate(names))
        (path / "config.json").write_text(json.dumps(content))
        tensors = {**load_file(path / models.WEIGHTS), **dict(extra)}
        renamed = {rename(name): value for name, value in tensors.items()}
        save_file(renamed, path / models.WEIGHTS, {"format": "pt"})
        return path

    return write


def assert_same_weights(path, original) -> None:
    np.testing.assert_equal(dict(open_weights(str(path))), dict(open_weights(str(original))))


def class_of(path) -> type:
    """Returns the class of the model that `load` builds."""
    stored = open_model(str(path))
    return head_in(stored.weights.shapes, stored.task).model_class


@pytest.mark.parametrize(
    ("prefix", "names", "extra"), [("TF", NOUNS, POOLER), ("Flax", TAGS, POOLER), ("", None, {})]
)
def test_classifiers_of_tokens_are_detected(variant, prefix, names, extra):
    architectures = [f"{prefix}AlbertForTokenClassification"]
    path = variant("tokens", names, extra, architectures=architectures)
    labels = names or ("LABEL_0", "LABEL_1", "LABEL_2")
    task = StoredTask("tokens", Labels(labels), False)
    assert open_model(str(path)).task == stored_task(str(path / models.WEIGHTS)) == task
    assert class_of(path) is AlbertForTokenClassification


@pytest.mark.parametrize(
    ("name", "extra", "architecture", "kind"),
    [
        ("tokens", POOLER, "AlbertSoftmaxForNer", AlbertForTokenClassification),
        ("tokens", {}, "AlbertModel", AlbertForTokenClassification),
        ("classifier", {}, "TFAlbertForSequenceClassification", AlbertForClassification),
        ("classifier", {}, None, AlbertForClassification),
    ],
)
def test_outputs_of_other_classes(variant, name, extra, architecture, kind):
    path = variant(name, NOUNS, extra, architectures=architecture and [architecture])
    with np.load(models.RECORDED / "outputs.npz") as file:
        expected = file[f"theirs/{name}/logits"]
    model = kind.load(path)
    assert (model.labels, model.has_new_head) == (NOUNS, False)
    logits = model(encoder_inputs())["logits"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_other_heads_of_other_classes(variant):
    for name, kind in (
        ("questions", AlbertForQuestionAnswering),
        ("masked_lm", albert_tf.AlbertForPretraining),
        ("encoder", albert_tf.AlbertEncoder),
    ):
        assert class_of(variant(name, architectures=["AlbertForNer"])) is kind


@pytest.mark.parametrize("architectures", usual([None, ["MyModel"], ["AlbertForMaskedLM"]], None))
def test_unclear_classifiers_are_omitted_without_a_class(variant, warnings, architectures):
    path = variant("classifier", NOUNS, architectures=architectures)
    loaded = albert_tf.load(path)
    assert type(loaded) is albert_tf.AlbertEncoder
    assert loaded.trained_task is None
    (line,) = warnings
    assert "TextClassifier, TokenClassifier or MultipleChoice" in line
    stored, _ = read_model(str(path))
    assert stored.task is None
    assert not any(name.startswith("output_") for name in stored.weights)
    assert "Parameters of AlbertEncoder" in list(describe(str(path)))
    with pytest.raises(ValueError, match=r"a trained model.*architectures"):
        build_kind(open_model(str(path)), (AlbertForClassification,), "a trained model")
    for name in ("tokens", "rte"):
        task = stored_task(str(path / models.WEIGHTS), name)
        assert (task.name, task.labels.names) == (name, NOUNS)


def test_unclear_classifiers_are_loaded_by_a_class(variant):
    stored = open_model(str(variant("classifier", NOUNS, architectures=None)))
    model = build_kind(stored, AlbertForTokenClassification, "a model that classifies tokens")
    assert model.trained_task == StoredTask("tokens", Labels(NOUNS), None)
    with pytest.raises(ValueError, match="a multiple-choice model"):
        build_kind(stored, AlbertForMultipleChoice, "a multiple-choice model")

    path = variant("choice", architectures=["AlbertForMultipleChoiceSwag"])
    assert type(albert_tf.load(path)) is albert_tf.AlbertEncoder
    assert AlbertForClassification.load(path).num_labels == 1
    model = AlbertForMultipleChoice.load(path)
    assert model.trained_task == StoredTask("race")
    assert not model.has_new_head


@pytest.mark.parametrize(
    ("name", "rename"),
    [
        ("tokens", "module.{}".format),
        ("classifier", "model.{}".format),
        ("masked_lm", "_orig_mod.module.{}".format),
        ("encoder", "albert.{}".format),
        ("encoder", "net.backbone.{}".format),
        ("tokens", lambda name: name.replace("albert.", "bert.", 1)),
        ("questions", lambda name: "module." + name.replace("albert.", "model.encoder.", 1)),
    ],
)
def test_prefixes_are_removed(variant, theirs, name, rename):
    assert_same_weights(variant(name, rename=rename), theirs / name)


def test_several_encoders_are_rejected_and_unused_weights_named(variant, warnings):
    words = {"a.embeddings.word_embeddings.weight": np.ones((31, 8), "f")}
    path = variant("encoder", extra=words, rename=lambda n: n if n.startswith("a.") else f"b.{n}")
    with pytest.raises(LoadError, match=r"no variable of this model.*a\.embeddings.*b\.embeddings"):
        albert_tf.load(path)
    extra = {"crf.transitions": np.ones((3, 3), "f"), "start_fc.bias": np.ones(2, "f")}
    AlbertForTokenClassification.load(
        variant("tokens", TAGS, extra, architectures=["AlbertCrfForNer"])
    )
    (line,) = warnings
    assert "'crf.transitions', 'start_fc.bias'" in line


def test_configuration_of_the_original_is_read(variant, theirs):
    path = variant("masked_lm")
    config = open_model(str(path)).config
    (path / "config.json").unlink()
    config.to_json_file(str(path / "albert_config.json"))
    assert_same_weights(path, theirs / "masked_lm")
    assert open_model(str(path)).config == config  # "gelu" is the tanh approximation


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["checkpoint-500/model.safetensors", "checkpoint-1000/pytorch_model.bin"], "0, .*-1000"),
        (["0_Transformer/pytorch_model.bin", "config.json", "modules.json"], "/0_Transformer"),
        (["snapshots/abc/model.safetensors"], "snapshots/abc"),
        (["run/model.ckpt-7.index"], "/run"),
        (["adapter_config.json", "adapter_model.safetensors"], "PEFT.*merge_and_unload"),
        (["adapter_model.bin"], "PEFT.*merge_and_unload"),
        (["model.onnx"], "ONNX.*exported from"),
        (["onnx/model.onnx", "onnx/config.json"], "ONNX.*exported from"),
        (["flax_model.msgpack"], "Flax.*from_flax"),
        (["albert.Q8_0.gguf"], "llama.cpp"),
        (["openvino_model.bin", "openvino_model.xml"], "OpenVINO"),
        (["training_args.bin", "optimizer.pt", "best.pt"], r"best\.pt.*pytorch_model\.bin"),
        (["last.ckpt"], r"last\.ckpt.*pytorch_model\.bin"),
        (["model.fp16.safetensors"], r"fp16.*model\.safetensors"),
    ],
)
@pytest.mark.parametrize("has_config", [False, True])
def test_other_files_are_explained(tmp_path, files, message, has_config):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / file).write_text("{}" if file.endswith("json") else "x")
    if has_config:
        config = {"model_type": "albert", "num_hidden_layers": 2, "num_attention_heads": 64}
        (tmp_path / "config.json").write_text(json.dumps(config))
    is_described = files[0].endswith(".onnx")  # as a file
    is_directory = "/" in files[0] or has_config or is_described
    paths = [tmp_path] if is_directory else [tmp_path, tmp_path / files[-1]]
    for path in paths:
        with pytest.raises(LoadError, match=f"(?s){message}"):
            list(describe(str(path)))


@pytest.mark.slow
class TestTorch:
    @pytest.fixture
    def write(self, variant, theirs):
        """Returns a function that stores the weights of the token classifier in a checkpoint."""
        import torch

        path = variant("tokens", NOUNS)
        (path / models.WEIGHTS).unlink()
        tensors = load_file(theirs / "tokens" / models.WEIGHTS)
        tensors = {name: torch.from_numpy(value) for name, value in tensors.items()}

        def write(content_of):
            torch.save(content_of(tensors), path / "pytorch_model.bin")
            return path

        return write

    def test_nested_dictionaries(self, write, theirs):
        import torch

        def checkpoint(tensors):
            moments = {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": []}
            return {
                "optimizer": moments,
                "score": np.float64(0.3),
                "best": torch.tensor(0.5),
                "args": Namespace(learning_rate=1e-3),
                "state_dict": {f"module.{name}": value for name, value in tensors.items()},
            }

        assert_same_weights(write(checkpoint), theirs / "tokens")
        for content_of in (lambda t: {"model": t, "ema": t}, lambda t: {"epoch": 3}):
            with pytest.raises(LoadError, match="weights of one model"):
                albert_tf.load(write(content_of))

    def test_pickled_models_are_rejected_without_running_them(self, write):
        import torch

        class Unpickled(torch.nn.Linear):
            def __setstate__(self, state):
                raise AssertionError("code of the class was run")

        Unpickled.__qualname__ = "Unpickled"
        globals()["Unpickled"] = Unpickled
        with pytest.raises(LoadError, match=r"model\.state_dict\(\)"):
            albert_tf.load(write(lambda tensors: {"model": Unpickled(3, 2), "epoch": 3}))
