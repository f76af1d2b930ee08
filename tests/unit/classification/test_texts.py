"""Lines of text in, lines with labels and probabilities out."""

import io
import itertools
import os
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.predict_texts import (
    TextPredictor,
    check_file,
    predict_file,
    predict_lines,
)
from albert_tf.classification.text_classifier import TextClassifier
from albert_tf.config import AlbertConfig
from albert_tf.data.streams import read_lines
from albert_tf.data.text_examples import Labels
from albert_tf.modeling.models import AlbertForClassification

CLASSES = Labels(("low", "middle", "high"))
LENGTH = 12


class LengthPredictor:
    """Stands in for a model: a sequence of n tokens is of class n % K, or the number n / 8."""

    max_seq_length = LENGTH

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.groups: list[int] = []

    def predict(self, sequences, description):
        self.groups.append(len(sequences))
        if self.labels.is_regression:
            return {"logits": sequences.lengths[:, None].astype(np.float32) / 8}
        classes = np.arange(self.labels.num_outputs)
        likeliest = sequences.lengths[:, None] % len(classes) == classes
        return {"logits": np.where(likeliest, np.float32(np.log(6)), np.float32(0))}


@pytest.fixture
def new_classifier(tokenizer):
    def new(labels: Labels = CLASSES, is_pair: bool = False) -> TextPredictor:
        return TextPredictor(LengthPredictor(labels), tokenizer, labels, is_pair)

    return new


def text_of(num_tokens: int) -> str:
    """A text of so many tokens, special ones not counted."""
    return " ".join(["the"] * num_tokens)


def predicted(classifier: TextPredictor, data: bytes) -> list[str]:
    """The lines of the output for the content of a file."""
    out = io.BytesIO()
    predict_lines(read_lines(io.BytesIO(data)), classifier, out, source="texts")
    assert out.getvalue().endswith(b"\n")
    return out.getvalue().decode().split("\n")[:-1]


def test_texts_have_the_lengths_the_tests_rely_on(tokenizer):
    assert [len(tokenizer.encode(text_of(n))) for n in (1, 4, 10)] == [1, 4, 10]


@pytest.mark.parametrize(
    ("num_tokens", "line"),
    [
        (1, "low\tlow=0.750000\tmiddle=0.125000\thigh=0.125000"),
        (2, "middle\tlow=0.125000\tmiddle=0.750000\thigh=0.125000"),
        (6, "high\tlow=0.125000\tmiddle=0.125000\thigh=0.750000"),
    ],
)
def test_a_line_holds_the_label_and_the_probability_of_every_class(
    new_classifier, num_tokens, line
):
    assert predicted(new_classifier(), text_of(num_tokens).encode()) == [line]


def test_a_line_of_a_regression_is_the_number(new_classifier):
    data = f"{text_of(1)}\n{text_of(7)}\n".encode()
    assert predicted(new_classifier(Labels()), data) == ["0.375", "1.125"]


def test_labels_of_any_characters_can_be_told_apart(new_classifier):
    names = ("a\tb\\", "c\nd=1\r", "\\t", "Größe\ud800")
    (line,) = predicted(new_classifier(Labels(names)), text_of(2).encode())
    label, *fields = line.split("\t")
    assert label == r"a\tb" + "\\\\"
    assert [field.rpartition("=")[0] for field in fields] == [
        r"a\tb" + "\\\\",
        r"c\nd=1\r",
        r"\\t",
        r"Größe\ud800",
    ]
    values = [float(field.rpartition("=")[2]) for field in fields]
    np.testing.assert_allclose(values, [6 / 9, 1 / 9, 1 / 9, 1 / 9], rtol=0, atol=1e-6)


def test_every_line_is_answered_and_nothing_but_a_line_feed_ends_one(new_classifier):
    one, two = text_of(1), text_of(2)
    lines = [f"\ufeff{two}\r", "", f"{one}\u2028{one}\x0b{one}\x85\r{one}", " ", f"{one}\t{one}"]
    classifier = new_classifier(Labels())
    expected = ["0.5", "0.25", "0.75", "0.25", "0.5"]
    for end in ("", "\n"):
        assert predicted(classifier, ("\n".join(lines) + end).encode()) == expected
    assert classifier.num_texts == 10


def test_a_pair_is_two_texts_with_a_tab_between_them(new_classifier):
    classifier = new_classifier(Labels(), is_pair=True)
    one, two = text_of(1), text_of(2)
    lines = [f"{one}\t{two}", f"{two}\t", f"\t{two}", "", "\t", f"{two}\t{two}\r"]
    numbers = [float(line) * 8 for line in predicted(classifier, "\n".join(lines).encode())]
    assert numbers == [1 + 2 + 3, 2 + 2, 0 + 2 + 3, 2, 2, 2 + 2 + 3]


