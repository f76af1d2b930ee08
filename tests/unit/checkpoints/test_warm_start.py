"""Tests for initializing models from checkpoints with other depth or sharing."""

from functools import cache

import numpy as np
import pytest

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.loading import load_weights, match
from albert_tf.checkpoints.report import LoadReport
from albert_tf.checkpoints.stored_model import Weights
from albert_tf.config import AlbertConfig
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.original_names import original_names
from tests.small_model import encoder_inputs, small_config, weights_of
from tests.usual import usual

INNER = "bert/encoder/transformer/group_{}/inner_group_{}/{}"


def config_of(layers, groups, mode="all", inner_groups=1) -> AlbertConfig:
    return small_config(
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        parameter_sharing=mode,
        inner_group_num=inner_groups,
    )


@cache
def source_of(*sizes) -> AlbertEncoder:
    """Creates an encoder with random values in all variables, once."""
    encoder, random = AlbertEncoder(config_of(*sizes)), np.random.default_rng(sizes[0] + sizes[1])
    encoder.set_weights([w + 0.1 * random.normal(size=w.shape) for w in encoder.get_weights()])
    return encoder


def weights_in(model) -> Weights:
    return Weights.in_memory(weights_of(model), "source")


def sequence_output(model):
    return model(encoder_inputs())["sequence_output"].numpy()


def matched(source, target, *, has_warm_start=True) -> LoadReport:
    """Matches the variables of two models by their sizes."""
    variables = original_names(source_of(*target))
    return match(
        {name: tuple(variable.shape) for name, variable in variables.items()},
        weights_in(source_of(*source)),
        skip={},
        uses_pooler=True,
        warm_start=config_of(*target) if has_warm_start else None,
    )


@pytest.mark.parametrize("mode", usual(["all", "attention", "ffn", "none"], "attention", "none"))
def test_same_model_is_loaded(mode):
    model = source_of(4, 1 if mode == "none" else 3, mode)
    twin = AlbertEncoder(model.config)
    report = load_weights(twin, weights_in(model))
    report.check_complete()
    assert all(name == stored for name, stored in report.mapped.items())
    assert not report.ignored
    np.testing.assert_array_equal(sequence_output(twin), sequence_output(model))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param((5, 1), (5, 1, "attention"), marks=pytest.mark.slow),
        pytest.param((5, 1), (5, 1, "ffn"), marks=pytest.mark.slow),
        pytest.param((5, 1), (5, 1, "none"), marks=pytest.mark.slow),
        ((5, 1), (5, 3, "ffn")),
        pytest.param((5, 2), (5, 1, "none"), marks=pytest.mark.slow),
        ((5, 3), (5, 4)),  # where a group begins is rounded up
        pytest.param((5, 2, "attention"), (5, 1, "none"), marks=pytest.mark.slow),
        ((5, 2, "ffn"), (5, 1, "none")),
        ((6, 1), (3, 1, "none", 2)),
        ((6, 1), (2, 1, "ffn", 3)),
    ],
    ids=str,
)
def test_models_that_share_less_compute_the_same(source, target):
    source, target = source_of(*source), AlbertEncoder(config_of(*target))
    load_weights(target, weights_in(source), init_from_group0=True).check_complete()
    np.testing.assert_array_equal(sequence_output(target), sequence_output(source))


class TestDepths:
    def test_twice_the_layers(self):
        report = matched((3, 1, "none", 2), (6, 1, "none", 2))
        report.check_complete()
        name = INNER.format("{}", 1, "ffn_1/intermediate/dense/kernel")
        taken = [report.mapped[name.format(group)] for group in range(6)]
        assert taken == [name.format(group) for group in (0, 0, 1, 1, 2, 2)]
        scope = "bert/encoder/transformer/group_{}/*"
        assert [line for line in report.summary().splitlines() if "group_5" in line] == [
            f"  from another name: {scope.format(5)} <- {scope.format(2)} (32 variables)"
        ]

    @pytest.mark.parametrize(("mode", "part"), [("attention", "ffn"), ("ffn", "attention")])
    def test_numbered_parts_and_layer_norms(self, mode, part):
        """5 layers in groups of 3 and 2 initialize 7 layers in groups of 4 and 3."""
        report = matched((5, 2, mode), (7, 2, mode))
        report.check_complete()
        target = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3)]
        source = [(0, 1), (0, 1), (0, 2), (0, 3), (0, 3), (1, 1), (1, 2)]
        rest = "intermediate/dense/bias" if part == "ffn" else "output/dense/bias"
        first = "LayerNorm" if part == "attention" else "LayerNorm_1"
        for (group, number), (from_group, from_number) in zip(target, source, strict=True):
            taken = report.mapped[INNER.format(group, 0, f"{part}_{number}/{rest}")]
            assert taken == INNER.format(from_group, 0, f"{part}_{from_number}/{rest}")
            of, taken_of = (first if k == 1 else f"LayerNorm_{k}" for k in (number, from_number))
            taken = report.mapped[INNER.format(group, 0, f"{of}/gamma")]
            assert taken == INNER.format(from_group, 0, f"{taken_of}/gamma")

    def test_shared_part_takes_the_first_layer(self):
        report = matched((4, 1, "none"), (4, 2, "ffn"))
        report.check_complete()
        kernel, query = "ffn_1/intermediate/dense/kernel", "attention_{}/self/query/kernel"
        assert report.mapped[INNER.format(1, 0, kernel)] == INNER.format(2, 0, kernel)
        taken = report.mapped[INNER.format(1, 0, query.format(2))]
        assert taken == INNER.format(3, 0, query.format(1))


@pytest.mark.parametrize(
    ("source", "target", "left"),
    [
        ((5, 1, "attention"), (5, 1), 4 * 6),
        ((5, 1, "ffn"), (5, 1), 4 * 10),
        ((5, 3), (5, 2), 16),
    ],
    ids=str,
)
def test_checkpoint_that_shares_less_is_rejected(source, target, left):
    report = matched(source, target, has_warm_start=False)
    assert len(report.ignored) == left
    message = rf"{left} variables of its blocks .*parameter_sharing.*group0"
    with pytest.raises(LoadError, match=message):
        report.check_no_block_is_left()
    if left == 16:
        model = AlbertEncoder(config_of(*target))
        before = sequence_output(model)
        with pytest.raises(LoadError, match=message):
            load_weights(model, weights_in(source_of(*source)))
        np.testing.assert_array_equal(sequence_output(model), before)
        load_weights(model, weights_in(source_of(*source)), allow_partial=True)


def test_checkpoint_that_shares_more_is_rejected():
    with pytest.raises(LoadError) as error:
        matched((5, 1), (5, 1, "none"), has_warm_start=False).check_encoder()
    first, _, *blocks = str(error.value).splitlines()
    assert "64 of its variables would keep random values" in first
    assert "`init_from_group0`" in first
    line = "  not in the checkpoint, randomly initialized: "
    assert blocks == [
        f"{line}{INNER.format(group, 0, '*')} (16 variables)" for group in range(1, 5)
    ]
