"""One model in every format."""

import shutil

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.facts import Meeting, compare, config_facts
from albert_tf.checkpoints.formats.choose import (
    FORMAT_NAMES,
    format_module,
    open_model,
    open_weights,
)
from albert_tf.checkpoints.loading import load_weights, read_model
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.modeling.original_names import original_names
from tests.huggingface import accents
from tests.small_model import small_config
from tests.usual import usual

# A preset of KerasHub has only one head.
LEFT_OUT = {
    "keras_hub": ["cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights"]
}


@pytest.fixture(scope="module")
def contents(golden) -> StoredModel:
    """Returns a model with 24 word embeddings without tokens."""
    model, _ = read_model(str(golden / "hub" / "albert_directory"))
    weights = dict(model.weights)
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        rows = [(0, 24), *[(0, 0)] * (weights[name].ndim - 1)]
        weights[name] = np.pad(weights[name], rows, constant_values=0.5)
    config = model.config.replace(vocab_size=model.config.vocab_size + 24)
    return StoredModel.in_memory(
        config, weights, model.tokenizer, do_lower_case=model.do_lower_case
    )


# Writing a SavedModel takes seconds. The format tf1_hub is also a SavedModel.
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n == "tf2_hub" else n for n in FORMAT_NAMES]


@pytest.fixture(scope="module", params=NAMES)
def stored(request, contents, tmp_path_factory):
    """Returns the name of a format, and the path of the model in it."""
    path = str(tmp_path_factory.mktemp(request.param))
    module = format_module(request.param)
    module.write(path, contents)
    assert sorted(module.unsupported_weights(contents)) == LEFT_OUT.get(request.param, [])
    return request.param, path


def assert_same_model(one, other):
    """Checks that two configurations are the same, except the dropout."""
    sources = {"one": config_facts(one), "other": config_facts(other)}
    assert compare(sources, Meeting.LOAD) == []


def test_models_are_preserved(stored, contents):
    name, path = stored
    checkpoint = open_weights(path).source
    assert open_weights(checkpoint).source == checkpoint
    assert open_model(path).format == open_model(checkpoint).format == name
    again, report = read_model(checkpoint)
    assert not report.missing
    assert not report.ignored
    assert {*again.weights, *LEFT_OUT.get(name, [])} == set(contents.weights)
    for key, value in again.weights.items():
        np.testing.assert_array_equal(value, contents.weights[key], err_msg=key)
    assert_same_model(again.config, contents.config)
    assert again.tokenizer.tokens == contents.tokenizer.tokens
    assert again.do_lower_case is contents.do_lower_case
    text = "The light, 12,345 éclairs [MASK] and 5."
    assert again.tokenizer.encode(text) == contents.tokenizer.encode(text)


def test_both_flags_find_all_parts(stored, contents):
    model = AlbertForClassification(contents.config, 3)
    for flag in ("albert_hub_module_handle", "init_checkpoint"):
        source = choose_model(**{flag: stored[1]}, spm_model_file="from_tf_hub")
        assert_same_model(source.config, contents.config)
        assert source.tokenizer.tokens == contents.tokenizer.tokens
    report = load_weights(model, source.checkpoint)
    assert report.missing == ["output_weights", "output_bias"]
    for name, variable in original_names(model.encoder).items():
        np.testing.assert_array_equal(variable, contents.weights[name], err_msg=name)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "tf1_hub"])
def test_missing_tokenizer_is_preserved(golden, tmp_path, monkeypatch, contents, name):
    """The working directory contains a tokenizer, which must not be used."""
    monkeypatch.chdir(golden / "hub" / "albert_directory")
    without = StoredModel.in_memory(contents.config, contents.weights)
    format_module(name).write(str(tmp_path), without)
    assert read_model(str(tmp_path))[0].tokenizer is None


def test_release_directory_contains_the_list_of_pieces(golden, tmp_path, contents):
    """The original's exporter needs it; other formats store only the SentencePiece model."""
    release = golden / "hub" / "albert_directory"
    model = shutil.copy(release / "30k-clean.model", tmp_path / "spiece.model")
    tokenizer = albert_tf.load_tokenizer(model)
    alone = StoredModel.in_memory(contents.config, contents.weights, tokenizer)
    (tmp_path / "out").mkdir()
    format_module("original").write(str(tmp_path / "out"), alone)
    for name in ("30k-clean.model", "30k-clean.vocab"):
        assert (tmp_path / "out" / name).read_bytes() == (release / name).read_bytes()


KEPT = [*FORMAT_NAMES, "keras"]


@pytest.mark.parametrize("name", usual(KEPT, "original", "huggingface"))
def test_accents_are_preserved(name, tmp_path):
    """Every format stores `keep_accents`, and none stores it if it is false."""
    file, texts = accents.write_model(tmp_path / "spiece.model"), accents.lines("Vietnamese", 9)
    tokenizer = albert_tf.load_tokenizer(spm_model_file=file, keep_accents=True)
    model = albert_tf.AlbertForPretraining(small_config(vocab_size=len(tokenizer)))
    path = str(tmp_path / ("model.keras" if name == "keras" else "model"))
    if name == "keras":
        model.tokenizer = tokenizer
        model.save(path)
    else:
        albert_tf.save(model, path, tokenizer=tokenizer, format=name)
    again = albert_tf.load(path).tokenizer
    assert again.rules == {"do_lower_case": True, "keep_accents": True}
    assert again.encode_batch(texts) == tokenizer.encode_batch(texts)
    assert albert_tf.load_tokenizer(path).keep_accents
    for read in (albert_tf.load_tokenizer, albert_tf.FillMask.load):
        with pytest.raises(ValueError, match=f"keep_accents is False in .*, but True in {path}: "):
            read(path, keep_accents=False)


def test_accents_are_not_stored_if_they_are_removed(tmp_path):
    model = albert_tf.load("mini")
    albert_tf.save(model, tmp_path / "model")
    assert "keep_accents" not in (tmp_path / "model" / "albert_config.json").read_text()
    with pytest.raises(ValueError, match="keep_accents is True in the arg"):
        albert_tf.load_tokenizer(tmp_path / "model", keep_accents=True)
