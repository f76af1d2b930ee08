"""The heads. tests/golden compares numbers with the original."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.heads import ClassificationHead, SpanBeamHead
from tests.small_model import small_config

B, S, H, K, M = 3, 7, 12, 4, 2
TRUNCATED = 0.8796  # standard deviation of a normal distribution truncated at 2


def sequence_output():
    return tf.constant(np.random.default_rng(1).normal(size=(B, S, H)).astype(np.float32))


def p_mask():
    """The first row has 5 allowed positions, the last one fewer than K."""
    mask = np.ones([B, S], np.int32)
    for row, allowed in enumerate(([0, 2, 3, 4, 5], [0, 1, 2, 6], [0, 5])):
        mask[row, allowed] = 0
    return tf.constant(mask)


def beam_head(**options):
    return SpanBeamHead(small_config(), **{"start_n_top": K, "end_n_top": M, **options})


@pytest.mark.parametrize(
    ("head", "settings", "deviation"),
    [(ClassificationHead, {"num_labels": 7}, 0.02), (SpanBeamHead, {}, 0.5)],
)
def test_initial_weights(head, settings, deviation):
    config = small_config(hidden_size=999, initializer_range=0.5)
    for variable in head(config, **settings).trainable_variables:
        value = variable.numpy()
        if value.ndim == 2:
            assert np.abs(value).max() <= 2 * deviation
            np.testing.assert_allclose(value.std(), TRUNCATED * deviation, rtol=0.08, atol=0)
        else:
            np.testing.assert_array_equal(value, float(variable.name == "gamma"))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_masks_without_overflow(policy):
    single, half = beam_head(), beam_head(dtype=policy)
    half.set_weights(single.get_weights())
    expected, actual = (head(sequence_output(), p_mask()) for head in (single, half))
    for name in ("start_top_log_probs", "end_top_log_probs", "cls_logits"):
        assert actual[name].dtype == tf.float32
        found, wanted = (np.maximum(values[name], -50.0) for values in (actual, expected))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.1, err_msg=name)


@pytest.mark.parametrize(
    ("head", "arguments", "message"),
    [
        (ClassificationHead, {"num_labels": 2, "dropout_prob": 1.0}, r"in \[0, 1\). Received: 1.0"),
        (SpanBeamHead, {"start_n_top": 0}, r"Received: start_n_top=0, end_n_top=5"),
    ],
)
def test_rejects_invalid_sizes(head, arguments, message):
    with pytest.raises(ValueError, match=message):
        head(small_config(), **arguments)
