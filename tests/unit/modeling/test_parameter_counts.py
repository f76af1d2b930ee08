"""Counts of parameters: the published models in every sharing mode, and models that were built."""

import pytest

from albert_tf.config import PRESETS
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.parameter_sharing import parameter_counts
from tests.small_model import small_config

# Encoder with pooler; with both heads; encoder sharing attention, feed-forward parts, nothing.
PUBLISHED = {
    "base_zh": (10_547_968, 10_669_322, 62_511_616, 36_550_912, 88_514_560),
    "base_v2": (11_683_584, 11_813_810, 63_647_232, 37_686_528, 89_650_176),
    "large_v2": (17_683_968, 17_847_474, 210_786_816, 114_294_272, 307_397_120),
    "xlarge_v2": (58_724_864, 59_021_490, 830.8e6, 444.9e6, 1217.0e6),
    "xxlarge_v2": (222_595_584, 223_158_450, 1699.3e6, 961.1e6, 2437.8e6),
}


@pytest.mark.parametrize("preset", PUBLISHED)
def test_released_sizes_in_every_mode(preset):
    config = PRESETS[preset]
    encoder, pretraining, *less_shared = PUBLISHED[preset]
    counts = parameter_counts(config)
    assert [counts.encoder, counts.pretraining] == [encoder, pretraining]
    for mode, expected in zip(("attention", "ffn", "none"), less_shared, strict=True):
        counted = parameter_counts(config.replace(parameter_sharing=mode)).encoder
        if isinstance(expected, float):  # known to a tenth of a million
            counted = round(counted, -5)
        assert counted == expected, mode


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 5, "num_hidden_groups": 3},
        {"num_hidden_layers": 5, "num_hidden_groups": 3, "parameter_sharing": "attention"},
        {"num_hidden_layers": 5, "num_hidden_groups": 3, "parameter_sharing": "ffn"},
        {"num_hidden_layers": 3, "num_hidden_groups": 1, "parameter_sharing": "none"},
        {"num_hidden_groups": 1, "embedding_size": 12},
    ],
)
def test_built_models_have_the_counted_parameters_in_every_part(changes):
    model = AlbertForPretraining(small_config(**changes))
    counts = parameter_counts(model.config)
    encoder, blocks = model.encoder, model.encoder.blocks

    def total(layers):
        layers = {id(layer): layer for layer in layers if layer is not None}
        return sum(layer.count_params() for layer in layers.values())

    assert counts.embeddings == total([encoder.embeddings])
    assert counts.embedding_projection == total([encoder.embedding_projection])
    assert counts.attention == total(
        [layer for block in blocks for layer in (block.attention, block.attention_norm)]
    )
    assert counts.feed_forward == total(
        [layer for block in blocks for layer in (block.feed_forward, block.feed_forward_norm)]
    )
    assert counts.pooler == total([encoder.pooler])
    assert counts.encoder == encoder.count_params()
    assert counts.sentence_head == total([model.sentence_order_head])
    assert counts.pretraining == model.count_params()
