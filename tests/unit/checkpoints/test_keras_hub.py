"""Tests for KerasHub presets in both directions, compared with the library."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats import keras_hub
from albert_tf.checkpoints.formats.huggingface.sentencepiece_messages import NORMAL, parse_model
from albert_tf.checkpoints.loading import load
from albert_tf.checkpoints.model_directory import with_vocabulary
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.labels import Labels
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForTokenClassification,
)
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.lazily import Lazily
from tests.small_model import ONE_BLOCK, pretraining_inputs, small_config, weights_of

models = Lazily("keras_hub.models")

TEXT = "the cat sat on the mat, and many people saw it."  # clean: KerasHub cleans nothing
LABELS = ("a", "b", "c", "d", "e")
SIZES = {
    "vocabulary_size": 31,
    "embedding_dim": 8,
    "hidden_dim": 12,
    "num_layers": 4,
    "num_groups": 2,
    "num_heads": 3,
    "intermediate_dim": 20,
    "num_inner_repetitions": 2,
    "max_sequence_length": 16,
    "num_segments": 5,
    "dropout": 0.25,
}
SHALLOW = {**SIZES, "num_layers": 1, "num_groups": 1, "num_inner_repetitions": 1}
SMALL = small_config(**ONE_BLOCK)
# Scores are of the size of 10 and more: outputs, of 1.
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def randomized(model):
    """Assigns random values to all weights, including layer norms and biases."""
    random = np.random.default_rng(11)
    for weight in model.weights:
        weight.assign(random.normal(0.1, 0.3, weight.shape))
    return model


@pytest.mark.parametrize("name", ["classifier", "backbone", "capitals"])
def test_texts_are_lower_cased_as_in_the_preset(name, tokenizer, tmp_path, caplog):
    """KerasHub does not lower-case texts, but users of uncased backbones do."""
    model = parse_model(tokenizer.model_proto, "model")
    for i, piece in enumerate(model.pieces):
        if name != "capitals" and piece.type == NORMAL and piece.piece != piece.piece.lower():
            piece.piece = f"{piece.piece.lower()}{i}"
    proto = model.SerializeToString()
    theirs = models.AlbertTokenizer(proto=proto)
    backbone = models.AlbertBackbone(**{**SHALLOW, "vocabulary_size": 1000})
    theirs.save_to_preset(str(tmp_path))
    model = models.AlbertTextClassifier(backbone, 3) if name == "classifier" else backbone
    model.save_to_preset(str(tmp_path))
    stored = keras_hub.read(str(tmp_path))
    lower_case = name == "backbone"
    assert stored.do_lower_case is lower_case
    assert f"do_lower_case={lower_case}" in stored.stored_tokenizer.note
    assert stored.stored_tokenizer.note in caplog.text
    found = albert_tf.load_tokenizer(tmp_path)
    for text in ("The King paid", "a 'small' cat."):
        expected = np.asarray(theirs(text.lower() if lower_case else text)).tolist()
        assert found.encode(text) == expected
    other = albert_tf.load_tokenizer(tmp_path, do_lower_case=not lower_case)
    assert other.encode("The King paid") != found.encode("The King paid")


@pytest.fixture(scope="module")
def ours(tokenizer, tmp_path_factory):
    """Returns models and the paths of their presets by name."""
    shared = small_config(
        vocab_size=1000, inner_group_num=1, hidden_dropout_prob=0.2, extra={"gap_size": 3}
    )
    own = SMALL.replace(num_hidden_layers=2, parameter_sharing="none")
    ours = {
        "masked_lm": AlbertForPretraining(shared),
        "classifier": AlbertForClassification(own, num_labels=5),
        "equal": AlbertEncoder(small_config(embedding_size=12, num_hidden_groups=1)),
    }
    root, written = tmp_path_factory.mktemp("ours"), {}
    for name, model in ours.items():
        contents = StoredModel.in_memory(
            config=model.config,
            weights=weights_of(randomized(model)),
            tokenizer=tokenizer if name == "masked_lm" else None,
            do_lower_case=name != "equal",
            task=StoredTask("custom", Labels(LABELS)) if name == "classifier" else None,
        )
        (root / name).mkdir()
        order = ["cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights"]
        assert keras_hub.unsupported_weights(contents) == order * (name == "masked_lm")
        keras_hub.write(str(root / name), contents)
        written[name] = model, root / name
    return written


@pytest.fixture(scope="module")
def theirs(ours):
    """Returns KerasHub's models of the presets by name."""
    kinds = (models.AlbertMaskedLM, models.AlbertTextClassifier, models.AlbertBackbone)
    return {
        name: kind.from_preset(str(path))
        for (name, (_, path)), kind in zip(ours.items(), kinds, strict=True)
    }


