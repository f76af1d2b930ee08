"""Vectors of texts, compared with vectors computed one text at a time."""

import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertEncoder, AlbertForQuestionAnswering, TextEncoder
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.modeling.original_names import original_names
from tests.text_models import CONFIG, assert_rejected, write_model

pytestmark = pytest.mark.usefixtures("eager")

TEXTS = ["the " * (1 + number % 9) + "light" * (number % 4) for number in range(11)] + [""]


@pytest.fixture(scope="module")
def model():
    random.seed(3)
    return AlbertForQuestionAnswering(CONFIG)


@pytest.mark.parametrize("pairs", [None, TEXTS[::-1]])
def test_vectors_do_not_depend_on_batches(model, tokenizer, pairs):
    means, pooled = (
        TextEncoder(model, tokenizer, pooling=pooling, batch_size=2)(TEXTS, pairs)
        for pooling in ("mean", "pooled")
    )
    assert means.dtype == pooled.dtype == np.float32
    assert means.shape == pooled.shape == (len(TEXTS), CONFIG.hidden_size)
    for number, text in enumerate(TEXTS):
        second = None if pairs is None else [pairs[number]]
        outputs = model.encoder(tokenizer([text], second, max_length=24))
        np.testing.assert_allclose(pooled[number], outputs["pooled_output"][0], rtol=0, atol=1e-6)
        mean = tf.reduce_mean(outputs["sequence_output"][0], axis=0)  # there is no padding
        np.testing.assert_allclose(means[number], mean, rtol=0, atol=1e-6)
    assert np.ptp(means, axis=0).max() > 0.1
    assert np.ptp(pooled, axis=0).max() > 0.1


def test_encoders_of_any_model_are_loaded(model, tokenizer, tmp_path):
    expected = TextEncoder(model, tokenizer)(TEXTS)
    whole = write_model(tmp_path / "whole", model, tokenizer)
    np.testing.assert_array_equal(TextEncoder.load(whole)(TEXTS), expected)
    headless = write_model(tmp_path / "encoder", model.encoder, tokenizer)
    np.testing.assert_array_equal(TextEncoder.load(headless)(TEXTS), expected)
    assert TextEncoder.load(whole, pooling="pooled")(TEXTS).shape == expected.shape
    variables = {n: v for n, v in original_names(model).items() if "pooler" not in n}
    write_checkpoint(f"{headless}/model.ckpt-best", variables, global_step=1)
    np.testing.assert_array_equal(TextEncoder.load(headless)(TEXTS), expected)
    with pytest.raises(ValueError, match=r"pooling='pooled' needs a model with a pooler.*encoder"):
        TextEncoder.load(headless, pooling="pooled")
    del variables["bert/embeddings/LayerNorm/gamma"]
    write_checkpoint(f"{headless}/model.ckpt-best", variables, global_step=1)
    with pytest.raises(ValueError, match="does not fill the encoder"):
        TextEncoder.load(headless)


def test_invalid_input_is_rejected(model, tokenizer):
    encode = TextEncoder(model, tokenizer)
    assert_rejected([
        (lambda: encode(["a"], "b"), TypeError, "text_pairs must be a list of texts"),
        (
            lambda: TextEncoder(model, tokenizer, max_seq_length=4)(["a"], ["b"]),
            ValueError,
            "`max_seq_length` must be at least 5 for pairs",
        ),
        (lambda: TextEncoder(model, tokenizer, pooling="max"), ValueError, "pooling must be"),
        (
            lambda: TextEncoder(AlbertEncoder(CONFIG.replace(vocab_size=31)), tokenizer),
            ValueError,
            "31 in model.config, but 1000 in tokenizer",
        ),
    ])  # fmt: skip
