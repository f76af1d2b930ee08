"""Tests for `save` and `load` of classes: stored heads, new heads, and errors."""

import logging
import os
from functools import cache

import keras
import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.labels import Labels
from tests.small_model import ONE_BLOCK, encoder_inputs, pretraining_inputs, small_config
from tests.usual import usual

CONFIG = small_config(**ONE_BLOCK)
HEADS = {
    "classes": (albert_tf.AlbertForClassification, {"labels": ["no", "maybe", "yes"]}),
    "number": (albert_tf.AlbertForClassification, {"num_labels": 1}),
    "tokens": (albert_tf.AlbertForTokenClassification, {"labels": ["O", "B-PER", "I-PER"]}),
    "choices": (albert_tf.AlbertForMultipleChoice, {}),
    "spans": (albert_tf.AlbertForQuestionAnswering, {}),
    "beams": (
        albert_tf.AlbertForQuestionAnsweringWithBeamSearch,
        {"start_n_top": 3, "end_n_top": 2},
    ),
    "pretraining": (albert_tf.AlbertForPretraining, {"has_sentence_order_head": False}),
    "encoder": (albert_tf.AlbertEncoder, {}),
}
TASKS = {
    "classes": StoredTask("custom", Labels(("no", "maybe", "yes")), None, max_seq_length=9),
    "number": StoredTask("custom", Labels(), None, max_seq_length=9),
    "tokens": StoredTask("tokens", Labels(("O", "B-PER", "I-PER")), False, max_seq_length=9),
    "choices": StoredTask("race", max_seq_length=9),
    "spans": StoredTask("squad1.1", max_seq_length=9),
    "beams": StoredTask("squad2.0", max_seq_length=9, settings={"start_n_top": 3, "end_n_top": 2}),
}


@cache
def make(name):
    """Creates a model once, with other values than new models. Tests do not change it."""
    kind, settings = HEADS[name]
    model = kind(CONFIG, **settings)
    model.set_weights([weights + 0.1 for weights in model.get_weights()])
    return model


def outputs(model, name):
    return model(pretraining_inputs() if name == "pretraining" else encoder_inputs())


def same_outputs(one, other, name):
    expected = outputs(other, name)
    for key, values in outputs(one, name).items():
        np.testing.assert_array_equal(values, expected[key], err_msg=key)


@pytest.mark.parametrize("name", usual(HEADS, "encoder", "pretraining", "classes", "beams"))
def test_saved_models_are_loaded(name, tmp_path, caplog):
    model = make(name)
    albert_tf.save(model, tmp_path / "saved", max_seq_length=9)
    caplog.clear()
    for again in (albert_tf.load(tmp_path / "saved"), type(model).load(tmp_path / "saved")):
        assert type(again) is type(model)
        same_outputs(again, model, name)
        assert again.trained_task == TASKS.get(name)
        settings = set(model.SETTINGS) - {"config"}
        assert {key: getattr(again, key) for key in settings} == {
            key: getattr(model, key) for key in settings
        }
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_subclasses_are_saved_and_loaded(tmp_path):
    parent, settings = HEADS["tokens"]
    extended = type("Extended", (parent,), {})
    model = extended(CONFIG, **settings)
    albert_tf.save(model, path := tmp_path / "saved", max_seq_length=9)
    for kind, again in ((parent, albert_tf.load(path)), (extended, extended.load(path))):
        assert type(again) is kind
        same_outputs(again, model, "tokens")
        assert again.trained_task == TASKS["tokens"]


def test_new_heads_are_logged(tmp_path, caplog):
    encoder = make("encoder")
    albert_tf.save(encoder, tmp_path / "encoder")
    for name, (kind, settings) in HEADS.items():
        caplog.clear()
        model = kind.load(tmp_path / "encoder", **settings)
        same_outputs(getattr(model, "encoder", model), encoder, "encoder")
        logged = [r for r in caplog.records if "random until they are trained" in r.message]
        assert len(logged) == (name != "encoder")
        assert model.trained_task is None


def test_model_of_a_killed_replacement_is_found(tmp_path, caplog):
    """A process was killed after it had renamed the former directory."""
    directory, model = tmp_path / "model", make("encoder")
    model_files = set()
    for overwrite in (False, True, True):  # the last one finishes the work of the killed process
        albert_tf.save(model, directory, overwrite=overwrite)
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
        model_files = model_files or {*os.listdir(directory)}
        assert {*os.listdir(directory)} == model_files
        directory.rename(tmp_path / ".model.replaced")
        same_outputs(albert_tf.load(directory), model, "encoder")
        assert f"{tmp_path}/.model.replaced is used" in caplog.text
    with pytest.raises(ValueError, match=r"\.model\.replaced already exists"):
        albert_tf.save(model, directory)