@pytest.fixture
def preset(ours, tmp_path):
    """Returns a copy of the preset of the masked LM."""
    return shutil.copytree(ours["masked_lm"][1], tmp_path / "preset")


def with_our_epsilon(masked_lm):
    """Sets the epsilon of KerasHub's head, which no preset can change."""
    masked_lm.masked_lm_head._intermediate_layer_norm.epsilon = 1e-12
    return masked_lm


def their_inputs():
    """Returns the ragged batch by KerasHub's names."""
    names = ("token_ids", "padding_mask", "segment_ids", "mask_positions")
    return dict(zip(names, pretraining_inputs().values(), strict=True))


def compare(model, theirs):
    """Compares all outputs of both models."""
    found, inputs = model(pretraining_inputs(), output_hidden_states=True), their_inputs()
    positions = inputs.pop("mask_positions")
    encoded = getattr(theirs, "backbone", theirs)(inputs)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(found[name], encoded[name], **TOLERANCE)
    if isinstance(theirs, models.AlbertMaskedLM):
        inputs["mask_positions"] = positions
        np.testing.assert_allclose(found["masked_lm_logits"], theirs(inputs), **TOLERANCE)
    elif isinstance(theirs, models.AlbertTextClassifier):
        np.testing.assert_allclose(found["logits"], theirs(inputs), **TOLERANCE)


@pytest.mark.parametrize("name", ["masked_lm", "classifier", "equal"])
def test_keras_hub_computes_outputs_of_written_models(ours, theirs, name):
    found = theirs[name]
    if name == "masked_lm":
        other_epsilon = found(their_inputs())
        found = with_our_epsilon(found)
        assert 1e-7 < np.abs(found(their_inputs()) - other_epsilon).max() < 1e-3
    compare(ours[name][0], found)


def test_keras_hub_uses_tokenizer_and_lengths(ours, theirs, tokenizer):
    preprocessor = theirs["masked_lm"].preprocessor
    assert np.asarray(preprocessor.tokenizer(TEXT)).tolist() == tokenizer.encode(TEXT)
    packed, *_ = preprocessor(["the mat"])
    assert packed["token_ids"].shape == (1, 16)
    # Another task takes the encoder.
    path = str(ours["masked_lm"][1])
    classifier = models.AlbertTextClassifier.from_preset(path, num_classes=3)
    ids = np.asarray(classifier.preprocessor(["the mat"])["token_ids"])[0]
    expected = [tokenizer.cls_id, *tokenizer.encode("the mat"), tokenizer.sep_id]
    assert ids[:5].tolist() == expected[:5]


@pytest.mark.parametrize(
    "name", ["masked_lm", "classifier", pytest.param("sharded", marks=pytest.mark.slow)]
)
def test_outputs_of_models_of_keras_hub(tmp_path, name):
    inner = 1 if name == "classifier" else 2
    theirs = models.AlbertBackbone(**{**SIZES, "num_inner_repetitions": inner})
    if name == "masked_lm":
        theirs = models.AlbertMaskedLM(theirs)
    elif name == "classifier":
        theirs = models.AlbertTextClassifier(theirs, 6)
    size = 4e-6 if name == "sharded" else 10  # GB
    randomized(theirs).save_to_preset(str(tmp_path), max_shard_size=size)
    stored = keras_hub.read(str(tmp_path))
    dropout = {"hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.25}
    assert stored.config == small_config(**dropout, inner_group_num=inner, initializer_range=0.02)
    assert (stored.tokenizer, stored.do_lower_case) == (None, None)
    compare(load(tmp_path), with_our_epsilon(theirs) if name == "masked_lm" else theirs)
    if name == "sharded":
        next(tmp_path.glob("model_*.weights.h5")).unlink()
        assert_rejected(tmp_path, "model.weights.json")


@pytest.mark.parametrize("name", ["masked_lm", "classifier", "equal"])
def test_written_presets_are_read(ours, name):
    model, path = ours[name]
    stored = keras_hub.read(str(path))
    config = with_vocabulary(stored.config, None)
    assert config == model.config
    assert config.extra == model.config.extra
    assert stored.checkpoint == str(path / "model.weights.h5")
    assert stored.do_lower_case is (name != "equal")
    assert (stored.task.labels.names if stored.task else ()) == LABELS * (name == "classifier")
    weights = weights_of(model)
    found = load(path if name == "masked_lm" else path / "model.weights.h5")
    assert type(found) is type(model)
    for variable, value in weights_of(found).items():
        np.testing.assert_array_equal(value, weights[variable])


def test_wordpiece_vocabulary_is_stored(golden, tmp_path):
    tokenizer = tokenizer_from_files(vocab_file=golden / "tokenizer" / "vocab.txt")
    encoder = AlbertEncoder(SMALL.replace(vocab_size=tokenizer.vocab_size))
    stored = StoredModel.in_memory(encoder.config, weights_of(encoder), tokenizer)
    keras_hub.write(str(tmp_path), stored)
    assert keras_hub.read(str(tmp_path)).tokenizer.tokens == tokenizer.tokens
    assert not (tmp_path / "tokenizer.json").exists()


TOKENS = StoredTask("tokens", Labels(LABELS), False)


@pytest.mark.parametrize(
    ("kind", "settings", "task", "loaded"),
    [
        (AlbertForMultipleChoice, {}, StoredTask("race"), AlbertForMultipleChoice),
        (AlbertForTokenClassification, {"labels": LABELS}, TOKENS, AlbertEncoder),
    ],
)
def test_other_heads(tmp_path, kind, settings, task, loaded):
    """A single score becomes a classifier of one class, a classifier of tokens an encoder."""
    weights = weights_of(randomized(kind(SMALL, **settings)))
    contents = StoredModel.in_memory(SMALL, weights, task=task)
    absent = ["output_bias", "output_weights"] * (task is TOKENS)
    assert keras_hub.unsupported_weights(contents) == absent
    keras_hub.write(str(tmp_path), contents)
    found = load(tmp_path)
    assert type(found) is loaded
    if not absent:
        assert json.loads((tmp_path / "task.json").read_text())["config"]["num_classes"] == 1
        np.testing.assert_array_equal(
            weights_of(found)["output_weights"], weights["output_weights"]
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("hidden_act", "relu"), ("hidden_act", "gelu_exact"), ("num_hidden_layers", 5)),
        ("parameter_sharing", "attention"),
    ],
)
def test_unsupported_models_are_rejected_before_writing(tmp_path, key, value):
    contents = StoredModel.in_memory(small_config(**{key: value}), {})
    for action in (keras_hub.unsupported_weights, partial(keras_hub.write, str(tmp_path))):
        with pytest.raises(ValueError, match=str(value)):
            action(contents)
    assert not list(tmp_path.iterdir())


