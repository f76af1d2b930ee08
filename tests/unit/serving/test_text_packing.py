"""Tests for token sequences in graphs, compared with the Python features."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.export import text_inputs
from albert_tf.finetuning.texts import TextExample, text_sequences
from albert_tf.multiple_choice.export import choice_inputs
from albert_tf.multiple_choice.task import choice_features
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.unusual_texts import UNUSUAL_TEXTS, choice_texts, unusual_choices

pytestmark = pytest.mark.usefixtures("eager")
KINDS = ("sentence pieces", "word pieces")


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request, golden, tmp_path_factory):
    if request.param == KINDS[0]:
        return tokenizer_from_files(spm_model_file=golden / "tokenizer" / "small_1000.model")
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "tower", "word", *"abcdex_1,."]
    path.write_text("\n".join([*pieces, *(f"##{letter}" for letter in "abcdex")]) + "\n")
    return tokenizer_from_files(vocab_file=path)


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphTokenizer(tokenizer)


def assert_same(inputs, sequences):
    """Checks that batches are as long as their longest sequence."""
    length = int(sequences.lengths.max(initial=0))
    expected = sequences.padded(np.arange(len(sequences)), length)
    for name, values in expected.items():
        actual = inputs[name].numpy()
        assert actual.dtype == np.int32
        np.testing.assert_array_equal(actual.reshape(len(sequences), -1), values, err_msg=name)


SINGLE = [(text,) for text in UNUSUAL_TEXTS]
PAIRS = list(itertools.product(UNUSUAL_TEXTS, UNUSUAL_TEXTS))


@pytest.mark.parametrize(
    ("rows", "names", "lengths"),
    [(SINGLE, ["texts"], (3, 8, 37, 400)), (PAIRS, ["texts_a", "texts_b"], (5, 6, 11, 37, 700))],
    ids=["single", "pairs"],
)
def test_truncation_equals_python(tokenizer, graph, rows, names, lengths):
    examples = [TextExample("", *row) for row in rows]
    texts = dict(zip(names, map(tf.constant, zip(*rows, strict=True)), strict=True))
    for length in lengths:
        inputs = text_inputs(graph, texts, length)
        assert_same(inputs, text_sequences(examples, tokenizer, length))


def test_empty_batches_have_a_column(graph):
    nothing = tf.constant([], tf.string)
    texts = {"texts_a": nothing, "texts_b": nothing}
    choices = {"contexts": nothing, "questions": nothing, "options": tf.reshape(nothing, [0, 3])}
    for values in text_inputs(graph, texts, 9).values():
        assert values.shape == [0, 1]
    for values in choice_inputs(graph, choices, max_seq_length=9, max_qa_length=4).values():
        assert values.shape == [0, 3, 1]


@pytest.mark.parametrize(("max_seq_length", "max_qa_length"), [(4, 9), (21, 7), (40, 400)])
def test_options_equal_python(tokenizer, graph, max_seq_length, max_qa_length):
    examples = unusual_choices()
    lengths = {"max_seq_length": max_seq_length, "max_qa_length": max_qa_length}
    texts = {name: tf.constant(values) for name, values in choice_texts(examples).items()}
    inputs = choice_inputs(graph, texts, **lengths)
    features = choice_features(examples, tokenizer, **lengths)
    assert inputs["input_ids"].shape[:2] == (len(examples), 4)
    assert_same(inputs, features.sequences)
