"""The heads; that of masked language models, and numbers, are compared in tests/golden."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.heads import ClassificationHead, SpanBeamHead, SpanHead
from albert_tf.modeling.models import AlbertForPretraining
from tests.small_model import small_config

B, S, H, K, M = 3, 7, 12, 4, 2
SEED = tf.constant([3, 5])
LEFT = 0.8796  # of a normal distribution's deviation, cut at twice of it


def pooled_output(rows=4):
    return tf.constant(np.random.default_rng(1).normal(size=(rows, 12)).astype(np.float32))


def test_weights_start_from_the_constant_of_the_original():
    head = ClassificationHead(small_config(hidden_size=999, initializer_range=0.5), num_labels=7)
    weights = head.output_weights.numpy()
    assert np.abs(weights).max() <= 0.04
    np.testing.assert_allclose(weights.std(), LEFT * 0.02, rtol=0.05, atol=0)
    np.testing.assert_array_equal(head.output_bias, np.zeros(7))


def test_the_order_of_segments_starts_from_the_configuration():
    config = small_config(hidden_size=999, initializer_range=0.5)
    weights = AlbertForPretraining(config).sentence_order_head.output_weights.numpy()
    np.testing.assert_allclose(weights.std(), LEFT * 0.5, rtol=0.08, atol=0)


def test_the_seed_decides_what_is_dropped():
    head = ClassificationHead(small_config(), num_labels=3, dropout_prob=0.4)
    logits = head(pooled_output(), SEED).numpy()
    np.testing.assert_array_equal(head(pooled_output(), SEED), logits)
    assert not np.allclose(head(pooled_output(), SEED + 1), logits)
    assert not np.allclose(head(pooled_output()), logits)
    undropped = ClassificationHead(small_config(), num_labels=3)
    np.testing.assert_array_equal(undropped(pooled_output(), SEED), undropped(pooled_output()))


def sequence_output():
    return tf.constant(np.random.default_rng(1).normal(size=(B, S, H)).astype(np.float32))


def p_mask():
    """The first row has 5 positions to choose from, the last one fewer than K."""
    mask = np.ones([B, S], np.int32)
    for row, allowed in enumerate(([0, 2, 3, 4, 5], [0, 1, 2, 6], [0, 5])):
        mask[row, allowed] = 0
    return tf.constant(mask)


def beam_head(**options):
    return SpanBeamHead(small_config(), **{"start_n_top": K, "end_n_top": M, **options})


def test_weights_of_spans_start_from_what_the_original_has():
    config = small_config(hidden_size=999, initializer_range=0.5)
    spans = SpanHead(config).output_weights.numpy()
    np.testing.assert_allclose(spans.std(), LEFT * 0.02, rtol=0.08, atol=0)
    beams = SpanBeamHead(config)
    for variable in beams.trainable_variables:
        value = variable.numpy()
        if value.ndim == 2:
            np.testing.assert_allclose(value.std(), LEFT * 0.5, rtol=0.08, atol=0)
        else:
            np.testing.assert_array_equal(value, float(variable.name == "gamma"))


def test_beams_hold_the_best_ends_of_the_best_starts():
    """Each beam against the scores for that start alone."""
    head = beam_head()
    beams = {name: x.numpy() for name, x in head(sequence_output(), p_mask()).items()}
    shapes = {name: x.shape for name, x in beams.items() if name != "cls_logits"}
    assert shapes == {
        "start_top_log_probs": (B, K),
        "start_top_index": (B, K),
        "end_top_log_probs": (B, K * M),
        "end_top_index": (B, K * M),
    }
    for beam in range(K):
        starts = beams["start_top_index"][:, beam]
        alone = head(sequence_output(), p_mask(), tf.constant(starts))
        log_probs = alone["start_log_probs"].numpy()
        ends = alone["end_log_probs"].numpy()
        for row in range(B):
            assert starts[row] == np.argsort(-log_probs[row], kind="stable")[beam]
            np.testing.assert_allclose(
                beams["start_top_log_probs"][row, beam],
                log_probs[row, starts[row]],
                rtol=1e-5,
                atol=1e-5,
            )
            best = np.argsort(-ends[row], kind="stable")[:M]
            of_beam = slice(beam * M, (beam + 1) * M)
            np.testing.assert_array_equal(beams["end_top_index"][row, of_beam], best)
            np.testing.assert_allclose(
                beams["end_top_log_probs"][row, of_beam], ends[row, best], rtol=1e-5, atol=1e-5
            )
    np.testing.assert_array_equal(beams["start_top_log_probs"][2] < -1e29, [False, False, True, 1])


def test_probabilities_are_shared_by_the_positions_allowed():
    outputs = beam_head()(sequence_output(), p_mask(), tf.constant([2, 0, 5]))
    for name in ("start_log_probs", "end_log_probs"):
        probabilities = np.exp(outputs[name])
        np.testing.assert_array_equal(probabilities > 0, p_mask().numpy() == 0)
        np.testing.assert_allclose(probabilities.sum(axis=1), np.ones(B), rtol=1e-5, atol=0)


def test_the_seed_decides_what_a_beam_drops():
    head = beam_head(dropout_prob=0.4)
    plain = head(sequence_output(), p_mask())
    dropped, again, other = (
        head(sequence_output(), p_mask(), dropout_seed=seed) for seed in (SEED, SEED, SEED + 1)
    )
    np.testing.assert_array_equal(dropped["cls_logits"], again["cls_logits"])
    assert not np.allclose(dropped["cls_logits"], other["cls_logits"])
    assert not np.allclose(dropped["cls_logits"], plain["cls_logits"])
    for name in plain.keys() - {"cls_logits"}:
        np.testing.assert_array_equal(dropped[name], plain[name], err_msg=name)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_masks_without_overflow(policy):
    single, half = beam_head(), beam_head(dtype=policy)
    half.set_weights(single.get_weights())
    expected, actual = (head(sequence_output(), p_mask()) for head in (single, half))
    for name in ("start_top_log_probs", "end_top_log_probs", "cls_logits"):
        assert actual[name].dtype == tf.float32
        np.testing.assert_allclose(
            np.maximum(actual[name], -50.0),
            np.maximum(expected[name], -50.0),
            rtol=0,
            atol=0.1,
            err_msg=name,
        )


@pytest.mark.parametrize(
    ("head", "arguments", "message"),
    [
        (ClassificationHead, {"num_labels": 0}, "at least 1 label. Received: num_labels=0"),
        (ClassificationHead, {"num_labels": 2, "dropout_prob": 1.0}, r"in \[0, 1\). Received: 1.0"),
        (SpanBeamHead, {"start_n_top": 0}, r"Received: start_n_top=0, end_n_top=5"),
        (SpanBeamHead, {"end_n_top": -1}, r"Received: start_n_top=5, end_n_top=-1"),
        (SpanBeamHead, {"dropout_prob": 1.0}, r"in \[0, 1\). Received: 1.0"),
    ],
)
def test_refuses_what_scores_nothing(head, arguments, message):
    with pytest.raises(ValueError, match=message):
        head(small_config(), **arguments)
