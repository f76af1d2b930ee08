"""Schedule, clipping and updates. tests/golden compares numbers with the original."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.training.optimization import (
    AdamWeightDecay,
    Lamb,
    WarmupPolynomialDecay,
    clip_by_global_norm,
    create_optimizer,
)
from albert_tf.training.settings import OptimizerConfig

pytestmark = pytest.mark.usefixtures("eager")

OPTIMIZERS = pytest.mark.parametrize("optimizer_class", [AdamWeightDecay, Lamb])


def make_variables():
    """Returns a kernel and an embedding, which decay, and three excluded variables."""
    random = np.random.default_rng(5)
    shapes = {
        "kernel": (4, 3),
        "word_embeddings": (7, 2),
        "output_bias": (3,),
        "gamma": (5,),
        "beta": (6,),
    }
    return [
        keras.Variable(random.normal(size=shape).astype(np.float32), name=name)
        for name, shape in shapes.items()
    ]


def make_gradients(step):
    random = np.random.default_rng(100 + step)
    return [random.normal(size=v.shape).astype(np.float32) for v in make_variables()]


def make_model():
    random.seed(11)
    return keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(7),
            keras.layers.LayerNormalization(),
            keras.layers.Dense(3, use_bias=False),
        ]
    )


def make_batch():
    random = np.random.default_rng(2)
    return (
        random.normal(size=(8, 5)).astype(np.float32),
        random.normal(size=(8, 3)).astype(np.float32),
    )


class TestSchedule:
    def test_num_decay_steps(self):
        schedule = WarmupPolynomialDecay(0.8, 12, num_warmup_steps=4, power=2.0, num_decay_steps=5)
        rates = [float(schedule(step)) for step in (0, 2, 3, 4, 6, 7, 8, 11, 12, 99)]
        expected = [0.0, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8 * 0.64, 0.8 * 0.04, 0.0, 0.0]
        np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-8)

    def test_rejects_invalid_values(self):
        for name, value in (
            ("num_train_steps", 0),
            ("initial_learning_rate", float("nan")),
            ("power", -1.0),
            ("num_decay_steps", 0),
            ("num_decay_steps", 11),
        ):
            values = {"initial_learning_rate": 0.1, "num_train_steps": 10, name: value}
            with pytest.raises(ValueError, match=f"{name}.*Received: {value}"):
                WarmupPolynomialDecay(**values)


class TestClipping:
    def test_sums_rows_of_sparse_gradients(self):
        rows = tf.IndexedSlices(tf.constant([[3.0], [1.0]]), tf.constant([2, 2]), (4, 1))
        clipped, norm = clip_by_global_norm([rows], 2.0)
        np.testing.assert_allclose(norm, 4.0, rtol=1e-6, atol=0)
        np.testing.assert_allclose(clipped[0], [[0.0], [0.0], [2.0], [0.0]], rtol=1e-6, atol=0)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
    def test_norm_that_is_not_finite_gives_zeros(self, bad):
        clipped, norm = clip_by_global_norm([tf.constant([1.0, bad]), tf.constant([2.0])], 1.0)
        assert not np.isfinite(norm)
        np.testing.assert_array_equal(clipped[0], [0.0, 0.0])
        np.testing.assert_array_equal(clipped[1], [0.0])

    def test_rejects_a_loss_without_gradients(self):
        with pytest.raises(ValueError, match="No variable has a gradient"):
            clip_by_global_norm([None, None], 1.0)


class TestUpdates:
    @pytest.mark.parametrize(("start", "gradient"), [(0.0, 1.0), (2.0, 0.0)])
    def test_trust_ratio_is_one_if_a_norm_is_zero(self, start, gradient):
        kernel = keras.Variable(np.full((2, 3), start), name="kernel", dtype="float32")
        optimizer = Lamb(0.1, weight_decay_rate=0.0)
        optimizer.build([kernel])
        optimizer.apply_reduced([tf.fill((2, 3), gradient)], [kernel])
        first_update = 0.1 * gradient / (np.sqrt(0.001) * gradient + 1e-6)
        np.testing.assert_allclose(
            kernel, np.full((2, 3), start - 0.1 * first_update), rtol=1e-5, atol=1e-7
        )

    @OPTIMIZERS
    def test_variable_without_gradient_is_unchanged(self, optimizer_class):
        variables = make_variables()
        optimizer = optimizer_class(0.5)
        optimizer.build(variables)
        before = [v.numpy() for v in variables]
        gradients = make_gradients(0)
        optimizer.apply_reduced([None, *gradients[1:]], variables)
        np.testing.assert_array_equal(variables[0], before[0])
        for slot in optimizer.slots(variables[0]).values():
            np.testing.assert_array_equal(slot, np.zeros((4, 3)))
        for variable, old in zip(variables[1:], before[1:], strict=True):
            assert np.all(variable.numpy() != old)

    def test_must_be_built(self):
        optimizer = Lamb(0.1)
        with pytest.raises(ValueError, match=r"Call optimizer.build"):
            optimizer.apply_reduced(make_gradients(0), make_variables())
        optimizer.build(make_variables())
        with pytest.raises(ValueError, match="not built with the variable 'kernel'"):
            optimizer.slots(make_variables()[0])

    @OPTIMIZERS
    @pytest.mark.usefixtures("traced")
    def test_skipped_update_changes_nothing_without_a_condition(self, optimizer_class):
        """A GPU would wait for the host to evaluate a condition."""
        states = []
        for skips in (None, False, True):
            variables = make_variables()
            optimizer = optimizer_class(0.1)
            optimizer.build(variables)

            @tf.function(autograph=False)
            def step(gradients, is_skipped=None):
                optimizer.apply_reduced(gradients, variables, is_skipped=is_skipped)  # noqa: B023

            more = [] if skips is None else [tf.constant(skips)]
            for number in range(2):
                step([tf.constant(g) for g in make_gradients(number)], *more)
            graph = step.get_concrete_function(
                [tf.constant(g) for g in make_gradients(0)], *more
            ).graph
            assert not {op.type for op in graph.get_operations()} & {"If", "StatelessIf"}
            slots = [s for v in variables for s in optimizer.slots(v).values()]
            states.append([value.numpy().tobytes() for value in (*variables, *slots)])
        applied, not_skipped, skipped = states
        assert not_skipped == applied
        before = [*make_variables(), *(tf.zeros(v.shape) for v in variables for _ in range(2))]
        assert skipped == [value.numpy().tobytes() for value in before]


class TestSplit:
    def test_compares_whole_words_of_the_own_name(self):
        names = [
            *("encoder/layer_norm/gamma", "b/layer_norm_scale", "query/bias"),
            *("unbiased_model/query/kernel", "alphabet_embeddings", "bias_model/layer_norm/kernel"),
        ]
        variables = [tf.Variable(tf.ones((2, 3)), name=name) for name in names]
        assert [variable.name for variable in variables] == [f"{name}:0" for name in names]
        decayed, excluded = Lamb().split(variables)
        assert [variable.name[:-2] for variable in excluded] == names[:3]
        assert [variable.name[:-2] for variable in decayed] == names[3:]

    def test_rejects_variables_without_a_name(self):
        with pytest.raises(ValueError, match=r"no name: \['variable"):
            Lamb().split([keras.Variable(np.zeros((2, 3)))])

    def test_rejects_names_of_which_none_is_excluded(self):
        variables = [tf.Variable(tf.ones(shape), name=f"w{len(shape)}") for shape in [(2, 3), (4,)]]
        with pytest.raises(ValueError, match="No variable is excluded"):
            Lamb().split(variables)
        assert len(Lamb(exclude=()).split(variables)[0]) == 2


class TestInKeras:
    @pytest.mark.parametrize(
        "optimizer_class", [Lamb, pytest.param(AdamWeightDecay, marks=pytest.mark.slow)]
    )
    def test_training_continues_after_loading_a_keras_file(self, optimizer_class, tmp_path):
        x, y = make_batch()
        model = make_model()
        model.compile(optimizer_class(WarmupPolynomialDecay(0.1, 20, 2)), "mse")
        model.fit(x, y, epochs=3, verbose=0)
        model.save(tmp_path / "model.keras")
        restored = keras.saving.load_model(tmp_path / "model.keras")
        assert type(restored.optimizer) is optimizer_class
        assert int(restored.optimizer.iterations) == 3
        for m in (model, restored):
            m.fit(x, y, epochs=2, verbose=0)
        for one, other in zip(model.get_weights(), restored.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)

    @OPTIMIZERS
    def test_the_schedule_counts_updates_of_accumulated_gradients(self, optimizer_class):
        schedule = WarmupPolynomialDecay(1.0, num_train_steps=8, num_warmup_steps=2)
        optimizer = optimizer_class(schedule, gradient_accumulation_steps=3)
        config = optimizer.get_config()
        optimizer = optimizer_class.from_config(optimizer.get_config())
        assert optimizer.get_config() == config
        variables, rates = make_variables(), []
        optimizer.build(variables)
        for step in range(27):
            rates.append(float(optimizer.learning_rate))
            optimizer.apply(make_gradients(step), variables)
        expected = [0.0, 0.5, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0]
        np.testing.assert_allclose(rates[2::3], expected, rtol=1e-6, atol=0)

    def test_weight_decay_of_keras_is_rejected(self):
        with pytest.raises(ValueError, match=r"weight_decay_rate.*weight_decay=0.1"):
            Lamb(weight_decay=0.1)
        with pytest.raises(NotImplementedError, match="exclude="):
            Lamb().exclude_from_weight_decay(var_names=["bias"])


def test_create_optimizer():
    config = OptimizerConfig("adamw", 0.3, 40, 5, 2, 2.0, 0.03, 0.5, 0.7, 0.9, 1e-4, 8)
    optimizer = create_optimizer(config)
    schedule = WarmupPolynomialDecay(0.3, 40, 5, 2, 2.0, 8)
    arguments = {"global_clipnorm": 0.5, "name": optimizer.name}
    expected = AdamWeightDecay(schedule, 0.03, 0.7, 0.9, 1e-4, **arguments)
    assert type(optimizer) is AdamWeightDecay
    assert optimizer.get_config() == expected.get_config()
    assert type(create_optimizer(OptimizerConfig("lamb"))) is Lamb
