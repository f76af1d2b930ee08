"""Pictures of where answers are, and of how much texts are alike."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.squad import Question, SquadData
from albert_tf.data.squad_features import squad_features
from albert_tf.notebook import (
    draw_attention,
    draw_question_attention,
    draw_similarity,
    draw_spans,
)
from albert_tf.notebook.attention import draw_heads
from albert_tf.notebook.similarity import similarities
from albert_tf.notebook.spans import SpanProbabilities, _shown, span_probabilities
from albert_tf.prediction.squad_answers import AnswerSelector
from albert_tf.span_models import AlbertForSpanBeams, AlbertForSpans
from albert_tf.tokenization import load_tokenizer
from tests.small_model import small_config

QUESTION, CONTEXT = "where is it", "The mill was not in the water, it was in the bridge."
LENGTH = 40


@pytest.fixture(scope="module")
def tokenizer(golden):
    return load_tokenizer(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))


@pytest.fixture(scope="module", params=[1, 2])
def model(request):
    keras.utils.set_random_seed(1)  # of other weights the likeliest start might be the last token
    config = small_config(vocab_size=1000, max_position_embeddings=LENGTH)
    if request.param == 1:
        return AlbertForSpans(config)
    return AlbertForSpanBeams(config, start_n_top=13, end_n_top=17)


def candidates(model, tokenizer):
    """What run_squad.py finds: possible answers, and what the model says of their two ends."""
    data = SquadData([CONTEXT], [Question("1", QUESTION, 0, (), False)], "-")
    sizes = {"max_seq_length": LENGTH, "doc_stride": 7, "max_query_length": 20}
    features = squad_features(data, tokenizer, is_training=False, **sizes)
    rows = np.arange(1)
    assert len(features) == 1
    version = 1 if isinstance(model, AlbertForSpans) else 2
    selector = AnswerSelector(data, features, version=version, n_best_size=200)
    inputs = features.sequences.padded(rows, int(features.sequences.lengths[0]))
    outputs = model({name: tf.constant(values) for name, values in inputs.items()})
    arrays = {name: values.numpy() for name, values in outputs.items() if "log" in name}
    arrays |= {name: outputs[name].numpy() for name in outputs if name.endswith("index")}
    selector.add(rows, arrays)
    return selector.answers().candidates(0)


def test_probabilities_are_those_the_answers_are_chosen_by(model, tokenizer):
    found = span_probabilities(model, tokenizer, QUESTION, CONTEXT)
    encoding = tokenizer.encode_with_offsets(CONTEXT)
    assert found.tokens == tokenizer.convert_ids_to_tokens(encoding.ids)
    assert 0.2 < found.starts.sum() < 1
    assert 0.2 < found.ends.sum() < 1
    # The blank before a word is a part of its piece, but of no answer. No piece is a blank alone.
    places = [start + (CONTEXT[start] == " ") for start in encoding.starts]
    starts = {place: n for n, place in enumerate(places)}
    answers = candidates(model, tokenizer)
    assert len({answer.start for answer in answers}) > 2
    actual = [np.log(found.starts[starts[answer.start]]) for answer in answers]
    assert_equal_but_for_a_constant(model, actual, [answer.start_log_prob for answer in answers])

    first = int(found.starts.argmax())
    answers = [answer for answer in answers if starts[answer.start] == first]
    assert len({answer.end for answer in answers}) > 2
    actual = [np.log(found.ends[encoding.ends.index(answer.end)]) for answer in answers]
    assert_equal_but_for_a_constant(model, actual, [answer.end_log_prob for answer in answers])


def assert_equal_but_for_a_constant(model, actual, expected):
    """Of SQuAD 1.1 answers have logits: log-probabilities but for a constant. Of 2.0 it is 0."""
    differences = np.subtract(actual, expected)
    constant = differences[0] if isinstance(model, AlbertForSpans) else 0
    np.testing.assert_allclose(differences, constant, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def spans():
    return AlbertForSpans(small_config(vocab_size=1000, max_position_embeddings=LENGTH))


def test_pictures_differ_with_what_they_show(spans, tokenizer, monkeypatch):
    pictures = [
        draw_spans(spans, tokenizer, QUESTION, CONTEXT),
        draw_question_attention(spans, tokenizer, QUESTION, CONTEXT),
        draw_question_attention(spans, tokenizer, QUESTION, CONTEXT, layer=0),
    ]
    monkeypatch.setattr("albert_tf.notebook.spans._MOST_TOKENS", 4)
    pictures.append(draw_spans(spans, tokenizer, QUESTION, CONTEXT))
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert len(set(pictures)) == 4


def test_a_dollar_in_a_text_begins_no_formula(spans, tokenizer):
    wrong = "is $\\wrong$ a formula"
    assert draw_spans(spans, tokenizer, wrong, CONTEXT).startswith(b"\x89PNG")
    assert draw_question_attention(spans, tokenizer, wrong, CONTEXT).startswith(b"\x89PNG")
    assert draw_attention(spans, tokenizer, wrong).startswith(b"\x89PNG")
    assert draw_similarity(np.eye(2), [wrong, "text"]).startswith(b"\x89PNG")
    tokens = ["$$", "a"]
    assert draw_heads(np.full([1, 2, 2], 0.5), tokens) != draw_heads(np.eye(2)[None], tokens)


def test_the_part_with_the_likeliest_start_is_shown(monkeypatch):
    monkeypatch.setattr("albert_tf.notebook.spans._MOST_TOKENS", 4)
    for likeliest in range(7):
        starts = np.eye(7)[likeliest]
        part = _shown(SpanProbabilities([*"abcdefg"], starts, starts))
        assert part.stop - part.start == 4
        assert 0 <= part.start <= likeliest < part.stop <= 7
    assert _shown(SpanProbabilities([*"abc"], np.eye(3)[1], np.eye(3)[1])) == slice(0, 3)


def test_what_cannot_be_shown_is_refused(spans, tokenizer):
    with pytest.raises(ValueError, match=r"question and context must be in 1\.\.40"):
        draw_spans(spans, tokenizer, QUESTION, CONTEXT * 3)
    with pytest.raises(ValueError, match=r"has 8 layers, from 0\. Received layer=-9"):
        draw_question_attention(spans, tokenizer, QUESTION, CONTEXT, layer=-9)


def test_similarity_is_the_cosine_of_what_texts_do_not_share():
    common = np.array([100.0, 50, 25])
    vectors = common + np.array([[1, 0, 0], [2, 0, 0], [-3, 4, 0], [0, -4, 0]])
    values = similarities(vectors)
    np.testing.assert_allclose(np.diagonal(values), 1, rtol=0, atol=1e-9)
    np.testing.assert_allclose(values, values.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(values[0, 1], 1, rtol=0, atol=1e-9)
    np.testing.assert_allclose(values[0, 2], -0.6, rtol=0, atol=1e-9)
    np.testing.assert_allclose(values[1, 3], 0, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(similarities(np.ones((2, 3))), 0)
    picture = draw_similarity(vectors, ["one", "two", "three", "four"])
    assert picture.startswith(b"\x89PNG")
    assert picture != draw_similarity(-vectors[::-1], ["one", "two", "three", "four"])
