"""Sharing modes: shared parts, names and counts of variables, and gradients."""

import random
from functools import cache

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import PRESETS
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.modeling.parameter_sharing import block_places, block_runs, parameter_counts
from albert_tf.training.optimization import Lamb
from tests.small_model import pretraining_inputs, small_config
from tests.usual import usual

UNEVEN = {"num_hidden_layers": 5, "num_hidden_groups": 2}  # groups of three and of two layers
MODES = {
    "all": small_config(**UNEVEN),
    "attention": small_config(**UNEVEN, parameter_sharing="attention"),
    "ffn": small_config(**UNEVEN, parameter_sharing="ffn"),
    "none": small_config(num_hidden_layers=5, num_hidden_groups=1, parameter_sharing="none"),
}
# Group, attention and feed-forward number of each layer.
LAYERS = {
    "all": [(0, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1), (1, 1, 1)],
    "attention": [(0, 1, 1), (0, 1, 2), (0, 1, 3), (1, 1, 1), (1, 1, 2)],
    "ffn": [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 1, 1), (1, 2, 1)],
    "none": [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1)],
}


@cache
def encoder_of(mode):
    return AlbertEncoder(MODES[mode])


EVERY_MODE = pytest.mark.parametrize("mode", MODES)
LESS_SHARED = pytest.mark.parametrize("mode", ["attention", "ffn"])


@EVERY_MODE
def test_parts_of_every_run(mode):
    expected = [(g, inner, a, f) for g, a, f in LAYERS[mode] for inner in (0, 1)]
    assert block_runs(MODES[mode]) == expected
    assert block_places(MODES[mode]) == list(dict.fromkeys(expected))
    runs = encoder_of(mode)._blocks_in_order()
    for one, (group, inner, attention, feed_forward) in zip(runs, expected, strict=True):
        for two, place in zip(runs, expected, strict=True):
            is_same_attention = (group, inner, attention) == place[:3]
            assert (one.attention is two.attention) == is_same_attention
            assert (one.attention_norm is two.attention_norm) == is_same_attention
            is_same_ffn = (group, inner, feed_forward) == (*place[:2], place[3])
            assert (one.feed_forward is two.feed_forward) == is_same_ffn
            assert (one.feed_forward_norm is two.feed_forward_norm) == is_same_ffn


@LESS_SHARED
def test_names_of_the_parts(mode):
    """The first inner group of the first group; tests/golden checks the names of full sharing."""
    prefix = "bert/encoder/transformer/group_0/inner_group_0/"
    names = [name for name in original_names(encoder_of(mode)) if prefix in name]
    numbered = "ffn" if mode == "attention" else "attention"
    parts = ["attention_1", "ffn_1", f"{numbered}_2", f"{numbered}_3"]
    norms = ["LayerNorm", *(f"LayerNorm_{number}" for number in (1, 2, 3))]
    assert {name.removeprefix(prefix).split("/")[0] for name in names} == {*norms, *parts}


@pytest.mark.parametrize("mode", usual(MODES, "all", "ffn"))
def test_one_step_updates_every_variable(mode):
    random.seed(3)
    model = AlbertForPretraining(MODES[mode].replace(inner_group_num=1))
    named = original_names(model)
    assert len({id(v) for v in model.trainable_variables}) == len(model.trainable_variables)
    assert {id(v) for v in model.trainable_variables} == {id(v) for v in named.values()}
    optimizer = Lamb()
    optimizer.build(list(named.values()))
    decayed, _ = optimizer.split(list(named.values()))
    ends = ("/kernel", "embeddings", "output_weights")
    assert [id(v) for v in decayed] == [id(v) for n, v in named.items() if n.endswith(ends)]
    before = {name: variable.numpy() for name, variable in named.items()}
    with tf.GradientTape() as tape:
        outputs = model(pretraining_inputs(), training=True)
        loss = sum(tf.reduce_sum(tf.sin(value)) for value in tf.nest.flatten(outputs))
    variables = [variable.value for variable in named.values()]
    gradients = tape.gradient(loss, variables)
    optimizer.apply_reduced(gradients, list(named.values()), 0.1)
    for (name, old), gradient in zip(before.items(), gradients, strict=True):
        assert np.any(gradient), name
        assert np.any(named[name].numpy() != old), name


# Encoder with pooler; with both heads; encoder sharing attention, feed-forward parts, nothing.
PUBLISHED = {
    "base_zh": (10_547_968, 10_669_322, 62_511_616, 36_550_912, 88_514_560),
    "base_v2": (11_683_584, 11_813_810, 63_647_232, 37_686_528, 89_650_176),
    "large_v2": (17_683_968, 17_847_474, 210_786_816, 114_294_272, 307_397_120),
    "xlarge_v2": (58_724_864, 59_021_490, 830.8e6, 444.9e6, 1217.0e6),
    "xxlarge_v2": (222_595_584, 223_158_450, 1699.3e6, 961.1e6, 2437.8e6),
}


@pytest.mark.parametrize("preset", PUBLISHED)
def test_published_sizes_in_every_mode(preset):
    config = PRESETS[preset]
    encoder, pretraining, *less_shared = PUBLISHED[preset]
    counts = parameter_counts(config)
    assert [counts.encoder, counts.pretraining] == [encoder, pretraining]
    for mode, expected in zip(("attention", "ffn", "none"), less_shared, strict=True):
        counted = parameter_counts(config.replace(parameter_sharing=mode)).encoder
        if isinstance(expected, float):  # published in millions
            counted = round(counted, -5)
        assert counted == expected, mode


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 5, "num_hidden_groups": 3},
        {"num_hidden_layers": 5, "num_hidden_groups": 3, "parameter_sharing": "ffn"},
        {"num_hidden_layers": 3, "num_hidden_groups": 1, "parameter_sharing": "none"},
        {"num_hidden_groups": 1, "embedding_size": 12},
    ],
)
def test_parameter_counts_equal_built_models(changes):
    model = AlbertForPretraining(small_config(**changes))
    counts = parameter_counts(model.config)
    encoder, blocks = model.encoder, model.encoder.blocks

    def total(layers):
        layers = {id(layer): layer for layer in layers if layer is not None}
        return sum(layer.count_params() for layer in layers.values())

    assert counts.embeddings == total([encoder.embeddings])
    assert counts.embedding_projection == total([encoder.embedding_projection])
    for part in ("attention", "feed_forward"):
        layers = [getattr(block, f"{part}{end}") for block in blocks for end in ("", "_norm")]
        assert getattr(counts, part) == total(layers)
    assert counts.pooler == total([encoder.pooler])
    assert counts.encoder == encoder.count_params()
    assert counts.sentence_head == total([model.sentence_order_head])
    assert counts.pretraining == model.count_params()
