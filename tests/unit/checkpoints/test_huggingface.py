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

from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.formats import open_weights, stored_task
from albert_tf.checkpoints.huggingface.weights import hugging_face_name
from albert_tf.checkpoints.loading import build, read_model
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.modeling.losses import classification_loss
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.huggingface import models
from tests.huggingface.record import record_of, run_peer
from tests.huggingface.values import NO_LABEL, token_labels
from tests.small_model import LENGTH, encoder_inputs

TOLERANCE = 1e-5
RECORD = json.loads((models.RECORDED / "models.json").read_text())
# Names of outputs in transformers.
NAMES = {
    "masked_lm_logits": ("prediction_logits", "logits"),
    "sentence_order_logits": ("sop_logits",),
    "logits": ("logits",),
    "start_logits": ("start_logits",),
    "end_logits": ("end_logits",),
    "sequence_output": ("last_hidden_state",),
    "pooled_output": ("pooler_output",),
}


def our_outputs(contents: StoredModel) -> dict[str, np.ndarray]:
    inputs = encoder_inputs()
    if contents.task and contents.task.name == "race":
        inputs = {name: value[None] for name, value in inputs.items()}
    if models.MASKED_LM.keys() <= contents.weights.keys():
        everywhere = tf.tile(tf.range(LENGTH)[None], [inputs["input_ids"].shape[0], 1])
        inputs["masked_lm_positions"] = everywhere
    return {
        name: np.asarray(value)
        for name, value in build(contents)[0](inputs).items()
        if name in NAMES
    }


def largest_difference(contents: StoredModel, theirs: dict[str, np.ndarray]) -> float:
    """Returns the largest difference of common outputs, at least one."""
    differences = []
    for name, value in our_outputs(contents).items():
        found = next((theirs[there] for there in NAMES[name] if there in theirs), None)
        if found is not None:
            differences.append(np.abs(value - found.reshape(value.shape)).max())
    assert differences, sorted(theirs)
    return max(differences)


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


@pytest.mark.parametrize("name", models.OURS)
def test_transformers_computes_outputs_of_written_models(outputs, name):
    assert largest_difference(models.ours(name), of_model(outputs, f"ours/{name}")) < TOLERANCE


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


@pytest.mark.parametrize("name", RECORD["theirs"])
def test_outputs_of_models_of_transformers(folder, outputs, name):
    contents, report = read_model(str(folder / "theirs" / name))
    assert not report.ignored
    assert set(report.missing) <= {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert largest_difference(contents, of_model(outputs, f"theirs/{name}")) < TOLERANCE


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


def test_shards_are_read(folder, tmp_path):
    path = shutil.copytree(folder / "theirs" / "pretraining", tmp_path / "shards")
    tensors = load_file(path / models.WEIGHTS)
    (path / models.WEIGHTS).unlink()
    weight_map = {}
    for number in range(3):
        shard = f"model-{number + 1:05}-of-00003.safetensors"
        names = sorted(tensors)[number::3]
        save_file({name: tensors[name] for name in names}, path / shard, {"format": "pt"})
        weight_map |= dict.fromkeys(names, shard)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (path / f"{models.WEIGHTS}.index.json").write_text(json.dumps(index))
    exact, stored = open_weights(str(folder / "theirs" / "pretraining")), open_weights(str(path))
    assert stored.shapes == exact.shapes
    for variable, value in exact.items():
        np.testing.assert_array_equal(stored[variable], value)


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
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "finetuning_task": None}))
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


@pytest.fixture(params=models.TOKENIZERS)
def tokenizer_name(request) -> str:
    return request.param


def our_tokenizer(golden, name):
    return tokenizer_from_files(spm_model_file=golden / "tokenizer" / models.TOKENIZERS[name])


def test_auto_tokenizer_returns_the_same_ids(golden, tokenizer_name):
    tokenizer = our_tokenizer(golden, tokenizer_name)
    found = json.loads((models.RECORDED / "tokenizers.json").read_text())[tokenizer_name]
    assert found["singles"][:-1] == [tokenizer.encode(text) for text in models.TEXTS]
    differs = found["singles"][-1] != tokenizer.encode(models.DIGIT_COMMA)
    assert differs == (tokenizer_name == "english")
    first, second = (tokenizer.encode(text) for text in models.TEXTS[:2])
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert found["pair"]["input_ids"] == [cls, *first, sep, *second, sep]
    assert found["pair"]["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)


def test_tokenizer_saved_by_transformers_is_read(
    folder, golden, tokenizer_name, tmp_path, monkeypatch
):
    """Version 5 saves only a tokenizer.json."""
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))
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
    tokenizer = our_tokenizer(golden, tokenizer_name)
    again = tokenizer_from_files(spm_model_file=stored.stored_tokenizer.files[0])
    assert again.tokens == tokenizer.tokens
    texts = models.TEXTS
    assert [again.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]
    (saved / "tokenizer_config.json").unlink()
    assert huggingface.read(str(saved)).do_lower_case is True
