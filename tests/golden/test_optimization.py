"""Schedules, updates and training runs of the original release."""

from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import load_weights
from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import classification_loss
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.training.optimization import (
    AdamWeightDecay,
    Lamb,
    WarmupPolynomialDecay,
    clip_by_global_norm,
)
from tests.golden.reference import DATA, numbered, read_arrays, read_json, recorded_training

FOLDER = DATA / "optimization"
CONFIG_0 = DATA / "modeling" / "config_0"
OPTIMIZERS = {"adamw": AdamWeightDecay, "lamb": Lamb}


def test_learning_rates():
    tables = read_json(FOLDER / "learning_rate_tables.json")
    assert len(tables) == 10
    for table in tables:
        schedule = WarmupPolynomialDecay(
            table["init_lr"],
            num_train_steps=table["num_train_steps"],
            num_warmup_steps=table["num_warmup_steps"],
            start_warmup_step=table["start_warmup_step"],
            power=table["poly_power"],
        )
        rates = [float(schedule(tf.constant(step, tf.int64))) for step in table["steps"]]
        # Negative before start_warmup_step in the original; 0 here, on purpose.
        expected = np.maximum(table["learning_rate"], 0.0)
        np.testing.assert_allclose(rates, expected, rtol=1e-6, atol=1e-7 * table["init_lr"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_of_variables(name):
    data = read_arrays(FOLDER / "bare_variables.npz")
    starts = read_arrays(FOLDER / "bare_variables.npz", "start/")
    assert len(starts) == 9
    variables = [tf.Variable(value, name=path) for path, value in starts.items()]
    optimizer = OPTIMIZERS[name](WarmupPolynomialDecay(0.1, num_train_steps=100))
    optimizer.build(variables)
    for step in range(1, 6):
        gradients = [tf.constant(data[f"gradient_{step}/{path}"]) for path in starts]
        optimizer.apply_reduced(clip_by_global_norm(gradients, 1.0)[0], variables)
        for path, variable in zip(starts, variables, strict=True):
            np.testing.assert_allclose(
                variable, data[f"{name}/step_{step}/{path}"], rtol=1e-6, atol=1e-6, err_msg=path
            )
    for path, variable in zip(starts, variables, strict=True):
        for slot, moment in optimizer.slots(variable).items():
            np.testing.assert_allclose(
                moment, data[f"{name}/slots/{path}/{slot}"], rtol=1e-6, atol=1e-9, err_msg=path
            )


RUNS = ["base", "power2_start2", "no_warmup", "not_clipped"]
USUAL_RUNS = [(run, "lamb") for run in RUNS]
KEY_BIAS = "attention_1/self/key/bias"  # its gradient is 0 except for rounding


def schedule_of(run):
    return WarmupPolynomialDecay(
        run["init_lr"],
        num_train_steps=run["num_train_steps"],
        num_warmup_steps=run["num_warmup_steps"],
        start_warmup_step=run["start_warmup_step"],
        power=run["poly_power"],
    )


class Training:
    """Training of a small ALBERT with the updates of the original."""

    def __init__(self, optimizer):
        config = AlbertConfig.from_json_file(str(CONFIG_0 / "albert_config.json"))
        self.model = AlbertForPretraining(config)
        self.variables = original_names(self.model)
        self.optimizer = OPTIMIZERS[optimizer](1.0)  # each step has a rate
        self.optimizer.build(list(self.variables.values()))

    def restart(self):
        """Restores the initial weights, moments and step."""
        for variable in self.optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        load_weights(self.model, str(CONFIG_0 / "model.ckpt"))

    @tf.function(autograph=False)  # as in training
    def step(self, batch, rate, loss_scale):
        """Returns masked-LM loss, sentence-order loss and gradient norm before the update."""
        labels = batch["next_sentence_labels"][:, 0]
        variables = list(self.variables.values())
        with tf.GradientTape() as tape:
            outputs = self.model(batch)
            masked_lm = classification_loss(
                outputs["masked_lm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"]
            ).mean()
            sentence_order = classification_loss(
                outputs["sentence_order_logits"], labels, tf.ones_like(labels, tf.float32)
            ).mean()
            loss = loss_scale * (masked_lm + sentence_order)
        gradients, norm = clip_by_global_norm(tape.gradient(loss, variables), 1.0)
        self.optimizer.apply_reduced(gradients, variables, rate)
        return masked_lm, sentence_order, norm

    def assert_variables_equal(self, recorded, prefix):
        """Checks variables within 1e-5 of their largest recorded entry."""
        for name, variable in self.variables.items():
            expected = recorded[f"{prefix}/{name}"]
            atol = 1e-4 if name.endswith(KEY_BIAS) else 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(variable, expected, rtol=0, atol=atol, err_msg=name)

    def assert_slots_equal(self, recorded):
        """Checks moments within 2e-5 of their size."""
        for name, variable in self.variables.items():
            slots = self.optimizer.slots(variable)
            m, v = (recorded[f"slots/{name}/{slot}"] for slot in ("adam_m", "adam_v"))
            if name.endswith(KEY_BIAS):
                assert np.abs(slots["adam_m"]).max() < 1e-8
                assert np.abs(slots["adam_v"]).max() < 1e-16
                continue
            # The terms 0.1 g of m can cancel; v, a sum of 0.001 g^2, shows their size.
            size = max(np.abs(m).max(), 0.1 * np.sqrt(v.max() / 0.001))
            np.testing.assert_allclose(slots["adam_m"], m, rtol=0, atol=2e-5 * size, err_msg=name)
            np.testing.assert_allclose(
                slots["adam_v"], v, rtol=0, atol=2e-5 * v.max(), err_msg=name
            )


@cache
def training_of(optimizer, policy):
    """Returns a training whose step is traced once. `policy` is the current dtype policy."""
    return Training(optimizer)


def repeat_run(optimizer, run_name, check_step):
    """Repeats a recorded run of eight steps with dense embedding gradients.

    With sparse gradients, the original clips by another norm.
    """
    file = f"{optimizer}_{run_name}_onehot.npz"
    run, _ = recorded_training(file)
    training = training_of(optimizer, keras.config.dtype_policy().name)
    training.restart()
    schedule, recorded = schedule_of(run), read_arrays(FOLDER / file)
    batches = read_arrays(FOLDER / "batches.npz")
    for step, rate in enumerate(recorded["learning_rate"], start=1):
        # If the original's rate is negative, ours is 0, and the recorded one is used.
        np.testing.assert_allclose(
            schedule(training.optimizer.iterations), max(rate, 0.0), rtol=1e-6, atol=1e-10
        )
        *losses, norm = training.step(
            numbered(batches, step), tf.constant(rate), tf.constant(run["loss_scale"])
        )
        loss = run["loss_scale"] * np.sum(losses)
        np.testing.assert_allclose(loss, recorded["loss"][step - 1], rtol=1e-5, atol=0)
        expected_norm = recorded["global_grad_norm"][step - 1]
        np.testing.assert_allclose(norm, expected_norm, rtol=2e-5, atol=0)
        check_step(training, recorded, f"step_{step}")
    assert training.optimizer.iterations.numpy() == recorded["global_step_after"] == 8
    return training, recorded


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_after_every_step(optimizer):
    repeat_run(optimizer, "base", Training.assert_variables_equal)


@pytest.fixture
def double_precision():
    """With negative rates, AdamW magnifies rounding errors fifty times in eight float32 steps."""
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("run_name", "optimizer"),
    [
        pytest.param(run, name, marks=[pytest.mark.slow] * ((run, name) not in USUAL_RUNS))
        for run in RUNS
        for name in OPTIMIZERS
    ],
)
def test_weights_and_moments_after_eight_steps(optimizer, run_name):
    training, recorded = repeat_run(optimizer, run_name, lambda *_: None)
    assert {variable.dtype for variable in training.variables.values()} == {"float64"}
    training.assert_variables_equal(recorded, "step_8")
    training.assert_slots_equal(recorded)
