"""The model of token classification in Keras: its loss in `compile`, and labels that are none."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.losses import classification_loss
from albert_tf.modeling.models import AlbertForTokenClassification
from tests.small_model import encoder_inputs, small_config


def test_keras_weighs_tokens_as_training_does():
    model = AlbertForTokenClassification(small_config(), num_labels=4)
    x, random = encoder_inputs(), np.random.default_rng(3)
    labels = random.integers(0, 4, x["input_ids"].shape)
    weights = (x["input_mask"].numpy() * random.integers(0, 2, labels.shape)).astype(np.float32)
    logits = model(x)["logits"]
    assert logits.shape == (*labels.shape, 4)
    expected = classification_loss(logits, tf.constant(labels, tf.int32), tf.constant(weights))
    model.compile(loss=model.default_loss(), run_eagerly=True)
    found = model.evaluate(x, labels, sample_weight=weights, batch_size=len(labels), verbose=0)
    np.testing.assert_allclose(found, expected.mean(), rtol=1e-5)
    labels[0, 0] = -100  # which other libraries leave out, and here is an error
    with pytest.raises(tf.errors.InvalidArgumentError, match="-1"):
        model.evaluate(x, labels, sample_weight=weights, batch_size=len(labels), verbose=0)


def test_padding_and_the_order_of_a_batch_change_no_logits():
    model = AlbertForTokenClassification(small_config(), num_labels=4)
    x = encoder_inputs()
    is_real = x["input_mask"].numpy() == 1
    expected = model(x)["logits"].numpy()
    turned = {name: tf.pad(values[::-1], [[0, 0], [0, 4]]) for name, values in x.items()}
    found = model(turned)["logits"].numpy()[::-1, : is_real.shape[1]]
    np.testing.assert_allclose(found[is_real], expected[is_real], rtol=0, atol=1e-5)
