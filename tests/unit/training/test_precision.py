"""Every precision on a tiny model: what is half, what stays float32, and that training agrees."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.config import PRECISIONS
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.layers import SelfAttention, dropout
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.training import precision as module
from albert_tf.training.distribution import create_strategy
from albert_tf.training.precision import build_model
from tests import small_training
from tests.small_model import encoder_inputs, small_config
from tests.small_records import pretraining_batch
from tests.small_training import make_task, reports_of

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
CONFIG = small_config(num_hidden_layers=2, num_hidden_groups=1, inner_group_num=1, **DROPOUT)
PRODUCTS = {"BatchMatMulV2", "MatMul"}
HLO_OPERATIONS = {"dot": {"bf16"}, "exponential": {"f32"}, "log": {"f32"}, "reduce": {"f32"}}
HLO_OPERATIONS |= {"rsqrt": {"f32"}}


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
def runs(tmp_path_factory):
    """Losses of three steps, the trainer and the weights, by precision."""
    results = {}
    for precision in PRECISIONS:
        folder = tmp_path_factory.mktemp(precision)
        trainer = make_trainer(folder, precision)
        reports = reports_of(trainer, [pretraining_batch(6, seed) for seed in range(3)])
        checkpoint = str(folder / "model.ckpt-3")
        write_checkpoint(checkpoint, original_names(trainer.model), 3)
        results[precision] = reports, trainer, checkpoint
    return results


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """The nodes of the graphs that a step ran, by precision."""
    results, earlier = {}, set()
    # TensorFlow also has a graph for each operation that ever ran by itself in this process, and
    # graphs of earlier tests: many, which makes these tests slow.
    _, found = graphs_while(tf.function(lambda: tf.constant(1.0)))
    for precision in PRECISIONS:
        earlier |= {graph.SerializeToString(deterministic=True) for graph in found}
        trainer = make_trainer(tmp_path_factory.mktemp(precision), precision)
        _, found = graphs_while(
            lambda trainer=trainer: reports_of(trainer, [pretraining_batch(6, 0)])
        )
        results[precision] = [
            node
            for graph in found
            if len(graph.node) > 20 and graph.SerializeToString(deterministic=True) not in earlier
            for node in graph.node
        ]
    return results


def graphs_while(run):
    """What a function returns, and the graphs that TensorFlow lists as run meanwhile."""
    state = context.context()
    state.enable_run_metadata()
    result = run()
    found = [g.post_optimization_graph for g in state.export_run_metadata().function_graphs]
    state.disable_run_metadata()
    return result, found


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains_as_single_precision_does(runs, precision):
    """Within 1 %; dropout draws the same masks in all precisions."""
    (expected, *_), (actual, *_) = runs["float32"], runs[precision]
    for a, b in zip(actual, expected, strict=True):
        assert np.isfinite(tf.nest.flatten(a)).all()
        for name in ("masked_lm_loss", "sentence_order_loss"):
            ratio = a["sums"][name].sum / b["sums"][name].sum
            assert 0 < abs(ratio - 1) < 0.01
        assert abs(a["gradient_norm"] / b["gradient_norm"] - 1) < 0.03


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_moments_and_checkpoints_are_float32(runs, precision):
    _, trainer, checkpoint = runs[precision]
    slots = [s for v in trainer._training.variables for s in trainer.optimizer.slots(v).values()]
    assert {v.dtype for v in [*trainer._training.variables, *slots]} == {"float32"}
    twin = AlbertForPretraining(CONFIG)
    load_weights(twin, checkpoint).check_complete()
    for name, variable in original_names(twin).items():
        np.testing.assert_array_equal(variable, original_names(trainer.model)[name])


def types_of(node):
    return {value.type for value in node.attr.values() if value.WhichOneof("value") == "type"}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_softmax_norms_sums_and_losses_are_float32(graphs, precision):
    half_type = tf.as_dtype(precision).as_datatype_enum
    half = [node for node in graphs[precision] if half_type in types_of(node)]
    operations = {node.op for node in half}
    assert operations >= PRODUCTS
    single = {"Softmax", "Mean", "Sum", "Rsqrt", "Pow", "SparseSoftmaxCrossEntropyWithLogits"}
    assert not operations & single
    products = [node for node in graphs[precision] if node.op in PRODUCTS]
    # The products of the two blocks, forward and backward, at least.
    assert sum(half_type in types_of(node) for node in products) > 3 * 2 * 8
    assert not any(half_type in types_of(node) for node in graphs["float32"])


def test_a_compiled_step_reduces_in_float32(tmp_path, monkeypatch):
    """What a TPU would run: products in bfloat16, whatever is summed or normalised in float32."""
    monkeypatch.setattr(module, "device_type", lambda strategy: "TPU")
    trainer = make_trainer(tmp_path, "bfloat16", jit_compile=True)
    batch = pretraining_batch(6, seed=0)
    program = trainer.train_step.experimental_get_compiler_ir(batch)(stage="hlo")
    types = {op: set(re.findall(rf"= (\w+)\[[^=]* {op}\(", program)) for op in HLO_OPERATIONS}
    assert types == HLO_OPERATIONS


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
class TestPolicies:
    def test_attention_to_padding_is_zero_and_sums_are_exact(self, policy):
        layer = SelfAttention(small_config(), dtype=policy)
        x = tf.cast(np.random.default_rng(0).normal(0, 4, (2, 400, 12)), tf.float32)
        mask = tf.constant([[1] * 9 + [0] * 391, [1] * 400])
        _, probabilities = layer(x, mask)
        probabilities = tf.cast(probabilities, tf.float32)
        np.testing.assert_array_equal(probabilities[0, :, :, 9:], 0)
        # Each of 400 is rounded once, up or down; a sum in bfloat16 could be 0.5 away.
        np.testing.assert_allclose(tf.reduce_sum(probabilities, -1), 1, rtol=0, atol=0.004)

    def test_dropout_draws_the_masks_of_single_precision(self, policy):
        dtype = keras.DTypePolicy(policy).compute_dtype
        single = dropout(tf.ones([300, 70]), 0.1, tf.constant([1, 2]))
        half = dropout(tf.ones([300, 70], dtype), 0.1, tf.constant([1, 2]))
        assert half.dtype == dtype
        np.testing.assert_array_equal(half == 0, single == 0)

    def test_gradients_of_positions_do_not_stall(self, policy):
        """A position is looked up once for each of 1500 equal rows: 1500 times one row's."""
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
    """Stands for a strategy on other devices; the scope is the default one."""

    def __init__(self, device_type):
        self.extended = self
        self.worker_devices = (f"/job:worker/replica:0/task:0/device:{device_type}:0",)

    def scope(self):
        return tf.distribute.get_strategy().scope()


