"""Schedules, bare variables and whole training trajectories of the original release."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.optimization import (
    AdamWeightDecay,
    Lamb,
    WarmupPolynomialDecay,
    clip_by_global_norm,
)

OPTIMIZERS = {"adamw": AdamWeightDecay, "lamb": Lamb}


@pytest.fixture(scope="module")
def recorded(golden):
    return golden / "optimization"


def test_learning_rates_equal_the_tables(recorded):
    tables = json.loads((recorded / "learning_rate_tables.json").read_text())
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
def test_bare_variables_move_as_recorded(recorded, name):
    data = np.load(recorded / "bare_variables.npz")
    starts = {key[len("start/") :]: data[key] for key in data.files if key.startswith("start/")}
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
