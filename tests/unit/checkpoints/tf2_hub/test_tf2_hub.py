"""Tests for reading encoders of TF-Hub.

`golden/data/tf2_hub` was written by the exporter of the published encoders.
"""

import shutil
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats import tf2_hub
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.original import open_weights
from albert_tf.checkpoints.loading import load_weights, read_model
from albert_tf.checkpoints.signatures import HUB_INPUTS, ORIGINAL_INPUTS, POSITIONS
from albert_tf.classification.export import export_classifier
from albert_tf.config import AlbertConfig
from albert_tf.labels import Labels
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import AlbertForClassification, AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from tests.small_model import weights_of

BLOCK = "bert/encoder/transformer/group_0/inner_group_0"
CONFIG = AlbertConfig(
    vocab_size=25,
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=20,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    max_position_embeddings=16,
)


@pytest.fixture(scope="module")
def published(golden, tmp_path_factory):
    """Returns the encoder that the model garden exported."""
    folder = tmp_path_factory.mktemp("published")
    zipfile.ZipFile(golden / "tf2_hub" / "albert_encoder.zip").extractall(folder)
    return folder / "albert_encoder"


@pytest.fixture
def copy(published, tmp_path):
    """Returns a copy to change."""
    return shutil.copytree(published, tmp_path / "copy")


def test_outputs_equal_the_graphs_of_a_published_encoder(published, golden):
    stored = open_model(str(published))
    assert (stored.format, stored.config) == ("tf2_hub", CONFIG)
    assert stored.stored_tokenizer.files[0] == str(published / "assets" / "toy.model")
    assert stored.do_lower_case is True  # implied by its exporter
    recorded = np.load(golden / "tf2_hub" / "outputs.npz")
    model = AlbertForPretraining(CONFIG, has_sentence_order_head=False)
    report = load_weights(model, str(published))
    assert sorted(report.mapped) == sorted(original_names(model))
    assert not report.ignored
    assert not report.missing
    names = zip(ORIGINAL_INPUTS, HUB_INPUTS, strict=True)
    inputs = {name: recorded[theirs] for name, theirs in [*names, (POSITIONS, POSITIONS)]}
    outputs = model(inputs, output_hidden_states=True)
    pairs = [(outputs[name], recorded[name]) for name in ("pooled_output", "sequence_output")]
    pairs.append((outputs["masked_lm_logits"], recorded["mlm_logits"]))
    pairs += zip(outputs["encoder_outputs"], recorded["encoder_outputs"], strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_configuration_without_metadata_or_with_exact_gelu(copy):
    metadata = copy / "keras_metadata.pb"
    # The exact GELU of Keras, by a name as long as the other: a protocol buffer counts bytes.
    metadata.write_bytes(metadata.read_bytes().replace(b'"Text>gelu"', b'"gelu"     '))
    with pytest.raises(LoadError, match=r"copy.*activation must be .*Received: 'gelu'"):
        tf2_hub.read(str(copy))
    metadata.unlink()
    stored = tf2_hub.read(str(copy))
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    assert stored.config == CONFIG.replace(**no_dropout)
    assert stored.config_file == str(copy / "saved_model.pb")


def test_unknown_number_of_layers(published, tmp_path):
    """The first encoders on TF-Hub take and return lists."""
    prefix = str(published / "variables" / "variables")
    values, keys = open_weights(prefix), tf2_hub._Variables(prefix).keys
    module = tf.Module()
    module.parts = [tf.Variable(values[key], name=name) for name, key in keys.items()]
    tf.saved_model.save(module, str(tmp_path))
    stored = tf2_hub.read(str(tmp_path))
    assert stored.config is None
    assert stored.config_file is None
    with pytest.raises(ValueError, match="`albert_config_file`"):
        read_model(str(tmp_path))
    model = AlbertForPretraining(CONFIG, has_sentence_order_head=False)
    assert not load_weights(model, str(tmp_path)).missing
    query = original_names(model)[f"{BLOCK}/attention_1/self/query/kernel"]
    heads = values[keys["transformer/self_attention/query/kernel"]]
    np.testing.assert_array_equal(query, heads.reshape(12, 12))


def test_keras_model_around_an_encoder_is_read(tmp_path):
    """Keras 2 saves variables of the model and the optimizer by their names."""
    encoder = AlbertEncoder(CONFIG)
    values = weights_of(encoder)
    slots = {f"SGD/m/{name}": value + 1 for name, value in values.items()}
    head = {"dense/kernel": np.ones((12, 2), np.float32)}
    module = tf.Module()
    module.parts = [
        tf.Variable(value, name=name) for name, value in {**values, **slots, **head}.items()
    ]
    tf.saved_model.save(module, str(tmp_path))
    trained = AlbertEncoder(CONFIG)
    report = load_weights(trained, str(tmp_path))
    assert report.ignored == ["dense/kernel"]
    np.testing.assert_equal(weights_of(trained), values)


def test_other_models_are_rejected(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(LoadError, match=r"ALBERT.*: none\. Expected"):
        tf2_hub.read(str(tmp_path / "empty"))
    module = tf.Module()
    module.layer = tf.Variable(
        tf.zeros([4, 2, 2]), name="transformer/layer_0/self_attention/query/kernel"
    )
    tf.saved_model.save(module, str(tmp_path))
    assert tf2_hub.is_here(str(tmp_path))
    with pytest.raises(LoadError, match=r"ALBERT.*transformer/layer_0.*tf2_hub"):
        tf2_hub.read(str(tmp_path))


def test_exported_classifier_is_read(tmp_path):
    config = CONFIG.replace(num_hidden_layers=1)
    model = AlbertForClassification(config, num_labels=3)
    path = export_classifier(model, Labels(("a", "b", "c")), str(tmp_path), max_seq_length=16)
    contents, report = read_model(path)
    assert not report.ignored
    assert contents.config == config
    np.testing.assert_equal(dict(contents.weights), weights_of(model))
