"""Models with heads: gradients, files, dropout."""

from functools import cache, partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.sequences import TokenSequences
from albert_tf.modeling.heads import MASKED_LOGIT
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
    AlbertForTokenClassification,
)
from albert_tf.modeling.original_names import original_names
from tests.small_model import (
    BATCH,
    LENGTH,
    ONE_BLOCK,
    dropping_config,
    encoder_inputs,
    pretraining_inputs,
    small_config,
)
from tests.usual import usual

SEED = tf.constant([7, 1])
CHOICES = 4
OPTION_LENGTHS = np.array([[6, 3, 7, 0], [5, 2, 0, 0], [4, 7, 3, 6]])  # 0: no such option


def unequal(a, b):
    return not np.allclose(a, b, rtol=1e-4, atol=1e-5)


def options():
    """Returns the token sequences of all options; missing ones are empty."""
    random = np.random.default_rng(3)
    lengths = OPTION_LENGTHS.ravel()
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return TokenSequences(
        random.integers(5, 31, starts[-1], dtype=np.int32),
        starts,
        np.minimum(lengths, random.integers(1, 7, lengths.size)).astype(np.int32),
    )


def choice_inputs(length=LENGTH):
    """Returns the options of three examples, int32 [B, C, S]."""
    padded = options().padded(np.arange(OPTION_LENGTHS.size), length)
    return {name: tf.constant(x.reshape(BATCH, CHOICES, length)) for name, x in padded.items()}


def answer_inputs():
    return {
        **encoder_inputs(),
        "p_mask": 1 - encoder_inputs()["input_mask"],
        "start_positions": tf.constant([5, 3, 0]),
    }


# Class, settings, inputs, and the outputs of the head.
DROPPING, TAGS, LOGITS = {"dropout_prob": 0.35}, ["O", "B-PER", "I-PER"], ("logits",)
PRETRAINING_LOGITS = ("masked_lm_logits", "sentence_order_logits")
SCORES = ("cls_logits", "start_log_probs", "end_log_probs")
WIDTHS = {"start_n_top": 6, "end_n_top": 3, **DROPPING}
MODELS = {
    "pretraining": (AlbertForPretraining, {}, pretraining_inputs, PRETRAINING_LOGITS),
    "classification": (
        AlbertForClassification,
        {"num_labels": 5, **DROPPING},
        encoder_inputs,
        LOGITS,
    ),
    "tokens": (AlbertForTokenClassification, {"labels": TAGS, **DROPPING}, encoder_inputs, LOGITS),
    "choices": (AlbertForMultipleChoice, DROPPING, choice_inputs, LOGITS),
    "answers": (AlbertForQuestionAnswering, {}, encoder_inputs, ("start_logits", "end_logits")),
    "beams": (AlbertForQuestionAnsweringWithBeamSearch, WIDTHS, answer_inputs, SCORES),
}


@cache
def small_model(name):
    """Returns a model whose encoder has one block and no dropout."""
    kind, settings, *_ = MODELS[name]
    return kind(small_config(**ONE_BLOCK), **settings)


@pytest.mark.parametrize("name", MODELS)
def test_all_variables_are_trained(name):
    """Except the pooler, if the head scores single tokens."""
    variables = original_names(small_model(name))
    frozen = {name for name, variable in variables.items() if not variable.trainable}
    pooler = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert frozen == (pooler if name in ("answers", "beams", "tokens") else set())


@pytest.mark.parametrize("name", usual(MODELS, "classification", "beams"))
def test_saved_model_keeps_settings_and_weights(name, tmp_path):
    kind, settings, inputs, heads = MODELS[name]
    config = dropping_config(num_hidden_layers=2, inner_group_num=1)
    model = kind(config, use_one_hot_embeddings=True, **settings)
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    assert twin.get_config() == model.get_config()
    assert len(twin.trainable_variables) == len(model.trainable_variables)
    ours, theirs = (m(inputs(), training=True, dropout_seed=SEED) for m in (twin, model))
    for head in heads:
        np.testing.assert_array_equal(ours[head], theirs[head])


