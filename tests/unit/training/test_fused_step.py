"""Training steps with fused passes."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling import ops_fused
from albert_tf.modeling.original_names import original_names
from albert_tf.training.strategies import split_batch
from tests import small_training
from tests.small_model import dropping_config, small_config
from tests.small_records import LENGTH, pretraining_batch
from tests.small_training import ONE_BLOCK, make_task, reports_of

ROWS = 8
KEY_BIAS = "self/key/bias"  # its gradient is 0 except for rounding, because of the softmax


def make_trainer(folder, *, config=small_config, optimizer="adamw", **settings):
    task = make_task(config=config(**{**ONE_BLOCK, "num_hidden_layers": 2}))
    return small_training.make_trainer(
        folder,
        task,
        optimizer={"optimizer": optimizer, "learning_rate": 0.02, "num_warmup_steps": 0},
        train_batch_size=ROWS,
        **settings,
    )


def is_fused(trainer):
    return isinstance(trainer._training.ops, ops_fused.FusedOps)


def is_compiled(function, *args):
    """Returns whether a part of a function is compiled."""
    library = function.get_concrete_function(*args).graph.as_graph_def().library
    return any(f.attr["_XlaMustCompile"].b for f in library.function)


def two_steps(trainer):
    """Returns the reported numbers of two steps, and the gradients of the first."""
    reports, gradients = [], {}
    for seed in (1, 2):
        reports += reports_of(trainer, [pretraining_batch(ROWS, seed)])
        for name, variable in original_names(trainer.model).items():
            # After one step, the first moment is proportional to the gradient.
            gradients.setdefault(name, trainer.optimizer.slots(variable)["adam_m"].numpy())
    return tf.nest.flatten(reports), gradients


RUNS = {
    "lamb, recomputed": {"optimizer": "lamb", "gradient_accumulation_steps": 2, "remat": True},
    "two replicas, dropout": {"replicas": 2, "config": dropping_config},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_fused_steps_equal_plain_steps(settings, tmp_path, monkeypatch):
    """Within 1e-5, because sums are rounded differently."""
    plain_trainer = make_trainer(tmp_path, **settings)
    monkeypatch.setattr(ops_fused, "_MIN_ELEMENTS", 0)
    trainer = make_trainer(tmp_path, **settings)
    batch = split_batch(trainer.strategy, pretraining_batch(ROWS, seed=1))
    assert is_compiled(trainer.train_step, batch)
    assert not is_compiled(plain_trainer.train_step, batch)
    (expected, expected_gradients), (reports, gradients) = map(two_steps, (plain_trainer, trainer))
    np.testing.assert_allclose(reports, expected, rtol=1e-5, atol=1e-7)
    for name, values in expected_gradients.items():
        atol = 1e-7 if name.endswith(KEY_BIAS) else 1e-5 * np.abs(values).max()
        np.testing.assert_allclose(gradients[name], values, rtol=0, atol=atol, err_msg=name)


def test_only_large_steps_are_fused(tmp_path, monkeypatch):
    """The size counts one micro-batch."""
    base = AlbertConfig.from_preset("base_v2")
    assert ops_fused.repays_compilation(base, 8 * 128)
    assert not ops_fused.repays_compilation(base, 64)
    assert not ops_fused.repays_compilation(small_config(), 16 * 128)
    elements = ROWS * LENGTH * small_config().intermediate_size * 2
    monkeypatch.setattr(ops_fused, "_MIN_ELEMENTS", elements)
    assert is_fused(make_trainer(tmp_path))
    assert not is_fused(make_trainer(tmp_path, replicas=2))
    assert not is_fused(make_trainer(tmp_path, gradient_accumulation_steps=2))
    monkeypatch.setattr(ops_fused, "_MIN_ELEMENTS", 0)
    for settings in ({"jit_compile": True}, {"precision": "float16"}):
        assert not is_fused(make_trainer(tmp_path, **settings))
