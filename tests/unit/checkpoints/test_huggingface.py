"""Tests for Hugging Face directories in both directions, compared with results of transformers.

The results are recorded (tests/huggingface); a slow test compares them with the library.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import albert_tf
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.formats.choose import stored_task
from albert_tf.checkpoints.formats.huggingface.weights import hugging_face_name
from albert_tf.checkpoints.loading import build, read_model
from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import classification_loss
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.changed_json import change_json
from tests.huggingface import models
from tests.huggingface.record import record_of, run_peer
from tests.huggingface.values import NO_LABEL, token_labels
from tests.small_model import encoder_inputs
from tests.usual import usual

TOLERANCE = 1e-5
# Their files and tasks are tested for every model, and their heads with "classifier".
REPEATED = {"regression", "tokens"}
RECORD = json.loads((models.RECORDED / "models.json").read_text())


@pytest.fixture(scope="module")
def outputs() -> dict[str, np.ndarray]:
    """Returns the results of transformers by `<side>/<model>/<output>`."""
    with np.load(models.RECORDED / "outputs.npz") as file:
        return dict(file)


def of_model(outputs: dict[str, np.ndarray], model: str) -> dict[str, np.ndarray]:
    return {
        name.rpartition("/")[2]: value
        for name, value in outputs.items()
        if name.startswith(f"{model}/")
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Writes models with this package, and models as transformers stored them."""
    folder = tmp_path_factory.mktemp("huggingface")
    models.write_ours(folder)
    models.write_theirs(folder, RECORD)
    return folder


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> Path:
    """Runs transformers."""
    folder = tmp_path_factory.mktemp("transformers")
    run_peer(folder)
    return folder


@pytest.mark.slow
def test_recorded_results_equal_transformers(live, outputs):
    again = record_of(live)
    assert again["ours"] == RECORD["ours"]
    assert again["theirs"].keys() == RECORD["theirs"].keys()
    for name, model in RECORD["theirs"].items():
        assert again["theirs"][name]["tensors"] == model["tensors"]
    with np.load(live / "outputs.npz") as file:
        assert set(file) == set(outputs)
        for name, value in file.items():
            np.testing.assert_allclose(value, outputs[name], rtol=0, atol=TOLERANCE, err_msg=name)
    for name in ("tokenizers.json", "rules.json"):
        found, recorded = ((place / name).read_text() for place in (live, models.RECORDED))
        assert json.loads(found) == json.loads(recorded)


@pytest.mark.parametrize("name", usual(models.OURS, *models.OURS.keys() - REPEATED))
def test_transformers_computes_outputs_of_written_models(outputs, name):
    model, _ = build(models.ours(name))
    models.assert_outputs_equal(model, encoder_inputs(), of_model(outputs, f"ours/{name}"))


def test_loss_and_gradients_equal_transformers(outputs):
    inputs, contents = encoder_inputs(), models.ours("tokens")
    labels = token_labels(inputs["input_mask"].numpy())
    variables = original_names(model := build(contents)[0])
    with tf.GradientTape() as tape:
        tape.watch([variable.value for variable in variables.values()])
        loss = classification_loss(
            model(inputs)["logits"],
            tf.constant(np.maximum(labels, 0), tf.int32),
            tf.constant(labels != NO_LABEL, tf.float32),
        ).mean()
    found = tape.gradient(loss, {name: v.value for name, v in variables.items()})
    np.testing.assert_allclose(loss, outputs["gradients/loss"], rtol=0, atol=TOLERANCE)
    compared = 0
    for name, gradient in found.items():
        there = outputs.get(f"gradients/{hugging_face_name(name, has_heads=True)}")
        assert (there is None) == (gradient is None) == ("pooler" in name), name
        if there is not None:
            there = there.T if name.endswith("kernel") else there
            np.testing.assert_allclose(
                tf.convert_to_tensor(gradient), there, rtol=0, atol=TOLERANCE, err_msg=name
            )
            compared += 1
    assert compared == sum(name.startswith("gradients/") for name in outputs) - 1


@pytest.mark.parametrize("name", RECORD["ours"])
def test_written_files_are_those_that_transformers_read(folder, name):
    # If the format changes on purpose, run `python -m tests.huggingface.record`.
    assert models.digest(folder / name) == RECORD["ours"][name]


