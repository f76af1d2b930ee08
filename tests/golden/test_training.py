"""The trainer, with batches split in several ways, compared with runs of the original."""

import functools

import numpy as np
import pytest

from albert_tf.checkpoints.loading import load_weights
from albert_tf.modeling.original_names import original_names
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.strategies import split_batch
from tests.golden.reference import DATA, Reference, numbered, read_arrays, recorded_training
from tests.small_training import make_trainer

pytestmark = pytest.mark.slow  # ten seconds per run

FOLDER = DATA / "optimization"
KEY_BIAS = "self/key/bias"  # its gradient is 0 except for rounding


def recorded_trainer(folder, optimizer, replicas, micro_batches, jit_compile, remat=False):
    """Returns a trainer for the recorded batches of six rows, without dropout."""
    config = Reference("config_0").config
    config = config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return make_trainer(
        folder,
        PretrainingTask(config, max_seq_length=24, max_predictions_per_seq=5),
        optimizer["num_train_steps"],
        replicas=replicas,
        optimizer=optimizer,
        train_batch_size=6,
        jit_compile=jit_compile,
        gradient_accumulation_steps=micro_batches,
        remat=remat,
    )


def weights_after_eight_steps(
    folder, optimizer, replicas, micro_batches=1, *, jit_compile=False, remat=False
):
    """Repeats a recorded run; returns our weights and the recorded ones."""
    _, settings = recorded_training(f"{optimizer}_base_onehot.npz")
    trainer = recorded_trainer(folder, settings, replicas, micro_batches, jit_compile, remat)
    load_weights(trainer.model, Reference("config_0").checkpoint).check_complete()
    batches = read_arrays(FOLDER / "batches.npz")
    for number in range(1, 9):
        trainer.train_step(split_batch(trainer.strategy, numbered(batches, number)))
    weights = {name: v.numpy() for name, v in original_names(trainer.model).items()}
    recorded = read_arrays(FOLDER / f"{optimizer}_base_onehot.npz", "step_8/")
    return weights, {name: recorded[name] for name in weights}


def assert_same_weights(actual, expected, share):
    """Checks variables within `share` of their largest expected entry."""
    for name, values in actual.items():
        atol = 1e-4 if name.endswith(KEY_BIAS) else share * np.abs(expected[name]).max()
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def whole_batch(tmp_path_factory):
    """Returns a cached function for the weights of one replica with whole batches."""
    return functools.cache(
        lambda optimizer, jit_compile: weights_after_eight_steps(
            tmp_path_factory.mktemp("run"), optimizer, 1, jit_compile=jit_compile
        )
    )


@pytest.mark.parametrize(
    ("optimizer", "replicas", "micro_batches", "jit_compile", "remat"),
    [
        ("lamb", 2, 1, False, False),
        ("adamw", 2, 1, False, True),
        ("lamb", 1, 2, False, False),
        ("adamw", 2, 3, False, False),
        ("lamb", 1, 3, True, True),
        ("lamb", 2, 3, True, False),
    ],
)
def test_split_batches_equal_whole_batches_and_the_original(
    tmp_path, whole_batch, optimizer, replicas, micro_batches, jit_compile, remat
):
    whole, expected = whole_batch(optimizer, jit_compile)
    options = {"jit_compile": jit_compile, "remat": remat}
    split, _ = weights_after_eight_steps(tmp_path, optimizer, replicas, micro_batches, **options)
    assert_same_weights(whole, expected, share=1e-5)
    assert_same_weights(split, expected, share=1e-5)
    assert_same_weights(split, whole, share=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "replicas", "micro_batches", "jit_compile"),
    [("lamb", 2, 1, False), ("adamw", 1, 2, False), ("adamw", 2, 3, False), ("lamb", 1, 3, True)],
)
def test_losses_of_three_hundred_steps(tmp_path, optimizer, replicas, micro_batches, jit_compile):
    data = read_arrays(FOLDER / "long_run.npz")
    settings = {
        "optimizer": optimizer,
        "learning_rate": {"lamb": 0.004, "adamw": 0.001}[optimizer],
        "num_train_steps": 300,
        "num_warmup_steps": 30,
    }
    trainer = recorded_trainer(tmp_path, settings, replicas, micro_batches, jit_compile)
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
