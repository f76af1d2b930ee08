"""Tests for initializing models from checkpoints with other depth or sharing."""

import numpy as np
import pytest

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.loading import load_weights
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.original_names import original_names
from tests.small_model import encoder_inputs, small_config

INNER = "bert/encoder/transformer/group_{}/inner_group_{}/{}"


def new_model(layers, groups, mode="all", **changes):
    """Creates an encoder with random values in all variables."""
    config = small_config(
        num_hidden_layers=layers, num_hidden_groups=groups, parameter_sharing=mode, **changes
    )
    encoder = AlbertEncoder(config)
    random = np.random.default_rng(layers + groups)
    encoder.set_weights([w + 0.1 * random.normal(size=w.shape) for w in encoder.get_weights()])
    return encoder


def checkpoint_of(model, folder):
    write_checkpoint(str(folder / "model.ckpt"), original_names(model), 3)
    return str(folder / "model.ckpt")


def sequence_output(model):
    return model(encoder_inputs())["sequence_output"].numpy()


def warm_start(source, target, folder):
    return load_weights(target, checkpoint_of(source, folder), init_from_group0=True)


@pytest.mark.parametrize("mode", ["all", "attention", "ffn", "none"])
def test_same_model_is_loaded(mode, tmp_path):
    model = new_model(4, 1 if mode == "none" else 3, mode, inner_group_num=1)
    twin = AlbertEncoder(model.config)
    report = load_weights(twin, checkpoint_of(model, tmp_path))
    report.check_complete()
    assert all(name == stored for name, stored in report.mapped.items())
    assert not report.ignored
    np.testing.assert_array_equal(sequence_output(twin), sequence_output(model))


class TestSameFunction:
    """The model shares less than the model of the checkpoint, and computes the same."""

    @pytest.mark.parametrize(
        ("source", "target"),
        [
            pytest.param((5, 1), (5, 1, "attention"), marks=pytest.mark.slow),
            ((5, 1), (5, 1, "ffn")),
            pytest.param((5, 1), (5, 1, "none"), marks=pytest.mark.slow),
            ((5, 1), (5, 3, "ffn")),
            pytest.param((5, 2), (5, 1, "none"), marks=pytest.mark.slow),
            ((5, 3), (5, 4)),  # where a group begins is rounded up
            pytest.param((5, 2, "attention"), (5, 1, "none"), marks=pytest.mark.slow),
            ((5, 2, "ffn"), (5, 1, "none")),
        ],
        ids=str,
    )
    def test_less_sharing(self, source, target, tmp_path):
        source, target = (new_model(*sizes, inner_group_num=1) for sizes in (source, target))
        report = warm_start(source, target, tmp_path)
        report.check_complete()
        np.testing.assert_array_equal(sequence_output(target), sequence_output(source))

    def test_inner_groups(self, tmp_path):
        source = new_model(6, 1, inner_group_num=1)
        for layers, changes in {
            3: {"mode": "none", "inner_group_num": 2},
            2: {"mode": "ffn", "inner_group_num": 3},
        }.items():
            target = new_model(layers, 1, **changes)
            warm_start(source, target, tmp_path).check_complete()
            np.testing.assert_array_equal(sequence_output(target), sequence_output(source))


class TestDepths:
    def test_twice_the_layers(self, tmp_path):
        report = warm_start(new_model(3, 1, "none"), new_model(6, 1, "none"), tmp_path)
        report.check_complete()
        name = INNER.format("{}", 1, "ffn_1/intermediate/dense/kernel")
        taken = [report.mapped[name.format(group)] for group in range(6)]
        assert taken == [name.format(group) for group in (0, 0, 1, 1, 2, 2)]
        scope = "bert/encoder/transformer/group_{}/*"
        assert [line for line in report.summary().splitlines() if "group_5" in line] == [
            f"  from another name: {scope.format(5)} <- {scope.format(2)} (32 variables)"
        ]

    @pytest.mark.parametrize(("mode", "part"), [("attention", "ffn"), ("ffn", "attention")])
    def test_numbered_parts_and_layer_norms(self, mode, part, tmp_path):
        """5 layers in groups of 3 and 2 initialize 7 layers in groups of 4 and 3."""
        report = warm_start(new_model(5, 2, mode), new_model(7, 2, mode), tmp_path)
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

    def test_shared_part_takes_the_first_layer(self, tmp_path):
        source, target = new_model(4, 1, "none"), new_model(4, 2, "ffn")
        report = warm_start(source, target, tmp_path)
        report.check_complete()
        kernel = "ffn_1/intermediate/dense/kernel"
        assert report.mapped[INNER.format(1, 0, kernel)] == INNER.format(2, 0, kernel)
        attention = "self/query/kernel"
        taken = report.mapped[INNER.format(1, 0, f"attention_2/{attention}")]
        assert taken == INNER.format(3, 0, f"attention_1/{attention}")


class TestErrors:
    @pytest.mark.parametrize(
        ("source", "target", "left"),
        [
            ((5, 1, "attention"), (5, 1), 2 * 4 * 6),
            ((5, 1, "ffn"), (5, 1), 2 * 4 * 10),
            ((5, 3), (5, 2), 2 * 16),
        ],
        ids=str,
    )
    def test_checkpoint_that_shares_less_is_rejected(self, source, target, left, tmp_path):
        prefix, target = checkpoint_of(new_model(*source), tmp_path), new_model(*target)
        before = sequence_output(target)
        message = rf"{left} variables of its blocks .*parameter_sharing.*group0"
        with pytest.raises(LoadError, match=message):
            load_weights(target, prefix)
        np.testing.assert_array_equal(sequence_output(target), before)
        report = load_weights(target, prefix, allow_partial=True)
        assert len(report.ignored) == left

    def test_checkpoint_that_shares_more_is_rejected(self, tmp_path):
        prefix = checkpoint_of(new_model(5, 1), tmp_path)
        with pytest.raises(LoadError) as error:
            load_weights(new_model(5, 1, "none"), prefix)
        first, _, *blocks = str(error.value).splitlines()
        assert "128 of its variables would keep random values" in first
        assert "`init_from_group0`" in first
        line = "  not in the checkpoint, randomly initialized: "
        assert blocks == [
            f"{line}{INNER.format(group, inner, '*')} (16 variables)"
            for group in range(1, 5)
            for inner in (0, 1)
        ]