def test_the_current_directory_is_not_replaced(tmp_path, monkeypatch):
    albert_tf.save(make("encoder"), tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    for path in (".", "../model"):
        with pytest.raises(ValueError, match="current directory"):
            albert_tf.save(make("encoder"), path, overwrite=True)
    assert os.listdir(".")


def test_directory_behind_a_link_is_replaced(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("model")
    for overwrite in (False, True):
        albert_tf.save(make("encoder"), link, overwrite=overwrite)
        assert link.is_symlink()
        assert {path.name for path in tmp_path.iterdir()} == {"link", "model"}


def test_other_labels_need_a_new_head(tmp_path):
    model = make("classes")
    albert_tf.save(model, tmp_path / "classes")
    kind = albert_tf.AlbertForClassification
    same_outputs(kind.load(tmp_path / "classes", labels=["no", "maybe", "yes"]), model, "classes")
    for labels in (["no", "yes", "maybe"], ["no", "yes"]):
        with pytest.raises(ValueError, match="new_head"):
            kind.load(tmp_path / "classes", labels=labels)
        other = kind.load(tmp_path / "classes", labels=labels, new_head=True)
        assert other.labels == tuple(labels)
        assert other.trained_task is None
        ours, theirs = (m.classifier.output_weights.numpy()[:2] for m in (other, model))
        assert (ours != theirs).any()
    assert kind.load(tmp_path / "classes", num_labels=1, new_head=True).num_labels == 1
    kept = kind.load(tmp_path / "classes", num_labels=3)
    same_outputs(kept, model, "classes")
    assert kept.labels == ("no", "maybe", "yes")
    kept.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").labels == kept.labels


@pytest.mark.parametrize(
    ("name", "kind"), [("classes", "tokens"), ("tokens", "classes"), ("choices", "classes")]
)
def test_heads_of_other_kinds_are_not_loaded(name, kind, tmp_path):
    model = make(name)
    albert_tf.save(model, tmp_path / "saved")
    before = model.classifier.output_weights.numpy()
    other = HEADS[kind][0].load(tmp_path / "saved", num_labels=len(before))
    assert other.has_new_head
    assert (other.classifier.output_weights.numpy() != before).any()


def test_tokenizer_is_saved(tmp_path):
    model = albert_tf.AlbertForClassification.load("mini", labels=["no", "yes"])
    texts = ["A short one.", "Another one, which is longer."]
    batch = model.tokenizer(texts)
    albert_tf.save(model, tmp_path / "kept", pairs=False)
    kept = albert_tf.load(tmp_path / "kept")
    np.testing.assert_array_equal(kept(kept.tokenizer(texts))["logits"], model(batch)["logits"])
    assert kept.trained_task.is_pair is False
    assert kept.trained_task.max_seq_length == kept.config.max_position_embeddings
    albert_tf.save(kept, tmp_path / "twice")
    assert albert_tf.load(tmp_path / "twice").trained_task == kept.trained_task


def test_unnamed_classes_get_names(tmp_path):
    model = albert_tf.AlbertForClassification(CONFIG, num_labels=2)
    albert_tf.save(model, tmp_path / "unnamed")
    named = albert_tf.AlbertForClassification.load(tmp_path / "unnamed", labels=["a", "b"])
    same_outputs(named, model, "classes")
    assert named.labels == ("a", "b")
    tokens = albert_tf.AlbertForTokenClassification(CONFIG, num_labels=3)
    albert_tf.save(tokens, tmp_path / "tokens")
    assert albert_tf.load(tmp_path / "tokens").labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ["a", "a"]}, "different texts"),
        ({"labels": ["a", "b"], "num_labels": 3}, r"num_labels=3.*'a'"),
        ({"num_labels": 2.5}, "num_labels must be|labels must be"),
        ({}, "needs labels"),
    ],
)
def test_invalid_labels_are_rejected(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        albert_tf.AlbertForClassification(CONFIG, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tokenizer": "mini"}, TypeError, "tokenizer`? must be"),
        ({"tokenizer": "too large"}, ValueError, "num_tokens is 31 in model.config, but 1000"),
        ({"max_seq_length": 2.5}, TypeError, "max_seq_length`? must be"),
        ({"max_seq_length": 4, "pairs": True}, ValueError, "max_seq_length`? must be"),
        ({"max_seq_length": 1000}, ValueError, "max_seq_length"),
        ({"directory": None}, TypeError, "directory`? must be"),
        ({"model": CONFIG}, TypeError, "model must be"),
    ],
)
def test_invalid_arguments_are_rejected_before_writing(
    arguments, error, message, tmp_path, tokenizer
):
    given = {"model": make("classes"), "directory": tmp_path / "new", **arguments}
    if given.get("tokenizer") == "too large":
        given["tokenizer"] = tokenizer
    with pytest.raises(error, match=message):
        albert_tf.save(**given)
    assert not [*tmp_path.iterdir()]
