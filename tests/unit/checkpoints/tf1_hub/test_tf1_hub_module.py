"""Tests for writing TF1 modules with operations of TensorFlow 1.15."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats import tf1_hub
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.saved_models import graphs_of
from tests.small_model import dropping_config, encoder_inputs, pretraining_inputs, weights_of

# Attributes of each operation, from the registry of TensorFlow 1.15.5.
OPERATIONS = json.loads((Path(__file__).parent / "tensorflow_1_15_operations.json").read_text())
ENCODER_SIGNATURES = ["tokenization_info", "tokens"]


@pytest.fixture(scope="module")
def word_piece(tmp_path_factory):
    """Returns a tokenizer with the vocabulary size of the small model."""
    path = tmp_path_factory.mktemp("tokenizer") / "some_vocabulary.txt"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(26))]
    path.write_text("".join(f"{word}\n" for word in words))
    return tokenizer_from_files(vocab_file=path, do_lower_case=False)


@pytest.fixture(scope="module")
def model():
    """Creates a model with two groups, two dropout rates and both heads."""
    random.seed(3)
    return AlbertForPretraining(dropping_config(num_hidden_layers=2, inner_group_num=1))


@pytest.fixture(scope="module")
def weights(model):
    return weights_of(model)


def write(path, model, weights, tokenizer):
    contents = StoredModel.in_memory(model.config, weights, tokenizer, do_lower_case=False)
    tf1_hub.write(str(path), contents)
    return tf1_hub.unsupported_weights(contents)


@pytest.fixture(scope="module")
def module(model, weights, word_piece, tmp_path_factory):
    path = tmp_path_factory.mktemp("module")
    assert write(path, model, weights, word_piece) == []
    return path


def test_operations_exist_in_tensorflow_1_15(module):
    for graph in graphs_of(module):
        for node in graph.graph_def.node:
            unknown = {name for name in node.attr if name != "_class"} - set(OPERATIONS[node.op])
            assert not unknown, node.name
        listed = {op.name for op in graph.meta_info_def.stripped_op_list.op}
        assert listed == {node.op for node in graph.graph_def.node}
        assert graph.graph_def.versions.min_consumer == 0


def test_dropout_rates(module):
    train, inference = sorted(graphs_of(module), key=lambda graph: not graph.meta_info_def.tags)
    assert "RandomUniform" not in {node.op for node in inference.graph_def.node}
    nodes = {node.name: node for node in train.graph_def.node}
    draws = [node for node in nodes.values() if node.op == "RandomUniform"]
    # With a seed in the graph every session would draw the same.
    assert not any(draw.attr[seed].i for draw in draws for seed in ("seed", "seed2"))
    rates = [
        float(tf.make_ndarray(nodes[node.input[1]].attr["value"].tensor))
        for node in nodes.values()
        if node.op == "GreaterEqual"
    ]
    runs = 2  # of blocks, with three masks each; and one of the embeddings
    assert len(draws) == len(rates) == 3 * runs + 1
    two, three = (round(rate * 65536) / 65536 for rate in (0.2, 0.3))
    assert sorted(rates) == pytest.approx([two] * (2 * runs + 1) + [three] * runs)


@pytest.mark.parametrize(
    ("without", "head"),
    [
        ("cls/seq_relationship/", "mlm"),
        pytest.param("cls/predictions/", "sop", marks=pytest.mark.slow),
    ],
)
def test_missing_heads_have_no_signature(model, weights, word_piece, tmp_path, without, head):
    kept = {name: value for name, value in weights.items() if not name.startswith(without)}
    other = {"output_weights": np.ones((3, 12), np.float32), "output_bias": np.zeros(3, np.float32)}
    unsupported_weights = write(tmp_path, model, {**kept, **other}, word_piece)
    assert unsupported_weights == ["output_bias", "output_weights"]
    for graph in graphs_of(tmp_path):
        assert sorted(graph.signature_def) == sorted([head, *ENCODER_SIGNATURES])
    names = dict(tf.train.list_variables(str(tmp_path / "variables" / "variables")))
    assert names == {name: list(value.shape) for name, value in kept.items()}


def test_encoder_with_other_activation_and_sharing(word_piece, tmp_path):
    config = dropping_config(
        num_hidden_layers=2,
        hidden_act="relu",
        embedding_size=12,
        num_hidden_groups=1,
        inner_group_num=1,
        parameter_sharing="attention",
    )
    model = AlbertForPretraining(config, has_sentence_order_head=False)
    weights = weights_of(model)
    weights = {name: value for name, value in weights.items() if name.startswith("bert/")}
    write(tmp_path, model, weights, word_piece)
    used = {node.op for graph in graphs_of(tmp_path) for node in graph.graph_def.node}
    assert used <= set(OPERATIONS)
    loaded = tf.saved_model.load(str(tmp_path), tags=[])
    assert set(loaded.signatures) == set(ENCODER_SIGNATURES)
    outputs = loaded.signatures["tokens"](**encoder_inputs())
    expected = model(pretraining_inputs(), output_hidden_states=True)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=1e-5, atol=1e-5)


def test_missing_tokenizer_is_rejected(model, weights, tmp_path):
    with pytest.raises(ValueError, match=r"tf1_hub\) needs the model's tokenizer.*`vocab_file`"):
        write(tmp_path, model, weights, None)
    assert not list(tmp_path.iterdir())
