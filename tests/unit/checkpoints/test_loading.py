"""Tests for loading models from a path."""

import random
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints import loading
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.loading import read_model
from albert_tf.checkpoints.report import check_no_other_model
from albert_tf.checkpoints.stored_heads import head_in
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
)
from albert_tf.modeling.original_names import original_names
from tests.small_model import weights_of
from tests.unit.checkpoints.test_save import CONFIG, TASKS, make


def write_model(folder, model, config=CONFIG, task=None, prefix="", without=()):
    """Writes a model directory; returns the weights."""
    folder.mkdir(exist_ok=True)
    config.to_json_file(str(folder / "albert_config.json"))
    weights = {
        f"{prefix}{name}": value
        for name, value in weights_of(model).items()
        if not name.startswith(tuple(without) or "?")
    }
    write_checkpoint(str(folder / "model.ckpt-best"), weights, global_step=7)
    if task:
        task.write(str(folder))
    return weights


def test_scope_of_a_trained_module_is_ignored(tmp_path):
    """The original adds it if it trains a TF-Hub module."""
    weights = write_model(tmp_path, make("classes"), task=TASKS["classes"], prefix="module/")
    loaded = albert_tf.load(tmp_path)
    assert loaded.labels == TASKS["classes"].labels.names
    np.testing.assert_equal({f"module/{n}": v for n, v in weights_of(loaded).items()}, weights)


def test_infinite_weights_cause_one_warning(tmp_path, warnings):
    weights = write_model(tmp_path, make("classes"))
    weights |= {"output_weights": np.full((3, 12), np.nan, "f")}
    weights |= {"output_bias": np.array([0, np.inf, 1], "f")}
    write_checkpoint(str(tmp_path / "model.ckpt-best"), weights, global_step=7)
    albert_tf.load(tmp_path)
    (line,) = warnings
    assert str(tmp_path) in line
    assert "output_weights" in line
    assert "output_bias" in line
    assert "bert/" not in line


def test_single_score_is_a_regression_without_a_task(tmp_path):
    write_model(tmp_path, AlbertForMultipleChoice(CONFIG))
    assert type(albert_tf.load(tmp_path)) is AlbertForClassification


@pytest.mark.parametrize("kind", ["spans", "tokens", "pretraining", "encoder"])
def test_unused_pooler_may_be_missing(tmp_path, warnings, kind):
    """Other libraries omit it. The replacement is the same in every run."""
    weights = write_model(tmp_path, make(kind), task=TASKS.get(kind), without=["bert/pooler"])
    contents, report = read_model(str(tmp_path))
    assert report.missing == ["bert/pooler/dense/kernel", "bert/pooler/dense/bias"]
    loaded = original_names(albert_tf.load(tmp_path))
    for name, value in contents.weights.items():
        np.testing.assert_array_equal(loaded[name], value, err_msg=name)
        np.testing.assert_array_equal(loaded[name], weights.get(name, value), err_msg=name)
    assert 0.1 < contents.weights["bert/pooler/dense/kernel"].std() < 0.3  # initializer_range 0.2
    assert [line.partition(" has ")[2][:9] for line in warnings] == ["no pooler"] * 2 * (
        kind == "encoder"
    )


def test_half_of_a_pooler_is_rejected(tmp_path):
    write_model(tmp_path, make("encoder"), without=["bert/pooler/dense/bias"])
    with pytest.raises(LoadError, match="does not fill the encoder: 1 "):
        albert_tf.load(tmp_path)


def test_new_heads_get_a_new_pooler(tmp_path, warnings):
    write_model(tmp_path, make("pretraining"), without=["bert/pooler"])
    model = AlbertForClassification.load(tmp_path, labels=["yes", "no"])
    assert model.has_new_head
    assert "has no pooler" in warnings[0]
    assert "output_weights" in warnings[1]
    model = AlbertForPretraining(CONFIG)
    report = loading.load_weights(model, str(tmp_path))
    assert len(report.missing) == 4
    with pytest.raises(LoadError, match="not contain all weights"):
        report.check_complete()
    write_model(tmp_path, make("classes"), task=None, without=["bert/pooler"])
    model = AlbertForClassification.load(tmp_path, labels=["yes", "no"], new_head=True)
    assert model.labels == ("yes", "no")


def test_only_new_weights_get_random_values(tmp_path, monkeypatch):
    """Random values of large models take seconds to compute."""
    write_model(tmp_path, make("pretraining"))
    computed, initialize = [], keras.initializers.TruncatedNormal.__call__

    def record(self, shape, dtype=None):
        computed.append(tuple(shape))
        return initialize(self, shape, dtype)

    random.seed(5)
    usual = AlbertForClassification(CONFIG, labels=["yes", "no"])
    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", record)
    random.seed(5)
    model = AlbertForClassification.load(tmp_path, labels=["yes", "no"])
    assert computed == [(2, 12)]
    np.testing.assert_array_equal(model.classifier.output_weights, usual.classifier.output_weights)
    albert_tf.load(tmp_path)
    albert_tf.AlbertEncoder.load(tmp_path)
    assert len(computed) == 1


