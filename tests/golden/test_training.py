"""The trainer, with batches split in several ways, compared with runs of the original."""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.config import OptimizerConfig, TrainerConfig
from albert_tf.modeling.original_names import original_names
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.distribution import create_strategy, split_batch
from albert_tf.training.trainer import Trainer
from tests.golden.reference import Reference, numbered

KEY_BIAS = "self/key/bias"  # its gradient is 0 except for rounding
# Optimizer, replicas, micro-batches per replica, XLA, remat.
RUNS = [
    pytest.param("lamb", 2, 1, False, False, marks=pytest.mark.slow),
    pytest.param("adamw", 2, 1, False, True, marks=pytest.mark.slow),
    pytest.param("lamb", 1, 2, False, False, marks=pytest.mark.slow),
    pytest.param("adamw", 2, 3, False, False, marks=pytest.mark.slow),
    pytest.param("lamb", 1, 3, True, True, marks=pytest.mark.slow),
    pytest.param("lamb", 2, 3, True, False, marks=pytest.mark.slow),
]


def make_trainer(task, folder, optimizer_config, replicas, micro_batches, jit_compile, remat=False):
    """Returns a trainer for the recorded batches of six rows."""
    return Trainer(
        task,
        TrainerConfig(
            output_dir=str(folder),
            train_batch_size=6,
            jit_compile=jit_compile,
            gradient_accumulation_steps=micro_batches,
            remat=remat,
        ),
        optimizer_config,
        create_strategy("one_device" if replicas == 1 else "mirrored"),
    )


def without_dropout(reference):
    return reference.config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def follow(
    golden,
    folder,
    optimizer,
    replicas,
    micro_batches=1,
    *,
    jit_compile=False,
    remat=False,
    task_class=PretrainingTask,
):
    """Repeats a recorded run of eight steps; returns the weights and the recording."""
    file = f"{optimizer}_base_onehot.npz"
    runs = json.loads((golden / "optimization" / "runs.json").read_text())
    (run,) = (run for run in runs if run["file"] == file)
    optimizer_config = OptimizerConfig(
        optimizer=optimizer,
        learning_rate=run["init_lr"],
        num_train_steps=run["num_train_steps"],
        num_warmup_steps=run["num_warmup_steps"],
        poly_power=run["poly_power"],
    )
    reference = Reference(golden, "config_0")
    trainer = make_trainer(
        task_class(without_dropout(reference), max_seq_length=24, max_predictions_per_seq=5),
        folder,
        optimizer_config,
        replicas,
        micro_batches,
        jit_compile,
        remat,
    )
    load_weights(trainer.model, reference.checkpoint).check_complete()
    with np.load(golden / "optimization" / "batches.npz") as batches:
        for number in range(1, 9):
            trainer.train_step(split_batch(trainer.strategy, numbered(batches, number)))
    weights = {name: v.numpy() for name, v in original_names(trainer.model).items()}
    return weights, np.load(golden / "optimization" / file)


def assert_same_weights(actual, expected, share):
    """Checks variables within `share` of their largest expected entry."""
    for name, values in actual.items():
        atol = 1e-4 if name.endswith(KEY_BIAS) else share * np.abs(expected[name]).max()
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def whole_batch(golden, tmp_path_factory):
    """Returns the weights of one replica without split, by optimizer and XLA."""
    return functools.cache(
        lambda optimizer, jit_compile: follow(
            golden, tmp_path_factory.mktemp("run"), optimizer, 1, jit_compile=jit_compile
        )
    )


@pytest.mark.parametrize(("optimizer", "replicas", "micro_batches", "jit_compile", "remat"), RUNS)
def test_split_batches_equal_whole_batches_and_the_original(
    golden, tmp_path, whole_batch, optimizer, replicas, micro_batches, jit_compile, remat
):
    whole, recorded = whole_batch(optimizer, jit_compile)
    options = {"jit_compile": jit_compile, "remat": remat}
    split, _ = follow(golden, tmp_path, optimizer, replicas, micro_batches, **options)
    expected = {name: recorded[f"step_8/{name}"] for name in whole}
    assert_same_weights(whole, expected, share=1e-5)
    assert_same_weights(split, expected, share=1e-5)
    assert_same_weights(split, whole, share=1e-6)


LONG_RUNS = [
    ("lamb", 2, 1, False),
    ("adamw", 1, 2, False),
    ("lamb", 1, 2, False),
    ("adamw", 2, 3, False),
    ("lamb", 1, 1, True),
    ("lamb", 1, 3, True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "replicas", "micro_batches", "jit_compile"), LONG_RUNS)
def test_losses_of_three_hundred_steps(
    golden, tmp_path, optimizer, replicas, micro_batches, jit_compile
):
    data = dict(np.load(golden / "optimization" / "long_run.npz"))
    config = without_dropout(Reference(golden, "config_0"))
    trainer = make_trainer(
        PretrainingTask(config, max_seq_length=24, max_predictions_per_seq=5),
        tmp_path,
        OptimizerConfig(
            optimizer=optimizer,
            learning_rate={"lamb": 0.004, "adamw": 0.001}[optimizer],
            num_train_steps=300,
            num_warmup_steps=30,
        ),
        replicas,
        micro_batches,
        jit_compile,
    )
    variables = original_names(trainer.model)
    for name, variable in variables.items():
        variable.assign(data[f"start/{name}"])
    batches = [split_batch(trainer.strategy, numbered(data, n)) for n in range(1, 21)]
    steps = [trainer.train_step(batches[n % 20])["sums"] for n in range(300)]
    for name in ("masked_lm_loss", "sentence_order_loss"):
        losses = [step[name].mean() for step in steps]
        expected = data[f"{optimizer}/{name}"]
        np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-3, err_msg=name)
    weights = {name: variable.numpy() for name, variable in variables.items()}
    expected = {name: data[f"{optimizer}/end/{name}"] for name in weights}
    assert_same_weights(weights, expected, share=1e-3)


class DoubleTask(PretrainingTask):
    """Sums in float64."""

    def loss_weights(self, features):
        return _doubled(super().loss_weights(features))

    def losses(self, outputs, features):
        return _doubled(super().losses(outputs, features))

    def metrics(self, outputs, features):
        return _doubled(super().metrics(outputs, features))


def _doubled(sums):
    return tf.nest.map_structure(lambda value: tf.cast(value, tf.float64), sums)


@pytest.fixture
def double_precision():
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("optimizer", "replicas", "micro_batches"),
    [("lamb", 2, 1), ("adamw", 2, 3), ("lamb", 1, 2)],
)
def test_split_batches_differ_only_by_rounding(
    golden, tmp_path, optimizer, replicas, micro_batches
):
    whole, _ = follow(golden, tmp_path, optimizer, 1, task_class=DoubleTask)
    split, _ = follow(golden, tmp_path, optimizer, replicas, micro_batches, task_class=DoubleTask)
    assert whole["bert/pooler/dense/kernel"].dtype == np.float64
    assert_same_weights(split, whole, share=1e-9)