@pytest.mark.parametrize("name", usual(RECORD["theirs"], *RECORD["theirs"].keys() - REPEATED))
def test_outputs_of_models_of_transformers(folder, outputs, name):
    contents, report = read_model(str(folder / "theirs" / name))
    assert not report.ignored
    assert set(report.missing) <= {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    expected = of_model(outputs, f"theirs/{name}")
    models.assert_outputs_equal(build(contents)[0], encoder_inputs(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["half", "bfloat16", "shards", "torch", "torch_old"])
def test_storage_formats(live, name):
    exact, _ = read_model(str(live / "theirs" / "pretraining"))
    stored, report = read_model(str(live / "theirs" / f"pretraining_{name}"))
    assert not report.ignored
    rounding = {"half": 2**-11, "bfloat16": 2**-8}.get(name, 0.0)
    for variable, value in exact.weights.items():
        assert stored.weights[variable].dtype == np.float32
        np.testing.assert_allclose(stored.weights[variable], value, rounding, 1e-7 * bool(rounding))


def test_tasks_are_written_and_read(folder, tmp_path):
    for name, (_, _, task) in models.OURS.items():
        path = shutil.copytree(folder / "ours" / name, tmp_path / name)
        assert huggingface.read(str(path)).task == task
        (path / "labels.json").unlink(missing_ok=True)
        without_file = huggingface.read(str(path)).task
        assert (without_file and without_file.name) == (task and task.name)
        assert (without_file and without_file.labels) == (task and task.labels)
    assert huggingface.read(str(folder / "theirs" / "classifier")).task == models.MNLI
    config = json.loads((folder / "ours" / "regression" / "config.json").read_text())
    assert config["problem_type"] == "regression"


def test_unnamed_task_gets_the_name_of_a_text_task(folder, tmp_path):
    path = shutil.copytree(folder / "theirs" / "classifier", tmp_path / "texts")
    change_json(path / "config.json", finetuning_task=None)
    names = {name: stored_task(str(path / models.WEIGHTS), name).name for name in ("rte", "tokens")}
    assert names == {"rte": "rte", "tokens": "custom"}


def test_untied_masked_lm_head_is_rejected(folder, tmp_path):
    path = shutil.copytree(folder / "theirs" / "pretraining", tmp_path / "untied")
    tensors = load_file(path / models.WEIGHTS)
    words = tensors["albert.embeddings.word_embeddings.weight"]
    tensors["predictions.decoder.weight"] = words + 1
    save_file(tensors, path / models.WEIGHTS, {"format": "pt"})
    with pytest.raises(LoadError, match=r"decoder\.weight"):
        read_model(str(path))


@pytest.mark.parametrize("tokenizer_name", models.TOKENIZERS)
def test_tokenizer_saved_by_transformers_is_read(
    folder, golden, tokenizer_name, tmp_path, monkeypatch
):
    """Version 5 saves only a tokenizer.json. AutoTokenizer returns the ids of this package."""
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))
    file = golden / "tokenizer" / models.TOKENIZERS[tokenizer_name]
    tokenizer = tokenizer_from_files(spm_model_file=file)
    found = json.loads((models.RECORDED / "tokenizers.json").read_text())[tokenizer_name]
    assert found["singles"][:-1] == [tokenizer.encode(text) for text in models.TEXTS]
    differs = found["singles"][-1] != tokenizer.encode(models.DIGIT_COMMA)
    assert differs == (tokenizer_name == "english")
    first, second = (tokenizer.encode(text) for text in models.TEXTS[:2])
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert found["pair"]["input_ids"] == [cls, *first, sep, *second, sep]
    assert found["pair"]["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    saved = tmp_path / "saved"
    saved.mkdir()
    files = RECORD["saved_tokenizers"][tokenizer_name]
    assert files.keys() == {"tokenizer.json", "tokenizer_config.json"}
    for name, content in files.items():
        if content is None:  # equal to the written file
            shutil.copy(folder / "tokenizers" / tokenizer_name / name, saved)
        else:
            (saved / name).write_text(json.dumps(content))
    for name in ("config.json", models.WEIGHTS):
        shutil.copy(folder / "ours" / "encoder" / name, saved)
    stored = huggingface.read(str(saved))
    assert stored.do_lower_case is True
    again = tokenizer_from_files(spm_model_file=stored.stored_tokenizer.files[0])
    assert again.tokens == tokenizer.tokens
    texts = models.TEXTS
    assert [again.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]
    (saved / "tokenizer_config.json").unlink()
    assert huggingface.read(str(saved)).do_lower_case is True


class TestExactGelu:
    @pytest.fixture
    def path(self, folder, tmp_path) -> Path:
        return shutil.copytree(folder / "theirs" / "exact_gelu", tmp_path / "model")

    @pytest.mark.parametrize(
        "format_name", ["original", "huggingface", pytest.param("tf2_hub", marks=pytest.mark.slow)]
    )
    def test_formats_keep_the_activation(self, path, tmp_path, outputs, format_name):
        model = albert_tf.load(path)
        target = tmp_path / format_name
        if format_name == "tf2_hub":  # stores no classifier
            albert_tf.save(model.encoder, target, format=format_name)
            found, model = albert_tf.load(target), model.encoder
            pooled = [m(encoder_inputs())["pooled_output"] for m in (found, model)]
            np.testing.assert_allclose(*pooled, rtol=0, atol=TOLERANCE)
        else:
            albert_tf.save(model, target, format=format_name)
            expected = of_model(outputs, "theirs/exact_gelu")
            models.assert_outputs_equal(albert_tf.load(target), encoder_inputs(), expected)
        config = json.loads(next(target.glob("**/*config.json")).read_text())
        name = "gelu" if format_name == "huggingface" else "gelu_exact"
        assert (model.config.hidden_act, config["hidden_act"]) == ("gelu_exact", name)

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
