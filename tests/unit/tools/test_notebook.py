"""What the notebooks share: the choice of device and model, and what their pictures show."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.report import LoadError
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.squad.answers import AnswerSelector
from albert_tf.squad.data import Question, SquadData
from albert_tf.squad.features import squad_features
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tools import notebook
from albert_tf.tools.notebook import (
    SpanProbabilities,
    attention_of,
    choose_device,
    choose_model,
    draw_attention,
    draw_metrics,
    draw_question_attention,
    draw_similarity,
    draw_spans,
    similarities,
    span_probabilities,
)
from tests.small_model import small_config

QUESTION, CONTEXT = "where is it", "The mill was not in the water, it was in the bridge."
LENGTH = 40


@pytest.fixture(scope="module")
def tokenizer(golden):
    return load_tokenizer(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))


def test_the_device_is_chosen_and_said(monkeypatch, tmp_path, capsys):
    assert choose_device() == {}
    assert "CPU" in capsys.readouterr().out
    monkeypatch.setattr(notebook, "_TPU_FILES", (str(tmp_path),))
    assert choose_device() == {}  # a TPU needs its library too
    monkeypatch.setattr(notebook.importlib.util, "find_spec", lambda name: name == "libtpu" or None)
    assert choose_device() == {"use_tpu": True, "tpu_name": "local"}


class TestChoiceOfModel:
    def test_a_size_is_a_released_model_and_others_are_taken_as_they_are(self, monkeypatch):
        fetched = []
        monkeypatch.setattr(notebook, "local_directory", lambda url, flag: fetched.append(url))
        name = choose_model("xlarge")
        assert name == "xlarge_v2"
        for other in ("mini", "base_v1", "some/path", "https://tfhub.dev/google/albert_base/3"):
            assert choose_model(other) == other
        assert fetched == [name]

    def test_without_a_network_it_is_the_model_of_the_package(self, monkeypatch, capsys):
        def fail(url, flag):
            raise LoadError(f"{flag}={url} cannot be fetched")

        monkeypatch.setattr(notebook, "local_directory", fail)
        assert choose_model("base") == "mini"
        assert "MODEL=base_v2" in capsys.readouterr().out


def test_attention_has_a_map_for_each_head(tokenizer):
    encoder = AlbertEncoder(small_config(vocab_size=1000))
    tokens, attention = attention_of(encoder, tokenizer, "the cat", "a mat", layer=-1)
    assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
    assert attention.shape == (3, len(tokens), len(tokens))
    np.testing.assert_allclose(attention.sum(-1), 1, rtol=0, atol=1e-5)
    last = attention_of(encoder, tokenizer, "the cat", "a mat", layer=7)[1]
    np.testing.assert_array_equal(attention, last)
    alone = attention_of(encoder, tokenizer, "the cat", layer=-1)[1]
    assert np.abs(alone - attention[..., : alone.shape[-1], : alone.shape[-1]]).max() > 1e-4
    picture = draw_attention(encoder, tokenizer, "the cat", layer=-1)
    assert picture.startswith(b"\x89PNG")
    assert picture != draw_attention(encoder, tokenizer, "the cat", layer=0)
    with pytest.raises(ValueError, match="layer=8"):
        draw_attention(encoder, tokenizer, "the cat", layer=8)
    with pytest.raises(ValueError, match="16"):
        draw_attention(encoder, tokenizer, "the cat " * 20)


def test_metrics_are_drawn_where_there_are_any(tmp_path):
    records = [
        {"step": 2, "phase": "train", "time": "-", "loss": 0.9, "accuracy": 0.5},
        {"step": 2, "phase": "eval", "time": "-", "loss": 0.8, "eval_accuracy": None},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    panels = {"loss": ["loss"], "score": ["accuracy", "eval_accuracy"]}
    assert draw_metrics(str(tmp_path), panels).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="pearson"):
        draw_metrics(str(tmp_path), {"score": ["pearson"]})


class TestSpans:
    @pytest.fixture(scope="class", params=[1, 2])
    def model(self, request):
        keras.utils.set_random_seed(1)  # of others the likeliest start might be the last token
        config = small_config(vocab_size=1000, max_position_embeddings=LENGTH)
        if request.param == 1:
            return AlbertForQuestionAnswering(config)
        return AlbertForQuestionAnsweringWithBeamSearch(config, start_n_top=13, end_n_top=17)

    @staticmethod
    def candidates(model, tokenizer):
        """What run_squad.py finds: possible answers, and what the model says of their two ends."""
        data = SquadData([CONTEXT], [Question("1", QUESTION, 0, (), False)], "-")
        sizes = {"max_seq_length": LENGTH, "doc_stride": 7, "max_query_length": 20}
        features = squad_features(data, tokenizer, is_training=False, **sizes)
        rows = np.arange(1)
        assert len(features) == 1
        version = 1 if isinstance(model, AlbertForQuestionAnswering) else 2
        selector = AnswerSelector(data, features, version=version, n_best_size=200)
        inputs = features.sequences.padded(rows, int(features.sequences.lengths[0]))
        outputs = model({name: tf.constant(values) for name, values in inputs.items()})
        arrays = {name: values.numpy() for name, values in outputs.items() if "log" in name}
        arrays |= {name: outputs[name].numpy() for name in outputs if name.endswith("index")}
        selector.add(rows, arrays)
        return selector.answers().candidates[0]

    def test_probabilities_are_those_the_answers_are_chosen_by(self, model, tokenizer):
        found = span_probabilities(model, tokenizer, QUESTION, CONTEXT)
        encoding = tokenizer.encode_with_offsets(CONTEXT)
        assert found.tokens == tokenizer.convert_ids_to_tokens(encoding.ids)
        assert 0.2 < found.starts.sum() < 1
        assert 0.2 < found.ends.sum() < 1
        # The blank before a word is a part of its piece, but of no answer. No piece is one alone.
        first_characters = [start + (CONTEXT[start] == " ") for start in encoding.starts]
        starts = {character: n for n, character in enumerate(first_characters)}
        answers = self.candidates(model, tokenizer)
        assert len({answer.start for answer in answers}) > 2
        actual = [np.log(found.starts[starts[answer.start]]) for answer in answers]
        self.assert_equal_but_for_a_constant(model, actual, [a.start_log_prob for a in answers])

        first = int(found.starts.argmax())
        answers = [answer for answer in answers if starts[answer.start] == first]
        assert len({answer.end for answer in answers}) > 2
        actual = [np.log(found.ends[encoding.ends.index(answer.end)]) for answer in answers]
        self.assert_equal_but_for_a_constant(model, actual, [a.end_log_prob for a in answers])

    @staticmethod
    def assert_equal_but_for_a_constant(model, actual, expected):
        """Of SQuAD 1.1 answers have logits: log-probabilities but for a constant."""
        differences = np.subtract(actual, expected)
        constant = differences[0] if isinstance(model, AlbertForQuestionAnswering) else 0
        np.testing.assert_allclose(differences, constant, rtol=0, atol=1e-5)

    def test_pictures_differ_with_what_they_show(self, model, tokenizer, monkeypatch):
        pictures = [
            draw_spans(model, tokenizer, QUESTION, CONTEXT),
            draw_question_attention(model, tokenizer, QUESTION, CONTEXT),
            draw_question_attention(model, tokenizer, QUESTION, CONTEXT, layer=0),
        ]
        monkeypatch.setattr(notebook, "_MOST_TOKENS", 4)
        pictures.append(draw_spans(model, tokenizer, QUESTION, CONTEXT))
        assert all(picture.startswith(b"\x89PNG") for picture in pictures)
        assert len(set(pictures)) == 4
        with pytest.raises(ValueError, match=str(LENGTH)):
            draw_spans(model, tokenizer, QUESTION, CONTEXT * 3)
        with pytest.raises(ValueError, match="layer=-9"):
            draw_question_attention(model, tokenizer, QUESTION, CONTEXT, layer=-9)

    def test_the_part_with_the_likeliest_start_is_shown(self, monkeypatch):
        monkeypatch.setattr(notebook, "_MOST_TOKENS", 4)
        for likeliest in range(7):
            starts = np.eye(7)[likeliest]
            part = SpanProbabilities([*"abcdefg"], starts, starts).shown
            assert part.stop - part.start == 4
            assert 0 <= part.start <= likeliest < part.stop <= 7
        assert SpanProbabilities([*"abc"], np.eye(3)[1], np.eye(3)[1]).shown == slice(0, 3)


def test_similarity_is_the_cosine_of_what_texts_do_not_share():
    common = np.array([100.0, 50, 25])
    vectors = common + np.array([[1, 0, 0], [2, 0, 0], [-3, 4, 0], [0, -4, 0]])
    values = similarities(vectors)
    np.testing.assert_allclose(np.diagonal(values), 1, rtol=0, atol=1e-9)
    np.testing.assert_allclose(values, values.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(values[0, [1, 2]], [1, -0.6], rtol=0, atol=1e-9)
    np.testing.assert_allclose(values[1, 3], 0, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(similarities(np.ones((2, 3))), 0)
    picture = draw_similarity(vectors, ["one", "two", "three", "four"])
    assert picture != draw_similarity(-vectors[::-1], ["one", "two", "three", "four"])
