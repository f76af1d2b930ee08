"""Frozen variables do not change; all other variables are trained."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.modeling import ops_fused
from albert_tf.modeling.original_names import original_names
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.step import is_frozen
from albert_tf.training.strategies import create_strategy, split_batch
from albert_tf.training.trainer import Trainer
from tests import small_training
from tests.small_training import forget_after
from tests.unit.test_job_tasks import DROPPING, make_task, weights

EMBEDDINGS = {
    "bert/embeddings/LayerNorm/beta",
    "bert/embeddings/LayerNorm/gamma",
    "bert/embeddings/position_embeddings",
    "bert/embeddings/token_type_embeddings",
    "bert/embeddings/word_embeddings",
}


def make_trainer(folder, task, freeze, last_step=4, replicas=1, **config):
    return Trainer(
        task,
        TrainerConfig(str(folder), 4, save_checkpoints_steps=2, seed=5, freeze=freeze, **config),
        OptimizerConfig("adamw", 0.01, last_step, 0),
        create_strategy("one_device" if replicas == 1 else "mirrored"),
    )


def train(folder, *args, **settings):
    """Trains or resumes; returns the trainer and its first weights."""
    trainer = make_trainer(folder, *args, **settings)
    before = weights(trainer)
    return small_training.train(trainer), before


def test_the_scope_determines_the_frozen_variables():
    names = list(original_names(make_task(config=DROPPING).build_model()))
    assert {name for name in names if is_frozen(name, "embeddings")} == EMBEDDINGS
    trained = [name for name in names if not is_frozen(name, "encoder")]
    assert trained == ["output_weights", "output_bias"]
    assert not any(is_frozen(name, None) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "freeze", "replicas", "config"),
    [
        ("classes", "encoder", 1, {}),
        ("classes", "embeddings", 2, {"gradient_accumulation_steps": 2}),
        ("beams", "embeddings", 1, {"remat": True}),
        ("beams", "encoder", 1, {"precision": "float16"}),
        ("spans", "encoder", 1, {"jit_compile": True}),
        ("choices", "embeddings", 1, {"is_fused": True}),
    ],
)
def test_frozen_variables_are_not_updated_and_runs_resume_exactly(
    name, freeze, replicas, config, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO", logger="absl")
    if config.pop("is_fused", False):
        monkeypatch.setattr(ops_fused, "_MIN_ELEMENTS", 0)
    task = make_task(name, config=DROPPING, padding="max")
    settings = {"replicas": replicas, **config}
    unbroken, before = train(tmp_path, task, freeze, **settings)
    after = weights(unbroken)
    variables = original_names(unbroken.model)
    trainable = {key: variable for key, variable in variables.items() if variable.trainable}
    for key, variable in trainable.items():
        has_moments = any(np.any(slot) for slot in unbroken.optimizer.slots(variable).values())
        is_same = np.array_equal(after[key], before[key])
        expected = (True, False) if is_frozen(key, freeze) else (False, True)
        assert (is_same, has_moments) == expected, key
    sizes = {key: after[key].size for key in trainable}
    trained = sum(size for key, size in sizes.items() if not is_frozen(key, freeze))
    assert f"training {trained} of {sum(sizes.values())} parameters" in caplog.text
    stored = open_weights(str(tmp_path / "model.ckpt-4"))
    expected = {f"{key}{slot}" for key in sizes for slot in ("", "/adam_m", "/adam_v")}
    assert stored.keys() == expected | {*after, "global_step"}

    forget_after(2, tmp_path)
    resumed, _ = train(tmp_path, task, freeze, **settings)
    np.testing.assert_equal(weights(resumed), after)


@pytest.mark.parametrize("freeze", ["encoder", pytest.param("embeddings", marks=pytest.mark.slow)])
def test_the_gradient_norm_excludes_frozen_variables(freeze, tmp_path):
    """A frozen encoder has no backward pass."""
    task = make_task(classifier_dropout_prob=0.0)
    trainer = make_trainer(tmp_path, task, freeze)
    batch = next(iter(task.train_dataset(4, seed=3)))
    variables = original_names(trainer.model)
    trained = [v.value for key, v in variables.items() if not is_frozen(key, freeze)]
    with tf.GradientTape() as tape:
        loss = task.total_loss(task.losses(trainer.model(batch), batch))
    norm = tf.linalg.global_norm(tape.gradient(loss, trained))
    batch = split_batch(trainer.strategy, batch)
    before = weights(trainer)
    report = trainer.train_step(batch)
    for key, values in weights(trainer).items():
        assert np.array_equal(values, before[key]) == is_frozen(key, freeze), key
    np.testing.assert_allclose(report["gradient_norm"], norm, rtol=1e-5, atol=0)
    operations = trainer.train_step.get_concrete_function(batch).graph.as_graph_def()
    names = [node.name for f in operations.library.function for node in f.node_def]
    backward = [name for name in names if "gradient_tape" in name and "/encoder" in name]
    assert any("gradient_tape" in name for name in names)
    assert bool(backward) == (freeze == "embeddings")
