"""The encoder: inputs, dropout, and use as a Keras model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.encoder import AlbertEncoder
from tests.small_model import (
    BATCH,
    LENGTH,
    ONE_BLOCK,
    REAL_TOKENS,
    dropping_config,
    encoder_inputs,
    small_config,
)

pytestmark = pytest.mark.usefixtures("eager")

SEED = tf.constant([3, 5])


@pytest.fixture(scope="module")
def encoder():
    return AlbertEncoder(small_config())


@pytest.fixture(scope="module")
def dropping(encoder):
    model = AlbertEncoder(dropping_config())
    model.set_weights(encoder.get_weights())
    return model


def assert_same(outputs, expected):
    tf.nest.map_structure(np.testing.assert_array_equal, outputs, expected)


def classifier(encoder):
    """Returns a functional model with the encoder."""
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in encoder_inputs()}
    logits = keras.layers.Dense(4, name="logits")(encoder(inputs)["pooled_output"])
    return keras.Model(inputs, logits)


class TestInputs:
    def test_outputs_have_the_documented_shapes(self, encoder):
        outputs = encoder(encoder_inputs(), output_hidden_states=True, output_attentions=True)
        assert outputs["pooled_output"].shape == (BATCH, 12)
        assert outputs["sequence_output"].shape == (BATCH, LENGTH, 12)
        assert outputs["embedding_output"].shape == (BATCH, LENGTH, 8)
        assert outputs["word_embedding_output"].shape == (BATCH, LENGTH, 8)
        assert [x.shape for x in outputs["encoder_outputs"]] == [(BATCH, LENGTH, 12)] * 8
        assert outputs["encoder_outputs"][-1] is outputs["sequence_output"]
        assert len(outputs["attention_probs"]) == 8
        for probabilities in outputs["attention_probs"]:
            np.testing.assert_allclose(tf.reduce_sum(probabilities, -1), 1.0, rtol=1e-6, atol=0)
            assert np.all(probabilities[1, ..., REAL_TOKENS[1] :] == 0)
        assert encoder(encoder_inputs()).keys() == {"pooled_output", "sequence_output"}

    @pytest.mark.parametrize(("ids", "mask"), [("int64", "bool"), ("uint8", "float32")])
    def test_other_number_types_are_accepted(self, encoder, ids, mask):
        inputs = encoder_inputs()
        others = {
            "input_ids": tf.cast(inputs["input_ids"], ids),
            "input_mask": tf.cast(inputs["input_mask"], mask),
            "segment_ids": inputs["segment_ids"].numpy(),
        }
        assert_same(encoder(others), encoder(inputs))

    def test_defaults_are_one_segment_and_the_mask_of_the_padding_token(self, encoder):
        ids = encoder_inputs()["input_ids"] % 4  # a row contains padding tokens anywhere
        full = {"input_ids": ids, "input_mask": ids != 0, "segment_ids": ids * 0}
        assert_same(encoder(ids), encoder(full))
        assert_same(encoder({"input_ids": ids, "label": ids}), encoder(full))
        ragged = tf.ragged.constant([[4, 5, 6], [7]])
        assert_same(encoder(ragged), encoder(ragged.to_tensor()))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"padding_mask": [[1]]}, "'input_mask'.*'padding_mask'"),
            ({"input_type_ids": [[0]]}, "'segment_ids'.*'input_type_ids'"),
            ({"input_mask": [[1]], "attention_mask": [[1]]}, "'input_mask'.*'attention_mask'"),
            ({"input_ids": [[0.0, 1.0]]}, r"must be integers .*float32"),
            ({"input_ids": [[0] * 17]}, r"must be in 1..16"),
        ],
    )
    def test_invalid_inputs_are_rejected(self, encoder, changes, message):
        inputs = {"input_ids": tf.constant([[1]])}
        inputs.update({name: tf.constant(value) for name, value in changes.items()})
        with pytest.raises(ValueError, match=message):
            encoder(inputs)

    def test_lists_are_rejected(self, encoder):
        inputs = tuple(encoder_inputs().values())
        for call in (encoder, encoder.predict):
            with pytest.raises(ValueError, match=r"Pass a dictionary .* Received: a tuple of 3"):
                call(inputs)

    def test_keras_layers_ignore_padding(self, encoder, tmp_path):
        inputs = encoder_inputs()
        outputs = encoder(inputs, output_hidden_states=True)
        states = outputs["sequence_output"].numpy()
        expected = [row[:n].mean(axis=0) for row, n in zip(states, REAL_TOKENS, strict=True)]
        pool = keras.layers.GlobalAveragePooling1D()
        for pooled in (pool(outputs["sequence_output"]), pool(outputs["encoder_outputs"][-1])):
            np.testing.assert_allclose(pooled, expected, rtol=0, atol=1e-6)
        names = {name: keras.Input([None], dtype="int32", name=name) for name in inputs}
        model = keras.Model(names, pool(encoder(names)["sequence_output"]))
        model.save(tmp_path / "pooled.keras")
        loaded = keras.models.load_model(tmp_path / "pooled.keras")
        np.testing.assert_allclose(loaded.predict(inputs, verbose=0), expected, rtol=0, atol=1e-6)
        inputs["input_mask"] = inputs["input_mask"] * [[1], [1], [0]]  # a row of padding only
        assert np.isfinite(pool(encoder(inputs)["sequence_output"])).all()


class TestDropout:
    @pytest.mark.usefixtures("traced")
    def test_training_without_a_seed_has_new_masks_each_time(self):
        dropping = AlbertEncoder(dropping_config(**ONE_BLOCK))
        step = tf.function(
            lambda: dropping(encoder_inputs(), training=True)["pooled_output"], autograph=False
        )
        outputs = [step().numpy() for _ in range(3)]
        assert len(np.unique(outputs, axis=0)) == 3

    def test_seed_determines_every_mask(self, encoder, dropping):
        twin = AlbertEncoder(dropping_config())
        twin.set_weights(encoder.get_weights())
        settings = {"training": True, "output_hidden_states": True}
        outputs = dropping(encoder_inputs(), dropout_seed=SEED, **settings)
        assert_same(twin(encoder_inputs(), dropout_seed=SEED, **settings), outputs)
        others = dropping(encoder_inputs(), dropout_seed=SEED + 1, **settings)
        for name in ("embedding_output", "sequence_output", "pooled_output"):
            assert np.any(outputs[name] != others[name])

    def test_every_place_in_the_network_has_a_different_mask(self, dropping, monkeypatch):
        seeds, rates = [], []

        def record(x, rate, seed):
            seeds.append(tuple(seed.numpy()))
            rates.append(rate)
            return x

        for module in ("layers", "ops"):
            monkeypatch.setattr(f"albert_tf.modeling.{module}.dropout", record)
        dropping(encoder_inputs(), training=True, dropout_seed=SEED)
        assert len(seeds) == len(set(seeds)) == 1 + 8 * 3
        assert rates == [0.2] + 8 * [0.3, 0.2, 0.2]


class TestSavedSettings:
    def test_frozen_encoder_stays_frozen(self, tmp_path):
        encoder = AlbertEncoder(small_config(**ONE_BLOCK))
        model = classifier(encoder)
        encoder.trainable = False
        model.save(tmp_path / "frozen.keras")
        twin = keras.models.load_model(tmp_path / "frozen.keras")
        assert [v.path for v in twin.trainable_variables] == ["logits/kernel", "logits/bias"]

    def test_precision_of_every_layer_is_saved(self, encoder):
        half = AlbertEncoder(small_config(), dtype="mixed_bfloat16")
        half.set_weights(encoder.get_weights())
        twin = AlbertEncoder.from_config(half.get_config())
        twin.set_weights(encoder.get_weights())
        outputs, expected = (
            model(encoder_inputs(), output_hidden_states=True) for model in (half, encoder)
        )
        assert_same(twin(encoder_inputs(), output_hidden_states=True), outputs)
        for name in ("embedding_output", "sequence_output", "pooled_output"):
            assert outputs[name].dtype == tf.bfloat16
            error = tf.norm(tf.cast(outputs[name], tf.float32) - expected[name])
            assert 1e-4 < error / tf.norm(expected[name]) < 0.03
        assert {v.dtype for v in half.trainable_variables} == {"float32"}
