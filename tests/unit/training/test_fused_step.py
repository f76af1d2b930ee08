"""Training steps of fused passes: which steps have them, and that they train as plain ones."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling import fused_kernels
from albert_tf.modeling.original_names import original_names
from albert_tf.training.distribution import split_batch
from tests import small_training
from tests.small_model import dropping_config, small_config
from tests.small_records import LENGTH, pretraining_batch
from tests.small_training import ONE_BLOCK, make_task, reports_of

ROWS = 8
KEY_BIAS = "self/key/bias"  # softmax does not see it: its gradient is rounding noise


@pytest.fixture
def fuses_all(monkeypatch):
    monkeypatch.setattr(fused_kernels, "_MIN_ELEMENTS", 0)


def make_trainer(folder, *, config=small_config, optimizer="adamw", **settings):
    task = make_task(config=config(**{**ONE_BLOCK, "num_hidden_layers": 2}))
    return small_training.make_trainer(
        folder,
        task,
        optimizer={"optimizer": optimizer, "learning_rate": 0.02, "num_warmup_steps": 0},
        train_batch_size=ROWS,
        **settings,
    )


def is_compiled(function, *args):
    """Whether a part of a function is compiled."""
    library = function.get_concrete_function(*args).graph.as_graph_def().library
    return any(f.attr["_XlaMustCompile"].b for f in library.function)


def two_steps(trainer):
    """What two steps report, numbers in order, and what the first makes of the gradients."""
    reports, gradients = [], {}
    for seed in (1, 2):
        reports += reports_of(trainer, [pretraining_batch(ROWS, seed)])
        for name, variable in original_names(trainer.model).items():
            # After one step the first moment is the gradient, but for a factor.
            gradients.setdefault(name, trainer.optimizer.slots(variable)["adam_m"].numpy())
    return tf.nest.flatten(reports), gradients


RUNS = {
    "lamb, micro-batches, recomputed": {
        "optimizer": "lamb",
        "gradient_accumulation_steps": 2,
        "remat": True,
    },
    "two replicas, dropout": {"replicas": 2, "config": dropping_config},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_fused_steps_train_as_plain_ones(settings, tmp_path, monkeypatch):
    """Within 1e-5, as other orders of the same sums."""
    plain_trainer = make_trainer(tmp_path, **settings)
    monkeypatch.setattr(fused_kernels, "_MIN_ELEMENTS", 0)
    trainer = make_trainer(tmp_path, **settings)
    batch = split_batch(trainer.strategy, pretraining_batch(ROWS, seed=1))
    assert is_compiled(trainer.train_step, batch)
    assert not is_compiled(plain_trainer.train_step, batch)
    (expected, expected_gradients), (reports, gradients) = map(two_steps, (plain_trainer, trainer))
    np.testing.assert_allclose(reports, expected, rtol=1e-5, atol=1e-7)
    for name, values in expected_gradients.items():
        atol = 1e-7 if name.endswith(KEY_BIAS) else 1e-5 * np.abs(values).max()
        np.testing.assert_allclose(gradients[name], values, rtol=0, atol=atol, err_msg=name)


@pytest.mark.usefixtures("fuses_all")
@pytest.mark.slow
def test_fused_steps_compute_products_in_half_precision(tmp_path):
    batch = pretraining_batch(ROWS, seed=1)
    single, half = (
        make_trainer(tmp_path, precision=precision) for precision in ("float32", "bfloat16")
    )
    graph = half.train_step.get_concrete_function(batch).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    for op, count in {"MatMul": 3 * 14, "BatchMatMulV2": 3 * 4}.items():
        types = [tf.as_dtype(node.attr["T"].type) for node in nodes if node.op == op]
        assert types.count(tf.bfloat16) >= count
    assert not is_compiled(tf.function(lambda: half.model(batch, training=False)))
    (expected,), (actual,) = (reports_of(trainer, [batch]) for trainer in (single, half))
    for name in ("masked_lm_loss", "sentence_order_loss"):
        ratio = actual["sums"][name].sum / expected["sums"][name].sum
        assert 0 < abs(ratio - 1) < 0.01
    assert abs(actual["gradient_norm"] / expected["gradient_norm"] - 1) < 0.03
    assert {v.dtype for v in original_names(half.model).values()} == {"float32"}


def test_only_large_steps_are_worth_compiling():
    """By the elements of all feed-forward layers of a micro-batch."""
    base = AlbertConfig.from_preset("base_v2")
    assert fused_kernels.repays_compilation(base, 8 * 128)
    assert not fused_kernels.repays_compilation(base, 64)
    assert not fused_kernels.repays_compilation(small_config(), 16 * 128)


def test_micro_batches_and_replicas_make_a_step_small(tmp_path, monkeypatch):
    elements = ROWS * LENGTH * small_config().intermediate_size * 2
    monkeypatch.setattr(fused_kernels, "_MIN_ELEMENTS", elements)
    assert make_trainer(tmp_path)._training.fuses
    assert not make_trainer(tmp_path, replicas=2)._training.fuses
    parts = make_trainer(tmp_path, gradient_accumulation_steps=2)
    assert not parts._training.fuses


@pytest.mark.usefixtures("fuses_all")
@pytest.mark.parametrize("settings", [{"jit_compile": True}, {"precision": "float16"}])
def test_what_xla_or_a_policy_settles_is_left_alone(settings, tmp_path):
    assert not make_trainer(tmp_path, **settings)._training.fuses