def test_missing_keras_hub_is_reported(ours, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ValueError, match=r"albert_tf\[keras-hub\]"):
        keras_hub.read(str(ours["masked_lm"][1]))


def assert_rejected(preset, file):
    """Checks that reading fails with one line that contains path and file."""
    with pytest.raises(LoadError) as raised:
        keras_hub.open_weights(keras_hub.read(str(preset)).checkpoint)
    assert str(preset) in str(raised.value)
    assert file in str(raised.value)
    assert "\n" not in str(raised.value)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 9 // 10])


@pytest.mark.parametrize("file", ["config.json", "model.weights.h5", "task.weights.h5"])
def test_damaged_files_are_rejected(preset, file):
    for damage in (cut, Path.unlink):
        damage(preset / file)
        assert_rejected(preset, file)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_dim", 24), ("num_heads", 4), ("num_groups", 4), ("max_sequence_length", None)],
)
def test_contradicting_configurations_are_rejected(preset, key, value):
    for name, keys in (
        ("config.json", ["config"]),
        ("task.json", ["config", "backbone", "config"]),
    ):
        content = values = json.loads((preset / name).read_text())
        for inner in keys:
            values = values[inner]
        values[key] = value
        (preset / name).write_text(json.dumps(content))
    assert_rejected(preset, "")


def test_presets_of_other_models_are_rejected(tmp_path):
    names = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")
    bert = models.BertBackbone(**{name: SHALLOW[name] for name in names})
    bert.save_to_preset(str(tmp_path / "bert"))
    assert keras_hub.is_here(str(tmp_path / "bert"))
    assert_rejected(tmp_path / "bert", "config.json")
    backbone = models.AlbertBackbone(**SHALLOW)
    sigmoid = models.AlbertTextClassifier(backbone, 3, activation="sigmoid")
    sigmoid.save_to_preset(str(tmp_path / "sigmoid"))
    assert_rejected(tmp_path / "sigmoid", "task.json")


def test_presets_of_keras_nlp_without_tokenizer_or_metadata_are_read(preset, ours):
    for file in ("config.json", "task.json", "tokenizer.json"):
        content = (preset / file).read_text().replace("keras_hub>", "keras_nlp>")
        (preset / file).write_text(content)
    found, expected = weights_of(load(preset)), weights_of(ours["masked_lm"][0])
    np.testing.assert_equal(found, {name: expected[name] for name in found})
    shutil.rmtree(preset / "assets")
    (preset / "tokenizer.json").unlink()
    (preset / "metadata.json").unlink()
    stored = keras_hub.read(str(preset))
    assert (stored.tokenizer, stored.do_lower_case) == (None, None)
    assert stored.config.hidden_dropout_prob == stored.config.attention_probs_dropout_prob == 0.2
