"""Training of a tiny model in every precision."""

from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.loading import load_weights
from albert_tf.config import BFLOAT16, FLOAT16, FLOAT32
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.training.step import build_model
from tests import small_training
from tests.small_model import ONE_BLOCK, encoder_inputs, small_config
from tests.small_records import pretraining_batch
from tests.small_training import make_task, reports_of

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
CONFIG = small_config(**ONE_BLOCK, **DROPOUT)

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(autouse=True)
def process_as_before():
    yield
    assert keras.config.dtype_policy().name == "float32"


def make_trainer(folder, precision, **config):
    return small_training.make_trainer(
        folder,
        make_task(config=CONFIG),
        optimizer={"optimizer": "adamw", "learning_rate": 1e-3, "num_warmup_steps": 3125},
        train_batch_size=6,
        precision=precision,
        **config,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a function that returns losses of three steps, trainer and weights, cached."""

    @cache
    def run_in(precision):
        folder = tmp_path_factory.mktemp(precision)
        trainer = make_trainer(folder, precision)
        reports = reports_of(trainer, [pretraining_batch(6, seed) for seed in range(3)])
        checkpoint = str(folder / "model.ckpt-3")
        write_checkpoint(checkpoint, original_names(trainer.model), 3)
        return reports, trainer, checkpoint

    return run_in


HALF = (BFLOAT16, pytest.param(FLOAT16, marks=pytest.mark.slow))


@pytest.mark.parametrize("precision", HALF)
def test_half_precision_trains_like_float32(run, precision):
    """Losses agree within 1%. Dropout masks are the same in all precisions."""
    (expected, *_), (actual, *_) = run(FLOAT32), run(precision)
    for a, b in zip(actual, expected, strict=True):
        assert np.isfinite(tf.nest.flatten(a)).all()
        for name in ("masked_lm_loss", "sentence_order_loss"):
            ratio = a["sums"][name].sum / b["sums"][name].sum
            assert 0 < abs(ratio - 1) < 0.01
        assert abs(a["gradient_norm"] / b["gradient_norm"] - 1) < 0.03


@pytest.mark.parametrize("precision", [FLOAT32, *HALF])
def test_weights_moments_and_checkpoints_are_float32(run, precision):
    _, trainer, checkpoint = run(precision)
    slots = [s for v in trainer._training.variables for s in trainer.optimizer.slots(v).values()]
    assert {v.dtype for v in [*trainer._training.variables, *slots]} == {"float32"}
    twin = AlbertForPretraining(CONFIG)
    load_weights(twin, checkpoint).check_complete()
    for name, variable in original_names(twin).items():
        np.testing.assert_array_equal(variable, original_names(trainer.model)[name])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_gradients_of_positions_are_summed_in_float32(policy):
    """The gradient of 1500 equal rows is 1500 times the gradient of one row."""
    model = AlbertEncoder(small_config(), dtype=policy)
    inputs = {name: values[:1] for name, values in encoder_inputs().items()}
    gradients = []
    for rows in (1, 1500):
        batch = {name: tf.repeat(values, rows, axis=0) for name, values in inputs.items()}
        with tf.GradientTape() as tape:
            outputs = model.embeddings(batch["input_ids"], batch["segment_ids"])[0]
            total = tf.reduce_sum(tf.cast(outputs, tf.float32)[:, :, 0])
        gradients.append(tape.gradient(total, model.embeddings.position_embeddings))
    np.testing.assert_allclose(gradients[1], 1500 * gradients[0], rtol=0.01, atol=0.01)


class FakeStrategy:
    """A strategy on other devices with the default scope."""

    def __init__(self, device_type):
        self.extended = self
        self.worker_devices = (f"/job:worker/replica:0/task:0/device:{device_type}:0",)

    def scope(self):
        return tf.distribute.get_strategy().scope()


@pytest.mark.parametrize(
    ("precision", "policy"), [("float32", "float64"), ("bfloat16", "mixed_bfloat16")]
)
def test_only_half_precision_sets_the_policy(precision, policy):
    keras.config.set_dtype_policy("float64")
    try:
        model = build_model(lambda: keras.layers.Dense(2), precision, FakeStrategy("GPU"))
        assert keras.config.dtype_policy().name == "float64"
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.dtype_policy.name == policy


def test_float16_is_rejected_on_tpus():
    with pytest.raises(ValueError, match="float16"):
        build_model(keras.Model, "float16", FakeStrategy("TPU"))