@pytest.mark.parametrize("name", ["classification", "tokens", "choices", "beams"])
def test_dropout_of_the_head(name):
    _, _, inputs, (head, *_) = MODELS[name]
    model = partial(small_model(name), output_hidden_states=True)
    plain = model(inputs())
    dropped, again = (model(inputs(), training=True, dropout_seed=SEED) for _ in range(2))
    np.testing.assert_array_equal(dropped["sequence_output"], plain["sequence_output"])
    assert unequal(dropped[head], plain[head])
    np.testing.assert_array_equal(again[head], dropped[head])
    np.testing.assert_array_equal(model(inputs(), dropout_seed=SEED)[head], plain[head])


@pytest.mark.parametrize("name", MODELS)
def test_names_of_hugging_face_are_accepted(name):
    *_, inputs, heads = MODELS[name]
    model = small_model(name)
    theirs = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    renamed = {theirs.get(key, key): value for key, value in inputs().items()}
    assert renamed.keys() >= set(theirs.values())
    expected, outputs = model(inputs()), model(renamed)
    for head in heads:
        np.testing.assert_array_equal(outputs[head], expected[head])


@pytest.mark.parametrize("name", ["classification", "choices"])
def test_optional_outputs(name):
    *_, inputs, _ = MODELS[name]
    model = small_model(name)
    logits = model(inputs())
    assert logits.keys() == {"logits"}
    attention = model(inputs(), output_attentions=True)
    assert attention.keys() == {"logits", "attention_probs"}
    everything = model(inputs(), output_hidden_states=True, output_attentions=True)
    assert everything.keys() > {*attention, "pooled_output", "sequence_output", "encoder_outputs"}
    for outputs in (attention, everything):
        # Other positions of the last layer are also computed, so sums may be rounded differently.
        np.testing.assert_allclose(outputs["logits"], logits["logits"], rtol=1e-5, atol=1e-7)


class TestMultipleChoice:
    def test_missing_options_have_no_probability_and_no_gradient(self):
        model = AlbertForMultipleChoice(small_config(**ONE_BLOCK))
        with tf.GradientTape() as tape:
            logits = model(choice_inputs())["logits"]
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits([2, 1, 3], logits)
        np.testing.assert_array_equal(logits == MASKED_LOGIT, OPTION_LENGTHS == 0)
        assert np.all(tf.nn.softmax(logits)[OPTION_LENGTHS == 0] == 0.0)
        assert np.isfinite(loss).all()
        gradients = tape.gradient(loss, model.trainable_variables)
        assert all(np.isfinite(gradient).all() for gradient in gradients)
        three = {name: x[:1, :3] for name, x in choice_inputs().items()}
        np.testing.assert_allclose(model(three)["logits"], logits[:1, :3], rtol=1e-4, atol=1e-5)

    def test_without_a_mask_options_of_padding_are_missing(self):
        ids = choice_inputs()["input_ids"].numpy()
        ids[OPTION_LENGTHS > 0, 0] = 1
        ids[OPTION_LENGTHS == 0] = 0
        model = AlbertForMultipleChoice(small_config(**ONE_BLOCK))
        logits = model(ids)["logits"]
        np.testing.assert_array_equal(logits == MASKED_LOGIT, OPTION_LENGTHS == 0)
        given = model({"input_ids": ids, "input_mask": ids != 0})["logits"]
        np.testing.assert_array_equal(logits, given)

    def test_rejects_another_number_of_axes(self):
        with pytest.raises(ValueError, match=r"\[B, C, S\], or \[B, S\].* Received: \(7,\)"):
            AlbertForMultipleChoice(small_config(**ONE_BLOCK))(tf.zeros([7], tf.int32))
