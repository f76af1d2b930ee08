"""`TokenClassifier`, compared with files predicted by the command."""

import io
import json
import random

import numpy as np
import pytest

from albert_tf import AlbertForTokenClassification, TaggedEntity, TaggedWord, TokenClassifier
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.labels import Labels
from albert_tf.token_classification import word_tagger
from albert_tf.token_classification.word_tagger import predict_file
from tests.text_models import CONFIG, assert_rejected, write_model

NAMES = ("O", "B-animal", "B-place", "I-animal", "I-place")
TASK = StoredTask("tokens", Labels(NAMES), False, max_seq_length=16)
WORDS = ("the", "cat", "sat", "on", "a", "mat", ".", "", "и", "\u200b", "extraordinary")


@pytest.fixture(scope="module")
def model():
    random.seed(3)
    return AlbertForTokenClassification(CONFIG, 5)


@pytest.fixture(scope="module")
def directory(model, tokenizer, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trained"), model, tokenizer, TASK)


@pytest.fixture(scope="module")
def sentences():
    random = np.random.default_rng(1)
    lengths = [1, 2, 40, 3, 11, 0, 5, 90, 7]
    return [[str(word) for word in random.choice(WORDS, length)] for length in lengths]


def assert_close(found, expected):
    found, expected = ([word for one in texts for word in one.words] for texts in (found, expected))
    assert [word[:4] for word in found] == [word[:4] for word in expected]
    probabilities = ([word.probability for word in words] for words in (found, expected))
    np.testing.assert_allclose(*probabilities, rtol=0, atol=1e-5)


def test_predictions_do_not_depend_on_order_batches_and_padding(directory, sentences, monkeypatch):
    classifier = TokenClassifier.load(directory, batch_size=3)
    found = classifier(sentences)
    assert [[word.text for word in one.words] for one in found] == sentences
    assert len({word.label for one in found for word in one.words}) > 2
    classifier._predictor.tokens_per_batch = 16
    assert_close(classifier(sentences), found)
    assert_close(classifier(sentences[::-1])[::-1], found)
    assert_close([classifier([sentence])[0] for sentence in sentences], found)
    monkeypatch.setattr(word_tagger, "SENTENCES_AT_ONCE", 2)
    classifier._predictor.padding = "max"
    assert_close(classifier(sentences), found)


def test_texts_get_the_same_numbers_in_memory_on_stdin_and_in_files(
    model, directory, tokenizer, tmp_path, monkeypatch
):
    texts = ["The cat sat, on a mat.", "", " \t ", "и" * 30, "a " * 100, "שלום cat\u200f!", "mat"]
    classifier = TokenClassifier.load(directory)
    found = classifier(texts)
    stream = io.BytesIO("\n".join(texts).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    predict_file("-", classifier, str(tmp_path / "out.jsonl"))
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    rows = [{"text": text} for text in texts]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict_file(str(tmp_path / "rows.jsonl"), classifier, str(tmp_path / "out2.jsonl"))
    for text, one, line in zip(texts, found, lines, strict=True):
        for word in one.words:
            assert text[word.start : word.end] == word.text
        expected = [
            {"start": start, "end": end, "label": kind, "probability": probability}
            for kind, _, start, end, probability in one.entities
        ]
        assert json.loads(line) == {"text": text, "predicted_entities": expected}
        assert [text[entity.start : entity.end] for entity in one.entities] == [
            entity.text for entity in one.entities
        ]
    assert sum(len(one.entities) for one in found) > 3
    again = (tmp_path / "out2.jsonl").read_text().splitlines()
    assert list(map(json.loads, again)) == list(map(json.loads, lines))
    assert classifier(texts[0]) == found[0]


def test_positions_count_words_if_words_are_given(directory, monkeypatch):
    classifier = TokenClassifier.load(directory)
    labels = ["B-animal", "I-animal", "O", "I-place"]
    answer = [(labels, [0.5, 1.0, 0.25, 0.75])]
    monkeypatch.setattr(classifier, "predict_words", lambda rows: answer)
    (found,) = classifier([["New", "cat", ",", "mat"]])
    assert found.words[1] == TaggedWord("cat", 1, 2, "I-animal", 1.0)
    assert found.entities == [
        TaggedEntity("animal", "New cat", 0, 2, 0.75),
        TaggedEntity("place", "mat", 3, 4, 0.75),
    ]
    assert classifier("New cat, mat").entities[0] == TaggedEntity("animal", "New cat", 0, 7, 0.75)


def test_plain_labels_have_no_entities(model, tokenizer):
    classifier = TokenClassifier(model, tokenizer, labels=list("abcde"), max_seq_length=16)
    found = classifier("The cat sat.")
    assert [word.text for word in found.words] == ["The", "cat", "sat", "."]
    assert found.entities == []


def test_words_without_labels_are_context_and_the_reading_is_stored(directory, tmp_path):
    classifier = TokenClassifier.load(directory)
    words = [["the", "cat", "sat", "on"], ["a", "mat"], ["mat"]]
    labels = [["O", None, "O", "B-place"], np.array([None, "B-place"], object), [-100]]
    settings = {"word_unit": "character", "label_scheme": "plain", "train_step": 1}
    assert classifier.fit(words, labels, batch_size=2, verbose=False, **settings)["loss"] > 0
    scores = classifier.evaluate(words, labels)
    found = classifier(words)
    places = [(0, 0), (0, 2), (0, 3), (1, 1)]
    right = [found[i].words[j].label == labels[i][j] for i, j in places]
    assert scores["eval_accuracy"] == pytest.approx(np.mean(right))
    names = [[word.label for word in one.words] for one in found]
    missing = [found[i].words[j].probability for i, j in ((0, 1), (1, 0), (2, 0))]
    filled = [
        [labels[i][j] if (i, j) in places else name for j, name in enumerate(row)]
        for i, row in enumerate(names)
    ]
    whole = classifier.evaluate(words, filled)
    assert whole["eval_accuracy"] == pytest.approx((sum(right) + 3) / 7)
    total = 4 * scores["eval_loss"] - np.log(missing).sum()
    assert whole["eval_loss"] == pytest.approx(total / 7, rel=1e-5)
    classifier.save(tmp_path / "saved")
    again = TokenClassifier.load(tmp_path / "saved")
    assert [word.text for word in again("a cat").words] == ["a", "c", "a", "t"]
    assert (again.scheme, again("a cat").entities) == ("plain", [])
    with pytest.raises(ValueError, match="must contain a label"):
        again.evaluate(words[:1], [[None] * 4])
    with pytest.raises(ValueError, match="cannot find the words of ICU"):
        again.fit(words, labels, word_unit="icu", export_text_model=True, export_dir=tmp_path)


def test_lines_of_standard_input_before_an_error_are_predicted(
    directory, capsysbinary, monkeypatch
):
    stream = io.BytesIO(b"the cat\r\ntwo words\ncaf\xe9\nlast\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    with pytest.raises(ValueError, match=r"the standard input.*line 3"):
        predict_file("-", TokenClassifier.load(directory), None)
    answers = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(answer)["text"] for answer in answers] == ["the cat", "two words"]


def test_invalid_input_is_rejected(model, directory, tokenizer, tmp_path):
    classifier = TokenClassifier.load(directory)
    unlabelled = write_model(tmp_path / "unlabelled", model, tokenizer)
    assert_rejected([
        (lambda: classifier(["a", ["b"]]), TypeError, r"texts\[1\]"),
        (lambda: classifier([["a"], "b"]), TypeError, r"texts\[1\] must be a list of texts"),
        (lambda: classifier("\ud800"), ValueError, "surrogate"),
        (lambda: TokenClassifier(model, tokenizer), ValueError, "name the 5 outputs"),
        (lambda: TokenClassifier(model, tokenizer, labels=list("aabcd")), ValueError, "unique"),
        (lambda: TokenClassifier.load(unlabelled), ValueError, "classifies tokens"),
        (lambda: TokenClassifier.load(directory, new_head=True), ValueError, "require labels"),
        (
            lambda: TokenClassifier(model, tokenizer, labels=NAMES, max_seq_length=2),
            ValueError,
            "`max_seq_length` must be at least 3",
        ),
    ])  # fmt: skip