@pytest.mark.parametrize(
    ("bad", "is_pair", "message"),
    [
        (b"caf\xe9", False, r"(the standard input|.*texts.txt).* line 3 .*0xe9"),
        (
            b"no tab",
            True,
            r"(the standard input|.*texts.txt), line 3: expected two texts.*0 tabs: 'no tab'",
        ),
        (b"a\tb\tc", True, r"(the standard input|.*texts.txt), line 3: expected two texts.*2 tabs"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(
    new_classifier, tmp_path, monkeypatch, capsysbinary, bad, is_pair, message
):
    good = b"the\tthe\n"
    data = good * 2 + bad + b"\n" + good
    # From a stream, what came before it is answered.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(ValueError, match=message):
        predict_file("-", new_classifier(is_pair=is_pair))
    assert len(capsysbinary.readouterr().out.splitlines()) == 2
    # A file is looked through first.
    path, output = tmp_path / "texts.txt", tmp_path / "out" / "labels.tsv"
    path.write_bytes(data)
    classifier = new_classifier(is_pair=is_pair)
    with pytest.raises(ValueError, match=message):
        check_file(str(path), is_pair)
    with pytest.raises(ValueError, match=message):
        predict_file(str(path), classifier, str(output))
    assert classifier.num_texts == 0
    # A stream into a file leaves no half of one.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(ValueError, match=message):
        predict_file("-", classifier, str(output))
    assert classifier.num_texts == 2
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["texts.txt"]


def test_a_missing_file_is_named_before_anything_else(tmp_path):
    with pytest.raises(ValueError, match=r"'.*nowhere' does not exist"):
        check_file(str(tmp_path / "nowhere"), False)
    with pytest.raises(ValueError, match=str(tmp_path)):
        check_file(str(tmp_path), False)
    with pytest.raises(ValueError, match=r"'ram://nowhere' does not exist"):
        check_file("ram://nowhere", False)
    check_file("-", False)


def test_files_of_any_place_and_size_are_predicted_in_order(new_classifier, tmp_path):
    """More lines than are predicted at once, and a line longer than what is read at once."""
    sizes = [n % 8 for n in range(2500)]
    lines = [text_of(n) for n in sizes]
    lines[1500] = " " * 600_000 + text_of(4)
    sizes[1500] = 4
    source, target = "ram://text_prediction/texts.txt", tmp_path / "numbers.txt"
    with tf.io.gfile.GFile(source, "wb") as file:
        file.write("\n".join(lines).encode())
    classifier = new_classifier(Labels())
    predict_file(source, classifier, str(target))
    assert [float(line) * 8 - 2 for line in target.read_text().splitlines()] == sizes
    assert classifier._predictor.groups == [1024, 1024, 452]


def test_a_pipe_named_as_a_file_is_read_once(new_classifier, tmp_path):
    reading, writing = os.pipe()
    with open(writing, "wb") as sink:
        sink.write(b"the\nthe the\n")
    predict_file(f"/dev/fd/{reading}", new_classifier(Labels()), str(tmp_path / "numbers"))
    os.close(reading)
    assert (tmp_path / "numbers").read_text() == "0.375\n0.5\n"


class Endless:
    """A source that never ends, and says how much of it was read."""

    def __init__(self) -> None:
        self.reads = itertools.count()
        self.last = 0

    def read1(self, size: int) -> bytes:
        self.last = next(self.reads)
        return b"the the\n" * 512

    read = read1


def test_an_endless_stream_is_answered_until_nobody_reads(new_classifier, monkeypatch):
    source = Endless()
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))
    with open(writing, "w") as sink:
        monkeypatch.setattr(sys, "stdout", sink)
        predict_file("-", new_classifier())
        sink.flush()  # as Python does at its end; nothing may be raised
    assert source.last < 3


def test_each_group_reaches_the_reader_before_the_next_one_is_asked_for(new_classifier):
    out = io.BytesIO()
    buffered = io.BufferedWriter(SimpleRaw(out), 1 << 20)

    def groups():
        yield [b"the"]
        assert out.getvalue().count(b"\n") == 1
        yield [b"the", b"the the"]
        assert out.getvalue().count(b"\n") == 3

    predict_lines(groups(), new_classifier(), buffered, source="texts")
    assert out.getvalue().count(b"\n") == 3


class SimpleRaw(io.RawIOBase):
    """An unbuffered stream that writes into another one."""

    def __init__(self, target: io.BytesIO) -> None:
        self.target = target

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        return self.target.write(bytes(data))


def test_an_empty_file_gives_an_empty_file(new_classifier, tmp_path):
    (tmp_path / "texts.txt").write_bytes(b"")
    predict_file(str(tmp_path / "texts.txt"), new_classifier(), str(tmp_path / "labels.tsv"))
    assert (tmp_path / "labels.tsv").read_bytes() == b""


def test_a_model_says_of_lines_what_it_says_of_their_tokens(tokenizer):
    """One by one and padded by hand, with a real model."""
    keras.utils.set_random_seed(3)
    config = AlbertConfig(
        vocab_size=1000,
        embedding_size=8,
        hidden_size=12,
        num_hidden_layers=3,
        num_hidden_groups=2,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    model = AlbertForClassification(config, 3)
    classifier = TextClassifier(
        model, tokenizer, labels=CLASSES.names, pairs=True, max_seq_length=32, batch_size=1
    )
    pairs = [("the light", "of the"), ("a", "the number of all things"), ("in 1999,", "the\u0301")]
    lines = predicted(classifier, "\n".join(map("\t".join, pairs)).encode())
    for line, (a, b) in zip(lines, pairs, strict=True):
        first = [tokenizer.cls_id, *tokenizer.encode(a), tokenizer.sep_id]
        second = [*tokenizer.encode(b), tokenizer.sep_id]
        ids = [*first, *second]
        features = {
            "input_ids": tf.constant([ids]),
            "segment_ids": tf.constant([[0] * len(first) + [1] * len(second)]),
        }
        expected = tf.nn.softmax(model(features, training=False)["logits"])[0].numpy()
        label, *fields = line.split("\t")
        actual = [float(field.split("=")[1]) for field in fields]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6)
        assert label == CLASSES.names[expected.argmax()]
    assert len({tuple(line.split("\t")[1:]) for line in lines}) == 3