@pytest.mark.parametrize(
    "make_model", [lambda: make("classes"), lambda: AlbertForPretraining(CONFIG)]
)
def test_missing_used_pooler_is_rejected(tmp_path, make_model):
    write_model(tmp_path, make_model(), without=["bert/pooler"])
    with pytest.raises(LoadError, match=r"(?s)does not fill the encoder: 2 .*bert/pooler"):
        albert_tf.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "without"),
    [
        ("pretraining", "cls/predictions/output_bias"),
        ("classes", "output_bias"),
        ("beams", "answer_class/dense_1/kernel"),
    ],
)
def test_incomplete_heads_are_rejected(tmp_path, kind, without):
    write_model(tmp_path, make(kind), task=TASKS.get(kind), without=[without])
    for read in (albert_tf.load, lambda path: read_model(str(path))):
        with pytest.raises(LoadError, match=rf"(?s)incomplete head.*initialized: {without}"):
            read(tmp_path)


def test_head_of_another_vocabulary_is_rejected(tmp_path):
    weights = write_model(tmp_path, make("pretraining"))
    weights["cls/predictions/output_bias"] = weights["cls/predictions/output_bias"][:-1]
    write_checkpoint(str(tmp_path / "model.ckpt-best"), weights, global_step=7)
    with pytest.raises(LoadError, match=r"output_bias is \[30\] in the checkpoint, but \[31\] in"):
        albert_tf.load(tmp_path)


def test_loading_opens_weights_once_and_builds_one_model(hub, monkeypatch):
    """A second copy of the largest released model would need another gigabyte."""
    calls = []
    for module, name in ((loading, "empty_model"), (tf.train, "load_checkpoint")):
        function = getattr(module, name)

        def counted(*args, function=function, name=name, **kwargs):
            calls.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)
    albert_tf.load(hub / "albert_directory")
    assert sorted(calls) == ["empty_model", "load_checkpoint"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_groups": 2}, r"does not fill the encoder"),
        (
            {"type_vocab_size": 3},
            r"token_type_embeddings is \[2, 8\] in the checkpoint, but \[3, 8\]",
        ),
    ],
)
def test_contradicting_configurations_are_rejected(release, changes, message):
    path = release / "albert_config.json"
    albert_tf.AlbertConfig.from_json_file(str(path)).replace(**changes).to_json_file(str(path))
    with pytest.raises(ValueError, match=rf"(?s){message}"):
        albert_tf.load(release)


def test_missing_configuration_must_be_passed(release, tmp_path):
    config = shutil.move(release / "albert_config.json", tmp_path / "config.json")
    with pytest.raises(ValueError, match=r"albert_directory contain no albert_config.json"):
        albert_tf.load(release)
    model = albert_tf.load(release, albert_config_file=str(config))
    assert type(model) is AlbertForPretraining


BLOCK = "bert/encoder/transformer/group_0/inner_group_0"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{BLOCK}/layer_normalization_1/gamma", "TensorFlow 2"),
        ("bert/encoder/layer_0/attention/self/query/kernel", "BERT"),
        ("encoder.layer.0.attention.self.query.weight", "BERT"),
        ("bert/encoder/layer_shared/attention/self/query/kernel", "albert_zh"),
        ("electra/encoder/layer_0/attention/self/query/kernel", "ELECTRA"),
        ("roberta.encoder.layer.0.attention.self.query.weight", "RoBERTa"),
        ("distilbert.transformer.layer.0.attention.q_lin.weight", "DistilBERT"),
        ("model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE", "object-based"),
        ("albert.encoder.query.lora_A.default.weight", "LoRA"),
    ],
)
def test_other_models_are_named(tmp_path, name, message):
    with pytest.raises(LoadError, match=message):
        check_no_other_model("model.ckpt", ["bert/pooler/dense/bias", name])
    if "TensorFlow" in message:
        weights = write_model(tmp_path, make("encoder"), without=["bert/encoder"])
        write_checkpoint(str(tmp_path / "model.ckpt-best"), {**weights, name: np.ones(2)}, 7)
        for _ in range(2):  # with and without a configuration
            with pytest.raises(LoadError, match=message):
                albert_tf.load(tmp_path)
            (tmp_path / "albert_config.json").unlink(missing_ok=True)


def test_paths_of_tokenizers(hub, release):
    folder = hub / "albert_directory"
    tokens = albert_tf.load_tokenizer(folder).tokens
    for path in (hub / "module", folder / "model.ckpt-best", folder / "30k-clean.model"):
        assert albert_tf.load_tokenizer(path).tokens == tokens
    assert albert_tf.load_tokenizer(spm_model_file=folder / "30k-clean.model").tokens == tokens
    assert albert_tf.load_tokenizer(folder, do_lower_case=False).do_lower_case is False
    with pytest.raises(ValueError, match="not both"):
        albert_tf.load_tokenizer(folder, vocab_file="vocab.txt")
    for name in ("30k-clean.model", "30k-clean.vocab"):
        (release / name).unlink()
    with pytest.raises(ValueError, match="no tokenizer in the model"):
        albert_tf.load_tokenizer(release)


def test_heads_are_detected_by_whole_names():
    """A custom variable whose name begins like the classifier's is not a classifier."""
    shapes = {"cls/predictions/output_bias": [31], "output_weights_of_mine": [3, 12]}
    assert head_in(shapes, None).model_class is AlbertForPretraining
    assert head_in({**shapes, "output_weights": [3, 12]}, None).model_class is (
        AlbertForClassification
    )
