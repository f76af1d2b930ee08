"""Exported token classifiers, compared with `TokenClassifier`."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.serving.tokenizer_graph.characters import CodeMap, decode, possible_codes
from albert_tf.token_classification.data import Reading, split_words
from albert_tf.token_classification.export import (
    GraphTagger,
    GraphWords,
    character_classes,
    export_text_token_classifier,
    export_token_classifier,
)
from albert_tf.token_classification.token_classifier import TokenClassifier
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.serving import batch, serve, serve_texts
from tests.small_model import small_config
from tests.unusual_texts import UNUSUAL_TEXTS

# Windows of one repeated word differ only by rounding.
TEXTS = [text for text in UNUSUAL_TEXTS if "word word" not in text] + [
    "ไทย हिन्दी தமிழ் ქართული 한국어 かな カナ ʻokina",
    "e\u0301\u0302 \u00ad soft\u00adhyphen \u00adlead trail\u00ad \ufeffbom",
    "שָׁלוֹם, ‏עולם‎! ١٢٣٫٤",
    " ".join(UNUSUAL_TEXTS[3:12]) * 3,
    "\n".join(UNUSUAL_TEXTS[11:2:-1]) + " The end.",
]
LENGTH = 16
IOBES = Labels(("O", "B-LOC", "I-LOC", "E-LOC", "I-PER", "S-PER"))
IOB2 = Labels(("O", "B-PER", "I-PER", "B-größe", "I-größe"))
PLAIN = Labels(("NOUN", "VERB", "X"))


def new_model(labels, **changes):
    """Returns a model that predicts many different labels."""
    random.seed(7)
    sizes = {"vocab_size": 1000, "num_hidden_layers": 2, "max_position_embeddings": LENGTH}
    model = AlbertForTokenClassification(
        small_config(**{**sizes, **changes}), labels=list(labels.names)
    )
    weights = model.classifier.output_weights
    weights.assign(np.random.default_rng(4).normal(size=weights.shape, scale=0.6))
    return model


def assert_tagged(outputs, tagged, texts):
    """Compares the outputs of a graph with those of `TokenClassifier`."""
    assert {len(values) for values in outputs.values()} == {len(texts)}
    for name, plural, kind in (("word", "words", "label"), ("entity", "entities", "type")):
        rows = [getattr(found, plural) for found in tagged]
        if plural not in outputs:
            assert not any(rows)
            continue

        def column(value, missing, rows=rows):
            width = max(map(len, rows))
            return [[*map(value, row), *[missing] * (width - len(row))] for row in rows]

        def decoded(key):
            return [[text.decode() for text in row] for row in outputs[key]]

        assert decoded(plural) == column(lambda found: found.text, "")
        assert decoded(f"{name}_{kind}s") == column(
            lambda found, kind=kind: getattr(found, kind), ""
        )
        np.testing.assert_allclose(
            outputs[f"{name}_probabilities"],
            column(lambda found: found.probability, 0),
            rtol=0,
            atol=1e-5,
        )
        for edge in ("start", "end"):
            characters = column(lambda found, edge=edge: getattr(found, edge), -1)
            assert outputs[f"{name}_{edge}"].tolist() == characters
            expected = [
                [len(text[:at].encode()) if at >= 0 else -1 for at in row]
                for text, row in zip(texts, characters, strict=True)
            ]
            assert outputs[f"{name}_{edge}_byte"].tolist() == expected


def words_of(texts):
    """Returns the ranges of the words of each text, found in a graph."""
    characters = decode(tf.constant(texts, tf.string))
    words = GraphWords.find(characters, CodeMap(character_classes())(characters.codes))
    found = words.outputs("word")
    starts, ends = found["word_start"].numpy(), found["word_end"].numpy()
    return [
        [(int(a), int(b)) for a, b in zip(*row, strict=True) if a >= 0]
        for row in zip(starts, ends, strict=True)
    ]


def test_graphs_and_python_split_the_same_words():
    random = np.random.default_rng(3)
    codes = np.array(possible_codes())
    near = np.concatenate(
        [np.arange(0x20, 0x250), np.arange(0x590, 0x700), np.arange(0x200B, 0x2040)]
    )
    mixed = ["".join(map(chr, random.choice(near, 40))) for _ in range(50)]
    any_script = ["".join(map(chr, random.choice(codes, 200))) for _ in range(50)]
    texts = [*TEXTS, *mixed, *any_script, "a\ufffdb \ufffd c\x00d\x00"]
    assert words_of(texts) == [split_words(text) for text in texts]
    assert words_of([]) == []
    assert words_of(["", " \n"]) == [[], []]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("sentence piece", IOBES),
        *(pytest.param("word piece", x, marks=pytest.mark.slow) for x in (IOBES, PLAIN)),
    ],
)
@pytest.mark.parametrize("unit", ["word", "character"])
def test_graphs_and_python_predict_the_same(golden, tokenizer, kind, labels, unit):
    if kind == "word piece":
        tokenizer = tokenizer_from_files(spm_model_file=golden / "tokenizer" / "vocab.txt")
    model = new_model(labels, vocab_size=tokenizer.vocab_size)
    tagger = GraphTagger(
        GraphTokenizer(tokenizer),
        tokenizer.unk_id,
        lambda inputs: model(inputs)["logits"],
        labels,
        LENGTH,
        Reading(word_unit=unit),
    )
    classifier = TokenClassifier(model, tokenizer, max_seq_length=LENGTH)
    classifier.reading = Reading(word_unit=unit)
    tagged = classifier(TEXTS)
    if labels is IOBES:  # both types and entities of several words occur
        found = list(itertools.chain.from_iterable(one.entities for one in tagged))
        assert len({entity.type for entity in found}) == 2
        assert any(" " in entity.text for entity in found)
    for part, expected in ((TEXTS, tagged), (TEXTS[5:6], classifier(TEXTS[5:6]))):
        outputs = tagger({"texts": tf.constant(part)})
        outputs = {key: value.numpy() for key, value in outputs.items()}
        assert_tagged(outputs, expected, part)
    outputs = tagger({"texts": tf.constant([], tf.string)})
    assert {value.shape[0] for value in outputs.values()} == {0}


@pytest.mark.slow
def test_a_process_without_this_package_predicts_the_same(tokenizer, tmp_path):
    model = new_model(IOB2)
    text_path = export_text_token_classifier(model, IOB2, tokenizer, str(tmp_path), LENGTH)
    assert Path(text_path).parent == tmp_path / "text"
    requests = [(text_path, {"texts": texts}) for texts in (TEXTS, ["", " "])]
    classifier = TokenClassifier(model, tokenizer, max_seq_length=LENGTH)
    for outputs, (_, asked) in zip(serve_texts(tmp_path, requests), requests, strict=True):
        assert_tagged(outputs, classifier(asked["texts"]), asked["texts"])
    path = export_token_classifier(model, IOB2, str(tmp_path / "ids"))
    for exported in (path, text_path):
        file = Path(exported) / "assets.extra" / "labels.json"
        assert json.loads(file.read_text()) == list(IOB2.names)
        again = albert_tf.load(exported)
        assert type(again) is AlbertForTokenClassification
        assert again.labels == IOB2.names
    features = batch(3, 9)
    features["segment_ids"] *= 0
    wrong = {**features, "input_mask": features["input_mask"][:1]}
    requests = [(path, "tokens", features), (path, "serving_default", features)]
    *answers, error = serve(tmp_path, [*requests, (path, "tokens", wrong)])
    assert "input_mask must have the shape of input_ids" in error
    expected = tf.nn.softmax(model(features)["logits"]).numpy()
    for answer in answers:
        np.testing.assert_allclose(answer["probabilities"], expected, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(answer["predictions"], expected.argmax(axis=-1))
        names = np.vectorize(bytes.decode)(answer["predicted_labels"])
        assert (names == np.array(IOB2.names)[answer["predictions"]]).all()


def test_invalid_arguments_are_rejected_before_writing(tokenizer, tmp_path):
    model, folder = new_model(IOB2), str(tmp_path)
    for export in (
        lambda: export_token_classifier(model, PLAIN, folder),
        lambda: export_text_token_classifier(model, PLAIN, tokenizer, folder, LENGTH),
    ):
        with pytest.raises(ValueError, match="num_labels is 5 in the model"):
            export()
    for length in (2, LENGTH + 1):
        with pytest.raises(ValueError, match=f"`max_seq_length`.*{length}"):
            export_text_token_classifier(model, IOB2, tokenizer, folder, length)
    assert list(tmp_path.iterdir()) == []