def test_single_precision_leaves_a_policy_of_the_program_alone():
    keras.config.set_dtype_policy("float64")
    try:
        model = build_model(lambda: keras.layers.Dense(2), "float32", FakeStrategy("GPU"))
        assert keras.config.dtype_policy().name == "float64"
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.dtype_policy.name == "float64"


@pytest.mark.parametrize("device_type", ["CPU", "GPU", "TPU"])
def test_half_precision_is_a_policy_on_every_device(device_type):
    def layer():
        return keras.layers.Dense(2)

    model = build_model(layer, "bfloat16", FakeStrategy(device_type))
    assert model.dtype_policy.name == "mixed_bfloat16"


def test_a_tpu_has_no_float16():
    with pytest.raises(ValueError, match="float16"):
        build_model(keras.Model, "float16", FakeStrategy("TPU"))


@pytest.mark.parametrize(
    ("content", "is_warned"),
    [
        ("flags\t\t: fpu avx512f avx512_vnni\n", True),
        ("flags\t\t: fpu avx512_bf16 sse2\n", False),
        ("Features\t: fp asimd bf16\n", False),
        ("processor: 1\n", False),
    ],
)
def test_processors_without_bfloat16_are_warned_of(
    tmp_path, monkeypatch, caplog, content, is_warned
):
    (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(module, "_CPU_FLAGS", str(tmp_path / "cpuinfo"))
    build_model(keras.Model, "bfloat16", create_strategy("one_device"))
    assert ("several times slower than float32" in caplog.text) == is_warned
